//! Stock pingora as a contestant of `make bench-gateway`: its HTTP proxy, listener, TLS, connection pool and runtime, with the
//! settings that come nearest to the gateway's. It forwards every request unchanged to one backend.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use clap::Parser;
use pingora::listeners::tls::TlsSettings;
use pingora::protocols::http::v2::server::default_h2_options;
use pingora::proxy::{ProxyHttp, Session, http_proxy_service};
use pingora::server::Server;
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::{ALPN, HttpPeer};
use pingora::utils::tls::CertKey;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

// The gateway's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Streams per connection, of clients and to the backend.
const STREAMS: u32 = 1000;

/// Ports and files of PEM blocks.
#[derive(Parser)]
struct Cli {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    backend: u16,
    #[arg(long)]
    certificate: PathBuf,
    #[arg(long)]
    private_key: PathBuf,
    #[arg(long)]
    client_ca: PathBuf,
    #[arg(long)]
    upstream_certificate: PathBuf,
    #[arg(long)]
    upstream_private_key: PathBuf,
    #[arg(long)]
    server_ca: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let cli = Cli::parse();
    // The provider of all contestants; pingora would install ring.
    let _ = aws_lc_rs::default_provider().install_default();
    let conf = ServerConf {
        threads: std::thread::available_parallelism()?.get(),
        ca_file: Some(text(&cli.server_ca)?.to_owned()),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, Forwarder { peer: peer(&cli)? });
    if let Some(proxy) = service.app_logic_mut() {
        let mut options = default_h2_options();
        options.max_concurrent_streams(STREAMS);
        proxy.h2_options = Some(options);
    }
    service.add_tls_with_settings(&format!("127.0.0.1:{}", cli.port), None, tls(&cli)?);
    server.add_service(service);
    server.run_forever()
}

struct Forwarder {
    peer: HttpPeer,
}

#[async_trait]
impl ProxyHttp for Forwarder {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(self.peer.clone()))
    }
}

/// TLS of clients: both protocols, client certificates are optional.
fn tls(cli: &Cli) -> Result<TlsSettings, Box<dyn Error>> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&cli.client_ca)? {
        roots.add(certificate)?;
    }
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated().build()?;
    let mut settings = TlsSettings::intermediate(text(&cli.certificate)?, text(&cli.private_key)?)?;
    settings.enable_h2();
    settings.set_client_cert_verifier(verifier);
    Ok(settings)
}

/// The backend over HTTP/2, with a client certificate.
fn peer(cli: &Cli) -> Result<HttpPeer, Box<dyn Error>> {
    let mut peer = HttpPeer::new(("127.0.0.1", cli.backend), true, "localhost".to_owned());
    let chain = certificates(&cli.upstream_certificate)?.iter().map(|der| der.to_vec()).collect();
    let key = PrivateKeyDer::from_pem_file(&cli.upstream_private_key)?;
    peer.client_cert_key = Some(Arc::new(CertKey::new(chain, key.secret_der().to_vec())));
    peer.options.alpn = ALPN::H2;
    peer.options.max_h2_streams = STREAMS as usize;
    Ok(peer)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Box<dyn Error>> {
    Ok(CertificateDer::pem_file_iter(path)?.collect::<Result<_, _>>()?)
}

fn text(path: &Path) -> Result<&str, &'static str> {
    path.to_str().ok_or("a path is not UTF-8")
}
