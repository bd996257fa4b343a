//! The current path mappings. They are replaced as a whole when the mapping file or a certificate that it names changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use fairlead_config::ServicesPolicy;
use fairlead_process::Reloadable;
use parking_lot::Mutex;

use crate::request::ClusterPaths;
use crate::request::identity_headers::TrustedIdentityHeaders;
use crate::upstream::{BackendSpec, CredentialError, CredentialFiles, UpstreamCredential};

use crate::routing::mapping::file;
use crate::routing::mapping::file::{Entry, MappingFileError, SourceLocation};
use crate::routing::mapping::{Backend, Mapping, PathMappings, Target};

/// The current path mappings.
#[derive(Debug)]
pub(crate) struct LivePathMappings {
    current: ArcSwap<PathMappings>,
    /// Headers that listeners trust for identity.
    listener_trusted_headers: Mutex<TrustedIdentityHeaders>,
    /// Credentials of the entries of a mapping file. A rotated certificate replaces the credential of the same entry.
    credentials: Mutex<Vec<(CredentialPaths, Arc<Reloadable<UpstreamCredential>>)>>,
}

/// The files of an entry's credential.
type CredentialPaths = [PathBuf; 3];

/// The mapping file, or a file that it names, cannot be used; the operator has to fix it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MappingsError {
    /// The mapping file cannot be used.
    #[error(transparent)]
    File(#[from] MappingFileError),
    /// A certificate or key that the mapping file names cannot be used.
    #[error("{location}: {error}")]
    Credential {
        /// The location of the entry.
        location: String,
        /// The credential error.
        error: CredentialError,
    },
    /// kcp's front proxy does not start with both `/` and `/clusters/` mapped.
    #[error("{location}: / beside /clusters/ cannot be used (kcpCompatibility: rootPath)")]
    RootPath {
        /// The location of the entry.
        location: String,
    },
    /// The mapping file has no entry.
    #[error("the mapping file {0} has no entry")]
    Empty(PathBuf),
}

/// Whether `/` may be mapped beside `/clusters/`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RootPathPolicy {
    /// Both may be mapped.
    Allow,
    /// The file is refused, as in kcp.
    Refuse,
}

/// The entries of a mapping file with their loaded credentials.
#[derive(Debug)]
struct LoadedMappings {
    entries: Vec<(Entry, UpstreamCredential)>,
}

impl LivePathMappings {
    /// The mappings without a mapping file.
    pub(crate) fn built_in(services: ServicesPolicy) -> Self {
        Self {
            current: ArcSwap::from_pointee(PathMappings::built_in(services)),
            listener_trusted_headers: Mutex::default(),
            credentials: Mutex::default(),
        }
    }

    /// The current mappings.
    pub(crate) fn load(&self) -> Guard<Arc<PathMappings>> {
        self.current.load()
    }

    /// Sets the target of `/services/` for the case without a mapping file.
    pub(crate) fn set_built_in(&self, services: ServicesPolicy) {
        self.put(PathMappings::built_in(services));
    }

    /// Sets the headers that listeners trust for identity.
    pub(crate) fn set_listener_trusted_headers(&self, trusted: TrustedIdentityHeaders) {
        let mut listeners = self.listener_trusted_headers.lock();
        *listeners = trusted;
        // Under the lock, so that a concurrent update of the mappings is not lost.
        let paths = PathMappings::clone(&self.current.load());
        self.replace(paths, &listeners);
    }

    fn put(&self, paths: PathMappings) {
        let listeners = self.listener_trusted_headers.lock();
        self.replace(paths, &listeners);
    }

    /// The caller holds the lock of `listener_trusted_headers`.
    fn replace(&self, paths: PathMappings, listeners: &TrustedIdentityHeaders) {
        let paths = paths.with_listener_headers(listeners).with_history_of(&self.current.load());
        self.current.store(Arc::new(paths));
    }

    /// Reads a mapping file and applies it. Returns the credential for shards and all files that the mappings depend on.
    /// On an error the previous mappings stay in force.
    ///
    /// # Errors
    /// [`MappingsError`], with the location.
    pub(crate) fn read(
        &self,
        path: &Path,
        root_path: RootPathPolicy,
    ) -> Result<(UpstreamCredential, Vec<PathBuf>), MappingsError> {
        let loaded = LoadedMappings::read(path)?;
        // A combination that is already in force stays allowed: a certificate that the file names may have been rotated.
        if root_path == RootPathPolicy::Refuse
            && !self.current.load().has_root_beside_clusters()
            && let Some(location) = loaded.root_beside_clusters()
        {
            return Err(MappingsError::RootPath { location: location.to_string() });
        }
        let mut files = vec![path.to_owned()];
        files.extend(loaded.entries.iter().flat_map(|(entry, _)| entry.files()));
        let for_shards = loaded.entries.iter().find(|(entry, _)| entry.pattern.is_clusters());
        // Without /clusters/ no request goes to a shard, but the caller needs a credential all the same.
        let for_shards = for_shards.or(loaded.entries.first()).map(|(_, credential)| credential.clone());
        let for_shards = for_shards.ok_or_else(|| MappingsError::Empty(path.to_owned()))?;
        self.apply(loaded);
        Ok((for_shards, files))
    }

    fn apply(&self, loaded: LoadedMappings) {
        let mut previous = self.credentials.lock();
        let mut in_use = Vec::new();
        let mut clusters = ClusterPaths::Ordinary;
        let mut shard_identity_header_names = None;
        let mut mappings = Vec::new();
        for (entry, credential) in loaded.entries {
            let identity_header_names = entry.names.clone().map(Arc::new);
            if entry.pattern.is_clusters() {
                clusters = ClusterPaths::Resolved;
                shard_identity_header_names = identity_header_names;
                continue;
            }
            let files = entry.files();
            let credential = match previous.iter().find(|(of, _)| *of == files) {
                Some((_, current)) => {
                    if !current.load().is_same(&credential) {
                        current.replace(credential);
                    }
                    Arc::clone(current)
                }
                None => Arc::new(Reloadable::new(credential)),
            };
            in_use.push((files, Arc::clone(&credential)));
            let spec = BackendSpec {
                name: entry.pattern.to_string().into(),
                url: entry.backend.origin().into(),
                credential: Some(credential),
            };
            let target = Target::Backend(Backend { spec, url: entry.backend });
            mappings.push(Mapping { pattern: entry.pattern, target, identity_header_names });
        }
        *previous = in_use;
        self.put(PathMappings::new(clusters, shard_identity_header_names, mappings));
    }
}

impl LoadedMappings {
    fn read(path: &Path) -> Result<Self, MappingsError> {
        let load = |entry: Entry| {
            let [authorities, certificate, private_key] = entry.files();
            let credential = CredentialFiles { certificate, private_key, authorities, server_name: None };
            let credential = credential.load();
            match credential {
                Ok(credential) => Ok((entry, credential)),
                Err(error) => Err(MappingsError::Credential { location: entry.location.to_string(), error }),
            }
        };
        let entries: Result<_, _> = file::read(path)?.into_iter().map(load).collect();
        Ok(Self { entries: entries? })
    }

    fn root_beside_clusters(&self) -> Option<&SourceLocation> {
        let entries = || self.entries.iter().map(|(entry, _)| entry);
        let root = entries().find(|entry| entry.pattern.is_root())?;
        entries().any(|entry| entry.pattern.is_clusters()).then_some(&root.location)
    }
}
