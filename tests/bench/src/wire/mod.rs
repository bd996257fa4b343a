//! HTTP clients that cost little: they share the machine with what they measure. Requests are prepared bytes; of
//! answers they read what tells success from failure and one answer from the next.

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

/// What is asked for, always by GET.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// With its query.
    pub(crate) path: String,
    /// Sent as a bearer token.
    pub(crate) token: Option<String>,
}

/// Which protocol a client speaks.
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

/// Something that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The first of an answer.
    Head { stream: u32, is_success: bool },
    /// A part of a body.
    Data { stream: u32, length: usize },
    /// The last of an answer.
    End { stream: u32 },
    /// An answer that will not be completed.
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
        ask: &Ask,
    ) -> Result<Self, BenchError> {
        let stream = connect(address, config).await?;
        Ok(match protocol {
            Protocol::Http1 => Self::Http1(Http1::new(stream, ask)),
            Protocol::Http2 => Self::Http2(Http2::new(stream, ask, Window::Wide).await?),
        })
    }

    /// Queues a request, and tells by which number its answer is known.
    pub(crate) fn send(&mut self) -> u32 {
        match self {
            Self::Http1(connection) => connection.send(),
            Self::Http2(connection) => connection.send(),
        }
    }

    /// Sends what is queued.
    pub(crate) async fn flush(&mut self) -> Result<(), BenchError> {
        match self {
            Self::Http1(connection) => connection.flush().await,
            Self::Http2(connection) => connection.flush().await,
        }
    }

    /// Waits for the next bytes. May be dropped at any time without loss.
    pub(crate) async fn receive(&mut self, seen: &mut Vec<Seen>) -> Result<(), BenchError> {
        match self {
            Self::Http1(connection) => connection.receive(seen).await,
            Self::Http2(connection) => connection.receive(seen).await,
        }
    }
}

/// A new connection, its handshake complete.
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
