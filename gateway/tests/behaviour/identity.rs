//! The user that a shard gets: always that of the certificate, whatever headers the client sends.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::Method;
use parking_lot::Mutex;
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, SignatureScheme};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::pki::{Authority, Leaf, client_config_of};
use crate::world::{Choices, World, request};

const PATH: &str = "/clusters/root:org/api/v1/namespaces";

/// The identity headers of alice at a shard: her groups without the privileged one.
const ALICE: [&str; 3] =
    ["x-remote-group: system:authenticated", "x-remote-group: team", "x-remote-user: alice"];

fn without_credential_id(lines: Vec<String>) -> Vec<String> {
    let (ids, others): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| line.contains("credential-id"));
    assert_eq!(ids.len(), 1);
    assert!(ids[0].starts_with("x-remote-extra-authentication.kubernetes.io%2fcredential-id: X509SHA256="));
    others
}

/// Sends raw HTTP/1.1 and returns the echo of the shard.
async fn raw(world: &World, certificate: Option<&Leaf>, text: &str) -> String {
    let mut stream = world.connect(certificate, b"http/1.1").await;
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_identifies_the_user_and_the_gateway_presents_its_own() {
    let world = World::new().await;
    let answer = world.get(Some(&world.user()), PATH).await;
    let echo = answer.json();
    assert_eq!((&echo["shard"], &echo["peer"]), (&"alpha".into(), &"kcp-front-proxy".into()));
    assert_eq!(echo["version"], "HTTP/2.0");
    assert_eq!(without_credential_id(answer.echoed("x-remote-")), ALICE);
    assert_eq!(answer.echoed("x-forwarded-for"), ["x-forwarded-for: 127.0.0.1"]);
}

/// Remembers what the server says about certificates that it wants, and has none.
#[derive(Debug, Default)]
struct Announced(Mutex<Vec<Vec<u8>>>);

impl ResolvesClientCert for Announced {
    fn resolve(&self, names: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        *self.0.lock() = names.iter().map(|name| name.to_vec()).collect();
        None
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Clients of Go, and browsers, keep certificates of other authorities to themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_handshake_names_the_accepted_certificate_authorities() {
    let world = World::with(Choices {
        config: Some(|config| {
            let listener = &mut config.listeners[0];
            listener.authentication.request_header.client_ca = listener.client_ca.clone();
        }),
        ..Choices::default()
    })
    .await;
    let names = async |protocol: &[u8]| {
        let announced = Arc::<Announced>::default();
        let mut tls = ClientConfig::clone(&client_config_of(&[&world.serving_ca], None, protocol));
        tls.client_auth_cert_resolver = Arc::clone(&announced) as Arc<dyn ResolvesClientCert>;
        let stream = TcpStream::connect(world.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(tls)).connect(name, stream).await.unwrap();
        std::mem::take(&mut *announced.0.lock())
    };
    let is_of = |name: &[u8], authority: &str| String::from_utf8_lossy(name).contains(authority);
    let before = names(b"h2").await;
    assert!(!before.is_empty() && before.iter().all(|name| is_of(name, "clients")), "{before:?}");
    let other = Authority::new("another authority");
    std::fs::write(world.directory.path().join("client-ca.crt"), &other.pem).unwrap();
    world.environment.reloads.check_now();
    let after = names(b"http/1.1").await;
    assert!(!after.is_empty() && after.iter().all(|name| is_of(name, "another authority")), "{after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_identity_headers_never_arrive_over_http2() {
    let world = World::new().await;
    let forged = [
        ("x-remote-user", "root"),
        ("x-remote-group", "system:masters"),
        ("x-remote-group", "system:kcp:admin"),
        ("x-remote-uid", "0"),
        ("x-remote-extra-authentication.kcp.io%2fscopes", "*"),
        ("x_remote_user", "root"),
    ];
    for certificate in [Some(world.user()), None] {
        let client = world.http2(certificate.as_ref()).await;
        let answer = client.send(request(Method::POST, PATH, &forged, "body")).await;
        let arrived = answer.echoed("x-remote-").into_iter().chain(answer.echoed("x_remote")).collect();
        match certificate {
            Some(_) => assert_eq!(without_credential_id(arrived), ALICE),
            None => assert!(arrived.is_empty(), "{arrived:?}"),
        }
        assert_eq!(answer.json()["body"], "body");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_identity_headers_never_arrive_over_http1() {
    let world = World::new().await;
    let alice = world.user();
    let cases = [
        // Plain, in odd cases, repeated.
        "X-Remote-User: root\r\nx-remote-GROUP: system:masters\r\nX-REMOTE-GROUP: b\r\nConnection: close\r\n",
        // The hole that kcp had: our own statement, removed at the client's bidding.
        "Connection: close, X-Remote-User, X-Remote-Group\r\n",
        "Connection: x-remote-extra-authentication.kubernetes.io%2fcredential-id, close\r\n",
        "Connection: close\r\nConnection: X-Remote-User\r\n",
        "Connection: X-Remote-User,close\r\nX-Remote-User: root\r\n",
        "X_Remote_User: root\r\nX-Remote-Uid: 0\r\nConnection: close\r\n",
    ];
    for forged in cases {
        let text = format!("GET {PATH} HTTP/1.1\r\nHost: localhost\r\n{forged}\r\n");
        let answer = raw(&world, Some(&alice), &text).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{forged}: {head}");
        let start = body.find('{').unwrap();
        let end = body.rfind('}').unwrap();
        let echo: serde_json::Value = serde_json::from_str(&body[start..=end]).unwrap();
        let mut lines: Vec<String> = echo["headers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line.as_str().unwrap().to_owned())
            .filter(|line| line.starts_with("x-remote") || line.starts_with("x_remote"))
            .collect();
        lines.sort();
        assert_eq!(without_credential_id(lines), ALICE, "{forged}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_of_a_request_never_arrive() {
    let world = World::new().await;
    let text = format!(
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTrailer: X-Remote-User\r\n\
         Connection: close\r\n\r\n3\r\nabc\r\n0\r\nX-Remote-User: root\r\nX-Remote-Group: system:masters\r\n\r\n"
    );
    let answer = raw(&world, None, &text).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("\"body\":\"abc\""), "{answer}");
    assert!(!answer.to_ascii_lowercase().contains("root\""), "{answer}");
    assert!(!answer.contains("x-remote"), "{answer}");
}

/// A certificate of X.509 version 1, as `openssl x509 -req` makes them: rustls cannot parse it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_cannot_be_parsed_completes_the_handshake() {
    let world = World::new().await;
    // It identifies no user.
    let text = include_str!("version1.pem");
    let odd = Leaf { certificate: text.to_owned(), key: text.to_owned() };
    assert_eq!(world.get(Some(&odd), "/livez").await.status, 200);
    assert_eq!(world.get(Some(&odd), PATH).await.status, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_of_a_read_delay_nothing() {
    let world = World::new().await;
    let (mut client, connection) =
        h2::client::handshake(world.connect(Some(&world.user()), b"h2").await).await.unwrap();
    let driver = tokio::spawn(connection);
    let (response, mut body) =
        client.send_request(request(Method::GET, PATH, &[], "").map(|_| ()), false).unwrap();
    body.send_data("x".into(), false).unwrap();
    body.send_trailers(http::HeaderMap::from_iter([(
        http::HeaderName::from_static("x-remote-user"),
        http::HeaderValue::from_static("root"),
    )]))
    .unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(20), response).await.expect("held up").unwrap();
    assert_eq!(answer.status(), 200);
    driver.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_certificate_the_shard_verifies_the_token() {
    let world = World::new().await;
    let client = world.http2(None).await;
    let headers = [("authorization", "Bearer abc"), ("impersonate-user", "bob")];
    let answer = client.send(request(Method::GET, PATH, &headers, "")).await;
    assert_eq!(answer.echoed("authorization"), ["authorization: Bearer abc"]);
    assert_eq!(answer.echoed("impersonate"), ["impersonate-user: bob"]);
    assert!(answer.echoed("x-remote").is_empty());
    // Beside a certificate it goes along, as kcp does it.
    let client = world.http2(Some(&world.user())).await;
    let answer = client.send(request(Method::GET, PATH, &headers, "")).await;
    assert_eq!(answer.echoed("authorization"), ["authorization: Bearer abc"]);
    assert_eq!(without_credential_id(answer.echoed("x-remote")), ALICE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_certificate_completes_the_handshake_and_gets_401() {
    let world = World::new().await;
    let foreign = Authority::new("elsewhere").client("alice", &["system:masters"]);
    for path in [PATH, "/foo", "/api"] {
        let answer = world.get(Some(&foreign), path).await;
        assert_eq!((answer.status, answer.json()["reason"].as_str()), (401, Some("Unauthorized")), "{path}");
        assert!(answer.headers.contains_key("audit-id"));
    }
    // The workspace is looked up before authentication.
    assert_eq!(world.get(Some(&foreign), "/clusters/root:nope:x/api").await.status, 403);
    let expired = world.client_ca.client_until("alice", SystemTime::now() - Duration::from_secs(60));
    assert_eq!(world.get(Some(&expired), PATH).await.status, 401);
}
