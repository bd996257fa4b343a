//! The settings of the cache server.

use crate::authorization::ALWAYS_ALLOW_PATHS;
use crate::check::Checker;
use crate::load::{ProcessConfig, ProcessKind};
use crate::setting::settings;
use crate::shared::{
    AllowedPeersConfig, ConnectionLimits, DrainConfig, LogConfig, ServerTlsConfig, ServingConfig,
    SlowClientsConfig, StoreConfig,
};
use crate::units::Timespan;
use crate::values::InputFile;

settings! {
    /// The cache server: objects that all shards share.
    pub struct CacheConfig {
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
        /// Storage of objects.
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

impl ProcessConfig for CacheConfig {
    const KIND: ProcessKind = ProcessKind::Cache;

    fn check(&self, checker: &mut Checker) {
        checker.within("peers", |checker| self.peers.check(checker));
        checker.within("store", |checker| self.store.check(checker));
        if self.store.etcd.is_used() {
            let hint = "remove it; the cache server can be filled again from the shards";
            checker.fault("store.etcd", "the cache server keeps its objects in a file", hint);
        }
        checker.within("limits", |checker| self.limits.check(checker));
        checker.within("slowClients", |checker| self.slow_clients.check(checker));
    }
}
