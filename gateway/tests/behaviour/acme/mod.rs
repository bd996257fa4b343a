//! Listeners with certificates of an ACME authority: both challenges, renewal before the expiry, and a provisional certificate
//! until the first one is issued.

mod authority;
mod pebble;
mod validate;

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairlead_config::{AcmeChallenge, ExternalAccountConfig, GatewayConfig, ListenerAcmeConfig};
use fairlead_gateway::{Environment, Gateway};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use crate::pki::client_config_of;
use crate::world::{Choices, PATIENCE, SecondGateway, World, environment, eventually, until};
use authority::{Authority, Failure, Ports};

const PATH: &str = "/clusters/root:org/api";

/// A world with an authority.
struct Site {
    world: World,
    authority: Authority,
    http: u16,
}

impl Site {
    async fn new() -> Self {
        let world = World::with(Choices { stopped: true, ..Choices::default() }).await;
        let authority = Authority::start(&world.serving_ca).await;
        let http = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        Self { world, authority, http }
    }

    fn folder(&self) -> PathBuf {
        self.world.directory.path().join("acme")
    }

    /// Starts a gateway whose first listener has a certificate of the authority, and whose second one does not.
    async fn gateway(
        &self,
        challenge: AcmeChallenge,
        change: impl FnOnce(&mut GatewayConfig),
    ) -> SecondGateway {
        let config = self.config(challenge, change);
        let environment = environment();
        let gateway = Gateway::start(config, &environment).unwrap();
        gateway.ready().await;
        keep_fresh(&environment);
        let address = gateway.listeners[0].1;
        let another = SecondGateway { gateway, environment, address };
        self.authority.state.ports.send_if_modified(|ports| {
            let is_first = ports.is_none();
            *ports = Some(Ports { http: self.http, tls: address.port() });
            is_first
        });
        another
    }

    fn config(&self, challenge: AcmeChallenge, change: impl FnOnce(&mut GatewayConfig)) -> GatewayConfig {
        let mut config = self.world.config.clone();
        config.acme.directory_url = Some(self.authority.directory().parse().unwrap());
        config.acme.terms_agreed = true;
        config.acme.contact = vec!["mailto:ops@example.com".to_owned()];
        config.acme.ca_file = Some(self.world.directory.path().join("serving-ca.crt").into());
        config.acme.folder = self.folder().into();
        config.acme.retry_after = "50ms".parse().unwrap();
        config.acme.http_address = Some((Ipv4Addr::LOCALHOST, self.http).into());
        let mut other = config.listeners[0].clone();
        other.name = "other".to_owned();
        let listener = &mut config.listeners[0];
        listener.hosts = vec!["localhost".to_owned()];
        listener.tls.acme = Some(ListenerAcmeConfig { challenge });
        config.listeners.push(other);
        change(&mut config);
        config
    }

    fn requests(&self) -> authority::AuthorityRequests {
        self.authority.state.requests.borrow().clone()
    }

    fn set(&self, failure: Failure) {
        self.authority.state.behaviour.lock().failure = failure;
    }

    async fn issued(&self, count: usize) {
        until(&self.authority.state.requests, |requests| requests.issued >= count).await;
    }

    /// Whether a client that trusts the authority gets a response at the listener.
    async fn is_trusted(&self, gateway: &SecondGateway) -> bool {
        let user = self.world.user();
        let connector =
            tokio_rustls::TlsConnector::from(client_config_of(&[&self.authority.root], Some(&user), b"h2"));
        let stream = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
        let Ok(stream) = connector.connect("localhost".try_into().unwrap(), stream).await else {
            return false;
        };
        crate::world::Http2::over(stream).await.get(PATH).await.status == 200
    }

    async fn until_trusted(&self, gateway: &SecondGateway) {
        let patience = Duration::from_secs(60);
        let waiting = async { while !self.is_trusted(gateway).await {} };
        tokio::time::timeout(patience, waiting).await.expect("the listener never presents its certificate");
    }

    /// The certificate that the listener presents.
    async fn leaf(&self, gateway: &SecondGateway) -> Vec<u8> {
        validate::handshake(gateway.address.port(), "localhost", &[b"h2"]).await.unwrap().leaf.to_vec()
    }
}

