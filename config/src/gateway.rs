//! The settings of the gateway.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::access_log::AccessLogConfig;
use crate::acme::AcmeConfig;
use crate::check::{Checker, join};
use crate::health::HealthConfig;
use crate::listener::ListenerConfig;
use crate::load::{ProcessConfig, ProcessKind};
use crate::placement::PlacementConfig;
use crate::quota::{CircuitBreakerConfig, ConcurrencyConfig};
use crate::selector::ShardSelector;
use crate::setting::{plain_settings, settings};
use crate::shared::{ConnectionLimits, DrainConfig, LogConfig, SlowClientsConfig};
use crate::tracing::TracingConfig;
use crate::units::{ByteSize, Timespan};
use crate::values::{InputFile, KcpBehaviour, OwnPath, SecretFile, ServicesPolicy};

plain_settings!(BTreeMap<String, Vec<String>>);

/// Maximum number of listeners.
const MAX_LISTENERS: usize = 32;

settings! {
    /// The gateway: resolves the shard of a request and forwards it.
    pub struct GatewayConfig {
        /// Listeners. Each has its own address, certificate and authentication.
        listeners ("listeners"): Vec<ListenerConfig> = vec![ListenerConfig::default()];
        /// The ACME authority of listeners with tls.acme.
        acme ("acme"): AcmeConfig = AcmeConfig::default();
        /// The index of workspaces and their shards.
        index ("index"): IndexConfig = IndexConfig::default();
        /// Connections to shards.
        upstream ("upstream"): UpstreamConfig = UpstreamConfig::default();
        /// Routing of paths.
        paths ("paths"): PathsConfig = PathsConfig::default();
        /// Placement: the choice of a shard for a new workspace.
        placement ("placement"): PlacementConfig = PlacementConfig::default();
        /// Origins that may use the API from a browser (CORS), as regular expressions that match anywhere in the Origin header
        /// unless they are anchored. Empty: no cross-origin access. Flag: --cors-allowed-origins.
        cors_allowed_origins ("corsAllowedOrigins"): Vec<String> = Vec::new();
        /// Behaviours of kcp-front-proxy to restore: readiness, unsynced, unavailableBody, unreachable,
        /// mountLabels, retries, authenticationMethods, pings, drain, reloads, baseUrls, noCredential,
        /// rootPath; clearedMounts, quotedGroups, identityHeadersFirst and remoteUid, which are security holes.
        /// docs/gateway-differences.md explains each.
        kcp_compatibility ("kcpCompatibility"): Vec<KcpBehaviour> = Vec::new();
        /// Limits per listener.
        limits ("limits"): ConnectionLimits = ConnectionLimits::default();
        /// Time limits of slow clients.
        slow_clients ("slowClients"): SlowClientsConfig = SlowClientsConfig::default();
        /// Budget of buffered response and upload bytes of streams whose peer reads nothing, over all connections. From half of it
        /// on, the allowance of each connection shrinks from 1 MiB to as little as 64 KiB. Streams beyond the allowance are
        /// aborted.
        stalled_stream_budget ("stalledStreamBudget"): ByteSize = ByteSize::mib(64);
        /// Shutdown of the process.
        drain ("drain"): DrainConfig = DrainConfig::default();
        /// Upgrade: SIGQUIT starts a successor that takes over.
        upgrade ("upgrade"): UpgradeConfig = UpgradeConfig::default();
        /// File with the state of the process, for `fairlead gateway` reload, drain and upgrade. It exists while the process is
        /// ready. Unset: no file.
        state_file ("stateFile"): Option<OwnPath> = None;
        /// Format and level of logs.
        log ("log"): LogConfig = LogConfig::default();
        /// Access log: a line of JSON per request.
        access_log ("accessLog"): AccessLogConfig = AccessLogConfig::default();
        /// Traces of requests.
        tracing ("tracing"): TracingConfig = TracingConfig::default();
    }

    /// Upgrade: the program is started again with the same arguments and inherits the listening sockets.
    pub struct UpgradeConfig {
        /// The program. Unset: the name by which this process was started.
        program ("program"): Option<OwnPath> = None;
        /// Time for the successor to become ready. After it the successor is terminated and this process continues.
        ready_timeout ("readyTimeout"): Timespan = Timespan::from_secs(60);
    }

    /// Routing of paths.
    pub struct PathsConfig {
        /// kcp's path mapping file. With it, only paths that it maps are served, and the credentials for shards are those of
        /// its entry /clusters/; without it, /clusters/ goes to shards. Flag: --mapping-file.
        mapping_file ("mappingFile"): Option<InputFile> = None;
        /// Without a mapping file, where /services/ (virtual workspaces) goes: owningShard (the shard of the logical
        /// cluster that the path names), rootShard, or refuse (404).
        services ("services"): ServicesPolicy = ServicesPolicy::OwningShard;
        /// Hosts (with the port unless it is 443) that mounted workspaces may lead to. Empty: every host with a valid
        /// certificate.
        mount_hosts ("mountHosts"): Vec<String> = Vec::new();
        /// Maximum number of mounts that a request may follow, against cycles.
        mount_hops ("mountHops"): u32 = 8;
    }

    /// The index of workspaces and their shards.
    pub struct IndexConfig {
        /// Kubeconfig of the root shard, whose Shard objects are watched. Flag: --root-kubeconfig.
        root_shard_kubeconfig ("rootShardKubeconfig"): SecretFile = "root-shard.kubeconfig".into();
        /// Kubeconfig with the credentials for every shard; its server is ignored. Flag: --shards-kubeconfig.
        shards_kubeconfig ("shardsKubeconfig"): SecretFile = "shards.kubeconfig".into();
        /// Kubeconfigs of shards from which the list of shards is read in place of the root shard; if one fails, another of them,
        /// or another known shard, is used. They need group system:kcp:admin. The root shard then only provides the identity of an
        /// API export and authorization for metrics. Flag: --shard-peer-kubeconfig.
        shard_peer_kubeconfigs ("shardPeerKubeconfigs"): Vec<SecretFile> = Vec::new();
        /// Names of the shards to serve; empty for all. Workspaces of other shards are unknown to this gateway; paths that begin
        /// with root need the root shard.
        shards ("shards"): Vec<String> = Vec::new();
        /// Label selector of the shards to serve, such as "region in (eu,us),!retired"; empty for all.
        shard_selector ("shardSelector"): ShardSelector = ShardSelector::default();
        /// File in which the index survives a restart, most useful while the root shard is unavailable.
        /// Flag: --root-directory, the folder of the file.
        snapshot ("snapshot"): Option<OwnPath> = None;
        /// Age of the index data of a shard beyond which the gateway is not ready. Unset: the age is only a metric, because an
        /// unavailable root shard would make every replica unready at once although their data is still correct.
        max_age ("maxAge"): Option<Timespan> = None;
        /// Time that a request for an unknown workspace waits for the index before it gets 403.
        miss_wait ("missWait"): Timespan = Timespan::from_millis(500);
    }

    /// Connections to shards.
    pub struct UpstreamConfig {
        /// PEM file: the client certificate for which shards trust the gateway's X-Remote-* headers.
        certificate ("certificate"): InputFile = "front-proxy.crt".into();
        /// PEM file: its private key.
        private_key ("privateKey"): SecretFile = "front-proxy.key".into();
        /// PEM bundle: authorities of the shards' serving certificates.
        server_ca ("serverCA"): InputFile = "serving-ca.crt".into();
        /// Time to open a connection to a shard, TLS included.
        connect_timeout ("connectTimeout"): Timespan = Timespan::from_secs(3);
        /// Time, plus 5 s, for which a shard may be silent before and during a response. It does not apply to open watches and
        /// tunnels.
        response_timeout ("responseTimeout"): Timespan = Timespan::from_secs(60);
        /// Time without a request after which a connection to a shard is closed.
        idle_timeout ("idleTimeout"): Timespan = Timespan::from_secs(60);
        /// Age at which a connection to a shard is replaced, so that new endpoints get their share. Its open streams continue.
        max_connection_age ("maxConnectionAge"): Timespan = Timespan::from_secs(30 * 60);
        /// Interval of HTTP/2 pings on each connection to a shard. A connection whose ping is not acknowledged within 5 s is closed:
        /// its requests fail, and the index of the shard ages.
        ping_interval ("pingInterval"): Timespan = Timespan::from_secs(10);
        /// Flow-control window per stream: bytes of a response that a shard may send before the client has read them. It bounds the
        /// memory per stream and the throughput per round trip to the shard: 64KiB are 60 MiB/s over 1 ms, and 2 MiB/s over 30 ms.
        stream_window ("streamWindow"): ByteSize = ByteSize::kib(64);
        /// Concurrency limit per shard, and the queue before it.
        concurrency ("concurrency"): ConcurrencyConfig = ConcurrencyConfig::default();
        /// Circuit breaker per shard.
        circuit_breaker ("circuitBreaker"): CircuitBreakerConfig = CircuitBreakerConfig::default();
        /// Health of the addresses of a shard (outlier detection).
        health ("health"): HealthConfig = HealthConfig::default();
        /// Addresses of hosts in shards' URLs, for a shard with replicas that have no common name: by host, or by host:port, a list of
        /// host:port. Certificates must name the host of the URL. Other hosts are resolved by the system.
        hosts ("hosts"): BTreeMap<String, Vec<String>> = BTreeMap::new();
        /// Settings of single shards.
        shards ("shards"): Vec<ShardUpstreamConfig> = Vec::new();
    }

    /// Settings of one shard. Unset ones are those of all shards. With a mapping file, whose entry /clusters/ has the credentials
    /// for all other shards, certificate, privateKey and serverCA have to be set together.
    pub struct ShardUpstreamConfig {
        /// The shard's name.
        name ("name"): String = String::new();
        /// PEM file: the client certificate for which this shard trusts the gateway's X-Remote-* headers.
        certificate ("certificate"): Option<InputFile> = None;
        /// PEM file: its private key.
        private_key ("privateKey"): Option<SecretFile> = None;
        /// PEM bundle: authorities of this shard's serving certificate.
        server_ca ("serverCA"): Option<InputFile> = None;
        /// Expected name in its serving certificate, in place of the host of its URL.
        server_name ("serverName"): Option<String> = None;
        /// Kubeconfig of the index for this shard, in place of index.shardsKubeconfig; its server is ignored.
        kubeconfig ("kubeconfig"): Option<SecretFile> = None;
    }
}

