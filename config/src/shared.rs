//! Settings of several processes.

use std::net::SocketAddr;

use crate::check::Checker;
use crate::setting::settings;
use crate::units::{ByteSize, Timespan};
use crate::values::{InputFile, LogFormat, OwnPath, SecretFile, TlsVersion};

settings! {
    /// Address and serving certificate of a server.
    pub struct ServingConfig {
        /// IP address and port; port 0 selects a free one. Flags: --bind-address, --secure-port.
        address ("address"): SocketAddr = SocketAddr::from(([0, 0, 0, 0], 6443));
        /// PEM file: the certificate, then its intermediates. Flag: --tls-cert-file.
        certificate ("certificate"): InputFile = "tls.crt".into();
        /// PEM file: the private key of the certificate. Flag: --tls-private-key-file.
        private_key ("privateKey"): SecretFile = "tls.key".into();
    }

    /// TLS of a server.
    pub struct ServerTlsConfig {
        /// Oldest TLS version: 1.2 or 1.3. Flag: --tls-min-version.
        minimum_version ("minimumVersion"): TlsVersion = TlsVersion::Tls12;
        /// Cipher suites for TLS 1.2 by IANA name; empty means all safe ones. Flag: --tls-cipher-suites.
        cipher_suites ("cipherSuites"): Vec<String> = Vec::new();
        /// Whether HTTP/2 is offered. Flag: --disable-http2-serving.
        http2 ("http2"): bool = true;
        /// Certificates for certain server names. Flag: --tls-sni-cert-key.
        server_names ("serverNames"): Vec<NamedCertificateConfig> = Vec::new();
    }

    /// A certificate for certain server names.
    pub struct NamedCertificateConfig {
        /// PEM file: the certificate, then its intermediates.
        certificate ("certificate"): InputFile = "tls.crt".into();
        /// PEM file: its private key.
        private_key ("privateKey"): SecretFile = "tls.key".into();
        /// Server names; *.example.com is all names one level below. Empty: the names in the certificate.
        names ("names"): Vec<String> = Vec::new();
    }

    /// Peers that may connect, and how they pass the address of their clients.
    pub struct AllowedPeersConfig {
        /// File with the networks that may connect, one per line, with # for comments. It is reloaded when it changes. Unset: every
        /// address may connect.
        allow ("allow"): Option<InputFile> = None;
        /// Whether every connection begins with a header of the PROXY protocol (version 1 or 2), before TLS, in which a TCP load
        /// balancer passes the address of its client.
        proxy_protocol ("proxyProtocol"): bool = false;
        /// Quota of each address, including those of gateways. IPv6 addresses count by their /64 network.
        per_address ("perAddress"): ConnectionQuotaConfig = ConnectionQuotaConfig::default();
    }

    /// Quota of connections. Unset values have no limit.
    pub struct ConnectionQuotaConfig {
        /// New connections per second, with bursts of two seconds. Further ones are closed at once.
        connections_per_second ("connectionsPerSecond"): Option<u32> = None;
        /// Open connections. Further ones are closed at once.
        connections ("connections"): Option<u32> = None;
    }

    /// Trusted authorities of a server.
    pub struct TrustConfig {
        /// PEM bundle: authorities of client certificates; common name is the user, organisations are the groups.
        /// Without it certificates do not authenticate. Flag: --client-ca-file.
        client_ca ("clientCA"): Option<InputFile> = None;
        /// PEM bundle: authorities of the proxies whose X-Remote-* headers are trusted. Without it none are.
        /// Flag: --requestheader-client-ca-file.
        request_header_ca ("requestHeaderCA"): Option<InputFile> = None;
        /// Common names of those proxies. Flag: --requestheader-allowed-names.
        request_header_allowed_names ("requestHeaderAllowedNames"): Vec<String> = vec!["kcp-front-proxy".to_owned()];
        /// Headers with the user's name. Flag: --requestheader-username-headers.
        username_headers ("usernameHeaders"): Vec<String> = vec!["X-Remote-User".to_owned()];
        /// Headers with the user's UID. Flag: --requestheader-uid-headers.
        uid_headers ("uidHeaders"): Vec<String> = Vec::new();
        /// Headers with a group each. Flag: --requestheader-group-headers.
        group_headers ("groupHeaders"): Vec<String> = vec!["X-Remote-Group".to_owned()];
        /// Prefixes of headers with extra attributes. Flag: --requestheader-extra-headers-prefix.
        extra_header_prefixes ("extraHeaderPrefixes"): Vec<String> = vec!["X-Remote-Extra-".to_owned()];
    }

    /// Storage of objects.
    pub struct StoreConfig {
        /// File of the store; created if it does not exist. While the server runs, a journal lies beside it. With etcd, the file
        /// is a local copy of what etcd has.
        path ("path"): OwnPath = "store.redb".into();
        /// An etcd in place of the file, for one or more replicas of the server.
        etcd ("etcd"): EtcdConfig = EtcdConfig::default();
        /// Size of the page cache. Lists of more than this are read from the system's cache, which costs a third more CPU.
        cache_size ("cacheSize"): ByteSize = ByteSize::mib(64);
        /// Size of recent changes kept in memory for watches that start from an older revision; older changes are read from the
        /// file.
        recent_changes_size ("recentChangesSize"): ByteSize = ByteSize::mib(8);
        /// Interval of compaction, which drops history older than one interval. Lists and watches from older revisions get 410.
        /// Flag: --etcd-compaction-interval.
        compaction_interval ("compactionInterval"): Timespan = Timespan::from_secs(300);
        /// Whether the whole file is read at the start and rejected if bytes are corrupted. Costs about a second per GB; disable
        /// it where the file system has checksums.
        verify_at_start ("verifyAtStart"): bool = true;
    }

    /// An etcd that stores the objects.
    pub struct EtcdConfig {
        /// URLs of the members, with http or https. Empty: objects are stored in the file. Flag: --etcd-servers.
        endpoints ("endpoints"): Vec<String> = Vec::new();
        /// Prefix of all keys. Servers that share an etcd need different ones. Flag: --etcd-prefix.
        prefix ("prefix"): String = "/registry".to_owned();
        /// PEM bundle: authorities of the members' certificates. Unset: those of the system. Flag: --etcd-cafile.
        ca ("ca"): Option<InputFile> = None;
        /// PEM file: the client certificate. Flag: --etcd-certfile.
        certificate ("certificate"): Option<InputFile> = None;
        /// PEM file: its private key. Flag: --etcd-keyfile.
        private_key ("privateKey"): Option<SecretFile> = None;
        /// Name of a user of etcd. Unset: the user is that of the client certificate, if any.
        user ("user"): Option<String> = None;
        /// File with the user's password on its first line.
        password_file ("passwordFile"): Option<SecretFile> = None;
        /// etcd's own limit of operations in a transaction, --max-txn-ops.
        max_operations ("maxOperations"): usize = 128;
        /// etcd's own limit of a request, --max-request-bytes.
        max_request_size ("maxRequestSize"): ByteSize = ByteSize::kib(1536);
        /// How long a server stays ready after it has lost etcd, while it serves reads from its copy. 0s: without limit. Set it
        /// where other replicas serve and a load balancer selects them by /readyz.
        ready_without_etcd ("readyWithoutEtcd"): Timespan = Timespan::from_secs(0);
    }

    /// Limits of connections and requests of a listener.
    pub struct ConnectionLimits {
        /// Open connections per listener; further ones wait in the kernel's queue.
        max_connections ("maxConnections"): usize = 10_000;
        /// HTTP/2 streams per connection, that is concurrent requests and watches (at most 1000).
        /// Flag: --http2-max-streams-per-connection.
        max_streams_per_connection ("maxStreamsPerConnection"): u32 = 250;
        /// Bytes of header fields per request, including its target; more gets 431.
        max_header_bytes ("maxHeaderBytes"): ByteSize = ByteSize::kib(32);
        /// Header fields per request (at most 512); more gets 431.
        max_header_fields ("maxHeaderFields"): usize = 128;
        /// Time for the TLS handshake.
        tls_handshake_timeout ("tlsHandshakeTimeout"): Timespan = Timespan::from_secs(10);
        /// Time limit for the first request of a connection with all its header fields.
        header_read_timeout ("headerReadTimeout"): Timespan = Timespan::from_secs(32);
        /// Time without a request after which a connection is closed. Longer than the 90 s of Go clients, so that the client
        /// closes idle connections first and no request is sent on a closing connection.
        idle_timeout ("idleTimeout"): Timespan = Timespan::from_secs(120);
        /// Time without traffic after which an HTTP/2 peer gets a ping, and has the same time to acknowledge it. The gateway's
        /// listeners send no pings: TCP keep-alive detects dead peers there, within two minutes.
        keep_alive_interval ("keepAliveInterval"): Timespan = Timespan::from_secs(30);
    }

    /// Time limits of slow clients.
    pub struct SlowClientsConfig {
        /// Time for a request body, plus one second for every 512 bytes of it; then the client gets 408.
        request_body_timeout ("requestBodyTimeout"): Timespan = Timespan::from_secs(30);
        /// Time without progress after which a response that the client does not read is aborted.
        response_stall_timeout ("responseStallTimeout"): Timespan = Timespan::from_secs(60);
    }

    /// Shutdown of the process after SIGTERM.
    pub struct DrainConfig {
        /// Time in which connections are still accepted but readiness fails, for load balancers. Flag: --shutdown-delay-duration.
        delay ("delay"): Timespan = Timespan::from_secs(0);
        /// Time for open requests to finish; watches end evenly spread over it. Remaining requests are aborted.
        /// Flag: --shutdown-watch-termination-grace-period.
        window ("window"): Timespan = Timespan::from_secs(10);
    }

    /// Format and level of logs.
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
            let message = "any client could forge its address";
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
        checker.within("etcd", |checker| self.etcd.check(checker));
    }
}

