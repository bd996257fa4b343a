//! Rules about shards, the cache server and the issuer.

use std::net::IpAddr;

use fairlead_config::{CacheConfig, HttpsUrl, IssuerConfig, Networks, ServingConfig, ShardConfig};

use crate::certificate::{Certificate, Usage};
use crate::kubeconfigs::Use;
use crate::survey::{ConfigurationPass, Meaning};

pub(crate) fn inspect_shard(config: &ShardConfig, survey: &mut ConfigurationPass<'_>) {
    let shown = survey.serving("serving", &config.serving);
    if let (Some(url), Some(leaf)) = (&config.shard_base_url, &shown) {
        survey.named("shardBaseURL", url, leaf);
    }
    let trust = &config.trust;
    if let Some(file) = &trust.client_ca {
        survey.bundle("trust.clientCA", file, Meaning::Identity);
    }
    if let Some(file) = &trust.request_header_ca {
        survey.bundle("trust.requestHeaderCA", file, Meaning::Proxy);
        if trust.request_header_allowed_names.is_empty() {
            let message = "any certificate of requestHeaderCA can assert any identity";
            let hint = "name the gateways' common names, such as kcp-front-proxy";
            survey.checker.fault("trust.requestHeaderAllowedNames", message, hint);
        }
        let is_restricted = config.peers.allow.as_deref().is_some_and(restricts_peers);
        if is_public(config.serving.address.ip()) && !is_restricted {
            let message = format!(
                "this shard can be reached at {} from any address, and trusts every identity that a holder of a front \
                 proxy's key asserts",
                config.serving.address.ip()
            );
            let hint = "set the networks of the gateways and other clients in peers.allow, or listen at a private address";
            survey.checker.fault("serving.address", &message, hint);
        }
    }
    survey.networks("peers.allow", config.peers.allow.as_deref());
    let kubeconfigs = [
        ("rootShardKubeconfig", &config.root_shard_kubeconfig, Use::Context(Some("shard-base"))),
        ("cacheKubeconfig", &config.cache_kubeconfig, Use::Context(None)),
        ("logicalClusterAdminKubeconfig", &config.logical_cluster_admin_kubeconfig, Use::User),
    ];
    for (key, file, usage) in kubeconfigs {
        if let Some(file) = file {
            survey.kubeconfig(key, file, usage);
        }
    }
    if let Some(placement) = &config.placement {
        survey.pair("placement", &placement.certificate, &placement.private_key, Usage::Client);
        survey.bundle("placement.serverCA", &placement.server_ca, Meaning::Server);
    }
}

pub(crate) fn inspect_cache(config: &CacheConfig, survey: &mut ConfigurationPass<'_>) {
    survey.serving("serving", &config.serving);
    survey.bundle("clientCA", &config.client_ca, Meaning::Identity);
    survey.networks("peers.allow", config.peers.allow.as_deref());
}

pub(crate) fn inspect_issuer(config: &IssuerConfig, survey: &mut ConfigurationPass<'_>) {
    survey.serving("serving", &config.serving);
}

impl ConfigurationPass<'_> {
    /// Checks a serving certificate. Returns the leaf.
    pub(crate) fn serving(&mut self, key: &str, serving: &ServingConfig) -> Option<Certificate> {
        self.pair(key, &serving.certificate, &serving.private_key, Usage::Server)
    }

    /// Checks a serving certificate against a URL.
    fn named(&mut self, key: &str, url: &HttpsUrl, leaf: &Certificate) {
        let host = host_of(url);
        if !leaf.is_named(host) {
            let message =
                format!("the serving certificate is not for {host:?}, but for {}", leaf.names().join(", "));
            self.checker.fault(
                key,
                &message,
                "let the name be among the certificate's subject alternative names",
            );
        }
    }

    /// Checks a list of networks.
    pub(crate) fn networks(&mut self, key: &str, file: Option<&std::path::Path>) {
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