/// Runs the reloads as the process does.
fn keep_fresh(environment: &Environment) {
    tokio::spawn(environment.reloads.clone().run(environment.shutdown.clone()));
}

fn metrics(gateway: &SecondGateway) -> String {
    String::from_utf8(gateway.environment.metrics.text().unwrap().into()).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_gets_a_certificate_by_either_challenge_and_opens_before_it_has_one() {
    for challenge in [AcmeChallenge::TlsAlpn01, AcmeChallenge::Http01] {
        let site = Site::new().await;
        site.set(Failure::Down);
        let gateway = site.gateway(challenge, |_| ()).await;
        until(&site.authority.state.requests, |requests| requests.orders >= 2).await;
        // The listener is open with a provisional certificate, and the other listener is not affected.
        assert!(!site.is_trusted(&gateway).await, "{challenge:?}");
        let user = site.world.user();
        let address = gateway.gateway.listeners[1].1;
        let other = crate::world::connect(address, &site.world.serving_ca, Some(&user), b"h2");
        assert_eq!(crate::world::Http2::over(other.await.unwrap()).await.get(PATH).await.status, 200);

        // Failed challenges yield no certificate either.
        site.set(Failure::FailedChallenges);
        until(&site.authority.state.requests, |requests| requests.refused >= 2).await;
        assert_eq!(site.requests().issued, 0);
        site.set(Failure::None);
        site.until_trusted(&gateway).await;
        let requests = site.requests();
        assert_eq!((requests.accounts, requests.issued), (1, 1), "{challenge:?}: {requests:?}");
        assert_eq!(requests.contact, serde_json::json!(["mailto:ops@example.com"]));

        let text = metrics(&gateway);
        let value = |name: &str| -> f64 {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_else(|| panic!("{name}: {text}"));
            line.trim().parse().unwrap()
        };
        let attempts = |result: &str| {
            value(&format!(
                "fairlead_gateway_acme_attempts_total{{listener=\"internal\",result=\"{result}\"}}"
            ))
        };
        assert_eq!(attempts("success"), 1.0);
        assert!(attempts("failure") >= 4.0);
        assert!(value("fairlead_gateway_acme_last_attempt_timestamp_seconds{listener=\"internal\"}") > 0.0);
        assert!(
            text.contains("fairlead_gateway_acme_certificate_end_timestamp_seconds{listener=\"internal\"}")
        );

        // Private files have private modes, and no challenge remains.
        let folder = site.folder();
        assert_eq!((mode(&folder), mode(&folder.join("internal.pem"))), (0o700, 0o600));
        let accounts = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let accounts: Vec<_> =
            accounts.filter(|path| path.extension().is_some_and(|kind| kind == "json")).collect();
        assert_eq!(accounts.len(), 1);
        assert_eq!(mode(&accounts[0]), 0o600);
        assert_eq!(fs::read_dir(folder.join("challenges")).unwrap().count(), 0);
        gateway.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_renewed_before_it_expires_and_stays_until_a_valid_one_is_issued() {
    let site = Site::new().await;
    site.authority.state.behaviour.lock().lifetime = Duration::from_secs(6);
    let gateway = site.gateway(AcmeChallenge::TlsAlpn01, |_| ()).await;
    site.until_trusted(&gateway).await;
    let first = site.leaf(&gateway).await;
    let file = fs::read(site.folder().join("internal.pem")).unwrap();
    // When the certificate is due, the authority first issues an unusable one and then fails.
    site.set(Failure::WrongKey);
    site.issued(2).await;
    site.set(Failure::Down);
    let orders = site.requests().orders;
    until(&site.authority.state.requests, |requests| requests.orders >= orders + 2).await;
    assert_eq!(site.leaf(&gateway).await, first, "the last good one stays");
    assert_eq!(fs::read(site.folder().join("internal.pem")).unwrap(), file);
    // The authority recovers; from now on certificates are valid for long.
    site.authority.state.behaviour.lock().lifetime = Duration::from_secs(86_400);
    let issued = site.requests().issued;
    site.set(Failure::None);
    site.issued(issued + 1).await;
    let replaced = async { while site.leaf(&gateway).await == first {} };
    tokio::time::timeout(Duration::from_secs(60), replaced).await.expect("the certificate is never replaced");
    assert!(site.is_trusted(&gateway).await);
    assert_eq!(site.requests().issued, issued + 1);
    assert_eq!(site.requests().accounts, 1);
    gateway.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_survive_a_restart_and_other_names_need_a_new_one() {
    let site = Site::new().await;
    let first = site.gateway(AcmeChallenge::Http01, |_| ()).await;
    site.until_trusted(&first).await;
    first.end().await;
    let before = site.requests();
    let second = site.gateway(AcmeChallenge::Http01, |_| ()).await;
    assert!(site.is_trusted(&second).await, "the certificate is loaded at the start");
    assert_eq!((site.requests().orders, site.requests().accounts), (before.orders, before.accounts));
    second.end().await;
    let names = ["localhost".to_owned(), "other.example".to_owned()];
    let third = site.gateway(AcmeChallenge::Http01, |config| config.listeners[0].hosts = names.into()).await;
    site.issued(before.issued + 1).await;
    assert_eq!((site.requests().orders, site.requests().accounts), (before.orders + 1, before.accounts));
    third.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_with_a_shared_folder_order_one_certificate_and_all_present_it() {
    let site = Site::new().await;
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    // Every gateway has the challenge, but the authority always asks the first one.
    let mut gateways = Vec::new();
    for number in 0..3 {
        let address = if number == 0 { (Ipv4Addr::LOCALHOST, site.http).into() } else { free() };
        gateways.push(
            site.gateway(AcmeChallenge::Http01, |config| config.acme.http_address = Some(address)).await,
        );
    }
    for gateway in &gateways {
        // The other gateways check the file periodically; the trigger makes them check at once.
        site.issued(1).await;
        let patience = async {
            while !site.is_trusted(gateway).await {
                gateway.environment.reloads.trigger().fire();
            }
        };
        tokio::time::timeout(Duration::from_secs(60), patience)
            .await
            .expect("a gateway never presents the certificate");
    }
    assert_eq!(site.requests().issued, 1, "{:?}", site.requests());
    let leaf = site.leaf(&gateways[0]).await;
    for gateway in gateways {
        assert_eq!(site.leaf(&gateway).await, leaf);
        gateway.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_renewal_window_and_the_external_account_of_an_authority_are_respected() {
    let site = Site::new().await;
    let key = b"0123456789abcdef0123456789abcdef";
    {
        let mut behaviour = site.authority.state.behaviour.lock();
        behaviour.external_account = Some(("customer-7".to_owned(), key.to_vec()));
        behaviour.window = Some((86_400, 2 * 86_400));
    }
    let file = site.world.directory.path().join("external.key");
    use base64::Engine as _;
    fs::write(&file, format!("{}\n", base64::prelude::BASE64_URL_SAFE.encode(key))).unwrap();
    let account = ExternalAccountConfig { key_id: "customer-7".to_owned(), key_file: file.into() };
    let with_account = |config: &mut GatewayConfig| config.acme.external_account = Some(account.clone());
    let gateway = site.gateway(AcmeChallenge::TlsAlpn01, with_account).await;
    site.until_trusted(&gateway).await;
    assert_eq!((site.requests().issued, site.requests().replacing), (1, 0));
    gateway.end().await;
    // The certificate is valid for 90 days, but the authority asks for its renewal, as before a revocation.
    site.authority.state.behaviour.lock().window = Some((-7200, -3600));
    let gateway = site.gateway(AcmeChallenge::TlsAlpn01, with_account).await;
    until(&site.authority.state.requests, |requests| {
        if requests.issued == 2 {
            site.authority.state.behaviour.lock().window = None;
        }
        requests.issued >= 2
    })
    .await;
    // The first attempt may have been validated at the address of the previous gateway.
    assert!(site.requests().replacing >= 1);
    gateway.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_acme_protocol_is_refused_without_an_open_challenge() {
    let site = Site::new().await;
    let gateway = site.gateway(AcmeChallenge::TlsAlpn01, |_| ()).await;
    site.until_trusted(&gateway).await;
    let port = gateway.address.port();
    // No challenge is open.
    assert!(validate::handshake(port, "localhost", &[b"acme-tls/1"]).await.is_err());
    // A client that offers other protocols as well gets an ordinary handshake.
    let usual = validate::handshake(port, "localhost", &[b"acme-tls/1", b"h2"]).await.unwrap();
    assert_eq!(usual.protocol.as_deref(), Some(&b"h2"[..]));
    // The other listener has no ACME settings.
    let other = gateway.gateway.listeners[1].1.port();
    assert!(validate::handshake(other, "localhost", &[b"acme-tls/1"]).await.is_err());
    // There is no http-01 challenge either.
    assert!(validate::http(site.http, "localhost", "token", "token.thumb").await.is_err());
    gateway.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checking_a_configuration_does_not_create_the_folder() {
    let site = Site::new().await;
    let config = site.config(AcmeChallenge::TlsAlpn01, |_| ());
    Gateway::check(&config, &environment()).unwrap();
    assert!(!site.folder().exists());
    // The check finds an invalid host name. A folder that is not writable is an error before a listener opens.
    let nameless =
        site.config(AcmeChallenge::TlsAlpn01, |config| config.listeners[0].hosts = vec!["\u{e4}".to_owned()]);
    let refused = Gateway::check(&nameless, &environment()).unwrap_err().to_string();
    assert!(refused.contains("listeners[0].tls.acme"), "{refused}");
    fs::write(site.folder(), "").unwrap();
    let refused = Gateway::start(config, &environment()).err().unwrap().to_string();
    assert!(refused.contains("has no certificate"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provisional_certificate_is_not_stored_and_replaces_no_issued_one() {
    let site = Site::new().await;
    site.set(Failure::Down);
    let file = site.folder().join("internal.pem");
    // An incomplete file, as a process leaves it when the disk is full.
    fs::create_dir_all(site.folder()).unwrap();
    fs::write(&file, "-----BEGIN CERT").unwrap();
    let gateway = site.gateway(AcmeChallenge::Http01, |_| ()).await;
    let provisional = site.leaf(&gateway).await;
    assert_eq!(fs::read_to_string(&file).unwrap(), "-----BEGIN CERT");
    site.set(Failure::None);
    site.until_trusted(&gateway).await;
    let got = site.leaf(&gateway).await;
    assert_ne!(got, provisional);
    fs::write(&file, "-----BEGIN CERT").unwrap();
    gateway.environment.reloads.check_now();
    assert_eq!(site.leaf(&gateway).await, got);
    gateway.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_do_not_block_http_01_challenges() {
    let site = Site::new().await;
    let gateway = site.gateway(AcmeChallenge::Http01, |_| ()).await;
    let answers = async |from: &str| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        let mut stream = socket.connect((Ipv4Addr::LOCALHOST, site.http).into()).await.unwrap();
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.is_ok_and(|_| answer.starts_with("HTTP/1.1 404"))
    };
    let mut silent = Vec::new();
    for _ in 0..64 {
        let stream = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, site.http)).unwrap();
        stream.set_nonblocking(true).unwrap();
        silent.push(stream);
    }
    assert!(answers("127.0.0.2").await);
    // The request did not wait until an idle connection timed out.
    let is_open = |stream: &&std::net::TcpStream| {
        stream.peek(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    assert!(is_open(&&silent[0]), "the first idle connection is open");
    drop(silent);
    eventually("connections are accepted again", async || answers("127.0.0.1").await).await;
    gateway.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_challenge_file_delays_only_challenge_handshakes() {
    let site = Site::new().await;
    let gateway = site.gateway(AcmeChallenge::TlsAlpn01, |_| ()).await;
    site.until_trusted(&gateway).await;
    // A reader of the FIFO waits as long as a writer has it open.
    let file = site.folder().join("challenges/localhost.pem");
    mknodat(CWD, &file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let port = gateway.address.port();
    let asking: Vec<_> =
        (0..32).map(|_| tokio::spawn(validate::handshake(port, "localhost", &[b"acme-tls/1"]))).collect();
    let mut writer = None;
    eventually("the file is read", async || {
        writer = rustix::fs::open(&file, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).ok();
        writer.is_some()
    })
    .await;
    for _ in 0..8 {
        let is_trusted = tokio::time::timeout(PATIENCE, site.is_trusted(&gateway)).await;
        assert!(is_trusted.expect("the listener waits for the file as well"));
    }
    fs::remove_file(&file).unwrap();
    drop(writer);
    for asked in asking {
        assert!(asked.await.unwrap().is_err());
    }
    gateway.end().await;
}
