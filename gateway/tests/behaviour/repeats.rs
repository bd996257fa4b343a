//! Requests that are sent once more are sent whole.

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

/// Reads each request to its end and refuses every other one then (REFUSED_STREAM: nothing was done with it). Counts those that
/// have begun.
async fn refuse_at_the_end(stream: TlsStream<TcpStream>, requests: Arc<watch::Sender<usize>>) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        requests.send_modify(|count| *count += 1);
        let is_refused = !requests.borrow().is_multiple_of(2);
        tokio::spawn(async move {
            let mut body = request.into_body();
            while let Some(data) = body.data().await {
                assert_eq!(data.unwrap(), "", "nothing was sent");
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

/// How a request can be repeated depends on how much of its body the earlier attempt has read: an attempt that has read the end
/// must not leave the next one waiting for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_write_without_content_is_retried_completely() {
    let requests = Arc::new(watch::Sender::new(0));
    let seen = Arc::clone(&requests);
    let mapped = Mapped::new(|backend| {
        let refusing = move |stream| refuse_at_the_end(stream, Arc::clone(&seen));
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
            // The gateway does not know yet that there is no body.
            until(&requests, |count| *count > before).await;
            stream.write_all(body.as_bytes()).await.unwrap();
            stream.read_to_string(&mut text).await.unwrap();
        };
        timeout(LIMIT, exchange).await.expect("the request never ends");
        let is_whole = text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("after ");
        // Trailers that the first attempt has taken along are gone: the client is told to try again.
        let is_refused =
            text.starts_with("HTTP/1.1 503 ") && text.to_ascii_lowercase().contains("\r\nretry-after: ");
        assert!(is_whole || (is_refused && body.contains("checksum")), "{body:?}: {text}");
    }
    assert!(*requests.borrow() >= 3, "nothing was refused");
}
