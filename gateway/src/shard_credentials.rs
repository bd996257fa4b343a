//! How the gateway reads shards for its index: their kubeconfigs, followed as they change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use fairlead_client::{
    Client, ClientOptions, Credentials, CredentialsError, Kubeconfig, KubeconfigError, Names,
    ResolvedContext, UnverifiedTls,
};
use fairlead_config::{GatewayConfig, SecretFile};
use fairlead_process::{MetricsError, Reloads};
use rustc_hash::FxHashMap;

use crate::index::{PeerClients, ShardClients};
use crate::server::StartError;

/// Clients for the root shard and for every other one.
///
/// # Errors
/// [`StartError`] if a kubeconfig cannot be used.
pub(crate) fn shard_clients(
    config: &GatewayConfig,
    reloads: &Reloads,
    names: &Names,
) -> Result<ShardClients, StartError> {
    let of_root = |file: &Path| Ok(read(file)?.resolve(None)?);
    let root: ResolvedContext = of_root(&config.index.root_shard_kubeconfig)?;
    let root_credentials =
        credentials("kubeconfig of the root shard", &config.index.root_shard_kubeconfig, of_root, reloads)?;
    let server = root.endpoint.clone();
    let of_shards = move |file: &Path| Ok(read(file)?.resolve_at(&server)?);
    let shared =
        credentials("kubeconfig of the shards", &config.index.shards_kubeconfig, of_shards, reloads)?;
    let of_single =
        config.upstream.shards.iter().filter_map(|shard| Some((shard, shard.kubeconfig.as_ref()?)));
    let mut own = FxHashMap::default();
    for (shard, file) in of_single {
        let server = root.endpoint.clone();
        let resolve = move |file: &Path| Ok(read(file)?.resolve_at(&server)?);
        let what = format!("kubeconfig of shard {}", shard.name);
        own.insert(Arc::from(shard.name.as_str()), credentials(&what, file, resolve, reloads)?);
    }
    let options = ClientOptions {
        user_agent: http::HeaderValue::from_static(USER_AGENT),
        ping_interval: config.upstream.ping_interval.get(),
        names: names.clone(),
        ..ClientOptions::default()
    };
    let peers = peer_clients(&config.index.shard_peer_kubeconfigs, &options, reloads)?;
    let root = Client::with_credentials(root.endpoint.with_prefix(""), root_credentials, options);
    Ok(ShardClients { root, credentials: shared, own, peers })
}

fn peer_clients(
    files: &[SecretFile],
    options: &ClientOptions,
    reloads: &Reloads,
) -> Result<Option<PeerClients>, StartError> {
    let resolve = |file: &Path| Ok(read(file)?.resolve(None)?);
    let mut peers: Option<PeerClients> = None;
    for (number, file) in files.iter().enumerate() {
        let context: ResolvedContext = resolve(file)?;
        let what = format!("kubeconfig {} of a peer", number + 1);
        let credentials = credentials(&what, file, resolve, reloads)?;
        let endpoint = context.endpoint.with_prefix("");
        let client = Client::with_credentials(endpoint, Arc::clone(&credentials), options.clone());
        match &mut peers {
            Some(peers) => peers.others.push(client),
            None => peers = Some(PeerClients { first: client, others: Vec::new(), credentials }),
        }
    }
    Ok(peers)
}

const USER_AGENT: &str = concat!("fairlead-gateway/", env!("CARGO_PKG_VERSION"));

/// The credentials of a kubeconfig, replaced when it or a file that it names changes.
fn credentials(
    what: &str,
    file: &Path,
    resolve: impl Fn(&Path) -> Result<ResolvedContext, ShardKubeconfigError> + Send + Sync + 'static,
    reloads: &Reloads,
) -> Result<Arc<ArcSwap<Credentials>>, StartError> {
    let context = resolve(file)?;
    let files = [file].into_iter().filter(|file| !file.as_os_str().is_empty());
    let files: Vec<PathBuf> = files.chain(context.files()).map(Path::to_owned).collect();
    let file = file.to_owned();
    let load = move || -> Result<Credentials, ShardKubeconfigError> {
        Ok(resolve(&file)?.credentials(UnverifiedTls::Refuse)?)
    };
    // The client wants the pointer itself, so the watched value only feeds it.
    let fed: Arc<OnceLock<Arc<ArcSwap<Credentials>>>> = Arc::default();
    let feed = Arc::clone(&fed);
    reloads.register(what, files, move || {
        let loaded = load()?;
        match feed.get() {
            Some(current) => current.store(Arc::new(loaded)),
            None => {
                let _ = feed.set(Arc::new(ArcSwap::from_pointee(loaded)));
            }
        }
        Ok::<(), ShardKubeconfigError>(())
    })?;
    fed.get().cloned().ok_or_else(|| {
        // `register` has loaded once, or failed.
        StartError::Metrics(MetricsError::Msg("credentials were not loaded".to_owned()))
    })
}

/// A kubeconfig; that of the pod, where no file is named.
fn read(file: &Path) -> Result<Kubeconfig, ShardKubeconfigError> {
    if file.as_os_str().is_empty() {
        return Kubeconfig::in_cluster().ok_or(ShardKubeconfigError::NoPod);
    }
    Ok(Kubeconfig::load(file)?)
}

/// A kubeconfig cannot be used; the operator has to mend it.
#[derive(Debug, thiserror::Error)]
pub enum ShardKubeconfigError {
    /// It cannot be read, or lacks something.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// What it names cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// None is named, and there is no pod to ask.
    #[error("no kubeconfig is named, and this is no pod: KUBERNETES_SERVICE_HOST is not set")]
    NoPod,
}
