//! The settings of the cache server.

use crate::authorization::ALWAYS_ALLOW_PATHS;
use crate::check::Checker;
use crate::load::{ProcessConfig, ProcessKind};
use crate::setting::settings;
use crate::shared::{
    AllowedPeersConfig, ConnectionLimits, DrainConfig, LogConfig, ServerTlsConfig, ServingConfig,
    SlowClientsConfig, StoreConfig, check_replica_name,
};
use crate::units::Timespan;
use crate::values::InputFile;

settings! {
    /// The cache server: objects that all shards share.
    pub struct CacheConfig {
        /// Name of this replica among the cache servers on one etcd, by which the leader is known; null means its host and process.
        /// Flag: --replica-name.
        replica_name ("replicaName"): Option<String> = None;
        /// Address and serving certificate.
        serving ("serving"): ServingConfig = ServingConfig::default();
        /// TLS versions, cipher suites and further certificates.
        tls ("tls"): ServerTlsConfig = ServerTlsConfig::default();
        /// PEM bundle: authorities of the shards' client certificates. Flag: --client-ca-file.
        client_ca ("clientCA"): InputFile = "client-ca.crt".into();
        /// Paths that everybody may read, exact or with * at the end. Flag: --authorization-always-allow-paths.
        always_allow_paths ("alwaysAllowPaths"): Vec<String> = ALWAYS_ALLOW_PATHS.map(str::to_owned).into();
        /// Peers that may connect: shards.
        peers ("peers"): AllowedPeersConfig = AllowedPeersConfig::default();
        /// Storage of objects. In etcd, the prefix /registry means /cache, as in kcp.
        store ("store"): StoreConfig = StoreConfig::default();
        /// Pause before each request, to simulate a distant server. Flag: --synthetic-delay.
        synthetic_delay ("syntheticDelay"): Timespan = Timespan::from_secs(0);
        /// Limits of the listener.
        limits ("limits"): ConnectionLimits = ConnectionLimits::default();
        /// Time limits of slow clients.
        slow_clients ("slowClients"): SlowClientsConfig = SlowClientsConfig::default();
        /// Shutdown of the process.
        drain ("drain"): DrainConfig = DrainConfig::default();
        /// Format and level of logs.
        log ("log"): LogConfig = LogConfig::default();
    }
}

/// The default prefix in etcd of shards, and what it means for a cache server.
const SHARDS_PREFIX: &str = "/registry";
const PREFIX: &str = "/cache";

impl CacheConfig {
    /// The storage of objects, with the prefix in etcd that is used.
    pub fn effective_store(&self) -> StoreConfig {
        let mut store = self.store.clone();
        if store.etcd.prefix == SHARDS_PREFIX {
            store.etcd.prefix = PREFIX.to_owned();
        }
        store
    }
}

impl ProcessConfig for CacheConfig {
    const KIND: ProcessKind = ProcessKind::Cache;

    fn check(&self, checker: &mut Checker) {
        checker.within("peers", |checker| self.peers.check(checker));
        checker.within("store", |checker| self.store.check(checker));
        check_replica_name(self.replica_name.as_deref(), checker);
        checker.within("limits", |checker| self.limits.check(checker));
        checker.within("slowClients", |checker| self.slow_clients.check(checker));
    }
}
