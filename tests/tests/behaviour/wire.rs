//! Low-level requests that client libraries do not send.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use fairlead_client::Credentials;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::installation::within;

/// A TLS connection to the server of a URL.
pub async fn connect(url: &str, credentials: &Credentials, protocol: &str) -> TlsStream<TcpStream> {
    let mut config = (**credentials.tls_config()).clone();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let address = url.trim_start_matches("https://");
    let tcp = within("a connection", TcpStream::connect(address)).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    within("a handshake", TlsConnector::from(Arc::new(config)).connect(name, tcp)).await.unwrap()
}

/// Sends a text over HTTP/1.1 and reads until the response is complete or the server closes the connection.
pub async fn raw(url: &str, credentials: &Credentials, text: &str) -> (u16, String) {
    let mut stream = connect(url, credentials, "http/1.1").await;
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    while !is_complete(&response) {
        // A server that responds early may also close without reading the whole request.
        match within("the rest of the response", stream.read_buf(&mut response)).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    let response = String::from_utf8_lossy(&response).into_owned();
    let code = response.split(' ').nth(1).and_then(|code| code.parse().ok());
    (code.unwrap_or_else(|| panic!("no response to {text:?}: {response:?}")), response)
}

fn is_complete(response: &[u8]) -> bool {
    let text = String::from_utf8_lossy(response);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    match length {
        Some(length) => body.len() >= length,
        None => head.contains("transfer-encoding: chunked") && body.ends_with("0\r\n\r\n"),
    }
}

/// A complete response.
#[derive(Debug)]
pub struct RawResponse {
    pub code: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl RawResponse {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Sends a request over HTTP/2 unchanged.
pub async fn send(
    url: &str,
    credentials: &Credentials,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> RawResponse {
    send_with_trailers(url, credentials, method, path, headers, body, &[]).await
}

/// Sends a request over HTTP/2 with trailers.
pub async fn send_with_trailers(
    url: &str,
    credentials: &Credentials,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
    trailers: &[(&str, &str)],
) -> RawResponse {
    let stream = connect(url, credentials, "h2").await;
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(format!("{url}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let trailers: Vec<_> = trailers
        .iter()
        .map(|(name, value)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
        })
        .collect();
    let after = (!trailers.is_empty()).then(|| Frame::trailers(trailers.into_iter().collect()));
    let frames = [Some(Frame::data(body.into())), after].into_iter().flatten().map(Ok::<_, Infallible>);
    let request = request.body(StreamBody::new(futures_util::stream::iter(frames))).unwrap();
    let response = complete(within("a response", sender.send_request(request)).await.unwrap()).await;
    connection.abort();
    response
}

async fn complete(response: Response<Incoming>) -> RawResponse {
    let (head, body) = response.into_parts();
    let body = within("the body of a response", body.collect()).await.unwrap().to_bytes();
    RawResponse {
        code: head.status.as_u16(),
        headers: head.headers,
        text: String::from_utf8_lossy(&body).into_owned(),
    }
}
