use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsAcceptor;

use super::Pki;

/// A TLS server that passes every request to the test as a [`Call`].
pub struct Server {
    pub port: u16,
    calls: mpsc::UnboundedReceiver<Call>,
    connections: Arc<AtomicUsize>,
}

/// ALPN protocols of the server.
#[derive(Clone, Copy)]
pub enum Protocols {
    Both,
    OnlyHttp1,
}

/// A request that waits for the test's response. Dropping it leaves the request without a response.
pub struct Call {
    pub method: http::Method,
    pub path_and_query: String,
    pub version: http::Version,
    pub headers: http::HeaderMap,
    pub body: Bytes,
    /// Number of the connection, from one.
    pub connection: usize,
    /// Whether the client presented a certificate.
    pub client_certificate: Option<Vec<u8>>,
    reply: oneshot::Sender<Response<ReplyBody>>,
}

/// The body of a response, which the test writes in parts. Dropping it aborts the body.
pub struct Stream(Option<mpsc::UnboundedSender<Option<Bytes>>>);

type ReplyBody = BoxBody<Bytes, std::io::Error>;

impl Server {
    pub async fn start(pki: &Pki) -> Self {
        Self::with(pki, "localhost", Protocols::Both).await
    }

    pub async fn with(pki: &Pki, dns_name: &str, protocols: Protocols) -> Self {
        Self::serving(tls_config(pki, dns_name, protocols)).await
    }

    pub async fn serving(tls: rustls::ServerConfig) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, calls) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = connections.clone();
        tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let connection = counter.fetch_add(1, Ordering::SeqCst) + 1;
                tokio::spawn(serve(acceptor.clone(), tcp, connection, sender.clone()));
            }
        });
        Self { port, calls, connections }
    }

    /// The next request. A test that waits for one that never comes is ended by the test runner.
    pub async fn call(&mut self) -> Call {
        self.calls.recv().await.unwrap()
    }

    /// The next request, which must be this.
    pub async fn expect(&mut self, method: &str, path_and_query: &str) -> Call {
        let call = self.call().await;
        assert_eq!(format!("{} {}", call.method, call.path_and_query), format!("{method} {path_and_query}"));
        call
    }

    /// The next request, which must have these query parameters; `!name` means without it.
    pub async fn expect_query(&mut self, parameters: &[&str]) -> Call {
        let call = self.call().await;
        let query: Vec<&str> =
            call.path_and_query.split_once('?').map_or(vec![], |(_, query)| query.split('&').collect());
        for parameter in parameters {
            let holds = match parameter.strip_prefix('!') {
                Some(name) => !query.iter().any(|p| p.split('=').next() == Some(name)),
                None => query.contains(parameter),
            };
            assert!(holds, "{parameter} does not hold for {}", call.path_and_query);
        }
        call
    }

    pub fn assert_no_call(&mut self) {
        if let Ok(call) = self.calls.try_recv() {
            panic!("unexpected {} {}", call.method, call.path_and_query);
        }
    }

    /// Accepted so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Call {
    pub fn reply(self, status: u16, body: impl Into<Bytes>) {
        self.reply_with(Response::builder().status(status), body);
    }

    pub fn reply_with(self, head: http::response::Builder, body: impl Into<Bytes>) {
        let body = Full::new(body.into()).map_err(|never| match never {}).boxed();
        // The client may have disconnected; the test has to detect that.
        let _ = self.reply.send(head.body(body).unwrap());
    }

    /// Responds with 200 at once; the body follows.
    pub fn stream(self) -> Stream {
        let (sender, receiver) = mpsc::unbounded_channel::<Option<Bytes>>();
        let frames = stream::unfold(receiver, |mut receiver| async {
            match receiver.recv().await {
                Some(Some(data)) => Some((Ok(Frame::data(data)), receiver)),
                Some(None) => None,
                None => Some((Err(std::io::Error::other("aborted by the test")), receiver)),
            }
        });
        let body = BodyExt::boxed(StreamBody::new(frames));
        let _ = self.reply.send(Response::builder().status(StatusCode::OK).body(body).unwrap());
        Stream(Some(sender))
    }
}

impl Stream {
    pub fn send(&self, text: &str) {
        let _ = self.0.as_ref().unwrap().send(Some(Bytes::copy_from_slice(text.as_bytes())));
    }

    /// One watch event.
    pub fn event(&self, kind: &str, object: &str) {
        self.send(&format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"));
    }

    /// Ends the body properly.
    pub fn end(mut self) {
        let _ = self.0.take().unwrap().send(None);
    }

    /// Waits until the client has cancelled the response.
    pub async fn cancelled(&self) {
        self.0.as_ref().unwrap().closed().await;
    }
}

async fn serve(
    acceptor: TlsAcceptor,
    tcp: tokio::net::TcpStream,
    connection: usize,
    calls: mpsc::UnboundedSender<Call>,
) {
    let Ok(tls) = acceptor.accept(tcp).await else {
        return;
    };
    let certificate = tls.get_ref().1.peer_certificates().map(|chain| chain[0].to_vec());
    let service = service_fn(move |request: Request<Incoming>| {
        let (calls, client_certificate) = (calls.clone(), certificate.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let (reply, replied) = oneshot::channel();
            let _ = calls.send(Call {
                method: head.method,
                path_and_query: head.uri.path_and_query().unwrap().to_string(),
                version: head.version,
                headers: head.headers,
                body,
                connection,
                client_certificate,
                reply,
            });
            match replied.await {
                Ok(response) => Ok::<_, Infallible>(response),
                Err(_) => std::future::pending().await,
            }
        }
    });
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(tls), service).await;
}

fn tls_config(pki: &Pki, dns_name: &str, protocols: Protocols) -> rustls::ServerConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&pki.ca_pem()).unwrap()).unwrap();
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()
            .unwrap();
    let (chain, key) = pki.server(dns_name);
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = match protocols {
        Protocols::Both => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        Protocols::OnlyHttp1 => vec![b"http/1.1".to_vec()],
    };
    config
}
