use std::sync::Arc;

use fairlead_client::{
    Client, ClientOptions, Credentials, Endpoint, Impersonation, Request, Token, TrustRoots,
};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls_pki_types::PrivateKeyDer;

use crate::support::{Pki, Protocols, Server, client, trust};

fn with_client_certificate(pki: &Pki, name: &str) -> Credentials {
    let (chain, key) = pki.client(name);
    trust(pki).with_certificate(chain.as_bytes(), key.as_bytes()).unwrap()
}

#[tokio::test]
async fn new_requests_use_new_credentials_and_open_watches_continue() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let client = client(&pki, server.port, ClientOptions::default());
    let first = with_client_certificate(&pki, "first");
    assert!(client.set_credentials(first.clone()));
    let watching = tokio::spawn({
        let client = client.clone();
        async move { client.watch("/?watch=1").await }
    });
    let call = server.call().await;
    let (old_certificate, old_connection) = (call.client_certificate.clone().unwrap(), call.connection);
    let stream = call.stream();
    let mut watch = watching.await.unwrap().unwrap();

    // The same material again changes nothing.
    assert!(!client.set_credentials(first));
    assert!(client.set_credentials(with_client_certificate(&pki, "second")));
    let request = tokio::spawn({
        let client = client.clone();
        async move { client.get("/").await }
    });
    let call = server.call().await;
    assert_ne!(call.connection, old_connection);
    assert_ne!(call.client_certificate.clone().unwrap(), old_certificate);
    call.reply(200, "");
    request.await.unwrap().unwrap();

    stream.event("ADDED", "{}");
    assert!(watch.next().await.unwrap().is_ok());
}

#[tokio::test]
async fn identity_headers_are_added_unless_the_request_has_its_own() {
    let pki = Pki::new();
    let mut server = Server::start(&pki).await;
    let client = client(&pki, server.port, ClientOptions::default());
    let impersonation = Impersonation { user: "eve".into(), groups: vec!["a".into(), "b".into()] };
    client.set_credentials(
        trust(&pki).with_token(Token::new("s3cret\n")).unwrap().with_impersonation(impersonation).unwrap(),
    );
    let work = tokio::spawn(async move {
        client.get("/").await.unwrap();
        let own = Request::new(http::Method::GET, "/own")
            .with_header(AUTHORIZATION, HeaderValue::from_static("Bearer other"));
        client.request(own).await.unwrap();
    });
    let call = server.expect("GET", "/").await;
    assert_eq!(call.headers["authorization"], "Bearer s3cret");
    assert_eq!(call.headers["impersonate-user"], "eve");
    assert_eq!(call.headers.get_all("impersonate-group").iter().collect::<Vec<_>>(), ["a", "b"]);
    call.reply(200, "");
    let call = server.expect("GET", "/own").await;
    assert_eq!(call.headers.get_all("authorization").iter().collect::<Vec<_>>(), ["Bearer other"]);
    call.reply(200, "");
    work.await.unwrap();
}

#[tokio::test]
async fn the_server_name_of_the_certificate_can_be_set() {
    let pki = Pki::new();
    let mut server = Server::with(&pki, "shard.internal", Protocols::Both).await;
    let client = client(&pki, server.port, ClientOptions::default());
    assert!(client.get("/").await.is_err());
    client.set_credentials(trust(&pki).with_server_name("shard.internal").unwrap());
    let request = tokio::spawn(async move { client.get("/").await });
    server.call().await.reply(200, "");
    request.await.unwrap().unwrap();
}

#[tokio::test]
async fn without_verification_any_certificate_is_accepted() {
    let pki = Pki::new();
    let mut server = Server::with(&pki, "elsewhere", Protocols::Both).await;
    let endpoint = Endpoint::parse(&format!("https://localhost:{}", server.port)).unwrap();
    let client =
        Client::new(endpoint, Credentials::new(TrustRoots::Unverified).unwrap(), ClientOptions::default());
    let request = tokio::spawn(async move { client.get("/").await });
    server.call().await.reply(200, "");
    request.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_trusted_authority_serves_with_its_own_certificate_and_only_with_its_key() {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let trust = Credentials::new(TrustRoots::Pem(certificate.pem().into_bytes())).unwrap();
    for (key, is_accepted) in [(key, true), (KeyPair::generate().unwrap(), false)] {
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let mut server = Server::serving(serving_with(&certificate, &key, version)).await;
            let endpoint = Endpoint::parse(&format!("https://localhost:{}", server.port)).unwrap();
            let client = Client::new(endpoint, trust.clone(), ClientOptions::default());
            let request = tokio::spawn(async move { client.get("/").await });
            if is_accepted {
                server.call().await.reply(200, "");
            }
            assert_eq!(request.await.unwrap().is_ok(), is_accepted, "{version:?}");
        }
    }
}

/// A server with this certificate and a key that need not be its own.
fn serving_with(
    certificate: &rcgen::Certificate,
    key: &KeyPair,
    version: &'static rustls::SupportedProtocolVersion,
) -> rustls::ServerConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let certified = rustls::sign::CertifiedKey::new(
        vec![certificate.der().clone()],
        provider.key_provider.load_private_key(key).unwrap(),
    );
    rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(certified)))
}

#[test]
fn secrets_do_not_show() {
    let pki = Pki::new();
    let credentials = with_client_certificate(&pki, "admin").with_token(Token::new("s3cret")).unwrap();
    let shown = format!("{credentials:?} {:?}", Token::new("s3cret"));
    assert!(!shown.contains("s3cret") && !shown.contains("BEGIN"), "{shown}");
}

#[test]
fn equal_material_makes_equal_credentials() {
    let pki = Pki::new();
    assert!(trust(&pki) == trust(&pki));
    assert!(trust(&pki) != trust(&pki).with_token(Token::new("a")).unwrap());
}

#[test]
fn unusable_credentials_are_reported_without_quoting_them() {
    let pki = Pki::new();
    let (chain, key) = pki.client("a");
    let (_, other_key) = pki.client("b");
    let error = |chain: &str, key: &str| {
        trust(&pki).with_certificate(chain.as_bytes(), key.as_bytes()).unwrap_err().to_string()
    };
    assert!(error("", &key).contains("client certificate"));
    assert_eq!(error(&chain, "hunter2"), "the client key is not usable: it contains no PEM private key");
    assert!(error(&chain, &other_key).contains("not usable"));
    let malformed = trust(&pki).with_token(Token::new("a\nb")).unwrap_err().to_string();
    assert_eq!(malformed, "the token contains characters that cannot be used there");
    assert!(Credentials::new(TrustRoots::Pem(b"junk".to_vec())).is_err());
}
