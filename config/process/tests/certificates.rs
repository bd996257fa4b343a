//! Client certificates that are accepted, and replacement of serving certificates.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::sync::Arc;

use common::{Pki, TestServer, get, h2_over, reply, text};
use fairlead_process::{ConnectionInfo, RequestBody};
use http::Request;
use rustls::HandshakeKind;
use rustls::client::ResolvesClientCert;
use rustls::crypto::aws_lc_rs;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Responds with the number of certificates that the peer presented and the length of the first.
fn start() -> TestServer {
    TestServer::start(async |request: Request<RequestBody>| {
        let info = request.extensions().get::<ConnectionInfo>().unwrap();
        let chain = info.tls().0.as_ref().map_or(0, |chain| chain.len());
        reply(format!("{chain} {}", info.tls().leaf().map_or(0, |leaf| leaf.len())))
    })
}

#[tokio::test]
async fn no_certificate_and_any_certificate_are_accepted_and_passed_on() {
    let server = start();
    assert_eq!(text(server.http2().await.send_request(get("/")).await.unwrap()).await, "0 0");

    let ((_, foreign), key) = Pki::new().issue();
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let client = server.pki.client_with_certificate(version, foreign.clone(), &key);
        // The second time the session is resumed and the chain comes out of the ticket.
        for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let stream = server.connect(&client).await.unwrap();
            let kind = stream.get_ref().1.handshake_kind().unwrap();
            let response = text(h2_over(stream).await.send_request(get("/")).await.unwrap()).await;
            assert_eq!((response, kind), (format!("1 {}", foreign.len()), expected), "{version:?}");
        }
    }
}

/// Presents a certificate without having its key.
#[derive(Debug)]
struct Thief(Arc<CertifiedKey>);

impl ResolvesClientCert for Thief {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_certificate_without_its_key_is_refused() {
    let server = start();
    let ((_, stolen), _) = server.pki.issue();
    let (_, own_key) = server.pki.issue();
    let key = PrivateKeyDer::from_pem_slice(own_key.as_bytes()).unwrap();
    let key = aws_lc_rs::sign::any_supported_type(&key).unwrap();
    let thief = Arc::new(Thief(Arc::new(CertifiedKey::new(vec![stolen], key))));
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let mut client = server.pki.roots(&[version]).with_client_cert_resolver(Arc::clone(&thief) as _);
        client.alpn_protocols = vec![b"h2".to_vec()];
        // With TLS 1.3 the client sees the failure only when it uses the connection.
        let refused = match server.connect(&Arc::new(client)).await {
            Err(_) => true,
            Ok(stream) => h2_over(stream).await.send_request(get("/")).await.is_err(),
        };
        assert!(refused, "{version:?}");
    }
    let failed = server.metric("fairlead_tls_handshakes_total{listener=\"test\",result=\"failed\"}");
    assert_eq!(failed, Some(2.0));
}

#[tokio::test]
async fn a_new_certificate_serves_new_connections_and_open_ones_stay() {
    let server = start();
    let client = server.pki.client(&[b"h2"]);
    let presented = |stream: &tokio_rustls::client::TlsStream<_>| -> CertificateDer<'static> {
        stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
    };
    let stream = server.connect(&client).await.unwrap();
    let old = presented(&stream);
    let mut open = h2_over(stream).await;
    open.send_request(get("/")).await.unwrap();

    let new = server.pki.issue_serving();
    assert_ne!(old, new);
    server.reloads.check_now();

    // The client has a ticket of the old configuration, which the new one does not accept.
    let stream = server.connect(&client).await.unwrap();
    assert_eq!(
        (presented(&stream), stream.get_ref().1.handshake_kind()),
        (new.clone(), Some(HandshakeKind::Full))
    );
    h2_over(stream).await.send_request(get("/")).await.unwrap();
    open.send_request(get("/")).await.unwrap();

    // A half-written pair is not loaded.
    std::fs::write(server.pki.dir.path().join("tls.key"), Pki::new().issue().1).unwrap();
    server.reloads.check_now();
    let stream = server.connect(&server.pki.client(&[b"h2"])).await.unwrap();
    assert_eq!(presented(&stream), new);
    let failures = server.metric("fairlead_reload_total{object=\"serving certificate\",result=\"failure\"}");
    assert_eq!(failures, Some(1.0));
}

#[tokio::test]
async fn unusable_certificate_files_are_named() {
    let server = start();
    let dir = server.pki.dir.path();
    let source = |certificate: &str, private_key: &str| fairlead_process::TlsSource {
        client_certificates: fairlead_process::ClientCertificates::NotRequested,
        alpn: Vec::new(),
        ..fairlead_process::TlsSource::new(dir.join(certificate), dir.join(private_key))
    };
    std::fs::write(dir.join("other.key"), Pki::new().issue().1).unwrap();
    for (certificate, key, expected) in [
        ("none", "tls.key", format!("the certificate file {} cannot be read", dir.join("none").display())),
        ("tls.key", "tls.key", format!("the file {} has no PEM certificate", dir.join("tls.key").display())),
        (
            "tls.crt",
            "tls.crt",
            format!("the private key file {} cannot be read", dir.join("tls.crt").display()),
        ),
        (
            "tls.crt",
            "other.key",
            format!(
                "the certificate {} cannot be used with the key {}",
                dir.join("tls.crt").display(),
                dir.join("other.key").display()
            ),
        ),
    ] {
        assert_eq!(source(certificate, key).load().unwrap_err().to_string(), expected);
    }
}
