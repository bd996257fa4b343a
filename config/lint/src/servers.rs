//! Rules about shards, the cache server and the issuer.

use std::net::IpAddr;

use fairlead_config::{
    AllowedPeersConfig, CacheConfig, HttpsUrl, IssuerConfig, Networks, ServingConfig, ShardConfig,
    TrustConfig, VirtualWorkspacesConfig,
};

use crate::certificate::{Certificate, Usage};
use crate::kubeconfigs::KubeconfigPart;
use crate::linter::{AuthorityUse, FileLinter};

pub(crate) fn inspect_shard(config: &ShardConfig, linter: &mut FileLinter<'_>) {
    let shown = linter.check_serving_certificate("serving", &config.serving);
    if let (Some(url), Some(leaf)) = (&config.shard_base_url, &shown) {
        linter.check_host_name("shardBaseURL", url, leaf);
    }
    linter.check_trust("this shard", &config.trust, &config.serving, &config.peers);
    linter.check_networks("peers.allow", config.peers.allow.as_deref());
    let kubeconfigs = [
        ("rootShardKubeconfig", &config.root_shard_kubeconfig, KubeconfigPart::Context(Some("shard-base"))),
        ("cacheKubeconfig", &config.cache_kubeconfig, KubeconfigPart::Context(None)),
        ("logicalClusterAdminKubeconfig", &config.logical_cluster_admin_kubeconfig, KubeconfigPart::User),
        (
            "externalLogicalClusterAdminKubeconfig",
            &config.external_logical_cluster_admin_kubeconfig,
            KubeconfigPart::Context(None),
        ),
    ];
    for (key, file, part) in kubeconfigs {
        if let Some(file) = file {
            linter.check_kubeconfig(key, file, part);
        }
    }
    if let Some(placement) = &config.placement {
        linter.check_key_pair("placement", &placement.certificate, &placement.private_key, Usage::Client);
        linter.check_bundle("placement.serverCA", &placement.server_ca, AuthorityUse::Server);
    }
}

pub(crate) fn inspect_cache(config: &CacheConfig, linter: &mut FileLinter<'_>) {
    linter.check_serving_certificate("serving", &config.serving);
    linter.check_bundle("clientCA", &config.client_ca, AuthorityUse::Identity);
    linter.check_networks("peers.allow", config.peers.allow.as_deref());
}

pub(crate) fn inspect_issuer(config: &IssuerConfig, linter: &mut FileLinter<'_>) {
    linter.check_serving_certificate("serving", &config.serving);
}

pub(crate) fn inspect_virtual_workspaces(config: &VirtualWorkspacesConfig, linter: &mut FileLinter<'_>) {
    linter.check_serving_certificate("serving", &config.serving);
    linter.check_trust("this server", &config.trust, &config.serving, &config.peers);
    linter.check_networks("peers.allow", config.peers.allow.as_deref());
    let part = KubeconfigPart::Context(config.context.as_deref());
    linter.check_kubeconfig("kubeconfig", &config.kubeconfig, part);
}

impl FileLinter<'_> {
    /// Checks the authorities of clients and proxies, and who can reach a server that trusts proxies.
    fn check_trust(
        &mut self,
        server: &str,
        trust: &TrustConfig,
        serving: &ServingConfig,
        peers: &AllowedPeersConfig,
    ) {
        if let Some(file) = &trust.client_ca {
            self.check_bundle("trust.clientCA", file, AuthorityUse::Identity);
        }
        let Some(file) = &trust.request_header_ca else { return };
        self.check_bundle("trust.requestHeaderCA", file, AuthorityUse::Proxy);
        if trust.request_header_allowed_names.is_empty() {
            let message = "any certificate of requestHeaderCA can assert any identity";
            let hint = "name the gateways' common names, such as kcp-front-proxy";
            self.checker.fault("trust.requestHeaderAllowedNames", message, hint);
        }
        let is_restricted = peers.allow.as_deref().is_some_and(restricts_peers);
        if is_public(serving.address.ip()) && !is_restricted {
            let message = format!(
                "{server} can be reached at {} from any address, and trusts every identity that a holder of a front \
                 proxy's key asserts",
                serving.address.ip()
            );
            let hint = "set the networks of the gateways and other clients in peers.allow, or listen at a private address";
            self.checker.fault("serving.address", &message, hint);
        }
    }

    /// Checks a serving certificate. Returns the leaf.
    pub(crate) fn check_serving_certificate(
        &mut self,
        key: &str,
        serving: &ServingConfig,
    ) -> Option<Certificate> {
        self.check_key_pair(key, &serving.certificate, &serving.private_key, Usage::Server)
    }

    /// Checks a serving certificate against a URL.
    fn check_host_name(&mut self, key: &str, url: &HttpsUrl, leaf: &Certificate) {
        let host = host_of(url);
        if !leaf.is_named(host) {
            let message =
                format!("the serving certificate is not for {host:?}, but for {}", leaf.names().join(", "));
            self.checker.fault(key, &message, "issue a certificate with this subject alternative name");
        }
    }

    /// Checks a list of networks.
    pub(crate) fn check_networks(&mut self, key: &str, file: Option<&std::path::Path>) {
        let Some(file) =
            file.filter(|file| std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.len() > 0))
        else {
            return;
        };
        match Networks::load(file) {
            Err(error) => self.checker.fault(key, &error.to_string(), "one network per line, # for comments"),
            Ok(networks) if networks.contain_everything() => {
                let message = format!("{} contains every address and excludes no peer", file.display());
                self.checker.fault(key, &message, "list only the networks of the provider");
            }
            Ok(_) => {}
        }
    }
}

fn restricts_peers(file: &std::path::Path) -> bool {
    Networks::load(file).is_ok_and(|networks| !networks.contain_everything())
}

fn host_of(url: &HttpsUrl) -> &str {
    let authority = url.authority();
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => host,
        _ => authority,
    }
}

/// Whether an address may be public. The wildcard address may include a public one.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [a, b, ..] = address.octets();
            let is_carriers = a == 100 && b & 0xc0 == 64;
            !(address.is_loopback() || address.is_private() || address.is_link_local() || is_carriers)
        }
        IpAddr::V6(address) => {
            !(address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local())
        }
    }
}
