//! A shard that exists only as far as the gateway can tell: lists and watches of what the index reads, and
//! otherwise an echo of every request, with some odd behaviours by path.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures_util::StreamExt;
use http::{Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, broadcast, mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio_rustls::TlsAcceptor;

/// Not really compressed: nobody on the way may look.
pub const GZIP: &[u8] = b"\x1f\x8b\x08\0k8s\0\xff\xfe\r\n0\r\n\r\n";

/// How many requests for `work` a shard does at a time.
pub const WORKERS: usize = 16;

/// How long one takes: so much longer than anything on the way that it is the queue that decides, not the machine; and
/// not all as long, or those that began together would always end together.
fn work(number: usize) -> std::time::Duration {
    std::time::Duration::from_millis(25 + (number as u64 * 37) % 51)
}

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

pub struct Shard {
    pub address: SocketAddr,
    pub state: Arc<State>,
    server: Mutex<JoinHandle<()>>,
}

pub struct State {
    pub name: String,
    /// What new connections are shown, and asked for.
    tls: Mutex<Arc<rustls::ServerConfig>>,
    log: Mutex<Log>,
    changed: watch::Sender<u64>,
    /// Open `/stream` responses.
    pub streams: watch::Sender<usize>,
    /// What `/stream` responses send.
    pub events: broadcast::Sender<Bytes>,
    /// Accepted connections.
    pub connections: AtomicUsize,
    /// Lists served to the index.
    pub lists: AtomicUsize,
    /// Watches that the index has opened.
    pub followed: watch::Sender<usize>,
    /// While this is true, lists are not answered.
    pub held: watch::Sender<bool>,
    open: Mutex<Vec<Open>>,
    /// `/wait` answers when this becomes true.
    pub release: watch::Sender<bool>,
    /// Bytes that `/big` responses have sent.
    pub big_sent: Arc<AtomicUsize>,
    /// Requests that wait in `/wait`, and how many there ever were at the same time.
    pub waiting: watch::Sender<usize>,
    pub most_waiting: AtomicUsize,
    /// Who may be served by `slow`.
    slow: Semaphore,
    /// Who may be served by `work`.
    workers: Semaphore,
    /// What became of requests for `work`, by the first part of their paths.
    pub work: Mutex<BTreeMap<String, Work>>,
    /// The order in which requests for `turn-…` came.
    pub turns: Mutex<Vec<String>>,
    /// Whatever requests said about who sends them, each with the first request that said so.
    pub identities: Mutex<BTreeMap<Vec<String>, String>>,
    /// Requests other than the index's own.
    pub requests: AtomicUsize,
    /// Request bodies that broke off.
    pub broken: watch::Sender<usize>,
    /// While this is true, requests of gateways break off; those of the index do not.
    pub failing: AtomicBool,
    /// Counts up when all HTTP/2 connections are told to go away.
    goaway: watch::Sender<usize>,
}

/// Requests for `work` of one workspace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    pub open: usize,
    pub most_open: usize,
    pub done: usize,
}

/// A connection, and whose it is once that is known.
struct Open {
    task: AbortHandle,
    peer: Arc<OnceLock<String>>,
}

impl Open {
    fn is_of(&self, peer: &str) -> bool {
        self.peer.get().is_some_and(|name| name == peer)
    }
}

#[derive(Default)]
struct Log {
    objects: BTreeMap<(String, String), Value>,
    events: Vec<(u64, String, Value)>,
    revision: u64,
    /// What happened up to here is forgotten.
    compacted: u64,
}

impl Shard {
    pub async fn start(name: &str, tls: Arc<rustls::ServerConfig>) -> Self {
        Self::start_at(name, tls, SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    pub async fn start_at(name: &str, tls: Arc<rustls::ServerConfig>, address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            name: name.to_owned(),
            tls: Mutex::new(tls),
            log: Mutex::default(),
            changed: watch::Sender::new(0),
            streams: watch::Sender::new(0),
            events: broadcast::Sender::new(1024),
            connections: AtomicUsize::new(0),
            lists: AtomicUsize::new(0),
            followed: watch::Sender::new(0),
            held: watch::Sender::new(false),
            open: Mutex::default(),
            release: watch::Sender::new(false),
            big_sent: Arc::default(),
            waiting: watch::Sender::new(0),
            most_waiting: AtomicUsize::new(0),
            slow: Semaphore::new(2),
            workers: Semaphore::new(WORKERS),
            work: Mutex::default(),
            turns: Mutex::default(),
            identities: Mutex::default(),
            requests: AtomicUsize::new(0),
            broken: watch::Sender::new(0),
            failing: AtomicBool::new(false),
            goaway: watch::Sender::new(0),
        });
        let server = Mutex::new(tokio::spawn(serve(listener, Arc::clone(&state))));
        Self { address, state, server }
    }

