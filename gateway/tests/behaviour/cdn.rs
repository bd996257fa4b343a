//! A content delivery network (CDN) in front of a gateway.

use std::net::SocketAddr;
use std::time::Duration;

use fairlead_tests::cdn::{Cdn, CdnOptions};
use rustls_pki_types::ServerName;

use crate::pki::{Authority, Leaf, client_config};
use crate::world::World;

pub use fairlead_tests::cdn::CLIENT;

/// Options of the CDN.
pub struct Options {
    pub origin: SocketAddr,
    /// The client certificate that the CDN presents to its origin.
    pub certificate: Option<Leaf>,
    /// The longest pause in a response that the CDN tolerates.
    pub idle: Duration,
    /// Maximum number of concurrent requests on one connection to the origin.
    pub streams: usize,
}

/// Starts a CDN in front of an origin of the world. Also returns the authority that clients of the CDN have to trust.
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
