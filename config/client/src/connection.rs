//! A connection: dialling, TLS, and HTTP/2 if the server supports it, otherwise HTTP/1.1.

use std::error::Error;
use std::sync::Arc;

use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tracing::debug;

use crate::credentials::Credentials;
use crate::endpoint::Endpoint;
use crate::error::ClientError;
use crate::options::ClientOptions;
use crate::request_body::RequestBody;

/// A connection that is ready for requests. Its driver task ends when the connection does; an HTTP/2 connection
/// whose senders are all dropped finishes its open streams and closes.
pub(crate) enum Connection {
    /// Many requests at a time; cheap to clone.
    Http2(http2::SendRequest<RequestBody>),
    /// One request at a time.
    Http1(http1::SendRequest<RequestBody>),
}

/// A request that got no response.
pub(crate) struct SendFailure {
    /// The body of a request that was never sent, so that a retry is safe.
    pub(crate) unsent: Option<RequestBody>,
    pub(crate) error: Arc<dyn Error + Send + Sync>,
}

/// Opens a connection. The caller limits the time. `attempt` selects which of several addresses is tried first.
pub(crate) async fn dial(
    endpoint: &Endpoint,
    credentials: &Credentials,
    options: &ClientOptions,
    attempt: usize,
) -> Result<Connection, ClientError> {
    let name: Arc<str> = format!("{}:{}", endpoint.host(), endpoint.port()).into();
    let connect = |source| ClientError::Connect { endpoint: name.clone(), source: Arc::new(source) };
    let mut addresses = options.resolver.look_up(endpoint.host(), endpoint.port()).await.map_err(connect)?;
    let first = attempt.checked_rem(addresses.len()).unwrap_or_default();
    addresses.rotate_left(first);
    let tcp = TcpStream::connect(&addresses[..]).await.map_err(connect)?;
    tcp.set_nodelay(true).map_err(connect)?;
    if !endpoint.is_tls() {
        return http1_handshake(tcp, &name).await;
    }
    let server_name = credentials.server_name(endpoint.host()).map_err(Arc::new)?;
    let tls = TlsConnector::from(credentials.tls_config().clone())
        .connect(server_name, tcp)
        .await
        .map_err(|source| ClientError::Tls { endpoint: name.clone(), source: Arc::new(source) })?;
    if tls.get_ref().1.alpn_protocol() == Some(b"h2") {
        http2_handshake(tls, &name, options).await
    } else {
        http1_handshake(tls, &name).await
    }
}

/// Sends one request over HTTP/2, which uses the absolute URI.
pub(crate) async fn send_http2(
    sender: &mut http2::SendRequest<RequestBody>,
    request: Request<RequestBody>,
) -> Result<Response<Incoming>, SendFailure> {
    sender.try_send_request(request).await.map_err(|mut failure| {
        let unsent = failure.take_message().map(Request::into_body);
        SendFailure { unsent, error: Arc::new(failure.into_error()) }
    })
}

/// Sends one request over HTTP/1.1, which sends path and host separately.
pub(crate) async fn send_http1(
    sender: &mut http1::SendRequest<RequestBody>,
    mut request: Request<RequestBody>,
) -> Result<Response<Incoming>, SendFailure> {
    if let Err(error) = sender.ready().await {
        return Err(SendFailure { unsent: Some(request.into_body()), error: Arc::new(error) });
    }
    let uri = request.uri();
    if let Some(host) = uri.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok()) {
        request.headers_mut().insert(HOST, host);
    }
    let origin_form = request.uri().path_and_query().cloned().map(Uri::from).unwrap_or_default();
    *request.uri_mut() = origin_form;
    sender.try_send_request(request).await.map_err(|mut failure| {
        let unsent = failure.take_message().map(Request::into_body);
        SendFailure { unsent, error: Arc::new(failure.into_error()) }
    })
}

async fn http2_handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    name: &Arc<str>,
    options: &ClientOptions,
) -> Result<Connection, ClientError> {
    // The connection window is the maximum, so that one unread watch does not block the others.
    const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
    const STREAM_WINDOW: u32 = 256 * 1024;
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(options.ping_interval)
        .keep_alive_timeout(options.ping_timeout)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| ClientError::Tls { endpoint: name.clone(), source: Arc::new(error) })?;
    let name = name.clone();
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            debug!(endpoint = %name, %error, "HTTP/2 connection ended");
        }
    });
    Ok(Connection::Http2(sender))
}

async fn http1_handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    name: &Arc<str>,
) -> Result<Connection, ClientError> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| ClientError::Tls { endpoint: name.clone(), source: Arc::new(error) })?;
    let name = name.clone();
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            debug!(endpoint = %name, %error, "HTTP/1.1 connection ended");
        }
    });
    Ok(Connection::Http1(sender))
}