    /// One that was killed comes back where it was, with all that it knew.
    pub async fn revive(&self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        *self.server.lock() = tokio::spawn(serve(listener, Arc::clone(&self.state)));
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Closes the listener and all connections.
    pub async fn stop(self) {
        self.kill().await;
    }

    /// The same, for a shard that stays where it is.
    pub async fn kill(&self) {
        self.server.lock().abort();
        while !self.server.lock().is_finished() {
            tokio::task::yield_now().await;
        }
        self.state.cut_connections();
    }
}

impl State {
    pub fn open_connections(&self) -> usize {
        self.open.lock().iter().filter(|connection| !connection.task.is_finished()).count()
    }

    /// Cuts all connections; new ones are accepted.
    pub fn cut_connections(&self) {
        self.open.lock().drain(..).for_each(|connection| connection.task.abort());
    }

    /// The same for those of one peer, by the common name of its certificate.
    pub fn cut_connections_of(&self, peer: &str) {
        let open = self.open.lock();
        open.iter()
            .filter(|connection| connection.is_of(peer))
            .for_each(|connection| connection.task.abort());
    }

    /// How many connections of one peer are open.
    pub fn open_connections_of(&self, peer: &str) -> usize {
        let open = self.open.lock();
        open.iter().filter(|connection| connection.is_of(peer) && !connection.task.is_finished()).count()
    }

    /// What new connections are shown, and asked for.
    pub fn tls(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.tls.lock())
    }

    /// New connections are shown another certificate, or asked for one of other authorities.
    pub fn set_tls(&self, tls: Arc<rustls::ServerConfig>) {
        *self.tls.lock() = tls;
    }

    /// Tells the clients of all HTTP/2 connections to ask elsewhere (GOAWAY); what they have asked is answered.
    pub fn send_goaway(&self) {
        self.goaway.send_modify(|count| *count += 1);
    }

    /// Remembers what a request says about who sends it, in whatever spelling a careless reader might accept.
    fn witness(&self, headers: &http::HeaderMap, which: impl FnOnce() -> String) {
        let careless = |name: &http::HeaderName| name.as_str().replace('_', "-");
        let claims = |name: &http::HeaderName| {
            let name = careless(name);
            let kind = name.strip_prefix("x-remote-").unwrap_or_default();
            matches!(kind, "user" | "group" | "uid") || kind.starts_with("extra-")
        };
        let mut said: Vec<String> = headers
            .iter()
            .filter(|(name, _)| claims(name))
            .map(|(name, value)| format!("{name}: {}", value.as_bytes().escape_ascii()))
            .collect();
        said.sort();
        self.identities.lock().entry(said).or_insert_with(which);
    }

    pub fn put(&self, collection: &str, key: &str, object: Value) {
        self.write(collection, key, Some(object));
    }

    pub fn delete(&self, collection: &str, key: &str) {
        self.write(collection, key, None);
    }

    /// Forgets what happened so far: watches from before are 410.
    pub fn compact(&self) {
        let mut log = self.log.lock();
        log.compacted = log.revision;
        log.events.clear();
    }

    fn write(&self, collection: &str, key: &str, object: Option<Value>) {
        let mut log = self.log.lock();
        log.revision += 1;
        let revision = log.revision;
        let place = (collection.to_owned(), key.to_owned());
        let (kind, mut object) = match object {
            Some(object) => {
                let known = log.objects.insert(place, object.clone()).is_some();
                (if known { "MODIFIED" } else { "ADDED" }, object)
            }
            None => ("DELETED", log.objects.remove(&place).unwrap()),
        };
        object["metadata"]["resourceVersion"] = json!(revision.to_string());
        log.events.push((revision, collection.to_owned(), json!({"type": kind, "object": object})));
        drop(log);
        self.changed.send_replace(revision);
    }

    fn list(&self, collection: &str, from: usize, limit: usize) -> Value {
        let log = self.log.lock();
        let all: Vec<&Value> = log
            .objects
            .iter()
            .filter(|((known, _), _)| known == collection)
            .map(|(_, object)| object)
            .collect();
        let until = (from + limit).min(all.len());
        let next = if until < all.len() { until.to_string() } else { String::new() };
        let metadata = json!({"resourceVersion": log.revision.to_string(), "continue": next});
        json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": all[from.min(until)..until]})
    }

