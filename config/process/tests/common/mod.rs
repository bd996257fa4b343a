//! A server on a free port with its own certificates, and clients that check its responses in detail.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fairlead_config::{ConnectionLimits, DrainConfig, SlowClientsConfig};
use fairlead_process::{
    AllowedPeers, BoundServer, Metrics, ReloadableTls, Reloads, ServerMetrics, ServerOptions, Service,
    Shutdown, TlsSource,
};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub struct TestServer {
    pub addr: SocketAddr,
    pub shutdown: Shutdown,
    pub metrics: Metrics,
    pub reloads: Reloads,
    pub pki: Pki,
    pub serving: JoinHandle<()>,
}

impl TestServer {
    pub fn start(service: impl Service) -> Self {
        Self::with(ConnectionLimits::default(), "10s", service)
    }

    pub fn with(limits: ConnectionLimits, window: &str, service: impl Service) -> Self {
        Self::with_peers(limits, window, |_| AllowedPeers::default(), service)
    }

    pub fn with_peers(
        limits: ConnectionLimits,
        window: &str,
        peers: impl FnOnce(&Reloads) -> AllowedPeers,
        service: impl Service,
    ) -> Self {
        let configure = |options: &mut ServerOptions, reloads: &Reloads| {
            (options.limits, options.peers) = (limits, peers(reloads));
        };
        Self::configured(window, configure, service)
    }

    /// A server with these time limits of slow clients.
    pub fn with_slow_clients(slow_clients: SlowClientsConfig, service: impl Service) -> Self {
        Self::configured("10s", |options, _| options.slow_clients = slow_clients, service)
    }

    pub fn configured(
        window: &str,
        configure: impl FnOnce(&mut ServerOptions, &Reloads),
        service: impl Service,
    ) -> Self {
        let metrics = Metrics::new("test", "0").unwrap();
        let reloads = Reloads::new(&metrics).unwrap();
        let shutdown =
            Shutdown::new(&DrainConfig { window: window.parse().unwrap(), ..DrainConfig::default() });
        let pki = Pki::new();
        pki.issue_serving();
        let bound = BoundServer::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = bound.local_addr();
        let mut options = ServerOptions {
            name: "test".into(),
            tls: pki.tls(&reloads),
            limits: ConnectionLimits::default(),
            slow_clients: SlowClientsConfig::default(),
            peers: AllowedPeers::default(),
            shutdown: shutdown.clone(),
            metrics: ServerMetrics::new(&metrics).unwrap(),
        };
        configure(&mut options, &reloads);
        let serving = tokio::spawn(bound.serve(options, service));
        Self { addr, shutdown, metrics, reloads, pki, serving }
    }

    pub fn metric(&self, line: &str) -> Option<f64> {
        let text = String::from_utf8(self.metrics.text().unwrap().to_vec()).unwrap();
        text.lines().find_map(|l| l.strip_prefix(line)?.trim().parse().ok())
    }

    /// Returns when a metric has this value.
    pub async fn until(&self, line: &str, value: f64) {
        let reached = async {
            while self.metric(line) != Some(value) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let reached = timeout(Duration::from_secs(60), reached).await;
        assert!(reached.is_ok(), "{line} is {:?}, not {value}", self.metric(line));
    }

    /// A connection with this ALPN offer, and optionally a certificate.
    pub async fn connect(&self, client: &Arc<ClientConfig>) -> std::io::Result<TlsStream<TcpStream>> {
        self.connect_after(b"", client).await
    }

    /// As [`Self::connect`], with bytes sent before TLS.
    pub async fn connect_after(
        &self,
        prefix: &[u8],
        client: &Arc<ClientConfig>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut tcp = TcpStream::connect(self.addr).await?;
        tcp.write_all(prefix).await?;
        TlsConnector::from(Arc::clone(client)).connect("localhost".try_into().unwrap(), tcp).await
    }

    pub async fn http1(&self) -> http1::SendRequest<Full<Bytes>> {
        let stream = self.connect(&self.pki.client(&[b"http/1.1"])).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        sender
    }

    pub async fn http2(&self) -> http2::SendRequest<Full<Bytes>> {
        h2_over(self.connect(&self.pki.client(&[b"h2"])).await.unwrap()).await
    }

    pub async fn drain(&self) {
        self.shutdown.begin();
        self.shutdown.run().await;
    }
}

pub async fn h2_over(stream: TlsStream<TcpStream>) -> http2::SendRequest<Full<Bytes>> {
    let (sender, connection) =
        http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// A sender of either protocol.
pub enum Client {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Client {
    pub async fn both(server: &TestServer) -> [Self; 2] {
        [Self::Http1(server.http1().await), Self::Http2(server.http2().await)]
    }

    pub fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_closed(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }

    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

pub fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("https://localhost{path}"))
        .header("host", "localhost")
        .body(Full::default())
        .unwrap()
}

pub async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

pub fn reply(text: impl Into<String>) -> Response<Full<Bytes>> {
    Response::new(Full::new(Bytes::from(text.into())))
}

/// A CA, and files of certificates that it issued.
pub struct Pki {
    pub dir: tempfile::TempDir,
    ca: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "test CA");
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { dir: tempfile::tempdir().unwrap(), ca }
    }

    /// Puts a new serving certificate in place of the current one and returns it.
    pub fn issue_serving(&self) -> CertificateDer<'static> {
        let (certificate, key) = self.issue();
        replace(&self.dir.path().join("tls.crt"), &certificate.0);
        replace(&self.dir.path().join("tls.key"), &key);
        certificate.1
    }

    /// A leaf for localhost as PEM and DER, and its key as PEM.
    pub fn issue(&self) -> ((String, CertificateDer<'static>), String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "leaf");
        let leaf = params.signed_by(&key, &self.ca).unwrap();
        ((leaf.pem(), leaf.der().clone()), key.serialize_pem())
    }

    pub fn tls(&self, reloads: &Reloads) -> Arc<ReloadableTls> {
        let source = TlsSource::new(self.dir.path().join("tls.crt"), self.dir.path().join("tls.key"));
        source.watch("serving certificate", reloads).unwrap()
    }

    pub fn client(&self, alpn: &[&[u8]]) -> Arc<ClientConfig> {
        let mut config = self.roots(rustls::DEFAULT_VERSIONS).with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
        Arc::new(config)
    }

    pub fn client_with_certificate(
        &self,
        version: &'static rustls::SupportedProtocolVersion,
        certificate: CertificateDer<'static>,
        key: &str,
    ) -> Arc<ClientConfig> {
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let mut config = self.roots(&[version]).with_client_auth_cert(vec![certificate], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }

    pub fn roots(
        &self,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.ca.der().clone()).unwrap();
        ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
    }
}

fn replace(path: &Path, content: &str) {
    let new = path.with_extension("new");
    fs::write(&new, content).unwrap();
    fs::rename(new, path).unwrap();
}
