//! Who the gateway is towards servers for the requests of one listener, where that is not who it usually is.
//!
//! Such requests have connections of their own: a server knows by the certificate which listener a request came in by, so
//! one listener's request must never travel on another's connection. Everything that is about the server itself (how many
//! requests it works on, its addresses and metrics) is shared; whether it is left alone is not, for it may turn away one
//! listener's certificate only. A listener without an identity of its own costs nothing; one with it, a load and a comparison per
//! request.

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
    usual: Arc<Reloadable<UpstreamCredential>>,
    /// For shards that are to be recognised in a way of their own, by name.
    own: FxHashMap<Arc<str>, Arc<Reloadable<UpstreamCredential>>>,
}

impl ListenerUpstreamIdentity {
    /// That of a listener, if it has one of its own; replaced when a file of it changes.
    ///
    /// # Errors
    /// [`LoadError`] if it cannot be loaded now; later the last good one stays.
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
        // Which listener it was is what the shard is to know, so a certificate that is for one shard only does not count here.
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
        let what = format!("credential of listener {} for shards", listener.name);
        // One thing to load, so that a listener is one person everywhere; several that are in use.
        let fed: Arc<OnceLock<Arc<Self>>> = Arc::default();
        let feed = Arc::clone(&fed);
        reloads.register(&what, watched, move || {
            let usual = files.load()?;
            let own: Vec<_> = own
                .iter()
                .map(|(name, files)| Ok((Arc::clone(name), files.load()?)))
                .collect::<Result<_, CredentialError>>()?;
            match feed.get() {
                None => {
                    let own = own.into_iter().map(|(name, one)| (name, Arc::new(Reloadable::new(one))));
                    let _ = feed
                        .set(Arc::new(Self { usual: Arc::new(Reloadable::new(usual)), own: own.collect() }));
                }
                Some(sender) => {
                    sender.usual.replace(usual);
                    for (name, one) in own {
                        if let Some(current) = sender.own.get(&name) {
                            current.replace(one);
                        }
                    }
                }
            }
            Ok::<(), CredentialError>(())
        })?;
        Ok(fed.get().cloned())
    }

    fn towards(&self, server: &Upstream) -> &Arc<Reloadable<UpstreamCredential>> {
        self.own.get(&server.name).filter(|_| server.is_shard).unwrap_or(&self.usual)
    }
}

impl Upstreams {
    /// Whether a shard is left alone by who the gateway is towards it for a listener's requests.
    pub(crate) fn leaves_alone(&self, shard: &str, sender: &ListenerUpstreamIdentity) -> bool {
        let Some(server) = self.shards.load().get(shard).map(Arc::clone) else { return false };
        let (credential, breaker) = (sender.towards(&server), self.options().breaker);
        let on_behalf = server.on_behalf.load();
        on_behalf.iter().any(|one| Arc::ptr_eq(&one.credential, credential) && one.breaker.is_open(breaker))
    }
}

impl Upstream {
    /// The same server as it is spoken to on behalf of a listener.
    pub(crate) fn on_behalf_of(self: &Arc<Self>, sender: &ListenerUpstreamIdentity) -> Arc<Self> {
        let credential = sender.towards(self);
        let known = |all: &[Arc<Self>]| {
            all.iter().find(|one| Arc::ptr_eq(&one.credential, credential)).map(Arc::clone)
        };
        if let Some(known) = known(&self.on_behalf.load()) {
            return known;
        }
        let added = Arc::new(self.beside(Arc::clone(credential)));
        self.on_behalf.rcu(|all| {
            if known(all).is_some() {
                return Vec::clone(all);
            }
            // Those of listeners that there are no more hold the last reference to theirs.
            let alive = all.iter().filter(|one| Arc::strong_count(&one.credential) > 1);
            alive.chain([&added]).cloned().collect()
        });
        known(&self.on_behalf.load()).unwrap_or(added)
    }
}
