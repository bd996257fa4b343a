//! Cheap HTTP clients: they share the machine with the measured processes. Requests are prepared bytes. Of responses they
//! parse only the status and the end.

mod http1;
mod http2;

use std::net::SocketAddr;
use std::sync::Arc;

use rustls_pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(crate) use http1::Http1;
pub(crate) use http2::{Http2, Window};

use crate::error::BenchError;
use crate::tls;

/// A GET request.
#[derive(Clone, Debug)]
pub(crate) struct RequestSpec {
    /// Path and query.
    pub(crate) path: String,
    /// The bearer token, if any.
    pub(crate) token: Option<String>,
}

/// The protocol of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    pub(crate) fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => tls::HTTP1,
            Self::Http2 => tls::H2,
        }
    }
}

/// An event of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseEvent {
    /// The headers of a response.
    Head { stream: u32, is_success: bool },
    /// A part of a body.
    Data { stream: u32, length: usize },
    /// The end of a response.
    End { stream: u32 },
    /// A response was aborted.
    Reset { stream: u32 },
}

/// A connection of either protocol.
pub(crate) enum Connection {
    Http1(Http1),
    Http2(Http2),
}

impl Connection {
    pub(crate) async fn open(
        address: SocketAddr,
        config: &Arc<rustls::ClientConfig>,
        protocol: Protocol,
        request: &RequestSpec,
    ) -> Result<Self, BenchError> {
        let stream = connect(address, config).await?;
        Ok(match protocol {
            Protocol::Http1 => Self::Http1(Http1::new(stream, request)),
            Protocol::Http2 => Self::Http2(Http2::new(stream, request, Window::Wide).await?),
        })
    }

    /// Queues a request and returns the number of its stream.
    pub(crate) fn send(&mut self) -> u32 {
        match self {
            Self::Http1(connection) => connection.send(),
            Self::Http2(connection) => connection.send(),
        }
    }

    /// Sends the queued requests.
    pub(crate) async fn flush(&mut self) -> Result<(), BenchError> {
        match self {
            Self::Http1(connection) => connection.flush().await,
            Self::Http2(connection) => connection.flush().await,
        }
    }

    /// Waits for the next bytes. May be dropped at any time without loss.
    pub(crate) async fn receive(&mut self, events: &mut Vec<ResponseEvent>) -> Result<(), BenchError> {
        match self {
            Self::Http1(connection) => connection.receive(events).await,
            Self::Http2(connection) => connection.receive(events).await,
        }
    }
}

/// Opens a connection and completes its handshake.
pub(crate) async fn connect(
    address: SocketAddr,
    config: &Arc<rustls::ClientConfig>,
) -> Result<TlsStream<TcpStream>, BenchError> {
    let stream = TcpStream::connect(address).await.map_err(BenchError::system("connecting"))?;
    stream.set_nodelay(true).map_err(BenchError::system("connecting"))?;
    let name = ServerName::IpAddress(address.ip().into());
    let connected = TlsConnector::from(Arc::clone(config)).connect(name, stream).await;
    connected.map_err(BenchError::system("handshaking"))
}

async fn write(stream: &mut TlsStream<TcpStream>, bytes: &mut Vec<u8>) -> Result<(), BenchError> {
    if bytes.is_empty() {
        return Ok(());
    }
    stream.write_all(bytes).await.map_err(BenchError::system("sending"))?;
    stream.flush().await.map_err(BenchError::system("sending"))?;
    bytes.clear();
    Ok(())
}
