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

use crate::routing::index::objects::{BadMark, ShardObject};
use crate::routing::table::ShardSpec;

/// Path of `Shard` objects, below the root workspace and below the administrative view.
const SHARDS: &str = "/apis/core.kcp.io/v1alpha1/shards";
/// Path of the administrative view of a peer.
const ADMIN: &str = "/services/admin";
/// The logical cluster in which a shard keeps its own object; other copies are older ones.
const HOME: &str = "system:shard";

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
pub(super) enum ShardNews {
    /// The complete list.
    All(Vec<ShardSpec>),
    /// A shard was added or modified.
    Put(ShardSpec),
    /// A shard was deleted.
    Gone(Arc<str>),
}

/// Follows the list of shards.
pub(super) struct ShardList {
    peers: Peers,
    options: ReflectorOptions,
    reflector: Reflector<ShardObject>,
    status: watch::Receiver<ReflectorStatus>,
    /// Earliest time of the next request.
    pause_until: Instant,
    copies: ReplicatedShards,
}

impl ShardList {
    pub(super) fn new(source: ShardSource, options: ReflectorOptions) -> Self {
        let mut peers = Peers::new(source, options.longest_backoff);
        let (client, pause_until) = peers.next();
        let reflector = Reflector::new(client, ListWatch::new(SHARDS), options.clone());
        let status = reflector.status();
        Self { peers, options, reflector, status, pause_until, copies: ReplicatedShards::default() }
    }

    /// Waits for the next change. Cancel-safe.
    pub(super) async fn next(&mut self) -> ShardNews {
        loop {
            tokio::time::sleep_until(self.pause_until).await;
            let event = tokio::select! {
                event = self.reflector.next() => event,
                () = has_failed(&mut self.status), if self.peers.has_others() => {
                    self.go_on_elsewhere();
                    continue;
                }
            };
            match event {
                // An installation has at least the shard that responds; an empty view has not been filled yet.
                Event::Replaced { items, .. } if items.is_empty() => {
                    tracing::warn!("a list without any shard is not believed");
                    self.start(None);
                }
                Event::Replaced { items, .. } => {
                    self.copies.replace(items);
                    self.know_peers();
                    return ShardNews::All(self.copies.all());
                }
                Event::Applied(object) => {
                    let news = self.copies.put(object);
                    self.know_peers();
                    return ShardNews::Put(news);
                }
                Event::Deleted(object) => {
                    let name = Arc::clone(object.name());
                    let left = self.copies.remove(&object);
                    self.know_peers();
                    return left.map_or(ShardNews::Gone(name), ShardNews::Put);
                }
                Event::Progress(_) => {}
            }
        }
    }

    fn go_on_elsewhere(&mut self) {
        let resume_at = self.status.borrow().resource_version.as_deref().map(str::to_owned);
        let resume_at = resume_at.filter(|_| !self.copies.is_empty());
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

    fn know_peers(&mut self) {
        self.peers.know(self.copies.all().into_iter().map(|shard| shard.url));
    }
}

/// Waits until the mirror fails. A watch that ends normally is no failure.
async fn has_failed(status: &mut watch::Receiver<ReflectorStatus>) {
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
    asked: FxHashMap<String, Instant>,
    cooldown: Duration,
}

impl Peers {
    fn new(source: ShardSource, cooldown: Duration) -> Self {
        let (seeds, client) = match source {
            ShardSource::Root(client) => (vec![client], None),
            ShardSource::Peers { first, others, client } => {
                let seeds = [first].into_iter().chain(others).map(|seed| seed.with_prefix(ADMIN)).collect();
                (seeds, Some(client))
            }
        };
        Self { seeds, found: Vec::new(), client, next: 0, asked: FxHashMap::default(), cooldown }
    }

    fn has_others(&self) -> bool {
        self.seeds.len() + self.found.len() > 1
    }

    /// The next peer in rotation, and the earliest time of a request to it: a cooldown limits requests when all peers fail.
    fn next(&mut self) -> (Client, Instant) {
        let at = self.next % (self.seeds.len() + self.found.len());
        self.next = at + 1;
        let client = match self.seeds.get(at) {
            Some(client) => client.clone(),
            None => self.found[at - self.seeds.len()].1.clone(),
        };
        let now = Instant::now();
        let last = self.asked.insert(client.endpoint().to_string(), now);
        (client, last.map_or(now, |last| now.max(last + self.cooldown)))
    }

