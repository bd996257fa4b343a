//! How the kernel keeps a client's TCP connection.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// When a silent peer is asked whether it is there, how often, and how often in vain.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;
/// Bytes that the kernel takes and cannot send yet. By itself it takes megabytes of an answer that its client does not take,
/// and with a thousand such clients it has no memory left for the connections of others (`tcp_mem`). What is under way
/// is not counted, so that long lines are filled.
const UNSENT: u32 = 64 << 10;

/// Sets what a connection with a client needs. A socket that could not be tuned still serves.
pub fn tune_socket(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_tcp_notsent_lowat(UNSENT);
}
