//! A client that reads a long response slowly at first, and the rest at full speed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::BenchError;
use crate::wire::{Connection, Http1, Http2, Protocol, RequestSpec, ResponseEvent, Window, connect};

/// The receive window of the HTTP/2 client.
const WINDOW: u32 = 1 << 20;
/// Pause between two slow reads.
const PAUSE: Duration = Duration::from_millis(5);

/// Reads a response to its end. Its length must be as given.
pub(crate) async fn read_slowly(
    address: SocketAddr,
    tls: &Arc<rustls::ClientConfig>,
    protocol: Protocol,
    request: &RequestSpec,
    bytes: usize,
    slow_for: Duration,
) -> Result<(), BenchError> {
    let stream = connect(address, tls).await?;
    let mut connection = match protocol {
        Protocol::Http1 => Connection::Http1(Http1::new(stream, request)),
        Protocol::Http2 => Connection::Http2(Http2::new(stream, request, Window::Bytes(WINDOW)).await?),
    };
    connection.send();
    let slow_until = Instant::now() + slow_for;
    let (mut events, mut got) = (Vec::new(), 0);
    loop {
        connection.flush().await?;
        connection.receive(&mut events).await?;
        for event in events.drain(..) {
            match event {
                ResponseEvent::Head { is_success: true, .. } => {}
                ResponseEvent::Data { length, .. } => got += length,
                ResponseEvent::End { .. } if got >= bytes => return Ok(()),
                _ => return Err(BenchError::unexpected(format!("a list ended after {got} bytes"))),
            }
        }
        if Instant::now() < slow_until {
            tokio::time::sleep(PAUSE).await;
        }
    }
}
