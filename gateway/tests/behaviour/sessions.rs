//! Resumed TLS sessions: they save a handshake and authenticate nobody.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::{ClientConfig, HandshakeKind};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::pki::{Authority, client_config};
use crate::world::{Http2, World};

const PATH: &str = "/clusters/root:org/api";

/// Connects and sends a request, so that the session tickets for the next connection arrive.
async fn ask(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> io::Result<(HandshakeKind, u16, Vec<String>)> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await?;
    let kind = stream.get_ref().1.handshake_kind().unwrap();
    let answer = Http2::over(stream).await.get(PATH).await;
    let user = if answer.status == 200 { answer.echoed("x-remote-user") } else { Vec::new() };
    Ok((kind, answer.status, user))
}

/// A TLS library whose sessions lack the client's certificate would resume the second connection as anonymous, or refuse it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_session_is_the_same_client() {
    let world = World::new().await;
    let alice = vec!["x-remote-user: alice".to_owned()];
    let config = client_config(&world.serving_ca, Some(&world.user()), b"h2");
    assert_eq!(ask(world.address, &config).await.unwrap(), (HandshakeKind::Full, 200, alice.clone()));
    for _ in 0..3 {
        assert_eq!(ask(world.address, &config).await.unwrap(), (HandshakeKind::Resumed, 200, alice.clone()));
    }
    // Another client's certificate does not resume the session.
    let bob = client_config(&world.serving_ca, Some(&world.client_ca.client("bob", &[])), b"h2");
    let (kind, _, user) = ask(world.address, &bob).await.unwrap();
    assert_eq!((kind, user), (HandshakeKind::Full, vec!["x-remote-user: bob".to_owned()]));
}

/// The client's certificate is verified for every request, so a session cannot outlive its authority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_session_does_not_outlive_the_authority_of_its_certificate() {
    let world = World::new().await;
    let config = client_config(&world.serving_ca, Some(&world.user()), b"h2");
    ask(world.address, &config).await.unwrap();
    let (kind, code, _) = ask(world.address, &config).await.unwrap();
    assert_eq!((kind, code), (HandshakeKind::Resumed, 200));
    std::fs::write(world.directory.path().join("client-ca.crt"), &Authority::new("successor").pem).unwrap();
    world.environment.reloads.check_now();
    for _ in 0..3 {
        let (_, code, _) = ask(world.address, &config).await.unwrap();
        assert_eq!(code, 401);
    }
    std::fs::write(world.directory.path().join("client-ca.crt"), &world.client_ca.pem).unwrap();
    world.environment.reloads.check_now();
    let (_, code, _) = ask(world.address, &config).await.unwrap();
    assert_eq!(code, 200);
}

/// A new serving certificate replaces the whole TLS configuration, with its ticket keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_does_not_outlive_the_servers_certificate() {
    let world = World::new().await;
    let config = client_config(&world.serving_ca, Some(&world.user()), b"h2");
    ask(world.address, &config).await.unwrap();
    assert_eq!(ask(world.address, &config).await.unwrap().0, HandshakeKind::Resumed);
    world.serving_ca.server().write(world.directory.path(), "tls");
    world.environment.reloads.check_now();
    assert_eq!(ask(world.address, &config).await.unwrap().0, HandshakeKind::Full);
    // A client that does not trust the new certificate cannot resume its session.
    Authority::new("another serving authority").server().write(world.directory.path(), "tls");
    world.environment.reloads.check_now();
    assert!(ask(world.address, &config).await.is_err());
}
