//! Requests as they are, over HTTP/1.1 and TLS: a client library would hide what is to be compared.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// A server and who asks it.
pub struct Wire {
    authority: String,
    connector: TlsConnector,
    idle: Option<SendRequest<Full<Bytes>>>,
}

/// A request; the path may be what no URL type accepts.
#[derive(Clone)]
pub struct Ask {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

/// How long an answer may take to begin, and to be complete unless it is a watch.
const PATIENCE: Duration = Duration::from_secs(20);

/// A complete answer.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A watch that runs; its events arrive until the server ends it.
pub struct Stream {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub events: mpsc::UnboundedReceiver<Value>,
    reader: JoinHandle<()>,
}

impl Wire {
    /// `url` is `https://host:port`; all are PEM.
    pub fn new(url: &str, ca: &[u8], certificate: &[u8], key: &[u8]) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        for ca in CertificateDer::pem_slice_iter(ca) {
            roots.add(ca.unwrap()).unwrap();
        }
        let chain = CertificateDer::pem_slice_iter(certificate).map(Result::unwrap).collect();
        let config =
            rustls::ClientConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into())
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key).unwrap())
                .unwrap();
        let authority = url.strip_prefix("https://").unwrap().to_owned();
        Self { authority, connector: TlsConnector::from(Arc::new(config)), idle: None }
    }

    /// `host:port`.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    pub async fn get(&mut self, path: &str, accept: &str) -> Answer {
        let headers = vec![("Accept".to_owned(), accept.to_owned())];
        let ask = Ask { method: "GET".to_owned(), path: path.to_owned(), headers, body: Bytes::new() };
        self.send(&ask).await
    }

    /// Asks, and fails the test if nothing is answered.
    pub async fn send(&mut self, ask: &Ask) -> Answer {
        match timeout(PATIENCE, self.exchange(ask)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => panic!("{} {}: {error:?}", ask.method, ask.path),
            Err(_) => panic!("no answer to {} {}", ask.method, ask.path),
        }
    }

    async fn exchange(&mut self, ask: &Ask) -> Result<Answer, hyper::Error> {
        let mut sender = match self.idle.take() {
            Some(sender) if sender.is_ready() => sender,
            _ => self.connect().await,
        };
        let (head, body) = sender.send_request(self.request(ask)).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        if sender.ready().await.is_ok() {
            self.idle = Some(sender);
        }
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    /// Begins a watch on a connection of its own.
    pub async fn watch(&self, ask: &Ask) -> Result<Stream, Answer> {
        let mut sender = self.connect().await;
        let response = timeout(PATIENCE, sender.send_request(self.request(ask))).await;
        let Ok(response) = response else { panic!("no answer to {} {}", ask.method, ask.path) };
        let (head, body) = response.unwrap().into_parts();
        if !head.status.is_success() {
            let body = body.collect().await.unwrap().to_bytes();
            return Err(Answer { status: head.status, headers: head.headers, body });
        }
        let (sink, events) = mpsc::unbounded_channel();
        // The sender is kept: a connection whose sender is gone ends after the answer, which is what we want.
        let reader = tokio::spawn(async move {
            read_lines(body, &sink).await;
            drop(sender);
        });
        Ok(Stream { status: head.status, headers: head.headers, events, reader })
    }

    fn request(&self, ask: &Ask) -> Request<Full<Bytes>> {
        let mut request =
            Request::builder().method(ask.method.as_str()).uri(&ask.path).header("Host", &self.authority);
        for (name, value) in &ask.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(ask.body.clone())).unwrap()
    }

    async fn connect(&self) -> SendRequest<Full<Bytes>> {
        let tcp = TcpStream::connect(&self.authority).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let host = self.authority.rsplit_once(':').unwrap().0.to_owned();
        let tls = self.connector.connect(ServerName::try_from(host).unwrap(), tcp).await.unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await.unwrap();
        tokio::spawn(async move {
            // How it ends is seen by who waits for an answer.
            drop(connection.await);
        });
        sender
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn read_lines(mut body: Incoming, sink: &mpsc::UnboundedSender<Value>) {
    let mut pending = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        pending.extend_from_slice(&frame.into_data().unwrap_or_default());
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            if sink.send(serde_json::from_slice(&line).unwrap()).is_err() {
                return;
            }
        }
    }
}
