//! Socket options of client connections.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Idle time before the first TCP keep-alive probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// Time between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Number of unacknowledged probes after which the connection is closed.
const KEEPALIVE_PROBES: u32 = 4;
/// Unsent bytes that the kernel buffers per connection (TCP_NOTSENT_LOWAT). By default it buffers megabytes of a response that
/// the client does not read; with a thousand such clients it has no memory left for other connections (`tcp_mem`). Bytes in
/// flight are not counted, so lines with a long round trip stay full.
const MAX_UNSENT: u32 = 64 << 10;

/// Sets the options of a client connection. Failures are ignored, because the socket works without them.
pub fn tune_socket(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_tcp_notsent_lowat(MAX_UNSENT);
}
