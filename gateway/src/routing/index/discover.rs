//! Discovery of shards, from the root shard or from the administrative view that every shard serves.
//!
//! All peers serve the same view at the same revisions (it comes from the cache server), so a broken watch resumes with
//! another peer.

use std::sync::Arc;
use std::time::Duration;

use fairlead_client::{Client, Event, ListWatch, Phase, Reflector, ReflectorOptions, ReflectorStatus};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::routing::index::objects::{InvalidAnnotation, ShardObject};
use crate::routing::table::ShardSpec;

/// Path of `Shard` objects, below the root workspace and below the administrative view.
const SHARDS: &str = "/apis/core.kcp.io/v1alpha1/shards";
/// Path of the administrative view of a peer.
const ADMIN_VIEW: &str = "/services/admin";
/// The logical cluster in which a shard keeps its own object; other copies are older ones.
const OWN_CLUSTER: &str = "system:shard";

/// Builds a client for a peer by its URL.
pub(crate) type PeerClient = Arc<dyn Fn(&str) -> Option<Client> + Send + Sync>;

/// Source of the list of shards.
pub(crate) enum ShardSource {
    /// The root shard; a client for its root workspace.
    Root(Client),
    /// Any shard, with failover: these peers, and all shards that are discovered.
    Peers {
        /// The first peer, without a logical cluster.
        first: Client,
        /// Further peers.
        others: Vec<Client>,
        /// Builds clients for discovered peers.
        client: PeerClient,
    },
}

/// A change of the list of shards.
#[derive(Debug, PartialEq)]
pub(super) enum ShardListChange {
    /// The complete list.
    Replaced(Vec<ShardSpec>),
    /// A shard was added or modified.
    Updated(ShardSpec),
    /// A shard was deleted.
    Removed(Arc<str>),
}

/// Follows the list of shards.
pub(super) struct ShardList {
    peers: Peers,
    options: ReflectorOptions,
    reflector: Reflector<ShardObject>,
    status: watch::Receiver<ReflectorStatus>,
    /// Earliest time of the next request.
    pause_until: Instant,
    replicas: ReplicatedShards,
}

impl ShardList {
    pub(super) fn new(source: ShardSource, options: ReflectorOptions) -> Self {
        let mut peers = Peers::new(source, options.longest_backoff);
        let (client, pause_until) = peers.next();
        let reflector = Reflector::new(client, ListWatch::new(SHARDS), options.clone());
        let status = reflector.status();
        Self { peers, options, reflector, status, pause_until, replicas: ReplicatedShards::default() }
    }

    /// Waits for the next change. Cancel-safe.
    pub(super) async fn next(&mut self) -> ShardListChange {
        loop {
            tokio::time::sleep_until(self.pause_until).await;
            let event = tokio::select! {
                event = self.reflector.next() => event,
                () = wait_for_failure(&mut self.status), if self.peers.has_others() => {
                    self.fail_over();
                    continue;
                }
            };
            match event {
                // An installation has at least the shard that responds; an empty view has not been filled yet.
                Event::Replaced { items, .. } if items.is_empty() => {
                    tracing::warn!("an empty list of shards is ignored");
                    self.start(None);
                }
                Event::Replaced { items, .. } => {
                    self.replicas.replace(items);
                    self.update_peers();
                    return ShardListChange::Replaced(self.replicas.all());
                }
                Event::Applied(object) => {
                    let spec = self.replicas.put(object);
                    self.update_peers();
                    return ShardListChange::Updated(spec);
                }
                Event::Deleted(object) => {
                    let name = Arc::clone(object.name());
                    let left = self.replicas.remove(&object);
                    self.update_peers();
                    return left.map_or(ShardListChange::Removed(name), ShardListChange::Updated);
                }
                Event::Progress(_) => {}
            }
        }
    }

    fn fail_over(&mut self) {
        let resume_at = self.status.borrow().resource_version.as_deref().map(str::to_owned);
        let resume_at = resume_at.filter(|_| !self.replicas.is_empty());
        self.start(resume_at);
    }

    /// Starts with the next peer.
    fn start(&mut self, resume_at: Option<String>) {
        let (client, pause_until) = self.peers.next();
        let (source, options) = (ListWatch::new(SHARDS), self.options.clone());
        self.reflector = match resume_at {
            Some(version) => Reflector::resume(client, source, options, version),
            None => Reflector::new(client, source, options),
        };
        self.status = self.reflector.status();
        self.pause_until = pause_until;
    }

    fn update_peers(&mut self) {
        self.peers.update(self.replicas.all().into_iter().map(|shard| shard.url));
    }
}

/// Waits until the reflector fails. A watch that ends normally is no failure.
async fn wait_for_failure(status: &mut watch::Receiver<ReflectorStatus>) {
    let failed = status
        .wait_for(|status| status.phase != Phase::Watching && status.last_error.is_some())
        .await
        .is_ok();
    if !failed {
        std::future::pending::<()>().await;
    }
}

/// Candidates for reading the list of shards, in rotation: the root shard alone, or peers.
struct Peers {
    seeds: Vec<Client>,
    found: Vec<(Arc<str>, Client)>,
    client: Option<PeerClient>,
    next: usize,
    /// The time of the last request, by the peer's address.
    last_request: FxHashMap<String, Instant>,
    cooldown: Duration,
}