impl ProcessConfig for GatewayConfig {
    const KIND: ProcessKind = ProcessKind::Gateway;

    fn check(&self, checker: &mut Checker) {
        if self.listeners.is_empty() {
            checker.fault(
                "listeners",
                "there is no listener",
                "add one with at least an address and a certificate",
            );
        }
        if self.listeners.len() > MAX_LISTENERS {
            let message = format!("there are more than {MAX_LISTENERS} listeners");
            checker.fault(
                "listeners",
                &message,
                "each adds metric series; several host names can share one listener (hosts)",
            );
        }
        for (index, listener) in self.listeners.iter().enumerate() {
            let earlier = &self.listeners[..index];
            checker.within(&format!("listeners[{index}]"), |checker| {
                if listener.name.is_empty() {
                    checker.fault("name", "a listener has no name", "logs and metrics use the name");
                }
                if let Some(twin) = earlier.iter().position(|other| other.name == listener.name) {
                    let message = format!("listener {:?} has the name of listeners[{twin}]", listener.name);
                    checker.fault("name", &message, "give each listener its own name");
                }
                match &listener.socket {
                    None => {
                        let address = listener.serving.address;
                        let same =
                            |o: &ListenerConfig| o.socket.is_none() && clash(o.serving.address, address);
                        if let Some(twin) = earlier.iter().position(same) {
                            let message =
                                format!("address {address} is also listened on by listeners[{twin}]");
                            checker.fault("serving.address", &message, "give each listener its own port");
                        }
                    }
                    Some(socket) => {
                        let same =
                            |o: &ListenerConfig| o.socket.as_ref().is_some_and(|o| o.path == socket.path);
                        if let Some(twin) = earlier.iter().position(same) {
                            let path = socket.path.display();
                            let message = format!("{path} is also listened on by listeners[{twin}]");
                            checker.fault("socket.path", &message, "give each listener its own socket");
                        }
                    }
                }
                if self.paths.mapping_file.is_some() && listener.upstream_identity.is_some() {
                    let message = "the mapping file sets the client certificate for each server";
                    let hint = "leave out upstreamIdentity or paths.mappingFile";
                    checker.fault("upstreamIdentity", message, hint);
                }
                listener.check(checker);
            });
        }
        let challenges =
            self.listeners.iter().filter_map(|listener| Some(listener.tls.acme.as_ref()?.challenge));
        checker.within("acme", |checker| self.acme.check(&challenges.collect::<Vec<_>>(), checker));
        checker.within("upstream", |checker| {
            let moment = Timespan::from_millis(1);
            checker.at_least("connectTimeout", self.upstream.connect_timeout, moment);
            checker.at_least("responseTimeout", self.upstream.response_timeout, moment);
            checker.at_least("streamWindow", self.upstream.stream_window, ByteSize::kib(4));
            checker.at_most("streamWindow", self.upstream.stream_window, ByteSize::mib(1));
            checker.at_least("idleTimeout", self.upstream.idle_timeout, moment);
            checker.at_least("maxConnectionAge", self.upstream.max_connection_age, moment);
            checker.at_least("pingInterval", self.upstream.ping_interval, Timespan::from_millis(100));
            checker.within("concurrency", |checker| self.upstream.concurrency.check(checker));
            checker.within("circuitBreaker", |checker| self.upstream.circuit_breaker.check(checker));
            checker.within("health", |checker| self.upstream.health.check(checker));
            checker.within("hosts", |checker| check_hosts(&self.upstream.hosts, checker));
            for (index, shard) in self.upstream.shards.iter().enumerate() {
                let earlier = &self.upstream.shards[..index];
                checker.within(&format!("shards[{index}]"), |checker| {
                    shard.check(earlier, self.paths.mapping_file.is_some(), checker);
                });
            }
        });
        checker.within("upgrade", |checker| {
            checker.at_least("readyTimeout", self.upgrade.ready_timeout, Timespan::from_millis(100));
        });
        checker.within("paths", |checker| checker.at_least("mountHops", self.paths.mount_hops, 1));
        checker.within("placement", |checker| self.placement.check(checker));
        checker.within("limits", |checker| self.limits.check(checker));
        checker.within("slowClients", |checker| self.slow_clients.check(checker));
        checker.within("accessLog", |checker| self.access_log.check(checker));
        checker.within("tracing", |checker| self.tracing.check(checker));
    }