    /// `None` if they are forgotten.
    fn events_after(&self, collection: &str, revision: u64) -> Option<(Vec<Bytes>, u64)> {
        let log = self.log.lock();
        if revision < log.compacted {
            return None;
        }
        let first = log.events.partition_point(|(at, _, _)| *at <= revision);
        let lines = log.events[first..]
            .iter()
            .filter(|(_, known, _)| known == collection)
            .map(|(_, _, event)| Bytes::from(format!("{event}\n")))
            .collect();
        Some((lines, log.revision))
    }
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
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

/// It is not ready, and breaks off what it is asked.
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
    state.witness(request.headers(), || format!("{} {:?}", request.method(), request.uri()));
    let is_head = request.method() == http::Method::HEAD;
    let response = by_name(&state, peer, &path, request).await;
    // hyper would send the body over HTTP/2.
    if is_head { response.map(|_| empty()) } else { response }
}

async fn by_name(
    state: &Arc<State>,
    peer: Option<String>,
    path: &str,
    request: Request<Incoming>,
) -> Response<Body> {
    let last = path.rsplit('/').next().unwrap_or_default();
    if path.contains("/serviceaccounts/") && peer.as_deref() == Some("shard-admin") {
        let place = ("serviceaccounts".to_owned(), last.to_owned());
        return match state.log.lock().objects.get(&place) {
            Some(object) => json_response(object),
            None => Response::builder().status(StatusCode::NOT_FOUND).body(empty()).unwrap(),
        };
    }
    match last {
        "stream" => stream(state),
        // The same, once it is released.
        "late" => {
            let mut release = state.release.subscribe();
            state.waiting.send_modify(|count| *count += 1);
            let _guard = CountDown(Arc::clone(state));
            release.wait_for(|released| *released).await.unwrap();
            stream(state)
        }
        // Resumable, unlike the one above.
        "numbers" => {
            let query = request.uri().query().unwrap_or_default().to_owned();
            collection_answer(Arc::clone(state), "numbers", &query).await
        }
        "broken" => broken(state),
        "big" => big(&state.big_sent),
        "kib" => Response::new(
            Full::new(Bytes::from(vec![b'k'; 1024])).map_err(|never| match never {}).boxed_unsync(),
        ),
        // A large list, always the same bytes.
        "mib" => {
            static MIB: [u8; 1 << 20] = [b'm'; 1 << 20];
            Response::new(Full::new(Bytes::from_static(&MIB)).map_err(|never| match never {}).boxed_unsync())
        }
        "mirror" => mirror(request).await,
        "upgrade" => upgrade(peer, request, b""),
        "farewell" => upgrade(peer, request, b"farewell"),
        // As requests in flight and priority and fairness turn away, and as an eviction is refused.
        "crowded" | "evict" => {
            let kind = if last == "crowded" { "text/plain; charset=utf-8" } else { "application/json" };
            let mut response = json_response(&json!({"kind": "Status", "code": 429}));
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            response.headers_mut().insert(header::CONTENT_TYPE, kind.parse().unwrap());
            response
        }
        "trailers" => trailers(),
        name if name.starts_with("code-") => Response::builder()
            .status(name["code-".len()..].parse::<u16>().unwrap())
            .header(header::RETRY_AFTER, "7")
            .header("x-kubernetes-pf-flowschema-uid", "u")
            .body(
                Full::new(Bytes::from_static(b"as the shard says it"))
                    .map_err(|never| match never {})
                    .boxed_unsync(),
            )
            .unwrap(),
        "gzip" => Response::builder()
            .header(header::CONTENT_ENCODING, "gzip")
            .header(header::CONTENT_TYPE, "application/vnd.kubernetes.protobuf")
            .body(Full::new(Bytes::from_static(GZIP)).map_err(|never| match never {}).boxed_unsync())
            .unwrap(),
        // Somewhere else, where nobody may go on the client's behalf.
        "redirect" => Response::builder()
            .status(StatusCode::TEMPORARY_REDIRECT)
            .header(header::LOCATION, "https://localhost:1/elsewhere")
            .body(empty())
            .unwrap(),
        // The body is not read.
        "early" => Response::builder().status(StatusCode::PAYLOAD_TOO_LARGE).body(empty()).unwrap(),
        "wait" => {
            let mut release = state.release.subscribe();
            state.waiting.send_modify(|count| *count += 1);
            state.most_waiting.fetch_max(*state.waiting.borrow(), Ordering::SeqCst);
            let _guard = CountDown(Arc::clone(state));
            release.wait_for(|released| *released).await.unwrap();
            json_response(&json!({"released": true}))
        }
        // Two at a time, two milliseconds each.
        "slow" => {
            let _turn = state.slow.acquire().await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            json_response(&json!({}))
        }
        "work" => {
            let workspace = path.split('/').nth(2).unwrap_or_default().to_owned();
            let _open = OpenWork::begin(state, workspace);
            let _worker = state.workers.acquire().await.unwrap();
            tokio::time::sleep(work(state.requests.load(Ordering::SeqCst))).await;
            json_response(&json!({}))
        }
        name if name.starts_with("turn-") => {
            state.turns.lock().push(name["turn-".len()..].to_owned());
            json_response(&json!({}))
        }
        _ => echo(state, peer, request).await,
    }
}

