//! Every credential with every forged header at every kind of listener: the user and the other headers that the shard receives.
//! The test prints the table.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use fairlead_config::{ListenerConfig, OidcConfig, TokenPolicy};
use http::Method;
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::authentication::{robot, robots_key};
use crate::cdn::{self, Options, cdn_before};
use crate::issuer::server::Server;
use crate::issuer::signing::Signer;
use crate::pki::{Authority, Leaf, client_config};
use crate::tokens::{claims, serve};
use crate::world::{Answer, Choices, Http2, ORG, World, local_and_balanced, request};

const PATH: &str = "/clusters/root:org/api";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Listener {
    /// Every authentication method, including client certificates.
    Internal,
    /// Behind a CDN, tokens only.
    Edge,
    /// Client certificates only, and authentication before routing.
    Admin,
    /// Like `Internal`, on a Unix socket.
    Local,
    /// Like `Internal`, behind a load balancer that sends the PROXY protocol.
    Balanced,
}

const LISTENERS: [Listener; 5] =
    [Listener::Internal, Listener::Edge, Listener::Admin, Listener::Local, Listener::Balanced];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Credential {
    Nothing,
    GoodToken,
    BadToken,
    TokenOfRefusedUser,
    TokenOfRefusedGroup,
    TokenOfIssuer,
    ExpiredToken,
    ServiceAccount,
    TokenOfWebSocket,
    Certificate,
    CertificateAndBadToken,
    ForeignCertificate,
    FrontProxy,
}

const CREDENTIALS: [Credential; 13] = [
    Credential::Nothing,
    Credential::GoodToken,
    Credential::BadToken,
    Credential::TokenOfRefusedUser,
    Credential::TokenOfRefusedGroup,
    Credential::TokenOfIssuer,
    Credential::ExpiredToken,
    Credential::ServiceAccount,
    Credential::TokenOfWebSocket,
    Credential::Certificate,
    Credential::CertificateAndBadToken,
    Credential::ForeignCertificate,
    Credential::FrontProxy,
];

