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
            while let Some(data) = body.data().await {
                assert_eq!(data.unwrap(), "", "the request has no content");
            }
            let trailers = body.trailers().await.unwrap().map_or(0, |trailers: HeaderMap| trailers.len());
            if is_refused {
                return respond.send_reset(h2::Reason::REFUSED_STREAM);
            }
            let mut answer = respond.send_response(Response::new(()), false).unwrap();
            answer.send_data(Bytes::from(format!("after {trailers} trailers")), true).unwrap();
        });
    }
}

/// A retry depends on how much of the request body the earlier attempt has read: if that attempt has read the end of the body, the
/// next one must not wait for the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_write_without_content_is_retried_completely() {
    let requests = Arc::new(watch::Sender::new(0));
    let counter = Arc::clone(&requests);
    let mapped = Mapped::new(|backend| {
        let refusing = move |stream| refuse_at_the_end(stream, Arc::clone(&counter));
        let backend = server(&backend.state.tls(), b"h2", refusing);
        vec![clusters(), json!({"path": "/refusing/", "backend": backend})]
    })
    .await;
    for body in ["0\r\n\r\n", "0\r\nchecksum: 1\r\n\r\n"] {
        let mut stream = mapped.world.connect(Some(&mapped.world.user()), b"http/1.1").await;
        let head = "POST /refusing/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut text = String::new();
        let exchange = async {
            let before = *requests.borrow();
            stream.write_all(head.as_bytes()).await.unwrap();
            // The gateway has not received the end of the empty body yet.
            until(&requests, |count| *count > before).await;
            stream.write_all(body.as_bytes()).await.unwrap();
            stream.read_to_string(&mut text).await.unwrap();
        };
        timeout(LIMIT, exchange).await.expect("the request never ends");
        let is_complete = text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("after ");
        // Trailers that the first attempt has consumed cannot be sent again: the client may get 503 with Retry-After.
        let is_refused =
            text.starts_with("HTTP/1.1 503 ") && text.to_ascii_lowercase().contains("\r\nretry-after: ");
        assert!(is_complete || (is_refused && body.contains("checksum")), "{body:?}: {text}");
    }
    assert!(*requests.borrow() >= 3, "no request was refused");
}
