//! An HTTP/1.1 client over TLS that sends requests unchanged; a client library would hide details that are compared.

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

/// A server and the client certificate for it.
pub struct RawClient {
    authority: String,
    connector: TlsConnector,
    idle: Option<SendRequest<Full<Bytes>>>,
}

/// A request. The path may be one that no URL type accepts.
#[derive(Clone)]
pub struct RawRequest {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

/// Limit for the response headers, and for the whole response unless it is a watch.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// A complete response.
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A running watch. Events arrive until the server ends it.
pub struct WatchStream {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub events: mpsc::UnboundedReceiver<Value>,
    reader: JoinHandle<()>,
}

impl RawClient {
    /// `url` is `https://host:port`; certificates and key are PEM.
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

    pub async fn get(&mut self, path: &str, accept: &str) -> Response {
        let headers = vec![("Accept".to_owned(), accept.to_owned())];
        let request =
            RawRequest { method: "GET".to_owned(), path: path.to_owned(), headers, body: Bytes::new() };
        self.send(&request).await
    }

    /// Sends a request. Panics if there is no response.
    pub async fn send(&mut self, request: &RawRequest) -> Response {
        match timeout(RESPONSE_TIMEOUT, self.exchange(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => panic!("{} {}: {error:?}", request.method, request.path),
            Err(_) => panic!("no response to {} {}", request.method, request.path),
        }
    }

    async fn exchange(&mut self, request: &RawRequest) -> Result<Response, hyper::Error> {
        let mut sender = match self.idle.take() {
            Some(sender) if sender.is_ready() => sender,
            _ => self.connect().await,
        };
        let (head, body) = sender.send_request(self.build(request)).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        if sender.ready().await.is_ok() {
            self.idle = Some(sender);
        }
        Ok(Response { status: head.status, headers: head.headers, body })
    }

    /// Starts a watch on its own connection.
    pub async fn watch(&self, request: &RawRequest) -> Result<WatchStream, Response> {
        let mut sender = self.connect().await;
        let response = timeout(RESPONSE_TIMEOUT, sender.send_request(self.build(request))).await;
        let Ok(response) = response else { panic!("no response to {} {}", request.method, request.path) };
        let (head, body) = response.unwrap().into_parts();
        if !head.status.is_success() {
            let body = body.collect().await.unwrap().to_bytes();
            return Err(Response { status: head.status, headers: head.headers, body });
        }
        let (sink, events) = mpsc::unbounded_channel();
        // hyper closes the connection after the response once the sender is dropped.
        let reader = tokio::spawn(async move {
            read_lines(body, &sink).await;
            drop(sender);
        });
        Ok(WatchStream { status: head.status, headers: head.headers, events, reader })
    }

    fn build(&self, request: &RawRequest) -> Request<Full<Bytes>> {
        let mut builder = Request::builder()
            .method(request.method.as_str())
            .uri(&request.path)
            .header("Host", &self.authority);
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        builder.body(Full::new(request.body.clone())).unwrap()
    }

    async fn connect(&self) -> SendRequest<Full<Bytes>> {
        let tcp = TcpStream::connect(&self.authority).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let host = self.authority.rsplit_once(':').unwrap().0.to_owned();
        let tls = self.connector.connect(ServerName::try_from(host).unwrap(), tcp).await.unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await.unwrap();
        tokio::spawn(async move {
            // Errors also reach the pending request, which reports them.
            drop(connection.await);
        });
        sender
    }
}

impl Drop for WatchStream {
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
