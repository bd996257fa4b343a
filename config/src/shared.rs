//! Settings that every process has.

use crate::setting::settings;
use crate::units::{ByteSize, Timespan};
use crate::values::{InputFile, LogFormat, SecretFile};

settings! {
    /// A certificate with its private key.
    pub struct KeyPairConfig {
        /// PEM file: the certificate, then its intermediates. Flag: --tls-cert-file.
        certificate ("certificate"): InputFile = "tls.crt".into();
        /// PEM file: the private key of the certificate. Flag: --tls-private-key-file.
        private_key ("privateKey"): SecretFile = "tls.key".into();
    }

    /// What bad or merely eager peers may do to a listener.
    pub struct ConnectionLimits {
        /// Open connections per listener; beyond it new ones wait in the kernel's queue.
        max_connections ("maxConnections"): usize = 10_000;
        /// HTTP/2 streams per connection, that is requests and watches at once (at most 1000).
        /// Flag: --http2-max-streams-per-connection.
        max_streams_per_connection ("maxStreamsPerConnection"): u32 = 250;
        /// Bytes of header per request; more gets 431.
        max_header_bytes ("maxHeaderBytes"): ByteSize = ByteSize::kib(32);
        /// Header fields per request; more gets 431.
        max_header_fields ("maxHeaderFields"): usize = 128;
        /// Time for the TLS handshake.
        tls_handshake_timeout ("tlsHandshakeTimeout"): Timespan = Timespan::from_secs(10);
        /// Time until the first request of a connection has arrived with all its headers.
        header_read_timeout ("headerReadTimeout"): Timespan = Timespan::from_secs(32);
        /// A connection without a request for this long is closed. Longer than the 90 s of Go clients, so that it is
        /// the client that gives up an idle connection and no request meets a closing one.
        idle_timeout ("idleTimeout"): Timespan = Timespan::from_secs(120);
        /// HTTP/2 peers get a ping after this time without traffic and have the same time again to answer.
        keep_alive_interval ("keepAliveInterval"): Timespan = Timespan::from_secs(30);
    }

    /// How the process goes away after SIGTERM.
    pub struct DrainConfig {
        /// Still accepting, but no longer ready: time for load balancers to notice. Flag: --shutdown-delay-duration.
        delay ("delay"): Timespan = Timespan::from_secs(0);
        /// Time for open requests to finish; watches are ended evenly over it. What is left then is cut off.
        /// Flag: --shutdown-watch-termination-grace-period.
        window ("window"): Timespan = Timespan::from_secs(10);
    }

    /// What is logged.
    pub struct LogConfig {
        /// text or json. Flag: --logging-format.
        format ("format"): LogFormat = LogFormat::Text;
        /// error, warn, info, debug, trace, or rules such as "info,fairlead_gateway=debug"; RUST_LOG overrides it.
        /// Flag: -v.
        level ("level"): String = "info".to_owned();
    }
}
