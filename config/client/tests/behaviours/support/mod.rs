//! A PKI, a server whose responses the test writes, and a network connection that can be cut or frozen.

mod pki;
mod server;
mod wire;

pub use pki::Pki;
pub use server::{Protocols, Server};
pub use wire::Wire;

use std::time::Duration;

use fairlead_client::{Client, ClientOptions, Credentials, Endpoint, TrustRoots};

/// A client that trusts the server of this PKI at a port of the loopback.
pub fn client(pki: &Pki, port: u16, options: ClientOptions) -> Client {
    let endpoint = Endpoint::parse(&format!("https://localhost:{port}")).unwrap();
    Client::new(endpoint, trust(pki), options)
}

pub fn trust(pki: &Pki) -> Credentials {
    Credentials::new(TrustRoots::Pem(pki.ca_pem())).unwrap()
}

/// Notices a silent peer soon.
pub fn impatient() -> ClientOptions {
    ClientOptions {
        ping_interval: Duration::from_millis(50),
        ping_timeout: Duration::from_millis(100),
        ..ClientOptions::default()
    }
}
