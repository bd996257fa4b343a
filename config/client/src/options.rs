//! Options of a client: time-outs and sizes.

use std::time::Duration;

use http::header::HeaderValue;

use crate::resolver::NameResolver;

/// Time-outs and sizes of a [`Client`].
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Limit for TCP, TLS and HTTP handshakes together.
    pub connect_timeout: Duration,
    /// Limit for a whole request; for streams, until the response headers.
    pub request_timeout: Duration,
    /// Interval of HTTP/2 pings.
    pub ping_interval: Duration,
    /// Time after which an unacknowledged ping closes the connection.
    pub ping_timeout: Duration,
    /// Maximum number of connections of either protocol.
    pub max_connections: usize,
    /// Number of requests and streams per connection from which another connection is opened.
    pub streams_per_connection: usize,
    /// Largest buffered response in bytes.
    pub max_response_bytes: usize,
    /// Largest single watch event in bytes.
    pub max_event_bytes: usize,
    /// The `User-Agent` header; servers derive the default field manager from what precedes its slash.
    pub user_agent: HeaderValue,
    /// Whether several replicas of one store may be behind the address, or behind the addresses of its name: then no response
    /// is older than earlier ones of any replica. Other servers ignore the header that this adds to requests.
    pub follows_revisions: bool,
    /// Resolver of the server's host name.
    pub resolver: NameResolver,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            ping_interval: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(5),
            max_connections: 4,
            streams_per_connection: 100,
            max_response_bytes: 256 << 20,
            max_event_bytes: 16 << 20,
            user_agent: HeaderValue::from_static(concat!("fairlead/", env!("CARGO_PKG_VERSION"))),
            follows_revisions: false,
            resolver: NameResolver::system(),
        }
    }
}
