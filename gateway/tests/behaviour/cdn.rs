//! A content delivery network before a gateway.

use std::net::SocketAddr;
use std::time::Duration;

use fairlead_tests::cdn::{Cdn, CdnOptions};
use rustls_pki_types::ServerName;

use crate::pki::{Authority, Leaf, client_config};
use crate::world::World;

pub use fairlead_tests::cdn::CLIENT;

/// What it does, and where.
pub struct Options {
    pub origin: SocketAddr,
    /// What it shows its origin.
    pub certificate: Option<Leaf>,
    /// How long an answer may pause.
    pub idle: Duration,
    /// Requests at once on one connection to the origin.
    pub streams: usize,
}

/// Before an origin of the world; also, whom its clients have to believe.
pub async fn cdn_before(world: &World, options: Options) -> (Cdn, Authority) {
    let authority = Authority::new("public");
    let Options { origin, certificate, idle, streams } = options;
    let towards_origin = client_config(&world.serving_ca, certificate.as_ref(), b"h2");
    let options = CdnOptions {
        public: authority.server().public_server_config(),
        origin,
        towards_origin: (*towards_origin).clone(),
        origin_name: ServerName::try_from("localhost").unwrap(),
        rewrites_host: false,
        idle,
        streams,
    };
    (Cdn::start(options).await.unwrap(), authority)
}