/// Checks the name of a replica of a server, the setting `replicaName`.
pub(crate) fn check_replica_name(name: Option<&str>, checker: &mut Checker) {
    if name.is_some_and(|name| name.is_empty() || name.chars().any(char::is_control)) {
        let message = "a replica's name has characters, and no control characters";
        checker.fault("replicaName", message, "name it as its host, or remove the setting");
    }
}

impl EtcdConfig {
    /// Whether objects are stored in etcd.
    pub fn is_used(&self) -> bool {
        !self.endpoints.is_empty()
    }

    fn check(&self, checker: &mut Checker) {
        let has_scheme = |url: &&String| url.starts_with("http://") || url.starts_with("https://");
        if let Some(url) = self.endpoints.iter().find(|url| !has_scheme(url)) {
            checker.fault("endpoints", &format!("{url:?} has no scheme"), "use a URL with http or https");
        }
        let default = Self::default();
        let unused = [
            ("prefix", self.prefix != default.prefix),
            ("ca", self.ca.is_some()),
            ("certificate", self.certificate.is_some()),
            ("user", self.user.is_some()),
        ];
        // A shard that silently began an empty file would register itself with that.
        if let Some((key, _)) = unused.into_iter().find(|(_, is_set)| *is_set && !self.is_used()) {
            let message = "it has no effect without endpoints: objects would be stored in a file";
            checker.fault(key, message, "set store.etcd.endpoints, or remove the setting");
        }
        let is_path = |prefix: &str| {
            prefix.strip_prefix('/').is_some_and(|names| {
                names
                    .split('/')
                    .all(|name| !matches!(name, "" | "." | "..") && !name.contains(char::is_control))
            })
        };
        if !is_path(&self.prefix) {
            checker.fault("prefix", "it is no slash and names between slashes", "use one such as /registry");
        }
        checker.at_least("maxOperations", self.max_operations, 64);
        checker.at_least("maxRequestSize", self.max_request_size, ByteSize::kib(512));
        // No store has larger commits.
        checker.at_most("maxRequestSize", self.max_request_size, ByteSize::mib(16));
        if self.certificate.is_some() != self.private_key.is_some() {
            checker.fault("privateKey", "a certificate and its private key belong together", "set both");
        }
        if self.user.is_some() != self.password_file.is_some() {
            checker.fault("passwordFile", "a user and its password belong together", "set both");
        }
    }
}
