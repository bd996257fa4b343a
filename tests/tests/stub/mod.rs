//! A minimal API server for the load generator: lists are always empty at revision 1, watches receive all writes since then,
//! workspaces become ready at once.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use fairlead_certs::Server as Role;
use fairlead_tests::harness::Pki;
use futures_util::stream;
use http::{Method, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

pub struct Stub {
    pub port: u16,
    pub pki: Pki,
    state: Arc<State>,
    _directory: tempfile::TempDir,
}

struct State {
    connections: AtomicUsize,
    workspaces: AtomicUsize,
    /// Collection and event, in the order of their revisions.
    events: watch::Sender<Vec<(String, Bytes)>>,
}

type Body = BoxBody<Bytes, Infallible>;

impl Stub {
    pub async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let pki = Pki::new(directory.path(), &["root"]).unwrap();
        let files = pki.layout().serving_cert(&Role::Gateway);
        let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(
            rustls::crypto::aws_lc_rs::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            CertificateDer::pem_file_iter(&files.certificate).unwrap().map(Result::unwrap).collect(),
            PrivateKeyDer::from_pem_file(&files.key).unwrap(),
        )
        .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            connections: AtomicUsize::new(0),
            workspaces: AtomicUsize::new(0),
            events: watch::Sender::default(),
        });
        let shared = state.clone();
        tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let (acceptor, state) = (acceptor.clone(), shared.clone());
                tokio::spawn(async move {
                    let Ok(tls) = acceptor.accept(tcp).await else { return };
                    let service = service_fn(move |request| respond(state.clone(), request));
                    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(tls), service).await;
                });
            }
        });
        Self { port, pki, state, _directory: directory }
    }

    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }
}

async fn respond(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let path = head.uri.path().to_owned();
    let collection = match head.method {
        Method::PATCH => path.rsplit_once('/').unwrap().0.to_owned(),
        _ => path.clone(),
    };
    let emit = |kind: &str, object: &mut Value| {
        state.events.send_modify(|events| {
            object["metadata"]["resourceVersion"] = json!((events.len() + 2).to_string());
            let line = format!("{}\n", json!({ "type": kind, "object": object }));
            events.push((collection.clone(), line.into()));
        });
    };
    if head.method == Method::PATCH {
        let mut object: Value = serde_json::from_slice(&body).unwrap();
        emit("MODIFIED", &mut object);
        return Ok(full(200, object.to_string()));
    }
    if head.method == Method::POST {
        let mut object: Value = serde_json::from_slice(&body).unwrap();
        if path.ends_with("/workspaces") {
            let number = state.workspaces.fetch_add(1, Ordering::SeqCst);
            // Requests to each fourth workspace are forbidden at first, although its status says Ready.
            let place = if number.is_multiple_of(4) { "forbidden" } else { "clusters" };
            object["status"] = json!({ "phase": "Scheduling" });
            emit("ADDED", &mut object);
            object["spec"]["URL"] = json!(format!("https://localhost:1/{place}/root:w"));
            object["status"] = json!({ "phase": "Ready" });
            emit("MODIFIED", &mut object);
        }
        return Ok(full(201, object.to_string()));
    }
    if path.contains("/forbidden") {
        return Ok(full(403, "no".to_owned()));
    }
    if !head.uri.query().unwrap_or_default().contains("watch=1") {
        return Ok(full(200, json!({ "metadata": { "resourceVersion": "1" }, "items": [] }).to_string()));
    }
    let start = (state.events.subscribe(), 0, path);
    let events = stream::unfold(start, |(mut events, mut next, path)| async move {
        loop {
            let line = {
                let all = events.wait_for(|all| all.len() > next).await.ok()?;
                let (collection, line) = &all[next];
                (*collection == path).then(|| line.clone())
            };
            next += 1;
            if let Some(line) = line {
                return Some((Ok(Frame::data(line)), (events, next, path)));
            }
        }
    });
    Ok(Response::new(BodyExt::boxed(StreamBody::new(events))))
}

fn full(status: u16, body: String) -> Response<Body> {
    Response::builder().status(status).body(Full::new(Bytes::from(body)).boxed()).unwrap()
}
