//! A bare forwarder: the cost of two HTTP libraries and two TLS sessions, and nothing else. HTTP/1.1 and HTTP/2 from
//! clients, HTTP/2 to the backend over one connection; no identity, no routing.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response, Uri, Version, header, uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls_pki_types::ServerName;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::error::BenchError;

/// Window of the connection to the backend. It is large, so that a client that does not read does not delay others.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
const STREAM_WINDOW: u32 = 256 << 10;

/// Serves until the process is killed.
pub(crate) async fn serve(
    port: u16,
    backend: u16,
    server: Arc<rustls::ServerConfig>,
    client: Arc<rustls::ClientConfig>,
) -> Result<(), BenchError> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let sender = connect(backend, client).await?;
    let listener = TcpListener::bind(address).await.map_err(BenchError::system("binding the forwarder"))?;
    let acceptor = TlsAcceptor::from(server);
    let authority = uri::Authority::try_from(format!("localhost:{backend}"))
        .map_err(|error| BenchError::unexpected(error.to_string()))?;
    loop {
        let (tcp, _) = listener.accept().await.map_err(BenchError::system("accepting"))?;
        let (acceptor, sender, authority) = (acceptor.clone(), sender.clone(), authority.clone());
        tokio::spawn(async move {
            let _ = tcp.set_nodelay(true);
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            let is_http2 = tls.get_ref().1.alpn_protocol() == Some(crate::tls::H2);
            let service = service_fn(move |request| forward(sender.clone(), authority.clone(), request));
            let io = TokioIo::new(tls);
            // Clients may disconnect at any time.
            if is_http2 {
                let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                server.timer(TokioTimer::new()).max_concurrent_streams(1000);
                let _ = server.serve_connection(io, service).await;
            } else {
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
            }
        });
    }
}

async fn forward(
    mut sender: SendRequest<Incoming>,
    authority: uri::Authority,
    mut request: Request<Incoming>,
) -> hyper::Result<Response<Incoming>> {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(uri::Scheme::HTTPS);
    parts.authority = Some(authority);
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().remove(header::HOST);
    request.headers_mut().remove(header::CONNECTION);
    let mut response = sender.send_request(request).await?;
    // hyper's server sets these fields itself.
    *response.version_mut() = Version::default();
    Ok(response)
}

async fn connect(port: u16, tls: Arc<rustls::ClientConfig>) -> Result<SendRequest<Incoming>, BenchError> {
    let connecting = || BenchError::system("connecting to the backend");
    let tcp = TcpStream::connect(("127.0.0.1", port)).await.map_err(connecting())?;
    tcp.set_nodelay(true).map_err(connecting())?;
    let name = ServerName::IpAddress(std::net::IpAddr::from([127, 0, 0, 1]).into());
    let stream = TlsConnector::from(tls).connect(name, tcp).await.map_err(connecting())?;
    let mut client = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    client.initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
    let (sender, connection) = client
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| BenchError::unexpected(format!("the backend does not speak HTTP/2: {error}")))?;
    tokio::spawn(connection);
    Ok(sender)
}