    fn unread(&self) -> Vec<String> {
        let by_acme = self.listeners.iter().enumerate().filter(|(_, listener)| listener.tls.acme.is_some());
        let by_acme = by_acme.map(|(index, _)| format!("listeners[{index}].serving"));
        let below =
            |keys: &[&str], prefix: &str| keys.iter().map(|key| join(prefix, key)).collect::<Vec<_>>();
        let mut unread: Vec<_> =
            by_acme.flat_map(|prefix| below(&["certificate", "privateKey"], &prefix)).collect();
        if self.paths.mapping_file.is_some() {
            unread.extend(below(&["certificate", "privateKey", "serverCA"], "upstream"));
        }
        unread
    }
}

impl ShardUpstreamConfig {
    fn check(&self, earlier: &[Self], has_mapping_file: bool, checker: &mut Checker) {
        if self.name.is_empty() {
            checker.fault("name", "the entry names no shard", "give the name of its Shard object");
        }
        if let Some(twin) = earlier.iter().position(|other| other.name == self.name) {
            let message = format!("shard {:?} has an entry already: shards[{twin}]", self.name);
            checker.fault("name", &message, "one entry per shard");
        }
        if self.certificate.is_some() != self.private_key.is_some() {
            let message = "only one of certificate and privateKey is set";
            checker.fault("certificate", message, "a certificate and its key belong together");
        }
        let has_own_tls =
            self.certificate.is_some() || self.server_ca.is_some() || self.server_name.is_some();
        let is_complete = self.certificate.is_some() && self.server_ca.is_some();
        if has_mapping_file && has_own_tls && !is_complete {
            let message = "the mapping file has the credential for all other shards, and does not complete a partial one";
            checker.fault("certificate", message, "set certificate, privateKey and serverCA");
        }
    }
}

fn check_hosts(hosts: &BTreeMap<String, Vec<String>>, checker: &mut Checker) {
    for (host, addresses) in hosts {
        if host.is_empty() || host.parse::<IpAddr>().is_ok() || host.parse::<SocketAddr>().is_ok() {
            let message = format!("{host:?} is not a name, and addresses in URLs are used as they are");
            checker.fault(host, &message, "use a host name in the shard's URL");
        }
        if addresses.is_empty() {
            checker.fault(host, "the host has no address", "list host:port of each replica");
        }
        for (index, address) in addresses.iter().enumerate() {
            let has_port = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
            if !address.rsplit_once(':').is_some_and(has_port) {
                let message = format!("{address:?} is not host:port");
                checker.fault(&format!("{host}[{index}]"), &message, "add the port");
            }
        }
    }
}

/// Whether two addresses cannot both be listened on; port 0 selects a different port each time.
fn clash(a: SocketAddr, b: SocketAddr) -> bool {
    let is_wildcard = |address: SocketAddr| address.ip().is_unspecified();
    a.port() == b.port() && a.port() != 0 && (a.ip() == b.ip() || is_wildcard(a) || is_wildcard(b))
}