/// Counts a request for `work` until it is done or given up.
struct OpenWork {
    state: Arc<State>,
    workspace: String,
}

impl OpenWork {
    fn begin(state: &Arc<State>, workspace: String) -> Self {
        let mut all = state.work.lock();
        let work = all.entry(workspace.clone()).or_default();
        work.open += 1;
        work.most_open = work.most_open.max(work.open);
        Self { state: Arc::clone(state), workspace }
    }
}

impl Drop for OpenWork {
    fn drop(&mut self) {
        let mut all = self.state.work.lock();
        let work = all.entry(std::mem::take(&mut self.workspace)).or_default();
        (work.open, work.done) = (work.open - 1, work.done + 1);
    }
}

struct CountDown(Arc<State>);

impl Drop for CountDown {
    fn drop(&mut self) {
        self.0.waiting.send_modify(|count| *count -= 1);
    }
}

async fn collection_answer(state: Arc<State>, collection: &'static str, query: &str) -> Response<Body> {
    let parameter = |name: &str| {
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
    };
    if parameter("watch").is_none() {
        let number =
            |name: &str, default| parameter(name).and_then(|text| text.parse().ok()).unwrap_or(default);
        let (from, limit) = (number("continue", 0), number("limit", usize::MAX >> 1));
        if from == 0 {
            state.lists.fetch_add(1, Ordering::SeqCst);
        }
        state.held.subscribe().wait_for(|held| !held).await.unwrap();
        return json_response(&state.list(collection, from, limit));
    }
    let mut revision: u64 = parameter("resourceVersion").unwrap().parse().unwrap();
    if state.events_after(collection, revision).is_none() {
        let gone = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
        let mut response = json_response(&gone);
        *response.status_mut() = StatusCode::GONE;
        return response;
    }
    if collection != "numbers" {
        state.followed.send_modify(|count| *count += 1);
    }
    let (sender, receiver) = mpsc::channel(64);
    tokio::spawn(async move {
        let mut changed = state.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let Some((lines, until)) = state.events_after(collection, revision) else { return };
            revision = until;
            for line in lines {
                if sender.send(line).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                outcome = changed.changed() => if outcome.is_err() { return },
                () = sender.closed() => return,
            }
        }
    });
    streaming(receiver)
}

/// Sends every event of the shard, one line each, until the client leaves.
fn stream(state: &Arc<State>) -> Response<Body> {
    let (sender, receiver) = mpsc::channel(64);
    let mut events = state.events.subscribe();
    let state = Arc::clone(state);
    state.streams.send_modify(|count| *count += 1);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Ok(line) => if sender.send(line).await.is_err() { break },
                    Err(_) => break,
                },
                () = sender.closed() => break,
            }
        }
        state.streams.send_modify(|count| *count -= 1);
    });
    streaming(receiver)
}

/// Promises ten bytes, sends three and breaks off when released.
fn broken(state: &Arc<State>) -> Response<Body> {
    let mut release = state.release.subscribe();
    let first = futures_util::stream::iter([Ok(Frame::data(Bytes::from_static(b"abc")))]);
    let rest = futures_util::stream::once(async move {
        release.wait_for(|released| *released).await.unwrap();
        Err(std::io::Error::other("broken on purpose"))
    });
    Response::builder()
        .header(header::CONTENT_LENGTH, 10)
        .body(StreamBody::new(first.chain(rest)).boxed_unsync())
        .unwrap()
}

