//! The settings of a server of virtual workspaces.

use crate::check::Checker;
use crate::load::{ProcessConfig, ProcessKind};
use crate::setting::settings;
use crate::shared::{
    AllowedPeersConfig, ConnectionLimits, DrainConfig, LogConfig, ServerTlsConfig, ServingConfig,
    SlowClientsConfig, TrustConfig,
};
use crate::units::Timespan;
use crate::values::SecretFile;

settings! {
    /// Virtual workspaces in a process of their own.
    pub struct VirtualWorkspacesConfig {
        /// Address and serving certificate.
        serving ("serving"): ServingConfig = ServingConfig::default();
        /// TLS versions, cipher suites and further certificates.
        tls ("tls"): ServerTlsConfig = ServerTlsConfig::default();
        /// Trusted authorities: of clients, and of the gateways whose identity headers are trusted.
        trust ("trust"): TrustConfig = TrustConfig::default();
        /// Kubeconfig of the shard or workspace behind the virtual workspaces. Flag: --kubeconfig.
        kubeconfig ("kubeconfig"): SecretFile = "shard.kubeconfig".into();
        /// Context of the kubeconfig; null means its current context. Flag: --context.
        context ("context"): Option<String> = None;
        /// Time for which the shard's review of a bearer token counts. Only the program fairlead-virtual-workspaces accepts
        /// tokens. Flag: --authentication-token-webhook-cache-ttl.
        token_cache_ttl ("tokenCacheTTL"): Timespan = Timespan::from_secs(10);
        /// Peers that may connect.
        peers ("peers"): AllowedPeersConfig = AllowedPeersConfig::default();
        /// Limits of the listener.
        limits ("limits"): ConnectionLimits = ConnectionLimits::default();
        /// Time limits of slow clients, including gateways, which have limits of their own.
        slow_clients ("slowClients"): SlowClientsConfig = SlowClientsConfig::default();
        /// Shutdown of the process.
        drain ("drain"): DrainConfig = DrainConfig::default();
        /// Format and level of logs.
        log ("log"): LogConfig = LogConfig::default();
    }
}

impl ProcessConfig for VirtualWorkspacesConfig {
    const KIND: ProcessKind = ProcessKind::VirtualWorkspaces;

    fn check(&self, checker: &mut Checker) {
        let trust = &self.trust;
        if trust.request_header_ca.is_some() && trust.username_headers.is_empty() {
            let hint = "X-Remote-User is the usual one";
            checker.fault("trust.usernameHeaders", "no header for the user name is set", hint);
        }
        checker.within("peers", |checker| self.peers.check(checker));
        checker.within("limits", |checker| self.limits.check(checker));
        checker.within("slowClients", |checker| self.slow_clients.check(checker));
    }
}
