use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::collection::{Collection, Next};

/// A server of one collection at `…/clusters/<cluster>/apis/…`. It can be stopped and started again on its port.
pub struct Server {
    port: u16,
    shared: Arc<Shared>,
    /// The listener and all connections; `None` while the server is stopped.
    tasks: Option<JoinSet<()>>,
    /// Keeps the port while the server is stopped.
    _reservation: TcpSocket,
}

struct Shared {
    collection: Mutex<Collection>,
    /// Counts the changes of the collection.
    changes: watch::Sender<u64>,
    watches: watch::Sender<usize>,
}

type Body = BoxBody<Bytes, Infallible>;

impl Server {
    pub async fn start() -> Self {
        let reservation = TcpSocket::new_v4().unwrap();
        reservation.set_reuseaddr(true).unwrap();
        reservation.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let port = reservation.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            collection: Mutex::default(),
            changes: watch::Sender::new(0),
            watches: watch::Sender::new(0),
        });
        let mut server = Self { port, shared, tasks: None, _reservation: reservation };
        server.resume().await;
        server
    }

    /// Ends all connections, and refuses new ones.
    pub async fn stop(&mut self) {
        self.tasks.take().unwrap().shutdown().await;
    }

    /// Listens again.
    pub async fn resume(&mut self) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).await.unwrap();
        let shared = Arc::clone(&self.shared);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // Aborted with its set: then the connections end, too.
            let mut connections = JoinSet::new();
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                connections.spawn(serve(tcp, Arc::clone(&shared)));
            }
        });
        self.tasks = Some(tasks);
    }

    /// The URL below which the server has logical clusters.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Reads or changes the collection; watches get what is new after that.
    pub fn with<T>(&self, change: impl FnOnce(&mut Collection) -> T) -> T {
        let result = change(&mut self.shared.lock());
        self.shared.changes.send_modify(|count| *count += 1);
        result
    }

    /// Waits until this number of watches is open.
    pub async fn watches(&self, number: usize) {
        self.shared.watches.subscribe().wait_for(|open| *open == number).await.unwrap();
    }

    /// Waits until the collection fulfils a condition.
    pub async fn wait_for(&self, condition: impl Fn(&Collection) -> bool) {
        let mut changes = self.shared.changes.subscribe();
        while !condition(&self.shared.lock()) {
            changes.changed().await.unwrap();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Collection> {
        self.collection.lock().unwrap()
    }

    fn note(&self, request: String) {
        self.lock().note(request);
        self.changes.send_modify(|count| *count += 1);
    }
}

async fn serve(tcp: tokio::net::TcpStream, shared: Arc<Shared>) {
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(respond(request, &shared).await) }
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(tcp), service).await;
}

async fn respond(request: Request<Incoming>, shared: &Arc<Shared>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let (cluster, path) = split(&head.uri);
    if head.method == Method::PATCH {
        let body = body.collect().await.unwrap().to_bytes();
        let name = path.trim_end_matches("/status").rsplit('/').next().unwrap();
        return patch(cluster, name, &serde_json::from_slice(&body).unwrap(), shared);
    }
    match parameter(&head.uri, "watch") {
        None => {
            shared.note("list".to_owned());
            json_response(200, &shared.lock().list())
        }
        Some(_) => open_watch(parameter(&head.uri, "resourceVersion").unwrap().parse().unwrap(), shared),
    }
}

fn patch(cluster: &str, name: &str, patch: &Value, shared: &Shared) -> Response<Body> {
    shared.note(format!("patch {cluster}"));
    let patched = shared.lock().patch_status(cluster, name, patch);
    shared.changes.send_modify(|count| *count += 1);
    match patched {
        Some(object) => json_response(200, &object),
        None => json_response(404, &json!({ "kind": "Status", "code": 404, "reason": "NotFound" })),
    }
}

fn open_watch(from: u64, shared: &Arc<Shared>) -> Response<Body> {
    shared.note(format!("watch {from}"));
    if let Some(status) = shared.lock().refusal(from) {
        return json_response(410, &status);
    }
    let watch = Watch::open(Arc::clone(shared), from);
    let frames = stream::unfold(watch, |mut watch| async {
        let line = watch.next().await?;
        Some((Ok(Frame::data(Bytes::from(line))), watch))
    });
    Response::new(BodyExt::boxed(StreamBody::new(frames)))
}

/// A watch that is counted while it is open.
struct Watch {
    shared: Arc<Shared>,
    changes: watch::Receiver<u64>,
    position: u64,
    ends: u64,
    is_over: bool,
}

impl Watch {
    fn open(shared: Arc<Shared>, position: u64) -> Self {
        let changes = shared.changes.subscribe();
        shared.watches.send_modify(|open| *open += 1);
        let ends = shared.lock().ends();
        Self { shared, changes, position, ends, is_over: false }
    }

    async fn next(&mut self) -> Option<String> {
        while !self.is_over {
            self.changes.mark_unchanged();
            let next = self.shared.lock().after(self.position);
            let event = match next {
                Next::Event(revision, event) => {
                    self.position = revision;
                    event
                }
                Next::Expired(event) => {
                    self.is_over = true;
                    event
                }
                Next::Nothing if self.shared.lock().ends() != self.ends => return None,
                Next::Nothing => {
                    self.changes.changed().await.ok()?;
                    continue;
                }
            };
            return Some(format!("{event}\n"));
        }
        None
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.watches.send_modify(|open| *open -= 1);
    }
}

fn json_response(status: u16, body: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(body.to_string()));
    Response::builder().status(status).body(BodyExt::boxed(body)).unwrap()
}

/// The logical cluster of a request and the path behind it.
fn split(uri: &Uri) -> (&str, &str) {
    let (_, path) = uri.path().split_once("/clusters/").unwrap();
    path.split_once('/').unwrap()
}

fn parameter<'u>(uri: &'u Uri, name: &str) -> Option<&'u str> {
    let parameters = uri.query()?.split('&').filter_map(|parameter| parameter.split_once('='));
    parameters.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
}
