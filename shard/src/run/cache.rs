//! The cache server of a shard: another process, or without a kubeconfig for it this one.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::serve::identify;
use fairlead_authn::{Outcome, UserInfo};
use fairlead_cache::{ClientAuthentication, EmbeddedCache};
use fairlead_client::{Client, ClientOptions, Credentials, Endpoint, Token, TrustRoots};
use fairlead_config::ShardConfig;
use fairlead_process::{Metrics, Reloadable};
use fairlead_store::Store;
use http::request::Parts;
use sha2::{Digest, Sha256};

use super::ShardError;
use super::assembly::ShardParts;
use super::authenticators::TokenUser;
use super::clients::client_with;
use crate::host::Authenticators;

/// The token by which a shard reaches the cache server in its own process. It is new at each start and never stored.
pub(super) struct LoopbackToken(String);

impl LoopbackToken {
    pub(super) fn new() -> Self {
        Self(uuid::Uuid::new_v4().to_string())
    }

    /// The user of this token.
    pub(super) fn user(&self) -> TokenUser {
        let user = UserInfo {
            name: "system:apiserver".to_owned(),
            groups: vec![fairlead_cache::MASTERS.to_owned()],
            ..UserInfo::default()
        };
        (Sha256::digest(&self.0).into(), user)
    }
}

/// The shard's authenticators, for the embedded cache server.
struct ShardAuthentication(Arc<Reloadable<Authenticators>>);

#[async_trait]
impl ClientAuthentication for ShardAuthentication {
    async fn identify(&self, parts: &Parts) -> Outcome {
        identify(&self.0.load().chain, parts).await
    }
}

/// The cache server in this process, if the configuration names no other.
pub(super) async fn embed(
    config: &ShardConfig,
    parts: &ShardParts,
    store: &Arc<dyn Store>,
    metrics: &Metrics,
) -> Result<Option<EmbeddedCache>, ShardError> {
    if config.cache_kubeconfig.is_some() {
        return Ok(None);
    }
    let authentication = Arc::new(ShardAuthentication(parts.authenticators.clone()));
    let requests = parts.request_metrics.clone();
    let address = config.serving.address.to_string();
    let cache = EmbeddedCache::new(store.clone(), authentication, metrics, requests, address).await;
    cache.map(Some).map_err(|status| ShardError::Bootstrap(status.to_string()))
}

/// A client of the cache server.
pub(super) fn client(config: &ShardConfig, loopback: &LoopbackToken) -> Result<Client, ShardError> {
    match &config.cache_kubeconfig {
        Some(kubeconfig) => {
            // Several cache servers may be behind the address.
            let options = ClientOptions { follows_revisions: true, ..ClientOptions::default() };
            client_with(kubeconfig, "cache", options)
        }
        None => loopback_client(config, loopback),
    }
}

/// A client of this process. It trusts what the serving certificate's file contains, as the administrators' kubeconfig
/// does.
fn loopback_client(config: &ShardConfig, loopback: &LoopbackToken) -> Result<Client, ShardError> {
    let unusable = |reason: String| ShardError::Loopback { reason };
    let base_url = config.base_url();
    let base = Endpoint::parse(base_url.as_str()).map_err(|error| unusable(error.to_string()))?;
    let endpoint = Endpoint::parse(&format!("https://{}", loopback_address(config.serving.address)))
        .map_err(|error| unusable(error.to_string()))?;
    let roots = std::fs::read(&*config.serving.certificate).map_err(|error| unusable(error.to_string()))?;
    let credentials = Credentials::new(TrustRoots::Pem(roots))
        .and_then(|credentials| credentials.with_token(Token::new(&loopback.0)))
        .and_then(|credentials| credentials.with_server_name(base.host()))
        .map_err(|error| unusable(error.to_string()))?;
    Ok(Client::new(endpoint, credentials, ClientOptions::default()))
}

/// The address by which a process reaches its own listener.
fn loopback_address(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    address
}
