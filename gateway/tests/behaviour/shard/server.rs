//! The connections of a test shard, and the dispatch of requests between index and echo.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use super::State;
use super::answers::{Body, empty, json_response};
use super::objects::collection_answer;
use super::oddities::by_name;

/// An open connection and, once known, its peer.
pub(super) struct Open {
    pub(super) task: AbortHandle,
    peer: Arc<OnceLock<String>>,
}

impl Open {
    pub(super) fn is_of(&self, peer: &str) -> bool {
        self.peer.get().is_some_and(|name| name == peer)
    }
}

pub(super) async fn serve(listener: TcpListener, state: Arc<State>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        // Like all API servers.
        stream.set_nodelay(true).unwrap();
        state.connections.fetch_add(1, Ordering::SeqCst);
        let (tls, shared) = (TlsAcceptor::from(state.tls()), Arc::clone(&state));
        let known = Arc::<OnceLock<String>>::default();
        let open_peer = Arc::clone(&known);
        let mut goaway = state.goaway.subscribe();
        let connection = tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let session = stream.get_ref().1;
            let peer = session.peer_certificates().map(|chain| common_name(&chain[0]));
            if let Some(peer) = &peer {
                let _ = known.set(peer.clone());
            }
            let is_http2 = session.alpn_protocol() == Some(b"h2");
            let service = service_fn(move |request| {
                let (state, peer) = (Arc::clone(&shared), peer.clone());
                async move {
                    if state.failing.load(Ordering::SeqCst) && peer.as_deref() != Some("shard-admin") {
                        return fail(&state, request.uri().path());
                    }
                    Ok(answer(state, peer, request).await)
                }
            });
            let io = TokioIo::new(stream);
            if is_http2 {
                let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                server.max_concurrent_streams(1000);
                let mut connection = std::pin::pin!(server.serve_connection(io, service));
                tokio::select! {
                    _ = &mut connection => return,
                    _ = goaway.changed() => {}
                }
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            } else {
                let server = hyper::server::conn::http1::Builder::new();
                let _ = server.serve_connection(io, service).with_upgrades().await;
            }
        });
        state.open.lock().push(Open { task: connection.abort_handle(), peer: open_peer });
    }
}

fn common_name(der: &[u8]) -> String {
    use x509_parser::prelude::FromDer as _;
    let (_, certificate) = x509_parser::certificate::X509Certificate::from_der(der).unwrap();
    certificate.subject().iter_common_name().next().unwrap().as_str().unwrap().to_owned()
}

/// Responds as a shard that is not ready: requests are cut off.
fn fail(state: &State, path: &str) -> std::io::Result<Response<Body>> {
    if path == "/readyz" {
        return Ok(Response::builder().status(StatusCode::SERVICE_UNAVAILABLE).body(empty()).unwrap());
    }
    state.requests.fetch_add(1, Ordering::SeqCst);
    Err(std::io::Error::other("it fails"))
}

async fn answer(state: Arc<State>, peer: Option<String>, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let wildcard = ["/clusters/*", "/clusters/root", "/services/admin"]
        .into_iter()
        .find_map(|prefix| path.strip_prefix(prefix));
    let collection = match wildcard {
        Some("/apis/core.kcp.io/v1alpha1/shards") => Some("shards"),
        Some("/apis/core.kcp.io/v1alpha1/logicalclusters") if path.contains('*') => Some("logicalclusters"),
        Some("/apis/tenancy.kcp.io/v1alpha1/workspaces:1de17174") => Some("workspaces"),
        Some("/apis/tenancy.kcp.io/v1alpha1/workspacetypes:1de17174") => Some("workspacetypes"),
        Some("/apis/tenancy.kcp.io/v1alpha1/workspaceauthenticationconfigurations:1de17174") => {
            Some("workspaceauthenticationconfigurations")
        }
        Some("/apis/apis.kcp.io/v1alpha2/apiexports/tenancy.kcp.io") => {
            return json_response(&json!({"metadata": {}, "status": {"identityHash": "1de17174"}}));
        }
        Some("/apis/authorization.k8s.io/v1/subjectaccessreviews")
            if peer.as_deref() == Some("shard-admin") =>
        {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let review: Value = serde_json::from_slice(&body).unwrap();
            let allowed = review["spec"]["user"] == "metrics-reader";
            return json_response(&json!({"status": {"allowed": allowed}}));
        }
        _ => None,
    };
    if let Some(collection) = collection
        && peer.as_deref() == Some("shard-admin")
    {
        return collection_answer(state, collection, &query).await;
    }
    state.requests.fetch_add(1, Ordering::SeqCst);
    state.record_identity_headers(request.headers(), || format!("{} {:?}", request.method(), request.uri()));
    if let Some(refusal) = state.replica.lock().refuse(request.headers()) {
        return refusal;
    }
    let is_head = request.method() == http::Method::HEAD;
    let response = by_name(&state, peer, &path, request).await;
    let response = state.replica.lock().stamp(response);
    // hyper would send the body over HTTP/2.
    if is_head { response.map(|_| empty()) } else { response }
}