/// Headers that a client may send in addition to its credential, to forge an identity or an address.
const TRICKS: [(&str, &[(&str, &str)]); 8] = [
    ("none", &[]),
    (
        "X-Remote-*",
        &[("x-remote-user", "root"), ("x-remote-group", "system:masters"), ("x-remote-extra-a", "b")],
    ),
    ("with underscores", &[("x_remote_user", "root"), ("x_remote_group", "system:masters")]),
    ("X-Remote-Uid", &[("x-remote-uid", "0")]),
    (
        "address",
        &[
            ("cf-connecting-ip", "10.0.0.1"),
            ("cf_connecting_ip", "10.0.0.1"),
            ("forwarded", "for=10.0.0.1"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x-real-ip", "10.0.0.1"),
        ],
    ),
    (
        "Client-Cert",
        &[("client-cert", ":MIIB:"), ("cf-client-cert-der-base64", "MIIB"), ("x-client-verify", "SUCCESS")],
    ),
    ("Impersonate-User", &[("impersonate-user", "root")]),
    ("impersonate_user", &[("impersonate_user", "root")]),
];

/// Headers in which proxies describe clients. A listener that trusts one of them forwards none of them.
const WORDS: [&str; 7] = [
    "cf-client-cert-der-base64",
    "cf-connecting-ip",
    "cf_connecting_ip",
    "client-cert",
    "forwarded",
    "x-client-verify",
    "x-real-ip",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_credential_with_every_forged_header_at_every_listener() {
    let scene = Scene::set().await;
    let mut table = format!("{:24} {:18}", "credential", "trick");
    LISTENERS.iter().for_each(|listener| table.push_str(&format!("{:45} ", format!("{listener:?}"))));
    table.push('\n');
    let mut faults = Vec::new();
    for credential in CREDENTIALS {
        for (trick, fields) in TRICKS {
            table.push_str(&format!("{:24} {trick:18}", format!("{credential:?}")));
            for listener in LISTENERS {
                let found = outcome(&scene.ask(listener, credential, fields).await);
                table.push_str(&format!("{found:45} "));
                let expected = expected(listener, credential, trick);
                if found != expected {
                    faults
                        .push(format!("{listener:?}, {credential:?}, {trick}: {found:?}, not {expected:?}"));
                }
            }
            table.push('\n');
        }
    }
    println!("{table}");
    assert!(faults.is_empty(), "{}\n{table}", faults.join("\n"));
}

fn expected(listener: Listener, credential: Credential, trick: &str) -> String {
    let acts = trick == "Impersonate-User";
    if listener == Listener::Edge && (acts || trick == "impersonate_user") {
        return "403".to_owned();
    }
    let who = match who(listener, credential) {
        // The front proxy is trusted to send these headers, but two user headers are refused.
        Ok("dora") if trick == "X-Remote-*" => return "401".to_owned(),
        Ok(who) => who,
        Err(code) => return code.to_string(),
    };
    let from = match listener {
        Listener::Balanced => "203.0.113.9",
        _ => "127.0.0.1",
    };
    let is_carried = listener == Listener::Edge;
    let from = if trick == "address" && !is_carried { format!("10.0.0.1, {from}") } else { from.to_owned() };
    let words = match trick {
        "address" if !is_carried => " and forwarded x-real-ip",
        "Client-Cert" if !is_carried => " and cf-client-cert-der-base64 client-cert x-client-verify",
        _ => "",
    };
    format!("{who}{}, from {from}{words}", if acts { ", as root" } else { "" })
}

/// The user and groups that the shard receives, or the status code.
fn who(listener: Listener, credential: Credential) -> Result<&'static str, u16> {
    use Credential::{
        Certificate, CertificateAndBadToken, FrontProxy, GoodToken, ServiceAccount, TokenOfIssuer,
        TokenOfRefusedGroup, TokenOfRefusedUser, TokenOfWebSocket,
    };
    match (listener, credential) {
        (Listener::Edge, TokenOfRefusedUser | TokenOfRefusedGroup | ServiceAccount) => Err(403),
        // The CDN does not forward the client's certificate.
        (Listener::Edge, Certificate | CertificateAndBadToken | FrontProxy) => Err(401),
        (_, Certificate | CertificateAndBadToken) => Ok("alice,team"),
        (Listener::Admin, _) => Err(401),
        (_, GoodToken | TokenOfWebSocket) => Ok("bob,team"),
        (_, TokenOfRefusedUser) => Ok("system:admin"),
        (_, TokenOfRefusedGroup) => Ok("lea,system:kcp:leads"),
        (_, TokenOfIssuer) => Ok("ann"),
        (_, ServiceAccount) => {
            Ok("system:serviceaccount:default:robot,system:serviceaccounts,system:serviceaccounts:default")
        }
        (_, FrontProxy) => Ok("dora"),
        _ => Err(401),
    }
}

/// The user and the further headers that the shard received, or the status code.
fn outcome(answer: &Answer) -> String {
    if answer.status != 200 {
        return answer.status.to_string();
    }
    let value = |line: &String| line.split_once(": ").unwrap().1.to_owned();
    let values = |name: &str| answer.echoed(&format!("{name}:")).iter().map(value).collect::<Vec<_>>();
    // All X-Remote-* headers are the gateway's own: one user, the groups and the attributes of the credential.
    let (users, mut groups) = (values("x-remote-user"), values("x-remote-group"));
    let extras = answer.echoed("x-remote-extra-authentication.k").len();
    let count = answer.echoed("x-remote-").len() + answer.echoed("x_remote").len();
    assert_eq!((users.len(), count), (1, 1 + groups.len() + extras), "{answer:?}");
    groups.retain(|group| group != "system:authenticated");
    let acts = values("impersonate-user").iter().map(|user| format!(", as {user}")).collect::<String>();
    let words: Vec<_> = WORDS.into_iter().filter(|word| !values(word).is_empty()).collect();
    let words = if words.is_empty() { String::new() } else { format!(" and {}", words.join(" ")) };
    let who = [users, groups].concat().join(",");
    format!("{who}{acts}, from {}{words}", values("x-forwarded-for").join("; "))
}

struct Scene {
    world: World,
    listeners: BTreeMap<String, SocketAddr>,
    socket: PathBuf,
    cdn: fairlead_tests::cdn::Cdn,
    public: Authority,
    tokens: Tokens,
    _issuer: Server,
}

/// Signed tokens.
struct Tokens {
    of_issuer: String,
    expired: String,
    of_robot: String,
}

impl Scene {
    async fn set() -> Self {
        let mut world = World::with(Choices { stopped: true, ..Choices::default() }).await;
        let provider = Authority::new("provider");
        let (issuer, signer) = (Server::start().await, Signer::elliptic_curve("P-256", "one"));
        serve(&issuer, &[&signer]);
        let socket = set_listeners(&mut world, &provider, &issuer);
        let (key, file) = robots_key(&world);
        for listener in &mut world.config.listeners {
            if listener.name != "admin" {
                listener.authentication.service_accounts.key_files = vec![file.clone()];
            }
        }
        let object = json!({"metadata": {"name": "robot", "namespace": "default", "uid": "u-1"}});
        world.alpha.state.put("serviceaccounts", "robot", object);
        world.start().await;
        let listeners: BTreeMap<_, _> = world.gateway.as_ref().unwrap().listeners.iter().cloned().collect();
        let options = Options {
            origin: listeners["edge"],
            certificate: Some(provider.client("origin-pull", &["system:masters"])),
            idle: Duration::from_secs(20),
            streams: 100,
        };
        let (cdn, public) = cdn_before(&world, options).await;
        let tokens = Tokens {
            of_issuer: signer.sign(&claims(&issuer, -60, 600, "good")),
            expired: signer.sign(&claims(&issuer, -600, -60, "over")),
            of_robot: robot(&key, ORG),
        };
        Self { world, listeners, socket, cdn, public, tokens, _issuer: issuer }
    }

    async fn ask(&self, listener: Listener, credential: Credential, trick: &[(&str, &str)]) -> Answer {
        let world = &self.world;
        let certificate = match credential {
            Credential::Certificate | Credential::CertificateAndBadToken => Some(world.user()),
            Credential::ForeignCertificate => Some(world.serving_ca.client("stranger", &["system:masters"])),
            Credential::FrontProxy => Some(world.front_proxy_ca.client("kcp-front-proxy", &[])),
            _ => None,
        };
        let bearer = match credential {
            Credential::GoodToken => "good",
            Credential::BadToken | Credential::CertificateAndBadToken => "bad",
            Credential::TokenOfRefusedUser => "admin",
            Credential::TokenOfRefusedGroup => "lead",
            Credential::TokenOfIssuer => &self.tokens.of_issuer,
            Credential::ExpiredToken => &self.tokens.expired,
            Credential::ServiceAccount => &self.tokens.of_robot,
            _ => "",
        };
        let bearer = format!("Bearer {bearer}");
        let offer = format!(
            "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.{}",
            URL_SAFE_NO_PAD.encode("good")
        );
        let mut fields = match credential {
            _ if bearer != "Bearer " => vec![("authorization", bearer.as_str())],
            Credential::TokenOfWebSocket => vec![
                ("host", "localhost"),
                ("connection", "Upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-protocol", offer.as_str()),
            ],
            Credential::FrontProxy => vec![("x-remote-user", "dora")],
            _ => Vec::new(),
        };
        fields.extend_from_slice(trick);
        let asked = request(Method::GET, PATH, &fields, "");
        let is_websocket = credential == Credential::TokenOfWebSocket;
        let stream = self.connect(listener).await;
        let authority = if listener == Listener::Edge { &self.public } else { &world.serving_ca };
        send(stream, authority, certificate.as_ref(), asked, is_websocket).await
    }

    /// Opens a connection without TLS, and sends the PROXY protocol header where the listener requires it.
    async fn connect(&self, listener: Listener) -> Box<dyn Stream> {
        let tcp = async |address| TcpStream::connect(address).await.unwrap();
        match listener {
            Listener::Internal => Box::new(tcp(self.listeners["internal"]).await),
            Listener::Edge => Box::new(tcp(self.cdn.address()).await),
            Listener::Admin => Box::new(tcp(self.listeners["admin"]).await),
            Listener::Local => Box::new(UnixStream::connect(&self.socket).await.unwrap()),
            Listener::Balanced => {
                let mut stream = tcp(self.listeners["balanced"]).await;
                stream.write_all(b"PROXY TCP4 203.0.113.9 192.0.2.1 4660 443\r\n").await.unwrap();
                Box::new(stream)
            }
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

async fn send(
    stream: Box<dyn Stream>,
    authority: &Authority,
    certificate: Option<&Leaf>,
    asked: http::Request<Full<Bytes>>,
    is_websocket: bool,
) -> Answer {
    let protocol: &[u8] = if is_websocket { b"http/1.1" } else { b"h2" };
    let tls = TlsConnector::from(client_config(authority, certificate, protocol));
    let stream = TokioIo::new(tls.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap());
    if is_websocket {
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let (mut head, body) = asked.into_parts();
        head.uri = PATH.parse().unwrap();
        return Answer::of(sender.send_request(http::Request::from_parts(head, body)).await.unwrap()).await;
    }
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    Http2::from(sender).send(asked).await
}

/// Configures all listeners. Returns the path of the Unix socket.
fn set_listeners(world: &mut World, provider: &Authority, issuer: &Server) -> PathBuf {
    let directory = world.directory.path().to_owned();
    let path = |name: &str| directory.join(name);
    fs::write(
        path("tokens.csv"),
        "good,bob,7,\"team\"\nadmin,system:admin,8\nlead,lea,9,\"system:kcp:leads\"\n",
    )
    .unwrap();
    fs::write(path("ranges"), "127.0.0.0/8\n").unwrap();
    fs::write(path("origin-pull-ca.crt"), &provider.pem).unwrap();
    fs::write(path("issuer-ca.crt"), &issuer.certificate_authority).unwrap();
    fs::write(path("proxies.crt"), &world.front_proxy_ca.pem).unwrap();
    let oidc = OidcConfig {
        issuer_url: issuer.url(),
        client_id: "client".to_owned(),
        ca_file: Some(path("issuer-ca.crt").into()),
        username_prefix: "-".to_owned(),
        signing_algorithms: vec!["ES256".to_owned()],
        ..OidcConfig::default()
    };
    let admin = ListenerConfig {
        name: "admin".to_owned(),
        tokens: TokenPolicy::Refuse,
        authenticate_before_routing: true,
        admin_page: true,
        ..world.config.listeners[0].clone()
    };
    let mut tokens =
        ListenerConfig { client_ca: None, placement_endpoint: false, ..world.config.listeners[0].clone() };
    tokens.authentication.token_file = Some(path("tokens.csv").into());
    tokens.authentication.oidc = Some(oidc);
    let mut internal = ListenerConfig { client_ca: admin.client_ca.clone(), ..tokens.clone() };
    internal.authentication.request_header.client_ca = Some(path("proxies.crt").into());
    internal.authentication.request_header.allowed_names = vec!["kcp-front-proxy".to_owned()];
    let mut edge = ListenerConfig { name: "edge".to_owned(), ..tokens };
    edge.hosts = vec!["localhost".to_owned()];
    edge.tls.transport_client_ca = Some(path("origin-pull-ca.crt").into());
    edge.peers.allow = Some(path("ranges").into());
    edge.peers.client_address_header = Some(cdn::CLIENT.to_owned());
    edge.tokens = TokenPolicy::Refuse;
    edge.authenticate_before_routing = true;
    edge.authentication.drop_groups = Vec::new();
    edge.deny.users = vec!["system:*".to_owned()];
    edge.deny.groups = vec!["system:masters".to_owned(), "system:kcp:*".to_owned()];
    edge.deny.impersonation = true;
    edge.cache_control_no_store = true;
    let [local, balanced] = local_and_balanced(&internal, &directory, &path("ranges"));
    world.config.listeners = vec![internal, edge, admin, local, balanced];
    path("listener.sock")
}
