//! Retries send the complete request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::interim::server;
use crate::mapping::{Mapped, clusters};
use crate::world::until;

/// Only to fail instead of hanging.
const LIMIT: Duration = Duration::from_secs(20);

/// Reads each request to its end, then refuses every other one with REFUSED_STREAM: the request was not processed (RFC 9113).
/// Counts the requests when they begin.
async fn refuse_at_the_end(stream: TlsStream<TcpStream>, requests: Arc<watch::Sender<usize>>) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        requests.send_modify(|count| *count += 1);
        let is_refused = !requests.borrow().is_multiple_of(2);
        tokio::spawn(async move {
            let mut body = request.into_body();
            let mut content = Vec::new();
            while let Some(data) = body.data().await {
                let data = data.unwrap();
                body.flow_control().release_capacity(data.len()).unwrap();
                content.extend_from_slice(&data);
            }
            let trailers = body.trailers().await.unwrap().map_or(0, |trailers: HeaderMap| trailers.len());
            if is_refused {
                return respond.send_reset(h2::Reason::REFUSED_STREAM);
            }
            let mut answer = respond.send_response(Response::new(()), false).unwrap();
            let digest = digest(&content);
            answer.send_data(Bytes::from(format!("after {digest} and {trailers} trailers")), true).unwrap();
        });
    }
}

/// The length of a content, and a sum that depends on the order of its bytes.
fn digest(content: &[u8]) -> String {
    let sum = content.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    format!("{} bytes {sum:x}", content.len())
}

/// A retry depends on how much of the request body the earlier attempt has read: it begins with that part, and if the end was read,
/// it must not wait for the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_write_is_retried_completely() {
    let requests = Arc::new(watch::Sender::new(0));
    let counter = Arc::clone(&requests);
    let mapped = Mapped::new(|backend| {
        let refusing = move |stream| refuse_at_the_end(stream, Arc::clone(&counter));
        let backend = server(&backend.state.tls(), b"h2", refusing);
        vec![clusters(), json!({"path": "/refusing/", "backend": backend})]
    })
    .await;
    let pattern: String = ('a'..='z').cycle().take((64 << 10) + 1).collect();
    // The parts of a content, trailers, and whether the client may get 503 with Retry-After: trailers are not kept for a retry, nor
    // is more than 64 KiB.
    let cases: [(&[&str], &str, bool); 5] = [
        (&[], "", false),
        (&[], "checksum: 1\r\n", true),
        (&["{\"kind\":", "\"ConfigMap\"}"], "", false),
        (&[&pattern[..1], &pattern[1..64 << 10]], "", false),
        (&[&pattern], "", true),
    ];
    for (parts, trailers, may_be_refused) in cases {
        let mut stream = mapped.world.connect(Some(&mapped.world.user()), b"http/1.1").await;
        let head = "POST /refusing/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut text = String::new();
        let before = *requests.borrow();
        let exchange = async {
            stream.write_all(head.as_bytes()).await.unwrap();
            // The gateway has not received the end of the body yet.
            until(&requests, |count| *count > before).await;
            for part in parts {
                stream.write_all(format!("{:x}\r\n{part}\r\n", part.len()).as_bytes()).await.unwrap();
            }
            stream.write_all(format!("0\r\n{trailers}\r\n").as_bytes()).await.unwrap();
            stream.read_to_string(&mut text).await.unwrap();
        };
        timeout(LIMIT, exchange).await.expect("the request never ends");
        let content = digest(parts.concat().as_bytes());
        let is_complete =
            text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains(&format!("after {content} and "));
        let is_refused =
            text.starts_with("HTTP/1.1 503 ") && text.to_ascii_lowercase().contains("\r\nretry-after: ");
        assert!(is_complete || (is_refused && may_be_refused), "{content} {trailers:?}: {text}");
        // The next request is refused again.
        if (*requests.borrow() - before) % 2 == 1 {
            requests.send_modify(|count| *count += 1);
        }
    }
}
