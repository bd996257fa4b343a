//! An HTTPS server on the loopback address, for webhooks.

use std::future::Future;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// A server with a certificate that is its own authority, as `openssl req -x509` makes it.
pub(crate) struct HttpsServer {
    url: String,
    ca_bundle: String,
    _accepting: JoinSet<()>,
}

impl HttpsServer {
    /// Starts a server that responds with `reply`, which gets the path and the JSON body.
    pub(crate) async fn start<F>(reply: impl Fn(String, Value) -> F + Clone + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, reply) = (acceptor.clone(), reply.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request: Request<Incoming>| {
                        let reply = reply.clone();
                        async move {
                            let path = request.uri().path().to_owned();
                            let body = request.into_body().collect().await;
                            let body = body.map(|body| body.to_bytes()).unwrap_or_default();
                            let body = serde_json::from_slice(&body).unwrap_or_default();
                            Ok::<_, std::convert::Infallible>(reply(path, body).await)
                        }
                    });
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    // A client may disconnect at any time.
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { url, ca_bundle: STANDARD.encode(certificate.pem()), _accepting: accepting }
    }

    /// The `clientConfig` of a webhook at a path.
    pub(crate) fn client_config(&self, path: &str) -> Value {
        json!({"url": format!("{}{path}", self.url), "caBundle": self.ca_bundle})
    }
}