    /// Updates the peers from the shards of the installation; removed shards are not used any more.
    fn know(&mut self, urls: impl Iterator<Item = Arc<str>>) {
        let Some(make) = &self.client else { return };
        let urls: FxHashSet<Arc<str>> = urls.collect();
        self.found.retain(|(url, _)| urls.contains(url));
        let seeds: FxHashSet<String> = self.seeds.iter().map(|seed| seed.endpoint().to_string()).collect();
        for url in urls {
            let is_known =
                seeds.contains(&format!("{url}{ADMIN}")) || self.found.iter().any(|(known, _)| *known == url);
            if !is_known && let Some(client) = make(&url) {
                self.found.push((url, client.with_prefix(ADMIN)));
            }
        }
        let found: FxHashSet<String> =
            self.found.iter().map(|(_, client)| client.endpoint().to_string()).collect();
        self.asked.retain(|peer, _| seeds.contains(peer) || found.contains(peer));
    }
}

/// `Shard` objects by name. During an upgrade a shard may have two; its own copy takes precedence.
#[derive(Default)]
struct ReplicatedShards {
    by_name: FxHashMap<Arc<str>, Vec<(Box<str>, ShardSpec)>>,
    /// Invalid annotations that have been logged already.
    bad: FxHashMap<Arc<str>, Vec<BadMark>>,
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
        let home: Box<str> = object.home().into();
        self.warn_of_bad_marks(&object);
        let spec = object.into_spec();
        let copies = self.by_name.entry(Arc::clone(&spec.name)).or_default();
        copies.retain(|(known, _)| *known != home);
        copies.push((home, spec.clone()));
        counting(copies).unwrap_or(spec)
    }

    /// Logs each invalid annotation once.
    fn warn_of_bad_marks(&mut self, object: &ShardObject) {
        let (name, (_, bad)) = (object.name(), object.marks());
        let known = self.bad.get(name).map(Vec::as_slice).unwrap_or_default();
        for mark in bad.iter().filter(|mark| !known.contains(mark)) {
            tracing::warn!(shard = %name, "the shard's annotation {mark}");
        }
        match bad.is_empty() {
            true => self.bad.remove(name),
            false => self.bad.insert(Arc::clone(name), bad),
        };
    }

    /// Returns the copy that takes precedence among the remaining ones.
    fn remove(&mut self, object: &ShardObject) -> Option<ShardSpec> {
        let copies = self.by_name.get_mut(object.name())?;
        copies.retain(|(known, _)| **known != *object.home());
        let left = counting(copies);
        if left.is_none() {
            self.by_name.remove(object.name());
            self.bad.remove(object.name());
        }
        left
    }

    fn all(&self) -> Vec<ShardSpec> {
        self.by_name.values().filter_map(|copies| counting(copies)).collect()
    }
}

fn counting(copies: &[(Box<str>, ShardSpec)]) -> Option<ShardSpec> {
    copies.iter().min_by_key(|(home, _)| (&**home != HOME, home.clone())).map(|(_, spec)| spec.clone())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    fn shard(name: &str, home: &str, url: &str) -> ShardObject {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "annotations": {"kcp.io/cluster": home}}, "spec": {"baseURL": url},
        }))
        .unwrap()
    }

    #[test]
    fn of_two_copies_the_shards_own_counts() {
        let mut copies = ReplicatedShards::default();
        let url = |spec: ShardSpec| spec.url.to_string();
        assert_eq!(url(copies.put(shard("a", "root", "https://old"))), "https://old");
        assert_eq!(url(copies.put(shard("a", "system:shard", "https://own"))), "https://own");
        assert_eq!(url(copies.put(shard("a", "root", "https://older"))), "https://own");
        assert_eq!(copies.remove(&shard("a", "root", "")).map(url), Some("https://own".to_owned()));
        assert_eq!(copies.remove(&shard("a", "system:shard", "")), None);
        assert!(copies.is_empty());
    }
}