/// More than any window holds.
fn big(sent: &Arc<AtomicUsize>) -> Response<Body> {
    let (chunk, sent) = (Bytes::from(vec![b'x'; 64 << 10]), Arc::clone(sent));
    let frames = futures_util::stream::iter((0..1024).map(move |_| {
        sent.fetch_add(chunk.len(), Ordering::SeqCst);
        Ok(Frame::data(chunk.clone()))
    }));
    Response::new(StreamBody::new(frames).boxed_unsync())
}

/// A body and trailers, among them what no client may believe.
fn trailers() -> Response<Body> {
    let mut fields = http::HeaderMap::new();
    fields.insert("checksum", http::HeaderValue::from_static("900150983cd24fb0"));
    fields.insert("x-remote-user", http::HeaderValue::from_static("root"));
    let frames = [Ok(Frame::data(Bytes::from_static(b"abc"))), Ok(Frame::trailers(fields))];
    Response::new(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync())
}

/// Switches to whatever is asked for and sends everything back in upper case, and a few words when all is said.
fn upgrade(peer: Option<String>, request: Request<Incoming>, words: &'static [u8]) -> Response<Body> {
    let Some(protocol) = request.headers().get(header::UPGRADE).cloned() else {
        return Response::builder().status(StatusCode::BAD_REQUEST).body(empty()).unwrap();
    };
    let has_connection = request.headers().get(header::CONNECTION).is_some_and(|value| value == "Upgrade");
    if !has_connection {
        return Response::builder().status(StatusCode::BAD_REQUEST).body(empty()).unwrap();
    }
    let arrived: Vec<&str> = request.headers().keys().map(http::HeaderName::as_str).collect();
    let arrived = arrived.join(" ");
    tokio::spawn(async move {
        let Ok(upgraded) = hyper::upgrade::on(request).await else { return };
        let mut stream = TokioIo::new(upgraded);
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            if stream.write_all(&buffer[..count].to_ascii_uppercase()).await.is_err() {
                return;
            }
        }
        let _ = stream.write_all(words).await;
        let _ = stream.shutdown().await;
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, protocol)
        .header("x-arrived", arrived)
        .header("x-peer", peer.unwrap_or_default())
        .body(empty())
        .unwrap()
}

/// Gives back what came, byte for byte.
async fn mirror(request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let mut response = Response::new(Full::new(body).map_err(|never| match never {}).boxed_unsync());
    for name in [header::CONTENT_TYPE, header::CONTENT_ENCODING] {
        let values = head.headers.get(&name).cloned();
        response.headers_mut().extend(values.map(|value| (name, value)));
    }
    response
}

async fn echo(state: &State, peer: Option<String>, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let collected = body.collect().await;
    let (body, trailers) = match collected {
        Ok(collected) => (collected.trailers().cloned(), collected.to_bytes()),
        Err(_) => {
            state.broken.send_modify(|count| *count += 1);
            (None, Bytes::new())
        }
    }
    .swap();
    if let Some(trailers) = &trailers {
        state.witness(trailers, || format!("trailers of {:?}", head.uri));
    }
    let lines = |map: &http::HeaderMap| -> Vec<String> {
        map.iter()
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
            .collect()
    };
    let authority = head.uri.authority().map(ToString::to_string);
    json_response(&json!({
        "shard": state.name,
        "peer": peer,
        "method": head.method.as_str(),
        "path": head.uri.path_and_query().map(ToString::to_string),
        "authority": authority,
        "version": format!("{:?}", head.version),
        "headers": lines(&head.headers),
        "trailers": trailers.as_ref().map(lines),
        "body": String::from_utf8_lossy(&body),
    }))
}

trait Swap<A, B> {
    fn swap(self) -> (B, A);
}

impl<A, B> Swap<A, B> for (A, B) {
    fn swap(self) -> (B, A) {
        (self.1, self.0)
    }
}

fn streaming(receiver: mpsc::Receiver<Bytes>) -> Response<Body> {
    let frames = futures_util::stream::unfold(receiver, |mut receiver| async {
        let line = receiver.recv().await?;
        Some((line, receiver))
    })
    .map(|line| Ok(Frame::data(line)));
    Response::builder()
        .header(header::CONTENT_TYPE, "application/json")
        .body(StreamBody::new(frames).boxed_unsync())
        .unwrap()
}

fn json_response(value: &Value) -> Response<Body> {
    let text = value.to_string();
    Response::builder()
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONTENT_LENGTH, text.len())
        .body(Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync())
        .unwrap()
}

fn empty() -> Body {
    Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync()
}
