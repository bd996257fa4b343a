//! A client that reads a long answer slowly at first, and the rest as fast as it can.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::BenchError;
use crate::wire::{Ask, Connection, Http1, Http2, Protocol, Seen, Window, connect};

/// What an HTTP/2 client lets the server send ahead.
const WINDOW: u32 = 1 << 20;
/// Between two reads while it is slow.
const PAUSE: Duration = Duration::from_millis(5);

/// Reads an answer to its end, which must be so many bytes away.
pub(crate) async fn read_slowly(
    address: SocketAddr,
    tls: &Arc<rustls::ClientConfig>,
    protocol: Protocol,
    ask: &Ask,
    bytes: usize,
    slow_for: Duration,
) -> Result<(), BenchError> {
    let stream = connect(address, tls).await?;
    let mut connection = match protocol {
        Protocol::Http1 => Connection::Http1(Http1::new(stream, ask)),
        Protocol::Http2 => Connection::Http2(Http2::new(stream, ask, Window::Bytes(WINDOW)).await?),
    };
    connection.send();
    let slow_until = Instant::now() + slow_for;
    let (mut seen, mut got) = (Vec::new(), 0);
    loop {
        connection.flush().await?;
        connection.receive(&mut seen).await?;
        for event in seen.drain(..) {
            match event {
                Seen::Head { is_success: true, .. } => {}
                Seen::Data { length, .. } => got += length,
                Seen::End { .. } if got >= bytes => return Ok(()),
                _ => return Err(BenchError::answer(format!("a list has ended after {got} bytes"))),
            }
        }
        if Instant::now() < slow_until {
            tokio::time::sleep(PAUSE).await;
        }
    }
}
