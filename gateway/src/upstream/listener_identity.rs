//! The client certificate that the gateway uses for the requests of one listener, if the listener has its own.
//!
//! Such requests use separate connections: the certificate tells a server which listener accepted a request, so one
//! listener's request must never use another's connection. All state of the server itself (concurrency limit, addresses,
//! metrics) is shared. The circuit breaker is not, because a server may reject one listener's certificate only. A listener
//! without its own identity costs nothing; one with it costs a load and a comparison per request.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use fairlead_config::{GatewayConfig, KcpBehaviour, ListenerConfig};
use fairlead_process::{LoadError, Reloadable, Reloads};
use rustc_hash::FxHashMap;

use crate::upstream::{CredentialError, CredentialFiles, Upstream, UpstreamCredential, Upstreams};

/// The credentials of one listener.
#[derive(Debug)]
pub(crate) struct ListenerUpstreamIdentity {
    /// For shards, and for the hosts of mounts.
    default: Arc<Reloadable<UpstreamCredential>>,
    /// For shards with their own credentials, by shard name.
    own: FxHashMap<Arc<str>, Arc<Reloadable<UpstreamCredential>>>,
}

impl ListenerUpstreamIdentity {
    /// The credential of a listener, if it has its own; replaced when one of its files changes.
    ///
    /// # Errors
    /// [`LoadError`] if it cannot be loaded now; later the last valid one stays.
    pub(crate) fn of(
        listener: &ListenerConfig,
        config: &GatewayConfig,
        reloads: &Reloads,
    ) -> Result<Option<Arc<Self>>, LoadError> {
        let Some(identity) = &listener.upstream_identity else { return Ok(None) };
        let upstream = &config.upstream;
        let files = CredentialFiles {
            certificate: identity.certificate.to_path_buf(),
            private_key: identity.private_key.to_path_buf(),
            authorities: upstream.server_ca.to_path_buf(),
            server_name: None,
        };
        // The shard must be able to identify the listener, so a client certificate configured for one shard does not apply here.
        let own =
            upstream.shards.iter().filter(|shard| shard.server_ca.is_some() || shard.server_name.is_some());
        let own: Vec<(Arc<str>, CredentialFiles)> = own
            .map(|shard| {
                let authorities = shard.server_ca.as_ref().unwrap_or(&upstream.server_ca).to_path_buf();
                let files =
                    CredentialFiles { authorities, server_name: shard.server_name.clone(), ..files.clone() };
                (shard.name.as_str().into(), files)
            })
            .collect();
        let all = || std::iter::once(&files).chain(own.iter().map(|(_, files)| files));
        let mut watched: Vec<PathBuf> = all().flat_map(CredentialFiles::files).collect();
        watched.sort();
        watched.dedup();
        if config.kcp_compatibility.contains(&KcpBehaviour::Reloads) {
            watched.clear();
        }
        let object = format!("credential of listener {} for shards", listener.name);
        // One reload unit, so that all variants of a listener's credential change together.
        let slot: Arc<OnceLock<Arc<Self>>> = Arc::default();
        let reloaded = Arc::clone(&slot);
        reloads.register(&object, watched, move || {
            let default = files.load()?;
            let own: Vec<_> = own
                .iter()
                .map(|(name, files)| Ok((Arc::clone(name), files.load()?)))
                .collect::<Result<_, CredentialError>>()?;
            match reloaded.get() {
                None => {
                    let own = own.into_iter().map(|(name, one)| (name, Arc::new(Reloadable::new(one))));
                    let _ = reloaded.set(Arc::new(Self {
                        default: Arc::new(Reloadable::new(default)),
                        own: own.collect(),
                    }));
                }
                Some(identity) => {
                    identity.default.replace(default);
                    for (name, one) in own {
                        if let Some(current) = identity.own.get(&name) {
                            current.replace(one);
                        }
                    }
                }
            }
            Ok::<(), CredentialError>(())
        })?;
        Ok(slot.get().cloned())
    }

    fn credential_for(&self, server: &Upstream) -> &Arc<Reloadable<UpstreamCredential>> {
        self.own.get(&server.name).filter(|_| server.is_shard).unwrap_or(&self.default)
    }
}

impl Upstreams {
    /// True if a shard's circuit is open for the identity of a listener.
    pub(crate) fn is_circuit_open(&self, shard: &str, identity: &ListenerUpstreamIdentity) -> bool {
        let Some(server) = self.shards.load().get(shard).map(Arc::clone) else { return false };
        let (credential, breaker) = (identity.credential_for(&server), self.options().breaker);
        let listener_variants = server.listener_variants.load();
        listener_variants
            .iter()
            .any(|one| Arc::ptr_eq(&one.credential, credential) && one.breaker.is_open(breaker))
    }
}

impl Upstream {
    /// The same server with the identity of a listener.
    pub(crate) fn with_client_certificate(
        self: &Arc<Self>,
        identity: &ListenerUpstreamIdentity,
    ) -> Arc<Self> {
        let credential = identity.credential_for(self);
        let known = |all: &[Arc<Self>]| {
            all.iter().find(|one| Arc::ptr_eq(&one.credential, credential)).map(Arc::clone)
        };
        if let Some(known) = known(&self.listener_variants.load()) {
            return known;
        }
        let added = Arc::new(self.with_credential(Arc::clone(credential)));
        self.listener_variants.rcu(|all| {
            if known(all).is_some() {
                return Vec::clone(all);
            }
            // Entries of removed listeners hold the last reference to their credential.
            let alive = all.iter().filter(|one| Arc::strong_count(&one.credential) > 1);
            alive.chain([&added]).cloned().collect()
        });
        known(&self.listener_variants.load()).unwrap_or(added)
    }
}
