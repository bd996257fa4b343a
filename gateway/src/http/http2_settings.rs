//! HTTP/2 settings and limits towards clients.

use fairlead_config::ConnectionLimits;
use h2::server::Builder;

/// What an HTTP/2 client may send ahead on one stream. On all of a connection it is so much for each: uploads that nobody takes
/// leave room for the others, and how many of them may wait, [`crate::policy::connection_backlog`] says.
const STREAM_WINDOW: u32 = 64 << 10;
/// Streams that a connection has at most, whatever is configured.
const MOST_STREAMS: u32 = 1_000;
/// Response bytes queued per HTTP/2 stream before whoever writes more has to wait.
const SEND_BUFFER: usize = 64 << 10;
/// Streams that a client may reset before we have looked at them (CVE-2023-44487), and streams that its faults
/// make us reset (CVE-2025-8671), per connection.
const MAX_PENDING_RESETS: usize = 20;
const MAX_ERROR_RESETS: usize = 128;

/// HTTP/2 towards clients. The library's defaults have no limit on streams and accept 16 MiB of header fields, so all
/// limits are set here.
pub(crate) fn server_builder(limits: &ConnectionLimits) -> Builder {
    let header_bytes = u32::try_from(limits.max_header_bytes.bytes()).unwrap_or(u32::MAX);
    let streams = limits.max_streams_per_connection.min(MOST_STREAMS);
    let mut options = Builder::new();
    options
        // Up to twice the limit comes through and is answered with a Status; beyond it the stream is refused.
        .max_header_list_size(header_bytes.saturating_mul(2))
        .max_concurrent_streams(streams)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(streams.max(1) * STREAM_WINDOW)
        .max_send_buffer_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(Some(MAX_ERROR_RESETS));
    options
}
