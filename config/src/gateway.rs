//! The settings of the gateway.

use std::net::SocketAddr;

use crate::check::Checker;
use crate::load::{ProcessConfig, ProcessKind};
use crate::setting::settings;
use crate::shared::{ConnectionLimits, DrainConfig, LogConfig, ServingConfig};
use crate::units::Timespan;
use crate::values::{InputFile, SecretFile, TokenPolicy};

settings! {
    /// The gateway: finds the shard of a request and forwards it.
    pub struct GatewayConfig {
        /// The doors. Each has its own address, certificate and idea of who may prove an identity how.
        listeners ("listeners"): Vec<DoorConfig> = vec![DoorConfig::default()];
        /// How the gateway learns where workspaces are.
        index ("index"): IndexConfig = IndexConfig::default();
        /// How it speaks to shards.
        upstream ("upstream"): UpstreamConfig = UpstreamConfig::default();
        /// Limits per listener.
        limits ("limits"): ConnectionLimits = ConnectionLimits::default();
        /// The end of the process.
        drain ("drain"): DrainConfig = DrainConfig::default();
        /// Logs.
        log ("log"): LogConfig = LogConfig::default();
    }

    /// A listener with its identity policy.
    pub struct DoorConfig {
        /// Its name in logs and metrics.
        name ("name"): String = "internal".to_owned();
        /// Where it listens.
        serving ("serving"): ServingConfig = ServingConfig::default();
        /// PEM bundle: authorities of client certificates. Without it no certificate is an identity at this door.
        /// Flag: --client-ca-file.
        client_ca ("clientCA"): Option<InputFile> = None;
        /// What happens to bearer tokens: passThrough (the shard judges them) or refuse.
        tokens ("tokens"): TokenPolicy = TokenPolicy::PassThrough;
        /// Whether shards may ask here on which shard a workspace should live.
        shard_pick ("shardPick"): bool = false;
    }

    /// How the gateway learns where workspaces are.
    pub struct IndexConfig {
        /// Kubeconfig of the root shard, whose Shard objects are watched. Flag: --root-kubeconfig.
        root_shard_kubeconfig ("rootShardKubeconfig"): SecretFile = "root-shard.kubeconfig".into();
        /// Kubeconfig with the credentials for every shard; its server is ignored. Flag: --shards-kubeconfig.
        shards_kubeconfig ("shardsKubeconfig"): SecretFile = "shards.kubeconfig".into();
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
        /// Time until a shard begins to answer; watches and upgrades have no limit.
        response_timeout ("responseTimeout"): Timespan = Timespan::from_secs(60);
        /// Without a request for this long, a connection to a shard is closed.
        idle_timeout ("idleTimeout"): Timespan = Timespan::from_secs(60);
        /// How often a shard is asked on each connection whether it is there. One that is silent for 5 s more, hung
        /// rather than dead, loses the connection: its requests fail and its part of the index ages.
        ping_interval ("pingInterval"): Timespan = Timespan::from_secs(10);
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
                if let Some(twin) =
                    earlier.iter().position(|o| clash(o.serving.address, door.serving.address))
                {
                    let address = door.serving.address;
                    let message = format!("address {address} is also listened on by listeners[{twin}]");
                    checker.fault("serving.address", &message, "give each listener its own port");
                }
                if door.shard_pick && door.client_ca.is_none() {
                    let message = "shardPick needs client certificates, but clientCA is not set";
                    checker.fault(
                        "shardPick",
                        message,
                        "set clientCA to the bundle that signs shards' certificates",
                    );
                }
            });
        }
        checker.within("upstream", |checker| {
            let moment = Timespan::from_millis(1);
            checker.at_least("connectTimeout", self.upstream.connect_timeout, moment);
            checker.at_least("responseTimeout", self.upstream.response_timeout, moment);
            checker.at_least("idleTimeout", self.upstream.idle_timeout, moment);
            checker.at_least("pingInterval", self.upstream.ping_interval, Timespan::from_millis(100));
        });
        checker.within("limits", |checker| self.limits.check(checker));
    }
}

/// Whether two sockets cannot both be listened on; port 0 is another one each time.
fn clash(a: SocketAddr, b: SocketAddr) -> bool {
    let everywhere = |address: SocketAddr| address.ip().is_unspecified();
    a.port() == b.port() && a.port() != 0 && (a.ip() == b.ip() || everywhere(a) || everywhere(b))
}
