//! Stores on etcd as source and target of a copy.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use fairlead_store::{ContentDigest, Revision, Store};

use super::location::EtcdLocation;

/// Access to an etcd. The flags are those of a shard.
#[derive(Clone, Debug, Default, Args)]
#[cfg_attr(not(feature = "etcd"), allow(dead_code, reason = "there is no etcd"))]
pub(crate) struct EtcdAccess {
    /// Authorities of etcd's certificates; by default those of the system
    #[arg(long, value_name = "FILE")]
    etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile")]
    etcd_certfile: Option<PathBuf>,
    /// Private key for etcd
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    etcd_keyfile: Option<PathBuf>,
    /// User of etcd
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    etcd_user: Option<String>,
    /// File with the user's password on its first line
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,
}

/// An etcd that cannot be used for a copy.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct EtcdFailure {
    message: String,
    hint: Option<String>,
}

impl EtcdFailure {
    pub(crate) fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
}

pub(crate) use imp::fill;
pub(super) use imp::open;

#[cfg(feature = "etcd")]
mod imp {
    use std::time::Duration;

    use fairlead_store_etcd::{CopyError, EtcdError, EtcdOptions, EtcdStore, EtcdUser, Timing, TlsFiles};

    use super::*;

    /// The prefix of all keys of a shard in its store, as of kcp.
    const ROOT: &str = "/registry";
    /// How long an etcd may take to answer.
    const PATIENCE: Duration = Duration::from_secs(5);

    /// Opens the store of a prefix; returns its owner, too. Its local copy is in a folder.
    pub(crate) async fn open(
        location: &EtcdLocation,
        access: &EtcdAccess,
        folder: &Path,
    ) -> Result<(Arc<dyn Store>, String), EtcdFailure> {
        let opened = EtcdStore::open_source(options(location, access, folder)).await;
        let (store, owner) = opened.map_err(|error| of_etcd(location, &error))?;
        Ok((Arc::new(store), owner))
    }

    /// Fills an empty prefix, which belongs to the owner then. A local copy of it is made in a folder.
    pub(crate) async fn fill(
        location: &EtcdLocation,
        access: &EtcdAccess,
        owner: &str,
        source: Arc<dyn Store>,
        folder: &Path,
    ) -> Result<(ContentDigest, Revision), EtcdFailure> {
        let options = EtcdOptions { owner: owner.to_owned(), ..options(location, access, folder) };
        match EtcdStore::copy_from(options, source).await {
            Ok(summary) => Ok((summary.digest, summary.revision)),
            Err(error) => Err(of_copy(location, &error)),
        }
    }

    fn options(location: &EtcdLocation, access: &EtcdAccess, folder: &Path) -> EtcdOptions {
        let user = access.etcd_user.clone().zip(access.etcd_password_file.clone());
        let user = user.map(|(name, password_file)| EtcdUser { name, password_file });
        EtcdOptions {
            endpoints: location.endpoints.clone(),
            tls: TlsFiles {
                authorities: access.etcd_cafile.clone(),
                certificate: access.etcd_certfile.clone(),
                key: access.etcd_keyfile.clone(),
            },
            user,
            prefix: location.prefix.clone(),
            root: ROOT.to_owned(),
            view: Some(folder.join("view.redb")),
            timing: Timing { open: PATIENCE, ..Timing::default() },
            ..EtcdOptions::default()
        }
    }

    fn of_copy(location: &EtcdLocation, error: &CopyError) -> EtcdFailure {
        let prefix = &location.prefix;
        let hint = match error {
            CopyError::Etcd(error) => return of_etcd(location, error),
            CopyError::Exists { .. } => "name a prefix without keys".to_owned(),
            CopyError::Incomplete { .. } => format!(
                "if it runs, wait for its end or name another prefix; if none runs, empty it with `etcdctl del --prefix \
                 {prefix}/`"
            ),
            CopyError::Changed => "stop the shard first".to_owned(),
            CopyError::TooLarge { .. } => {
                "delete that object first, or raise --max-request-bytes of etcd".to_owned()
            }
            CopyError::Source(_) | CopyError::Interfered { .. } | CopyError::Unsound { .. } => {
                "copy again".to_owned()
            }
        };
        EtcdFailure { message: error.to_string(), hint: Some(hint) }
    }

    fn of_etcd(location: &EtcdLocation, error: &EtcdError) -> EtcdFailure {
        let hint = match error {
            EtcdError::Unreachable { .. } => "start etcd, or correct its address".to_owned(),
            EtcdError::Denied { .. } => {
                "name the user with --etcd-user and its password, or a certificate with --etcd-certfile; an etcd without \
                 authentication accepts no user"
                    .to_owned()
            }
            EtcdError::InUse { .. } => "stop the shard first".to_owned(),
            // The target of a copy has an error of its own.
            EtcdError::Incomplete { .. } => {
                "if the copy runs, wait for its end; if it was broken off, name the store that it was made from".to_owned()
            }
            EtcdError::NoSpace { .. } => "compact and defragment etcd, then disarm its alarm with `etcdctl alarm disarm`, \
                                          or raise --quota-backend-bytes"
                .to_owned(),
            EtcdError::Empty { .. } => format!("correct the prefix {}", location.prefix),
            _ => return EtcdFailure { message: error.to_string(), hint: None },
        };
        EtcdFailure { message: error.to_string(), hint: Some(hint) }
    }
}

/// Without the store on etcd.
#[cfg(not(feature = "etcd"))]
mod imp {
    use super::*;

    pub(crate) async fn open(
        _location: &EtcdLocation,
        _access: &EtcdAccess,
        _folder: &Path,
    ) -> Result<(Arc<dyn Store>, String), EtcdFailure> {
        Err(left_out())
    }

    pub(crate) async fn fill(
        _location: &EtcdLocation,
        _access: &EtcdAccess,
        _owner: &str,
        _source: Arc<dyn Store>,
        _folder: &Path,
    ) -> Result<(ContentDigest, Revision), EtcdFailure> {
        Err(left_out())
    }

    fn left_out() -> EtcdFailure {
        EtcdFailure {
            message: "this program was built without the store on etcd".to_owned(),
            hint: Some("build it with the feature `etcd`".to_owned()),
        }
    }
}
