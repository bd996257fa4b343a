//! Kubeconfigs with which the gateway reads shards for its index. They are reloaded when they change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use fairlead_client::{
    Client, ClientOptions, Credentials, CredentialsError, Endpoint, Kubeconfig, KubeconfigError,
    NameResolver, ResolvedContext, UnverifiedTls,
};
use fairlead_config::{GatewayConfig, SecretFile};
use fairlead_process::{LoadError, Reloads};
use rustc_hash::FxHashMap;

use crate::routing::index::{PeerClients, ShardClients};

/// Builds the clients for the root shard, the other shards and peers of the gateway.
///
/// # Errors
/// [`ShardClientsError`] if a kubeconfig cannot be used.
pub(crate) fn shard_clients(
    config: &GatewayConfig,
    reloads: &Reloads,
    names: &NameResolver,
) -> Result<ShardClients, ShardClientsError> {
    let root_file = KubeconfigFile::of_its_server(&config.index.root_shard_kubeconfig);
    let root = root_file.resolve()?;
    let root_credentials = credentials("kubeconfig of the root shard", root_file, reloads)?;
    let shards_file = KubeconfigFile::at(&config.index.shards_kubeconfig, &root.endpoint);
    let shared = credentials("kubeconfig of the shards", shards_file, reloads)?;
    let of_single =
        config.upstream.shards.iter().filter_map(|shard| Some((shard, shard.kubeconfig.as_ref()?)));
    let mut own = FxHashMap::default();
    for (shard, file) in of_single {
        let object = format!("kubeconfig of shard {}", shard.name);
        let file = KubeconfigFile::at(file, &root.endpoint);
        own.insert(Arc::from(shard.name.as_str()), credentials(&object, file, reloads)?);
    }
    let options = ClientOptions {
        user_agent: http::HeaderValue::from_static(USER_AGENT),
        ping_interval: config.upstream.ping_interval.get(),
        resolver: names.clone(),
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
) -> Result<Option<PeerClients>, ShardClientsError> {
    let mut peers: Option<PeerClients> = None;
    for (number, file) in files.iter().enumerate() {
        let file = KubeconfigFile::of_its_server(file);
        let endpoint = file.resolve()?.endpoint.with_prefix("");
        let object = format!("kubeconfig {} of a peer", number + 1);
        let credentials = credentials(&object, file, reloads)?;
        let client = Client::with_credentials(endpoint, Arc::clone(&credentials), options.clone());
        match &mut peers {
            Some(peers) => peers.others.push(client),
            None => peers = Some(PeerClients { first: client, others: Vec::new(), credentials }),
        }
    }
    Ok(peers)
}

const USER_AGENT: &str = concat!("fairlead-gateway/", env!("CARGO_PKG_VERSION"));

/// Loads the credentials of a kubeconfig. They are replaced when the kubeconfig or a file that it names changes.
fn credentials(
    object: &str,
    kubeconfig: KubeconfigFile,
    reloads: &Reloads,
) -> Result<Arc<ArcSwap<Credentials>>, ShardClientsError> {
    let context = kubeconfig.resolve()?;
    let file = Some(kubeconfig.file.as_path()).filter(|file| !file.as_os_str().is_empty());
    let files: Vec<PathBuf> = file.into_iter().chain(context.files()).map(Path::to_owned).collect();
    // The client takes the `ArcSwap` itself, so the reload callback stores into it.
    let slot: Arc<OnceLock<Arc<ArcSwap<Credentials>>>> = Arc::default();
    let reloaded = Arc::clone(&slot);
    reloads.register(object, files, move || {
        let loaded = kubeconfig.credentials()?;
        match reloaded.get() {
            Some(current) => current.store(Arc::new(loaded)),
            None => {
                let _ = reloaded.set(Arc::new(ArcSwap::from_pointee(loaded)));
            }
        }
        Ok::<(), ShardKubeconfigError>(())
    })?;
    slot.get().cloned().ok_or_else(|| {
        // `register` has called the callback once, or has failed.
        ShardClientsError::NotLoaded(object.to_owned())
    })
}

/// A kubeconfig and the server that its credentials are used for.
struct KubeconfigFile {
    /// Path of the kubeconfig; empty for the service account of the pod.
    file: PathBuf,
    /// The server that the credentials are used for; `None` for the server that the kubeconfig names.
    server: Option<Endpoint>,
}

impl KubeconfigFile {
    fn of_its_server(file: &Path) -> Self {
        Self { file: file.to_owned(), server: None }
    }

    fn at(file: &Path, server: &Endpoint) -> Self {
        Self { file: file.to_owned(), server: Some(server.clone()) }
    }

    fn resolve(&self) -> Result<ResolvedContext, ShardKubeconfigError> {
        let kubeconfig = self.read()?;
        let resolved = match &self.server {
            Some(server) => kubeconfig.resolve_at(server),
            None => kubeconfig.resolve(None),
        };
        resolved.map_err(|source| ShardKubeconfigError::Incomplete { file: self.file.clone(), source })
    }

    fn credentials(&self) -> Result<Credentials, ShardKubeconfigError> {
        let credentials = self.resolve()?.credentials(UnverifiedTls::Refuse);
        credentials.map_err(|source| ShardKubeconfigError::Credentials { file: self.file.clone(), source })
    }

    fn read(&self) -> Result<Kubeconfig, ShardKubeconfigError> {
        if self.file.as_os_str().is_empty() {
            return Kubeconfig::in_cluster().ok_or(ShardKubeconfigError::NoPod);
        }
        Kubeconfig::load(&self.file).map_err(ShardKubeconfigError::Unreadable)
    }
}

/// The clients for shards cannot be built; the operator has to fix the configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShardClientsError {
    /// A kubeconfig cannot be used.
    #[error(transparent)]
    Kubeconfig(#[from] ShardKubeconfigError),
    /// A file that a kubeconfig names cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// An error in the program.
    #[error("{0}: the credentials were not loaded")]
    NotLoaded(String),
}

/// A kubeconfig cannot be used; the operator has to fix it.
#[derive(Debug, thiserror::Error)]
pub enum ShardKubeconfigError {
    /// The kubeconfig cannot be read; the source names the file.
    #[error(transparent)]
    Unreadable(KubeconfigError),
    /// A required entry is missing.
    #[error("{}: {source}", display_name(file))]
    Incomplete {
        /// The file; empty for the service account of the pod.
        file: PathBuf,
        /// The missing entry.
        source: KubeconfigError,
    },
    /// A certificate, key or token that the kubeconfig names cannot be used.
    #[error("{}: {source}", display_name(file))]
    Credentials {
        /// The file; empty for the service account of the pod.
        file: PathBuf,
        /// The credential error.
        source: CredentialsError,
    },
    /// No kubeconfig is configured, and the process does not run in a pod.
    #[error(
        "no kubeconfig is configured, and the process does not run in a pod: KUBERNETES_SERVICE_HOST is not set"
    )]
    NoPod,
}

fn display_name(file: &Path) -> String {
    if file.as_os_str().is_empty() {
        "the pod's own credentials".to_owned()
    } else {
        file.display().to_string()
    }
}
