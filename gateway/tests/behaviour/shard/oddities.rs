//! Responses of a test shard to requests that are not the index's, by the last segment of the path.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::StreamExt;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::State;
use super::answers::{Body, empty, full, json_response, streaming};
use super::objects::collection_answer;

/// Not valid gzip, so that an intermediary that decompresses it fails.
pub const GZIP: &[u8] = b"\x1f\x8b\x08\0k8s\0\xff\xfe\r\n0\r\n\r\n";

/// Concurrent requests to `work`.
pub const WORKERS: usize = 16;

/// Requests to `work` of one workspace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    pub open: usize,
    pub most_open: usize,
    pub done: usize,
}

pub(super) async fn by_name(
    state: &Arc<State>,
    peer: Option<String>,
    path: &str,
    request: Request<Incoming>,
) -> Response<Body> {
    let last = path.rsplit('/').next().unwrap_or_default();
    if path.contains("/serviceaccounts/") && peer.as_deref() == Some("shard-admin") {
        return match state.object("serviceaccounts", last) {
            Some(object) => json_response(&object),
            None => Response::builder().status(StatusCode::NOT_FOUND).body(empty()).unwrap(),
        };
    }
    match last {
        "stream" => stream(state),
        // A stream that begins when it is released.
        "late" => {
            let mut release = state.release.subscribe();
            state.waiting.send_modify(|count| *count += 1);
            state.arrived.send_modify(|count| *count += 1);
            let _guard = CountDown(Arc::clone(state));
            release.wait_for(|released| *released).await.unwrap();
            stream(state)
        }
        // A list and a watch that resume from a revision, unlike `stream`.
        "numbers" => {
            let query = request.uri().query().unwrap_or_default().to_owned();
            collection_answer(Arc::clone(state), "numbers", &query).await
        }
        "broken" => broken(state),
        "big" => big(&state.big_sent),
        "kib" => Response::new(full(vec![b'k'; 1024])),
        // A large list with constant content.
        "mib" => {
            static MIB: [u8; 1 << 20] = [b'm'; 1 << 20];
            Response::new(full(&MIB[..]))
        }
        "mirror" => mirror(request).await,
        "upgrade" => upgrade(peer, request, b""),
        "farewell" => upgrade(peer, request, b"farewell"),
        // The 429 of an overloaded API server, and that of an eviction.
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
            .body(full(&b"as the shard says it"[..]))
            .unwrap(),
        "gzip" => Response::builder()
            .header(header::CONTENT_ENCODING, "gzip")
            .header(header::CONTENT_TYPE, "application/vnd.kubernetes.protobuf")
            .body(full(GZIP))
            .unwrap(),
        // A redirect to another server, which the gateway must not follow.
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
            state.arrived.send_modify(|count| *count += 1);
            state.most_waiting.fetch_max(*state.waiting.borrow(), Ordering::SeqCst);
            let _guard = CountDown(Arc::clone(state));
            release.wait_for(|released| *released).await.unwrap();
            json_response(&json!({"released": true}))
        }
        // Two requests at a time, two milliseconds each.
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

/// Duration of one request to `work`. Long enough that the queue and not the machine decides the order, and varied, because
/// requests of equal duration would complete in groups.
fn work(number: usize) -> std::time::Duration {
    std::time::Duration::from_millis(25 + (number as u64 * 37) % 51)
}

/// Counts a request to `work` until it has completed or is aborted.
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

/// Sends every event of the shard, one per line, until the client disconnects.
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

/// Announces ten bytes, sends three, and breaks the connection when released.
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

/// More data than any window holds.
fn big(sent: &Arc<AtomicUsize>) -> Response<Body> {
    let (chunk, sent) = (Bytes::from(vec![b'x'; 64 << 10]), Arc::clone(sent));
    let frames = futures_util::stream::iter((0..1024).map(move |_| {
        sent.fetch_add(chunk.len(), Ordering::SeqCst);
        Ok(Frame::data(chunk.clone()))
    }));
    Response::new(StreamBody::new(frames).boxed_unsync())
}

/// A body and trailers with identity headers, which must not reach clients.
fn trailers() -> Response<Body> {
    let mut fields = http::HeaderMap::new();
    fields.insert("checksum", http::HeaderValue::from_static("900150983cd24fb0"));
    fields.insert("x-remote-user", http::HeaderValue::from_static("root"));
    let frames = [Ok(Frame::data(Bytes::from_static(b"abc"))), Ok(Frame::trailers(fields))];
    Response::new(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync())
}

/// Switches to the requested protocol, echoes the data in upper case, and sends `words` after the end of the request data.
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

/// Returns the request body unchanged.
async fn mirror(request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let mut response = Response::new(full(body));
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
        state.record_identity_headers(trailers, || format!("trailers of {:?}", head.uri));
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
