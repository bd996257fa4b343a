//! The settings of the gateway.

use std::net::SocketAddr;

use crate::access_log::AccessLogConfig;
use crate::acme::AcmeConfig;
use crate::check::{Checker, join};
use crate::health::HealthConfig;
use crate::listener::ListenerConfig;
use crate::load::{ProcessConfig, ProcessKind};
use crate::placement::PlacementConfig;
use crate::quota::{CircuitBreakerConfig, ConcurrencyConfig};
use crate::selector::ShardSelector;
use crate::setting::settings;
use crate::shared::{ConnectionLimits, DrainConfig, LogConfig, SlowClientsConfig};
use crate::tracing::TracingConfig;
use crate::units::{ByteSize, Timespan};
use crate::values::{InputFile, KcpBehaviour, OwnPath, SecretFile, ServicesPolicy};

/// Listeners at most.
const MAX_LISTENERS: usize = 32;

settings! {
    /// The gateway: finds the shard of a request and forwards it.
    pub struct GatewayConfig {
        /// The doors. Each has its own address, certificate and idea of who may prove an identity how.
        listeners ("listeners"): Vec<ListenerConfig> = vec![ListenerConfig::default()];
        /// Whom doors with tls.acme get their certificates from.
        acme ("acme"): AcmeConfig = AcmeConfig::default();
        /// How the gateway learns where workspaces are.
        index ("index"): IndexConfig = IndexConfig::default();
        /// How it speaks to shards.
        upstream ("upstream"): UpstreamConfig = UpstreamConfig::default();
        /// Which paths lead where.
        paths ("paths"): PathsConfig = PathsConfig::default();
        /// On which shard a new workspace lives.
        placement ("placement"): PlacementConfig = PlacementConfig::default();
        /// Origins whose browsers may use the API, as regular expressions that match anywhere in the Origin header unless
        /// they are anchored; without any, cross-origin requests get no permission. Flag: --cors-allowed-origins.
        cors_allowed_origins ("corsAllowedOrigins"): Vec<String> = Vec::new();
        /// What to do as kcp's front proxy does where we do better: readiness, unsynced, unavailableBody, unreachable,
        /// mountLabels, retries, authenticationMethods, pings, drain, reloads, baseUrls, noCredential,
        /// rootPath; clearedMounts, quotedGroups, identityHeadersFirst and remoteUid, which open holes.
        /// docs/gateway-differences.md explains each.
        kcp_compatibility ("kcpCompatibility"): Vec<KcpBehaviour> = Vec::new();
        /// Limits per listener.
        limits ("limits"): ConnectionLimits = ConnectionLimits::default();
        /// Clients that send or take bodies slowly.
        slow_clients ("slowClients"): SlowClientsConfig = SlowClientsConfig::default();
        /// Bytes of responses and uploads that may wait on streams whose peer reads nothing, on all connections together.
        /// Above half of it each connection may have less waiting than its usual 1 MiB, down to 64 KiB; streams beyond that are
        /// ended.
        stalled_stream_budget ("stalledStreamBudget"): ByteSize = ByteSize::mib(64);
        /// The end of the process.
        drain ("drain"): DrainConfig = DrainConfig::default();
        /// How a successor takes over, which SIGQUIT starts.
        upgrade ("upgrade"): UpgradeConfig = UpgradeConfig::default();
        /// A file in which the process says how it is, for `fairlead gateway` reload, drain and upgrade. It is made when the
        /// process is ready and goes with it. Unset, there is none.
        state_file ("stateFile"): Option<OwnPath> = None;
        /// Logs.
        log ("log"): LogConfig = LogConfig::default();
        /// A line of JSON per request.
        access_log ("accessLog"): AccessLogConfig = AccessLogConfig::default();
        /// Traces of requests.
        tracing ("tracing"): TracingConfig = TracingConfig::default();
    }

    /// How a successor takes over: the program is started once more, with the same arguments and with the listening
    /// sockets.
    pub struct UpgradeConfig {
        /// The program. Unset, it is looked for under the name by which this process was started.
        program ("program"): Option<OwnPath> = None;
        /// The successor has to be ready by then; else it is ended, and the process goes on.
        ready_timeout ("readyTimeout"): Timespan = Timespan::from_secs(60);
    }

    /// Which paths lead where.
    pub struct PathsConfig {
        /// kcp's path mapping file. With it, only what it maps is served, and the credentials for shards are those of
        /// its entry /clusters/; without it, /clusters/ goes to shards. Flag: --mapping-file.
        mapping_file ("mappingFile"): Option<InputFile> = None;
        /// Without a mapping file, where /services/ (virtual workspaces) goes: owningShard (the shard of the logical
        /// cluster that the path names), rootShard, or refuse (404).
        services ("services"): ServicesPolicy = ServicesPolicy::OwningShard;
        /// Hosts (with their port, where it is not 443) that mounted workspaces may lead to; empty means every host
        /// whose certificate is good.
        mount_hosts ("mountHosts"): Vec<String> = Vec::new();
        /// How many mounts may lead to one another before a request is taken to go round in circles.
        mount_hops ("mountHops"): u32 = 8;
    }

    /// How the gateway learns where workspaces are.
    pub struct IndexConfig {
        /// Kubeconfig of the root shard, whose Shard objects are watched. Flag: --root-kubeconfig.
        root_shard_kubeconfig ("rootShardKubeconfig"): SecretFile = "root-shard.kubeconfig".into();
        /// Kubeconfig with the credentials for every shard; its server is ignored. Flag: --shards-kubeconfig.
        shards_kubeconfig ("shardsKubeconfig"): SecretFile = "shards.kubeconfig".into();
        /// Kubeconfigs of shards that are asked for the list of shards in place of the root shard: any of them, or of those
        /// that are found, when one fails. They need group system:kcp:admin. The root shard is then only asked for the
        /// identity of an API export and who may read metrics. Flag: --shard-peer-kubeconfig.
        shard_peer_kubeconfigs ("shardPeerKubeconfigs"): Vec<SecretFile> = Vec::new();
        /// Names of the shards to follow; empty for all. Workspaces of other shards do not exist for this gateway; paths
        /// that begin at root need the root shard.
        shards ("shards"): Vec<String> = Vec::new();
        /// Which shards to follow, by their labels, such as "region in (eu,us),!retired"; empty for all.
        shard_selector ("shardSelector"): ShardSelector = ShardSelector::default();
        /// A file in which the gateway keeps what it knows of shards and workspaces, to begin with it next time. Of most
        /// use while the root shard is gone. Flag: --root-directory, the folder of it.
        snapshot ("snapshot"): Option<OwnPath> = None;
        /// When what is known of a shard is older than this, the gateway is not ready. Unset, age is a metric only: a root
        /// shard that is gone would take every replica out at once, and what they know would still be right.
        max_age ("maxAge"): Option<Timespan> = None;
        /// How long a request for an unknown workspace waits for the index to catch up before it gets 403.
        miss_wait ("missWait"): Timespan = Timespan::from_millis(500);
    }

    /// How the gateway speaks to shards.
    pub struct UpstreamConfig {
        /// PEM file: the certificate by which shards believe the gateway's X-Remote-* headers.
        certificate ("certificate"): InputFile = "front-proxy.crt".into();
        /// PEM file: its private key.
        private_key ("privateKey"): SecretFile = "front-proxy.key".into();
        /// PEM bundle: authorities of the shards' serving certificates.
        server_ca ("serverCA"): InputFile = "serving-ca.crt".into();
        /// Time to open a connection to a shard, TLS included.
        connect_timeout ("connectTimeout"): Timespan = Timespan::from_secs(3);
        /// Time, and 5 s more, for which a shard may be silent before and while it answers; open watches and tunnels have no
        /// limit.
        response_timeout ("responseTimeout"): Timespan = Timespan::from_secs(60);
        /// Without a request for this long, a connection to a shard is closed.
        idle_timeout ("idleTimeout"): Timespan = Timespan::from_secs(60);
        /// After about this long a connection to a shard is replaced, so that new endpoints get their share; what is open
        /// on it goes on.
        max_connection_age ("maxConnectionAge"): Timespan = Timespan::from_secs(30 * 60);
        /// How often a shard is asked on each connection whether it is there. One that is silent for 5 s more, hung
        /// rather than dead, loses the connection: its requests fail and its part of the index ages.
        ping_interval ("pingInterval"): Timespan = Timespan::from_secs(10);
        /// Bytes that a shard may send ahead of one answer. What a client asks for and does not take waits in the gateway, so
        /// much for each of its streams; and an answer comes no faster than so much in each round trip to the shard: 64KiB
        /// are 60 MiB/s over 1 ms, and 2 MiB/s over 30 ms.
        stream_window ("streamWindow"): ByteSize = ByteSize::kib(64);
        /// How many requests each shard gets at a time.
        concurrency ("concurrency"): ConcurrencyConfig = ConcurrencyConfig::default();
        /// When a shard is taken to be gone.
        circuit_breaker ("circuitBreaker"): CircuitBreakerConfig = CircuitBreakerConfig::default();
        /// When an address of a shard gets no requests for a while.
        health ("health"): HealthConfig = HealthConfig::default();
        /// Shards that are spoken to in another way than the others.
        shards ("shards"): Vec<ShardUpstreamConfig> = Vec::new();
    }

    /// How the gateway speaks to one shard. What is not set is as for all others; with a mapping file, whose entry /clusters/
    /// has the credential of all others, certificate, privateKey and serverCA go together.
    pub struct ShardUpstreamConfig {
        /// The shard's name.
        name ("name"): String = String::new();
        /// PEM file: the certificate by which this shard believes the gateway's X-Remote-* headers.
        certificate ("certificate"): Option<InputFile> = None;
        /// PEM file: its private key.
        private_key ("privateKey"): Option<SecretFile> = None;
        /// PEM bundle: authorities of this shard's serving certificate.
        server_ca ("serverCA"): Option<InputFile> = None;
        /// The name that its serving certificate has to have, in place of the host of its URL.
        server_name ("serverName"): Option<String> = None;
        /// Kubeconfig by which the index reads this shard, in place of index.shardsKubeconfig; its server is ignored.
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
            checker.fault("listeners", &message, "each costs metrics; several names can share one (hosts)");
        }
        for (index, door) in self.listeners.iter().enumerate() {
            let earlier = &self.listeners[..index];
            checker.within(&format!("listeners[{index}]"), |checker| {
                if door.name.is_empty() {
                    checker.fault("name", "a listener has no name", "names stand in logs and metrics");
                }
                if let Some(twin) = earlier.iter().position(|other| other.name == door.name) {
                    let message = format!("listener {:?} has the name of listeners[{twin}]", door.name);
                    checker.fault("name", &message, "give each listener its own name");
                }
                match &door.socket {
                    None => {
                        let address = door.serving.address;
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
                if self.paths.mapping_file.is_some() && door.upstream_identity.is_some() {
                    let message = "with a mapping file, who the gateway is towards each server stands there";
                    let hint = "leave out upstreamIdentity or paths.mappingFile";
                    checker.fault("upstreamIdentity", message, hint);
                }
                door.check(checker);
            });
        }
        let challenges = self.listeners.iter().filter_map(|door| Some(door.tls.acme.as_ref()?.challenge));
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
        let by_acme = self.listeners.iter().enumerate().filter(|(_, door)| door.tls.acme.is_some());
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
            checker.fault("name", "no shard is named", "give the name of its Shard object");
        }
        if let Some(twin) = earlier.iter().position(|other| other.name == self.name) {
            let message = format!("shard {:?} has an entry already: shards[{twin}]", self.name);
            checker.fault("name", &message, "one entry per shard");
        }
        if self.certificate.is_some() != self.private_key.is_some() {
            let message = "of certificate and privateKey only one is set";
            checker.fault("certificate", message, "a certificate and its key belong together");
        }
        let is_own = self.certificate.is_some() || self.server_ca.is_some() || self.server_name.is_some();
        let is_whole = self.certificate.is_some() && self.server_ca.is_some();
        if has_mapping_file && is_own && !is_whole {
            let message = "the credential for all other shards stands in the mapping file, and nothing completes a part of another";
            checker.fault("certificate", message, "set certificate, privateKey and serverCA");
        }
    }
}

/// Whether two sockets cannot both be listened on; port 0 is another one each time.
fn clash(a: SocketAddr, b: SocketAddr) -> bool {
    let everywhere = |address: SocketAddr| address.ip().is_unspecified();
    a.port() == b.port() && a.port() != 0 && (a.ip() == b.ip() || everywhere(a) || everywhere(b))
}
