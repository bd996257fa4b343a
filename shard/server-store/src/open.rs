//! Opens the store of a server.

use std::convert::Infallible;
use std::future::Future;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use fairlead_config::StoreConfig;
use fairlead_process::{FatalError, Shutdown};
use fairlead_store::{Election, OpenError, RedbOptions, RedbStore, Store};
#[cfg(feature = "etcd")]
use fairlead_store_etcd::EtcdStore;

/// How long the tasks of a process may take to end after its store has failed. They resign, and write what they have for the audit
/// log; requests are refused meanwhile.
const END_AFTER_FAILURE: Duration = Duration::from_secs(2);

/// An open store.
pub enum OpenedStore {
    /// The embedded file, which one process has.
    File(Arc<RedbStore>),
    /// A prefix of etcd, which the replicas of a server share.
    #[cfg(feature = "etcd")]
    Etcd(Arc<EtcdStore>),
}

/// The server that opens a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreUser<'a> {
    /// The owner of a store file, or of a prefix of etcd: the same in all replicas of a server, and different from all other servers.
    pub owner: &'a str,
    /// The name of this replica, by which the leader is known; by default its host and process.
    pub replica: Option<&'a str>,
    /// Files with the authorities of its clients, by whose certificates its installation is known: servers of another
    /// installation may have the same owner.
    pub authorities: &'a [PathBuf],
    /// The first segment of its keys, such as `/registry`. A prefix of etcd takes its place.
    pub root: &'a str,
}

/// The reason why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened.
    #[error(transparent)]
    File(#[from] OpenError),
    /// The store on etcd cannot be opened.
    #[error("{reason}")]
    Etcd {
        /// The reason.
        reason: String,
        /// The remedy.
        hint: &'static str,
    },
    /// The task that opens the file has ended early.
    #[error("the file of the store was not opened")]
    Stopped(#[source] tokio::task::JoinError),
}

impl FatalError for StoreError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::File(OpenError::NewerFormat { .. }) => Some("run the version that wrote it".to_owned()),
            Self::File(OpenError::OtherOwner { .. }) => Some(
                "correct `store.path`, or the name of the server; a store cannot be given to a server of another name"
                    .to_owned(),
            ),
            Self::Etcd { hint, .. } => Some((*hint).to_owned()),
            Self::File(_) | Self::Stopped(_) => None,
        }
    }
}

impl OpenedStore {
    /// Opens the store of the configuration.
    ///
    /// # Errors
    /// [`StoreError`]; also [`StoreError::Etcd`] if this program was built without etcd.
    pub async fn open(config: &StoreConfig, user: StoreUser<'_>) -> Result<Self, StoreError> {
        if config.etcd.is_used() { open_etcd(config, user).await } else { open_file(config, user).await }
    }

    /// As [`open`](Self::open) while signals are handled. `None` if the shutdown began before etcd was available. The opening of a
    /// file is not abandoned, because it may be a repair.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_until_shutdown(
        config: &StoreConfig,
        user: StoreUser<'_>,
        shutdown: &Shutdown,
        signals: Pin<&mut impl Future<Output = Infallible>>,
    ) -> Result<Option<Self>, StoreError> {
        tokio::select! {
            opened = Self::open(config, user) => opened.map(Some),
            () = shutdown.announced(), if config.etcd.is_used() => Ok(None),
            never = signals => match never {},
        }
    }

    /// The store.
    pub fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::File(store) => store.clone(),
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => store.clone(),
        }
    }

    /// The election of the replica that leads. A file has one process, so it has none.
    pub fn election(&self) -> Option<Arc<dyn Election>> {
        match self {
            Self::File(_) => None,
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => Some(store.election()),
        }
    }

    /// Runs a process on the store. Begins its shutdown when the local copy of etcd has failed: then every request fails, while
    /// other replicas and the same one after a restart serve again. A file goes on with reads, so it never ends the process.
    ///
    /// # Errors
    /// That of `running`; that which `error_of` makes of the [`StoreError`] when the local copy has failed.
    pub async fn run_until_failure<E>(
        &self,
        shutdown: &Shutdown,
        running: impl Future<Output = Result<(), E>>,
        error_of: impl FnOnce(StoreError) -> E,
    ) -> Result<(), E> {
        let mut running = pin!(running);
        let failure = tokio::select! {
            outcome = running.as_mut() => {
                // The process may have failed because of the copy.
                let failure = outcome.is_err().then(|| self.failure()).flatten();
                return failure.map_or(outcome, |failure| Err(error_of(failure)));
            }
            failure = self.failed() => failure,
        };
        shutdown.begin_now();
        // Tasks that still run then end with the process.
        let _ = tokio::time::timeout(END_AFTER_FAILURE, running).await;
        Err(error_of(failure))
    }

    async fn failed(&self) -> StoreError {
        match self {
            Self::File(_) => std::future::pending().await,
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => etcd_error(&store.failed().await),
        }
    }

    fn failure(&self) -> Option<StoreError> {
        match self {
            Self::File(_) => None,
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => store.failure().as_ref().map(etcd_error),
        }
    }

    /// Closes the store, although others may still hold it.
    pub async fn close(&self) {
        match self {
            Self::File(store) => store.close().await,
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => store.close().await,
        }
    }
}

