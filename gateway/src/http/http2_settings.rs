//! HTTP/2 settings and limits towards clients.

use h2::server::Builder;

use crate::policy::connection::Connection;
use crate::policy::connection_backlog::CLIENT_UPLOAD_WINDOW;

/// Initial window per stream, in bytes.
const STREAM_WINDOW: u32 = 64 << 10;
/// Streams per connection at most, whatever is configured.
const MAX_STREAMS: u32 = 1_000;
/// Response bytes that h2 buffers per stream before the writer has to wait.
const SEND_BUFFER: usize = 64 << 10;
/// Streams that a client may reset before they are accepted here (CVE-2023-44487), and streams that are reset because of
/// the client's protocol errors (CVE-2025-8671), per connection.
const MAX_PENDING_RESETS: usize = 20;
const MAX_ERROR_RESETS: usize = 128;

/// An HTTP/2 server for a connection. Every limit is set: by default h2 allows any number of streams, and header
/// lists of 16 MiB.
///
/// The window of a proxy's connection is that of all its streams together, so that the stalled uploads of one client never block
/// those of others. A client's connection has [`CLIENT_UPLOAD_WINDOW`].
pub(crate) fn server_builder(connection: &Connection) -> Builder {
    let policy = connection.listener.connection_policy.load();
    let limits = &policy.limits;
    let header_bytes = u32::try_from(limits.max_header_bytes.bytes()).unwrap_or(u32::MAX);
    let streams = limits.max_streams_per_connection.min(MAX_STREAMS);
    let all_streams = streams.max(1) * STREAM_WINDOW;
    let window = if connection.is_from_proxy { all_streams } else { all_streams.min(CLIENT_UPLOAD_WINDOW) };
    let mut options = Builder::new();
    options
        // Heads up to twice the limit are read and get a 431 with a Status; above that, h2 resets the stream.
        .max_header_list_size(header_bytes.saturating_mul(2))
        .max_concurrent_streams(streams)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(window)
        .max_send_buffer_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(Some(MAX_ERROR_RESETS));
    options
}
