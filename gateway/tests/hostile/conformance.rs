//! h2spec, a conformance suite of others for HTTP/2, against every kind of listener: `make h2spec`.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use fairlead_config::{ListenerConfig, TokenPolicy};
use rustls_pki_types::ServerName;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::process::Command;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use crate::pki::{Authority, client_config};
use crate::world::{Choices, World, local_and_balanced};

/// Number of its cases; all of them have to pass.
const CASES: usize = 146;

/// An answer that does not end by itself: one case wants to disturb a stream that is still open, and would race with a short
/// answer, such as a refusal.
const PATH: &str = "/clusters/root:org/big";

/// On both ways to a shard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the program h2spec: make h2spec"]
async fn every_case_of_h2spec_passes() {
    let world = World::new().await;
    let _old = world.old_workspace().await;
    for path in [PATH, "/clusters/root:old/big"] {
        let port = world.address.port().to_string();
        let arguments = ["--tls", "--insecure", "--host", "127.0.0.1", "--port", &port, "--path", path];
        every_case_passes(path, &arguments).await;
    }
}

/// h2spec shows no certificate and speaks TCP only: what stands between does the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the program h2spec: make h2spec"]
async fn every_case_of_h2spec_passes_at_every_listener() {
    let mut world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    let carriers = Authority::new("carriers");
    let socket = set_listeners(&mut world, &carriers);
    world.start().await;
    let listeners: BTreeMap<_, _> = world.gateway.as_ref().unwrap().listeners.iter().cloned().collect();
    let user = client_config(&world.serving_ca, Some(&world.user()), b"h2");
    let carrier = client_config(&world.serving_ca, Some(&carriers.client("origin-pull", &[])), b"h2");
    let balancer: &[u8] = b"PROXY TCP4 203.0.113.9 192.0.2.1 4660 443\r\n";
    let ways = [
        ("internal", Towards::Address(listeners["internal"]), &b""[..], user.clone()),
        ("edge", Towards::Address(listeners["edge"]), b"", carrier),
        ("admin", Towards::Address(listeners["admin"]), b"", user.clone()),
        ("local", Towards::Socket(socket), b"", user.clone()),
        ("balanced", Towards::Address(listeners["balanced"]), balancer, user),
    ];
    for (name, towards, words, tls) in ways {
        let forwarder = Forwarder::start(Way { towards, words, tls: tls.into() }).await;
        let port = forwarder.address.port().to_string();
        let before = world.alpha.state.big_sent.load(Ordering::SeqCst);
        every_case_passes(name, &["--host", "localhost", "--port", &port, "--path", PATH]).await;
        let answered = world.alpha.state.big_sent.load(Ordering::SeqCst) - before;
        assert!(answered > 0, "{name}: all requests were refused");
    }
}

async fn every_case_passes(what: &str, arguments: &[&str]) {
    let program = std::env::var("H2SPEC").expect("H2SPEC has to name the program h2spec");
    let output = Command::new(&program).args(arguments).args(["--timeout", "3"]).output().await;
    let output = output.expect("H2SPEC cannot be run");
    let text = String::from_utf8_lossy(&output.stdout);
    let expected = format!("{CASES} tests, {CASES} passed, 0 skipped, 0 failed");
    assert!(text.contains(&expected), "{what}:\n{text}");
    println!("h2spec, {what}: {expected}");
}

/// As `b::every_listener` has them, as far as it is about connections. h2spec can send no token, so where only tokens count the
/// anonymous user may do this. Returns where the socket is.
fn set_listeners(world: &mut World, carriers: &Authority) -> PathBuf {
    let directory = world.directory.path().to_owned();
    let path = |name: &str| directory.join(name);
    let anonymous = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "anonymous": {"enabled": true, "conditions": [{"path": PATH}]},
    });
    // JSON is YAML.
    fs::write(path("anonymous.yaml"), anonymous.to_string()).unwrap();
    fs::write(path("ranges"), "127.0.0.0/8\n").unwrap();
    fs::write(path("carriers.crt"), &carriers.pem).unwrap();
    let internal = ListenerConfig { authenticate_before_routing: true, ..world.config.listeners[0].clone() };
    let admin = ListenerConfig {
        name: "admin".to_owned(),
        tokens: TokenPolicy::Refuse,
        admin_page: true,
        ..internal.clone()
    };
    let mut edge = ListenerConfig {
        name: "edge".to_owned(),
        client_ca: None,
        placement_endpoint: false,
        ..admin.clone()
    };
    edge.admin_page = false;
    edge.hosts = vec!["localhost".to_owned()];
    edge.tls.transport_client_ca = Some(path("carriers.crt").into());
    edge.peers.allow = Some(path("ranges").into());
    edge.peers.client_address_header = Some("cf-connecting-ip".to_owned());
    edge.authentication.configuration = Some(path("anonymous.yaml").into());
    edge.deny.groups = vec!["system:masters".to_owned()];
    edge.deny.impersonation = true;
    edge.cache_control_no_store = true;
    let [local, balanced] = local_and_balanced(&internal, &directory, &path("ranges"));
    world.config.listeners = vec![internal, edge, admin, local, balanced];
    path("listener.sock")
}

/// A listener's address and TLS settings, which h2spec cannot handle itself.
#[derive(Clone)]
struct Way {
    towards: Towards,
    /// Bytes sent before TLS.
    words: &'static [u8],
    tls: TlsConnector,
}

#[derive(Clone)]
enum Towards {
    Address(SocketAddr),
    Socket(PathBuf),
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Way {
    /// Passes on every byte and every end. What breaks off here breaks off there, because both are dropped.
    async fn carry(self, mut client: TcpStream) -> std::io::Result<()> {
        let mut listener: Box<dyn Stream> = match self.towards {
            Towards::Address(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Towards::Socket(path) => Box::new(UnixStream::connect(path).await?),
        };
        listener.write_all(self.words).await?;
        let mut listener = self.tls.connect(ServerName::try_from("localhost").unwrap(), listener).await?;
        assert_eq!(listener.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        copy_bidirectional(&mut client, &mut listener).await?;
        Ok(())
    }
}

/// Takes HTTP/2 in clear text to a listener, until it is dropped.
struct Forwarder {
    address: SocketAddr,
    accepting: AbortHandle,
}

impl Forwarder {
    async fn start(way: Way) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                client.set_nodelay(true).unwrap();
                tokio::spawn(way.clone().carry(client));
            }
        });
        Self { address, accepting: accepting.abort_handle() }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
