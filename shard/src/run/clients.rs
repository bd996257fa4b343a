//! The clients of a shard, from its configuration.

use std::path::Path;
use std::sync::Arc;

use fairlead_client::{Client, ClientOptions, Credentials, Endpoint, Kubeconfig, TrustRoots, UnverifiedTls};
use fairlead_config::ShardConfig;

use super::ShardError;
use crate::external_clusters::ExternalClusters;
use crate::host::AccessWebhook;
use crate::placement::PickClient;

/// The client of logical clusters on other shards.
pub(super) fn external_clusters(config: &ShardConfig) -> Result<Option<Arc<ExternalClusters>>, ShardError> {
    let Some(file) = &config.external_logical_cluster_admin_kubeconfig else { return Ok(None) };
    let external = ExternalClusters::new(file)
        .map_err(|error| ShardError::Kubeconfig { path: file.to_path_buf(), reason: error.to_string() })?;
    Ok(Some(Arc::new(external)))
}

pub(super) fn access_webhook(config: &ShardConfig) -> Result<Option<AccessWebhook>, ShardError> {
    let Some(webhook) = &config.authorization.webhook else { return Ok(None) };
    AccessWebhook::new(webhook).map(Some).map_err(|error| ShardError::Kubeconfig {
        path: webhook.kubeconfig.to_path_buf(),
        reason: error.to_string(),
    })
}

pub(super) fn root_client(config: &ShardConfig) -> Result<Client, ShardError> {
    match &config.root_shard_kubeconfig {
        Some(file) => client_of(file, "shard-base"),
        None => Err(ShardError::Bootstrap("rootShardKubeconfig is not set".to_owned())),
    }
}

pub(super) fn pick_client(config: &ShardConfig) -> Result<Option<PickClient>, ShardError> {
    let Some(pick) = &config.placement else { return Ok(None) };
    let unusable = |path: &Path, reason: String| ShardError::Kubeconfig { path: path.to_path_buf(), reason };
    let read = |path: &Path| std::fs::read(path).map_err(|error| unusable(path, error.to_string()));
    let roots = TrustRoots::Pem(read(&pick.server_ca)?);
    let credentials = Credentials::new(roots)
        .and_then(|credentials| {
            let chain = std::fs::read(&*pick.certificate).unwrap_or_default();
            let key = std::fs::read(&*pick.private_key).unwrap_or_default();
            credentials.with_certificate(&chain, &key)
        })
        .map_err(|error| unusable(&pick.certificate, error.to_string()))?;
    let endpoint = Endpoint::parse(pick.url.as_str())
        .map_err(|error| unusable(Path::new(pick.url.as_str()), error.to_string()))?;
    let client = Client::new(endpoint, credentials, ClientOptions::default());
    Ok(Some(PickClient { client, timeout: pick.timeout.get() }))
}

pub(super) fn credentials_of(file: &Path) -> Result<Credentials, ShardError> {
    let unusable = |reason: String| ShardError::Kubeconfig { path: file.to_path_buf(), reason };
    let kubeconfig = Kubeconfig::load(file).map_err(|error| unusable(error.to_string()))?;
    let context = kubeconfig.resolve(None).map_err(|error| unusable(error.to_string()))?;
    context.credentials(UnverifiedTls::Refuse).map_err(|error| unusable(error.to_string()))
}

/// Creates a client from a context of a kubeconfig, or from its current context if it has none with this name.
pub(super) fn client_of(path: &Path, context: &str) -> Result<Client, ShardError> {
    client_with(path, context, ClientOptions::default())
}

/// As [`client_of`], with options.
pub(super) fn client_with(path: &Path, context: &str, options: ClientOptions) -> Result<Client, ShardError> {
    let unusable = |reason: String| ShardError::Kubeconfig { path: path.to_path_buf(), reason };
    let kubeconfig = Kubeconfig::load(path).map_err(|error| unusable(error.to_string()))?;
    let context = kubeconfig.resolve(Some(context)).or_else(|_| kubeconfig.resolve(None));
    let context = context.map_err(|error| unusable(error.to_string()))?;
    Client::from_context(&context, UnverifiedTls::Refuse, options)
        .map_err(|error| unusable(error.to_string()))
}
