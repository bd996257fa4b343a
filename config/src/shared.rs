//! Settings that every process has.

use std::net::SocketAddr;

use crate::check::Checker;
use crate::setting::settings;
use crate::units::{ByteSize, Timespan};
use crate::values::{InputFile, LogFormat, OwnPath, SecretFile};

settings! {
    /// Where a server listens and what it presents.
    pub struct ServingConfig {
        /// IP address and port; port 0 takes a free one. Flags: --bind-address, --secure-port.
        address ("address"): SocketAddr = SocketAddr::from(([0, 0, 0, 0], 6443));
        /// PEM file: the certificate, then its intermediates. Flag: --tls-cert-file.
        certificate ("certificate"): InputFile = "tls.crt".into();
        /// PEM file: the private key of the certificate. Flag: --tls-private-key-file.
        private_key ("privateKey"): SecretFile = "tls.key".into();
    }

    /// Who may connect, and how such peers say whom they carry.
    pub struct AllowedPeersConfig {
        /// File with the networks that connections are accepted from, one per line, # for remarks. It is read again when it
        /// changes; without it every address may connect.
        allow ("allow"): Option<InputFile> = None;
        /// Whether every connection begins with the address of its client, before TLS, as load balancers that carry TCP send
        /// it (PROXY protocol, version 1 or 2).
        proxy_protocol ("proxyProtocol"): bool = false;
        /// What one address may do, that of a gateway, too. Addresses of IPv6 count by their network of 64 bits.
        per_address ("perAddress"): ConnectionQuotaConfig = ConnectionQuotaConfig::default();
    }

    /// How many connections there may be. What is not set has no limit.
    pub struct ConnectionQuotaConfig {
        /// New ones, in the long run; those of two seconds at once. More are closed at once.
        connections_per_second ("connectionsPerSecond"): Option<u32> = None;
        /// Those at a time. More are closed at once.
        connections ("connections"): Option<u32> = None;
    }

    /// Whose word a server takes.
    pub struct TrustConfig {
        /// PEM bundle: authorities of client certificates; common name is the user, organisations are the groups.
        /// Without it no certificate is an identity. Flag: --client-ca-file.
        client_ca ("clientCA"): Option<InputFile> = None;
        /// PEM bundle: authorities of the proxies whose X-Remote-* headers are believed. Without it nobody's are.
        /// Flag: --requestheader-client-ca-file.
        request_header_ca ("requestHeaderCA"): Option<InputFile> = None;
        /// Common names of those proxies. Flag: --requestheader-allowed-names.
        request_header_allowed_names ("requestHeaderAllowedNames"): Vec<String> = vec!["kcp-front-proxy".to_owned()];
    }

    /// Where objects are kept.
    pub struct StoreConfig {
        /// The store's file; made if there is none.
        path ("path"): OwnPath = "store.redb".into();
        /// Pages of the file kept in memory.
        cache_size ("cacheSize"): ByteSize = ByteSize::mib(32);
        /// Recent changes kept in memory for watches that come a little late; older ones are read from the file.
        recent_changes_size ("recentChangesSize"): ByteSize = ByteSize::mib(8);
        /// How often history older than one such interval is dropped; lists and watches that ask for it start over.
        /// Flag: --etcd-compaction-interval.
        compaction_interval ("compactionInterval"): Timespan = Timespan::from_secs(300);
        /// Whether a start reads the whole file and refuses one in which bytes have changed. Costs about a second per
        /// GB; switch it off where the file system has checksums of its own.
        verify_at_start ("verifyAtStart"): bool = true;
    }

    /// What bad or merely eager peers may do to a listener.
    pub struct ConnectionLimits {
        /// Open connections per listener; beyond it new ones wait in the kernel's queue.
        max_connections ("maxConnections"): usize = 10_000;
        /// HTTP/2 streams per connection, that is requests and watches at once (at most 1000).
        /// Flag: --http2-max-streams-per-connection.
        max_streams_per_connection ("maxStreamsPerConnection"): u32 = 250;
        /// Bytes of header per request, its target among them; more gets 431.
        max_header_bytes ("maxHeaderBytes"): ByteSize = ByteSize::kib(32);
        /// Header fields per request (at most 512); more gets 431.
        max_header_fields ("maxHeaderFields"): usize = 128;
        /// Time for the TLS handshake.
        tls_handshake_timeout ("tlsHandshakeTimeout"): Timespan = Timespan::from_secs(10);
        /// Time until the first request of a connection has arrived with all its headers.
        header_read_timeout ("headerReadTimeout"): Timespan = Timespan::from_secs(32);
        /// A connection without a request for this long is closed. Longer than the 90 s of Go clients, so that it is
        /// the client that gives up an idle connection and no request meets a closing one.
        idle_timeout ("idleTimeout"): Timespan = Timespan::from_secs(120);
        /// HTTP/2 peers get a ping after this time without traffic and have the same time again to answer. The gateway's
        /// doors send none: there TCP finds dead peers, within two minutes.
        keep_alive_interval ("keepAliveInterval"): Timespan = Timespan::from_secs(30);
    }

    /// What clients may take their time for.
    pub struct SlowClientsConfig {
        /// The body of a request may take that long, and a second more for every 512 bytes of it; then 408.
        request_body_timeout ("requestBodyTimeout"): Timespan = Timespan::from_secs(30);
        /// A client that takes nothing of an answer for that long does not get the rest of it.
        response_stall_timeout ("responseStallTimeout"): Timespan = Timespan::from_secs(60);
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

impl AllowedPeersConfig {
    pub(crate) fn check(&self, checker: &mut Checker) {
        if self.proxy_protocol && self.allow.is_none() {
            let message = "anybody could say to be at any address";
            checker.fault("proxyProtocol", message, "set peers.allow to the networks of the load balancers");
        }
        let quota = &self.per_address;
        let counts =
            [("connectionsPerSecond", quota.connections_per_second), ("connections", quota.connections)];
        for (key, count) in counts.into_iter().filter_map(|(key, count)| Some((key, count?))) {
            checker.at_least(&format!("perAddress.{key}"), count, 1);
        }
    }
}

impl ConnectionLimits {
    pub(crate) fn check(&self, checker: &mut Checker) {
        checker.at_least("maxConnections", self.max_connections, 1);
        checker.at_least("maxStreamsPerConnection", self.max_streams_per_connection, 1);
        if self.max_streams_per_connection > 1000 {
            checker.fault(
                "maxStreamsPerConnection",
                "more than 1000 streams per connection are too many",
                "use at most 1000",
            );
        }
        checker.at_least("maxHeaderBytes", self.max_header_bytes, ByteSize::kib(4));
        checker.at_least("maxHeaderFields", self.max_header_fields, 16);
        if self.max_header_fields > 512 {
            checker.fault("maxHeaderFields", "over HTTP/1.1, 512 fields at most are read", "use at most 512");
        }
        let moment = Timespan::from_millis(1);
        checker.at_least("tlsHandshakeTimeout", self.tls_handshake_timeout, moment);
        checker.at_least("headerReadTimeout", self.header_read_timeout, moment);
        checker.at_least("idleTimeout", self.idle_timeout, moment);
        checker.at_least("keepAliveInterval", self.keep_alive_interval, moment);
    }
}

impl SlowClientsConfig {
    pub(crate) fn check(&self, checker: &mut Checker) {
        let moment = Timespan::from_millis(1);
        checker.at_least("requestBodyTimeout", self.request_body_timeout, moment);
        checker.at_least("responseStallTimeout", self.response_stall_timeout, moment);
    }
}

impl StoreConfig {
    pub(crate) fn check(&self, checker: &mut Checker) {
        checker.at_least("cacheSize", self.cache_size, ByteSize::mib(1));
        checker.at_least("recentChangesSize", self.recent_changes_size, ByteSize::kib(64));
        checker.at_least("compactionInterval", self.compaction_interval, Timespan::from_secs(1));
    }
}
