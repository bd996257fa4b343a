//! A small HTTPS server with responses set by the test.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tokio_rustls::TlsAcceptor;

/// The response of a test to a path and a body.
type Answers = dyn Fn(&str, &[u8]) -> Reply + Send + Sync;

/// A response.
pub(crate) enum Reply {
    Status(u16),
    Json(String),
    Redirect(String),
    /// No response.
    Silence,
}

/// The server; it runs until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// The certificate, PEM.
    pub(crate) certificate_authority: String,
    answers: Arc<Mutex<Arc<Answers>>>,
    requests: watch::Sender<Vec<String>>,
    _accepting: JoinSet<()>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (certificate_authority, acceptor) = certificates();
        let nothing: Arc<Answers> = Arc::new(|_: &str, _: &[u8]| Reply::Status(404));
        let answers = Arc::new(Mutex::new(nothing));
        let requests = watch::Sender::default();
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, acceptor, Arc::clone(&answers), requests.clone()));
        Self { address, certificate_authority, answers, requests, _accepting: accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }

    /// Sets the responses.
    pub(crate) fn answer(&self, answers: impl Fn(&str, &[u8]) -> Reply + Send + Sync + 'static) {
        *self.answers.lock().unwrap() = Arc::new(answers);
    }

    /// The number of requests for a path.
    pub(crate) fn count(&self, path: &str) -> usize {
        self.requests.borrow().iter().filter(|asked| *asked == path).count()
    }

    /// Waits until a path was requested this many times.
    pub(crate) async fn asked(&self, path: &str, times: usize) {
        let enough = |asked: &Vec<String>| asked.iter().filter(|asked| *asked == path).count() >= times;
        self.requests.subscribe().wait_for(enough).await.unwrap();
    }
}

fn certificates() -> (String, TlsAcceptor) {
    let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(rcgen::DnType::CommonName, "issuers");
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    leaf.distinguished_name = rcgen::DistinguishedName::new();
    let leaf = leaf.signed_by(&key, &authority).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (authority.pem(), TlsAcceptor::from(Arc::new(config)))
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    answers: Arc<Mutex<Arc<Answers>>>,
    requests: watch::Sender<Vec<String>>,
) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (acceptor, answers, requests) = (acceptor.clone(), Arc::clone(&answers), requests.clone());
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request| reply(request, Arc::clone(&answers), requests.clone()));
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            // A client may disconnect at any time.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn reply(
    request: Request<Incoming>,
    answers: Arc<Mutex<Arc<Answers>>>,
    requests: watch::Sender<Vec<String>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let answers = Arc::clone(&answers.lock().unwrap());
    requests.send_modify(|asked| asked.push(path.clone()));
    let response = Response::builder();
    let response = match answers(&path, &body) {
        Reply::Status(status) => response.status(StatusCode::from_u16(status).unwrap()).body(Full::default()),
        Reply::Json(text) => response.header("content-type", "application/json").body(Full::from(text)),
        Reply::Redirect(to) => response.status(302).header("location", to).body(Full::default()),
        Reply::Silence => std::future::pending().await,
    };
    Ok(response.unwrap())
}
