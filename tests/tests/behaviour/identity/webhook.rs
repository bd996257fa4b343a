//! A webhook that reviews access, over TLS.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// A webhook whose verdict can be changed. It keeps the reviews that it gets.
pub(super) struct Webhook {
    pub(super) kubeconfig: PathBuf,
    state: Arc<Mutex<State>>,
    _accepting: JoinSet<()>,
}

#[derive(Default)]
struct State {
    status: Value,
    reviews: Vec<Value>,
}

impl Webhook {
    pub(super) async fn start(folder: &Path, status: Value) -> Self {
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
        let port = listener.local_addr().unwrap().port();
        let (ca, kubeconfig) = (folder.join("webhook.crt"), folder.join("webhook.kubeconfig"));
        std::fs::write(&ca, key.cert.pem()).unwrap();
        let context = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "w",
            "clusters": [{"name": "w", "cluster": {
                "server": format!("https://localhost:{port}/review"), "certificate-authority": ca,
            }}],
            "contexts": [{"name": "w", "context": {"cluster": "w", "user": ""}}],
        });
        std::fs::write(&kubeconfig, context.to_string()).unwrap();
        let state = Arc::new(Mutex::new(State { status, reviews: Vec::new() }));
        let mut accepting = JoinSet::new();
        let shared = Arc::clone(&state);
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, state) = (acceptor.clone(), Arc::clone(&shared));
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| review(request, Arc::clone(&state)));
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    // A client may disconnect at any time.
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { kubeconfig, state, _accepting: accepting }
    }

    pub(super) fn set_status(&self, status: Value) {
        self.state.lock().unwrap().status = status;
    }

    /// The reviews since the last call.
    pub(super) fn take_reviews(&self) -> Vec<Value> {
        std::mem::take(&mut self.state.lock().unwrap().reviews)
    }
}

async fn review(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    assert_eq!(request.uri().path(), "/review");
    let body = request.into_body().collect().await?.to_bytes();
    let mut review: Value = serde_json::from_slice(&body).unwrap();
    let mut state = state.lock().unwrap();
    state.reviews.push(review.clone());
    if state.status.is_null() {
        return Ok(Response::builder().status(418).body(Full::default()).unwrap());
    }
    review["status"] = state.status.clone();
    Ok(Response::new(Full::from(review.to_string())))
}