async fn open_file(config: &StoreConfig, user: StoreUser<'_>) -> Result<OpenedStore, StoreError> {
    let (path, owner) = (config.path.to_path_buf(), user.owner.to_owned());
    let options = RedbOptions {
        cache_bytes: usize::try_from(config.cache_size.bytes()).unwrap_or(usize::MAX),
        ring_bytes: usize::try_from(config.recent_changes_size.bytes()).unwrap_or(usize::MAX),
        verify: config.verify_at_start,
        ..RedbOptions::default()
    };
    let opened = tokio::task::spawn_blocking(move || RedbStore::open_owned(&path, &owner, options)).await;
    Ok(OpenedStore::File(Arc::new(opened.map_err(StoreError::Stopped)??)))
}

#[cfg(not(feature = "etcd"))]
async fn open_etcd(_config: &StoreConfig, _user: StoreUser<'_>) -> Result<OpenedStore, StoreError> {
    Err(StoreError::Etcd {
        reason: "this program was built without the store on etcd".to_owned(),
        hint: "build it with the feature `etcd`, or remove `store.etcd`",
    })
}

#[cfg(feature = "etcd")]
async fn open_etcd(config: &StoreConfig, user: StoreUser<'_>) -> Result<OpenedStore, StoreError> {
    use fairlead_store::ReplicaOptions;
    use fairlead_store_etcd::{EtcdOptions, EtcdUser, TlsFiles};

    let etcd = &config.etcd;
    let options = EtcdOptions {
        endpoints: etcd.endpoints.clone(),
        tls: TlsFiles {
            authorities: etcd.ca.as_deref().map(Into::into),
            certificate: etcd.certificate.as_deref().map(Into::into),
            key: etcd.private_key.as_deref().map(Into::into),
        },
        user: etcd
            .user
            .as_ref()
            .zip(etcd.password_file.as_deref())
            .map(|(name, file)| EtcdUser { name: name.clone(), password_file: file.into() }),
        prefix: etcd.prefix.clone(),
        root: user.root.to_owned(),
        owner: user.owner.to_owned(),
        installation: installation(user.authorities)?,
        replica: user.replica.map_or_else(host_and_process, str::to_owned),
        max_operations: etcd.max_operations,
        max_request_bytes: usize::try_from(etcd.max_request_size.bytes()).unwrap_or(usize::MAX),
        view: Some(config.path.to_path_buf()),
        view_options: ReplicaOptions {
            cache_bytes: usize::try_from(config.cache_size.bytes()).unwrap_or(usize::MAX),
            ring_bytes: usize::try_from(config.recent_changes_size.bytes()).unwrap_or(usize::MAX),
            verify: config.verify_at_start,
            ..ReplicaOptions::default()
        },
        ..EtcdOptions::default()
    };
    let store = EtcdStore::open(options).await.map_err(|error| etcd_error(&error))?;
    Ok(OpenedStore::Etcd(Arc::new(store)))
}

/// The digests of certificates, by which an installation is known.
#[cfg(feature = "etcd")]
fn installation(authorities: &[PathBuf]) -> Result<std::collections::BTreeSet<String>, StoreError> {
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject as _;
    use sha2::{Digest as _, Sha256};

    let mut marks = std::collections::BTreeSet::new();
    for file in authorities {
        let unreadable = |error: &dyn std::fmt::Display| StoreError::Etcd {
            reason: format!("{} cannot be read: {error}", file.display()),
            hint: "it needs certificates in PEM",
        };
        for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unreadable(&error))? {
            let certificate = certificate.map_err(|error| unreadable(&error))?;
            marks.insert(format!("ca-sha256 {:x}", Sha256::digest(&certificate)));
        }
    }
    Ok(marks)
}

/// The default name of a replica.
#[cfg(feature = "etcd")]
fn host_and_process() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_else(|| "replica".to_owned());
    format!("{}-{}", host.trim(), std::process::id())
}

#[cfg(feature = "etcd")]
fn etcd_error(error: &fairlead_store_etcd::EtcdError) -> StoreError {
    StoreError::Etcd { hint: hint(error), reason: error.to_string() }
}

#[cfg(feature = "etcd")]
fn hint(error: &fairlead_store_etcd::EtcdError) -> &'static str {
    use fairlead_store_etcd::EtcdError;
    match error {
        EtcdError::Options { .. } => "correct `store.etcd`, or the flags --etcd-*",
        EtcdError::Unreachable { .. } => "start etcd, or correct its address; then start the server again",
        EtcdError::Denied { .. } => {
            "check the user, its password and the client certificate, and what they may do in etcd; an etcd without \
             authentication accepts no user"
        }
        EtcdError::Foreign { .. } => {
            "check the address of etcd; if it is right on purpose, remove the local copy, `store.path`"
        }
        EtcdError::NoSpace { .. } => {
            "compact and defragment etcd, then disarm its alarm with `etcdctl alarm disarm`, or raise --quota-backend-bytes"
        }
        EtcdError::Incomplete { .. } => {
            "wait until the copy is complete; if none runs, empty the prefix with `etcdctl del --prefix` and copy again"
        }
        // Errors of copies.
        EtcdError::Empty { .. } | EtcdError::InUse { .. } => "stop the server of the prefix first",
        EtcdError::Occupied { .. } => "give each server a prefix of its own",
        EtcdError::View(error) => view_hint(error),
        EtcdError::ViewFailed { .. } => ROOM_HINT,
    }
}