impl Peers {
    fn new(source: ShardSource, cooldown: Duration) -> Self {
        let (seeds, client) = match source {
            ShardSource::Root(client) => (vec![client], None),
            ShardSource::Peers { first, others, client } => {
                let seeds =
                    [first].into_iter().chain(others).map(|seed| seed.with_prefix(ADMIN_VIEW)).collect();
                (seeds, Some(client))
            }
        };
        Self { seeds, found: Vec::new(), client, next: 0, last_request: FxHashMap::default(), cooldown }
    }

    fn has_others(&self) -> bool {
        self.seeds.len() + self.found.len() > 1
    }

    /// The next peer in rotation, and the earliest time of a request to it: a cooldown limits requests when all peers fail.
    fn next(&mut self) -> (Client, Instant) {
        let index = self.next % (self.seeds.len() + self.found.len());
        self.next = index + 1;
        let client = match self.seeds.get(index) {
            Some(client) => client.clone(),
            None => self.found[index - self.seeds.len()].1.clone(),
        };
        let now = Instant::now();
        let last = self.last_request.insert(client.endpoint().to_string(), now);
        (client, last.map_or(now, |last| now.max(last + self.cooldown)))
    }

    /// Updates the peers from the shards of the installation; removed shards are not used any more.
    fn update(&mut self, urls: impl Iterator<Item = Arc<str>>) {
        let Some(build_client) = &self.client else { return };
        let urls: FxHashSet<Arc<str>> = urls.collect();
        self.found.retain(|(url, _)| urls.contains(url));
        let seeds: FxHashSet<String> = self.seeds.iter().map(|seed| seed.endpoint().to_string()).collect();
        for url in urls {
            let is_known = seeds.contains(&format!("{url}{ADMIN_VIEW}"))
                || self.found.iter().any(|(known, _)| *known == url);
            if !is_known && let Some(client) = build_client(&url) {
                self.found.push((url, client.with_prefix(ADMIN_VIEW)));
            }
        }
        let found: FxHashSet<String> =
            self.found.iter().map(|(_, client)| client.endpoint().to_string()).collect();
        self.last_request.retain(|peer, _| seeds.contains(peer) || found.contains(peer));
    }
}

/// `Shard` objects by name. During an upgrade a shard may have two; its own copy takes precedence.
#[derive(Default)]
struct ReplicatedShards {
    by_name: FxHashMap<Arc<str>, Vec<(Box<str>, ShardSpec)>>,
    /// Invalid annotations that have been logged already.
    invalid: FxHashMap<Arc<str>, Vec<InvalidAnnotation>>,
}

impl ReplicatedShards {
    fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    fn replace(&mut self, objects: Vec<ShardObject>) {
        self.by_name.clear();
        objects.into_iter().for_each(|object| _ = self.put(object));
    }

    /// Returns the copy that takes precedence now.
    fn put(&mut self, object: ShardObject) -> ShardSpec {
        let logical_cluster: Box<str> = object.logical_cluster().into();
        self.warn_of_invalid_annotations(&object);
        let spec = object.into_spec();
        let replicas = self.by_name.entry(Arc::clone(&spec.name)).or_default();
        replicas.retain(|(known, _)| *known != logical_cluster);
        replicas.push((logical_cluster, spec.clone()));
        preferred_copy(replicas).unwrap_or(spec)
    }

    /// Logs each invalid annotation once.
    fn warn_of_invalid_annotations(&mut self, object: &ShardObject) {
        let (name, (_, invalid)) = (object.name(), object.placement_constraints());
        let known = self.invalid.get(name).map(Vec::as_slice).unwrap_or_default();
        for annotation in invalid.iter().filter(|annotation| !known.contains(annotation)) {
            tracing::warn!(shard = %name, "the shard's annotation {annotation}");
        }
        match invalid.is_empty() {
            true => self.invalid.remove(name),
            false => self.invalid.insert(Arc::clone(name), invalid),
        };
    }

    /// Returns the copy that takes precedence among the remaining ones.
    fn remove(&mut self, object: &ShardObject) -> Option<ShardSpec> {
        let replicas = self.by_name.get_mut(object.name())?;
        replicas.retain(|(known, _)| **known != *object.logical_cluster());
        let left = preferred_copy(replicas);
        if left.is_none() {
            self.by_name.remove(object.name());
            self.invalid.remove(object.name());
        }
        left
    }

    fn all(&self) -> Vec<ShardSpec> {
        self.by_name.values().filter_map(|replicas| preferred_copy(replicas)).collect()
    }
}

fn preferred_copy(replicas: &[(Box<str>, ShardSpec)]) -> Option<ShardSpec> {
    replicas
        .iter()
        .min_by_key(|(logical_cluster, _)| (&**logical_cluster != OWN_CLUSTER, logical_cluster.clone()))
        .map(|(_, spec)| spec.clone())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    fn shard(name: &str, logical_cluster: &str, url: &str) -> ShardObject {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "annotations": {"kcp.io/cluster": logical_cluster}}, "spec": {"baseURL": url},
        }))
        .unwrap()
    }

    #[test]
    fn the_shards_own_copy_takes_precedence() {
        let mut replicas = ReplicatedShards::default();
        let url = |spec: ShardSpec| spec.url.to_string();
        assert_eq!(url(replicas.put(shard("a", "root", "https://old"))), "https://old");
        assert_eq!(url(replicas.put(shard("a", "system:shard", "https://own"))), "https://own");
        assert_eq!(url(replicas.put(shard("a", "root", "https://older"))), "https://own");
        assert_eq!(replicas.remove(&shard("a", "root", "")).map(url), Some("https://own".to_owned()));
        assert_eq!(replicas.remove(&shard("a", "system:shard", "")), None);
        assert!(replicas.is_empty());
    }
}
