//! A server with a certificate of its own, for webhooks and issuers.

use std::sync::Arc;

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::PrivateKeyDer;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// A path and a body become a status and a body.
type Handler = dyn Fn(&str, &[u8]) -> (u16, String) + Send + Sync;

pub(super) struct TlsServer {
    pub(super) url: String,
    /// PEM of the certificate, which signs itself.
    pub(super) certificate: String,
    _accepting: JoinSet<()>,
}

impl TlsServer {
    /// `handler` gets the server's URL first.
    pub(super) async fn start<H>(handler: impl FnOnce(&str) -> H) -> Self
    where
        H: Fn(&str, &[u8]) -> (u16, String) + Send + Sync + 'static,
    {
        let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let private = PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![key.cert.der().clone()], private)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let handler: Arc<Handler> = Arc::new(handler(&url));
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, handler) = (acceptor.clone(), Arc::clone(&handler));
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| respond(request, Arc::clone(&handler)));
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    // A client may disconnect at any time.
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { url, certificate: key.cert.pem(), _accepting: accepting }
    }
}

async fn respond(
    request: Request<Incoming>,
    handler: Arc<Handler>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let (status, text) = handler(&path, &body);
    let response = Response::builder().status(status).header("content-type", "application/json");
    Ok(response.body(Full::from(text)).unwrap())
}