/// The remedy for a disk without room.
#[cfg(feature = "etcd")]
const ROOM_HINT: &str = "make room on its disk, or name a file on another one in `store.path`; etcd has everything, so nothing is lost";

/// The remedy for a file that cannot be the local copy. It may only say that the file may be removed where the file is known to be
/// a copy: the path may name the store of another server.
#[cfg(feature = "etcd")]
fn view_hint(error: &OpenError) -> &'static str {
    match error {
        // The message for a damaged copy says that it may be moved away; files that are no copies have this error, too.
        OpenError::Corrupt { .. } | OpenError::OtherOwner { .. } => {
            "name another file in `store.path`: a new copy is filled from etcd"
        }
        OpenError::NewerFormat { .. } => {
            "run the version that wrote it, or name another file in `store.path`: a new copy is filled from etcd"
        }
        OpenError::InUse { .. } => {
            "each replica has a local copy of its own: stop the process that uses the file, or name another one in \
             `store.path`"
        }
        OpenError::Foreign { .. } => {
            "check the address of etcd; if it is right on purpose, remove the local copy, `store.path`"
        }
        OpenError::Io { source, .. } if is_full(source) => ROOM_HINT,
        OpenError::Io { .. } => "name a file in `store.path` that the server may create, read and write",
    }
}

/// Whether there is no room: on the disk, in the quota of the user, or below the limit of a file's size.
#[cfg(feature = "etcd")]
fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

#[cfg(test)]
#[cfg(feature = "etcd")]
mod tests {
    use std::future::pending;
    use std::pin::pin;
    use std::sync::Arc;

    use fairlead_config::StoreConfig;
    use fairlead_process::{FatalError, Shutdown};
    use fairlead_store::OpenError;
    use fairlead_store_etcd::EtcdError;

    use super::{OpenedStore, StoreUser, hint};

    #[tokio::test]
    async fn a_shutdown_ends_the_wait_for_etcd() {
        let mut config = StoreConfig::default();
        config.etcd.endpoints = vec!["http://127.0.0.1:1".to_owned()];
        let user = StoreUser { owner: "shard root", replica: None, authorities: &[], root: "/registry" };
        let shutdown = Shutdown::new(&Default::default());
        let signals = pin!(pending());
        let opening = OpenedStore::open_until_shutdown(&config, user, &shutdown, signals);
        let (opened, ()) = tokio::join!(opening, async { shutdown.begin() });
        // Without the shutdown, this is an error after 30 s.
        assert!(matches!(opened, Ok(None)));
    }

    #[tokio::test]
    async fn a_file_of_another_server_is_refused_with_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        let config = StoreConfig { path: folder.path().join("store.redb").into(), ..StoreConfig::default() };
        let open = |owner| {
            let user = StoreUser { owner, replica: None, authorities: &[], root: "/registry" };
            OpenedStore::open(&config, user)
        };
        open("shard root").await.unwrap().close().await;
        for other in ["shard shard-1", "cache"] {
            let Err(refused) = open(other).await else { panic!("{other} uses the store of root") };
            let message = format!("store.redb belongs to \"shard root\", not to \"{other}\"");
            assert!(refused.to_string().ends_with(&message), "{refused}");
            assert!(refused.hint().is_some_and(|hint| hint.contains("`store.path`")), "{:?}", refused.hint());
        }
        open("shard root").await.unwrap().close().await;
    }

    #[test]
    fn only_the_hint_for_a_copy_says_that_the_file_may_be_removed() {
        let path = || "/data/store.redb".into();
        let corrupt = OpenError::Corrupt { path: path(), hint: "it is a store of its own".to_owned() };
        let newer = OpenError::NewerFormat { path: path(), found: 2, supported: 1 };
        let io = OpenError::Io { path: path(), source: std::io::ErrorKind::IsADirectory.into() };
        let full = OpenError::Io { path: path(), source: std::io::ErrorKind::StorageFull.into() };
        for (error, expected, removes) in [
            (full, "make room on its disk", false),
            (corrupt, "another file in `store.path`", false),
            (newer, "run the version that wrote it", false),
            (OpenError::InUse { path: path() }, "stop the process that uses the file", false),
            (io, "may create, read and write", false),
            (OpenError::Foreign { path: path(), cluster: 1 }, "check the address", true),
        ] {
            let hint = hint(&EtcdError::View(Arc::new(error)));
            assert!(hint.contains(expected), "{hint}");
            assert_eq!(hint.contains("remove"), removes, "{hint}");
        }
    }
}
