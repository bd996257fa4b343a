//! The store of a shard: the embedded file, or an etcd.

use std::sync::Arc;

use fairlead_config::ShardConfig;
use fairlead_store::{Election, RedbOptions, RedbStore, Store};
#[cfg(feature = "etcd")]
use fairlead_store_etcd::EtcdStore;

use super::ShardError;

/// An open store.
pub(super) enum OpenedStore {
    File(Arc<RedbStore>),
    #[cfg(feature = "etcd")]
    Etcd(Arc<EtcdStore>),
}

impl OpenedStore {
    /// Opens the store of the configuration.
    ///
    /// # Errors
    /// [`ShardError::Open`], or [`ShardError::Etcd`] also if this program was built without etcd.
    pub(super) async fn open(config: &ShardConfig) -> Result<Self, ShardError> {
        if config.store.etcd.is_used() { open_etcd(config).await } else { open_file(config).await }
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::File(store) => store.clone(),
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => store.clone(),
        }
    }

    /// The election of the replica that leads. A file has one process, so it has none.
    pub(super) fn election(&self) -> Option<Arc<dyn Election>> {
        match self {
            Self::File(_) => None,
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => Some(store.election()),
        }
    }

    /// Closes the store, although others may still hold it.
    pub(super) async fn close(&self) {
        match self {
            Self::File(store) => store.close().await,
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => store.close().await,
        }
    }
}

async fn open_file(config: &ShardConfig) -> Result<OpenedStore, ShardError> {
    let path = config.store.path.to_path_buf();
    let options = RedbOptions {
        cache_bytes: usize::try_from(config.store.cache_size.bytes()).unwrap_or(usize::MAX),
        ring_bytes: usize::try_from(config.store.recent_changes_size.bytes()).unwrap_or(usize::MAX),
        verify: config.store.verify_at_start,
        ..RedbOptions::default()
    };
    let opened = tokio::task::spawn_blocking(move || RedbStore::open(&path, options)).await;
    match opened {
        Ok(store) => Ok(OpenedStore::File(Arc::new(store?))),
        Err(panicked) => Err(ShardError::Bootstrap(panicked.to_string())),
    }
}

#[cfg(not(feature = "etcd"))]
async fn open_etcd(_config: &ShardConfig) -> Result<OpenedStore, ShardError> {
    Err(ShardError::Etcd {
        reason: "this program was built without the store on etcd".to_owned(),
        hint: "build it with the feature `etcd`, or remove `store.etcd`",
    })
}

#[cfg(feature = "etcd")]
async fn open_etcd(config: &ShardConfig) -> Result<OpenedStore, ShardError> {
    use fairlead_store::ReplicaOptions;
    use fairlead_store_etcd::{EtcdOptions, TlsFiles};

    let etcd = &config.store.etcd;
    let options = EtcdOptions {
        endpoints: etcd.endpoints.clone(),
        tls: TlsFiles {
            authorities: etcd.ca.as_deref().map(Into::into),
            certificate: etcd.certificate.as_deref().map(Into::into),
            key: etcd.private_key.as_deref().map(Into::into),
        },
        user: user(config)?,
        prefix: etcd.prefix.clone(),
        root: super::CODEC.prefix().to_owned(),
        owner: format!("shard {}", config.name.as_str()),
        replica: replica_name(config),
        max_operations: etcd.max_operations,
        max_request_bytes: usize::try_from(etcd.max_request_size.bytes()).unwrap_or(usize::MAX),
        view: Some(config.store.path.to_path_buf()),
        view_options: ReplicaOptions {
            cache_bytes: usize::try_from(config.store.cache_size.bytes()).unwrap_or(usize::MAX),
            ring_bytes: usize::try_from(config.store.recent_changes_size.bytes()).unwrap_or(usize::MAX),
            verify: config.store.verify_at_start,
            ..ReplicaOptions::default()
        },
        ..EtcdOptions::default()
    };
    let store = EtcdStore::open(options)
        .await
        .map_err(|error| ShardError::Etcd { hint: hint(&error), reason: error.to_string() })?;
    Ok(OpenedStore::Etcd(Arc::new(store)))
}

/// The name of this replica: by default its host and its process.
#[cfg(feature = "etcd")]
fn replica_name(config: &ShardConfig) -> String {
    let host = || {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        host.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_else(|| "replica".to_owned())
    };
    config.replica_name.clone().unwrap_or_else(|| format!("{}-{}", host().trim(), std::process::id()))
}

/// The user of etcd, with the password from its file.
#[cfg(feature = "etcd")]
fn user(config: &ShardConfig) -> Result<Option<(String, String)>, ShardError> {
    let etcd = &config.store.etcd;
    let (Some(user), Some(file)) = (&etcd.user, &etcd.password_file) else { return Ok(None) };
    let text = std::fs::read_to_string(&**file).map_err(|error| ShardError::Etcd {
        reason: format!("{} cannot be read: {error}", file.display()),
        hint: "put the password of the user of etcd into it",
    })?;
    Ok(Some((user.clone(), text.lines().next().unwrap_or_default().to_owned())))
}

#[cfg(feature = "etcd")]
fn hint(error: &fairlead_store_etcd::EtcdError) -> &'static str {
    use fairlead_store_etcd::EtcdError;
    match error {
        EtcdError::Options { .. } => "correct `store.etcd`, or the flags --etcd-*",
        EtcdError::Unreachable { .. } => "start etcd, or correct its address; then start the shard again",
        EtcdError::Denied { .. } => "check the user and the client certificate, and what they may do in etcd",
        EtcdError::Foreign { .. } => {
            "check the address of etcd; if it is right on purpose, remove the local copy, `store.path`"
        }
        // Errors of copies.
        EtcdError::Empty { .. } | EtcdError::InUse { .. } => "stop the server of the prefix first",
        EtcdError::Occupied { .. } => "give each shard a prefix of its own",
        EtcdError::View(_) => "the local copy holds nothing that etcd has not: it may be removed",
    }
}
