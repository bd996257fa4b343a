//! The replicas of one resource, by logical cluster and name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairlead_api::annotation;
use serde_json::Value;

/// Copies by logical cluster and name. There is usually one copy. There are two while a logical cluster moves to
/// another shard, or if a removed shard has left one behind.
#[derive(Default)]
pub(super) struct Replicas(BTreeMap<Box<str>, BTreeMap<Box<str>, Vec<Replica>>>);

#[derive(Clone)]
struct Replica {
    shard: Box<str>,
    resource_version: u64,
    /// Whether it is of an older store of the cache server, and the present one has none of this shard yet.
    is_kept: bool,
    object: Arc<Value>,
}

impl Replicas {
    /// The newest copy.
    pub(super) fn get(&self, cluster: &str, name: &str) -> Option<Arc<Value>> {
        newest(self.0.get(cluster)?.get(name)?)
    }

    /// The newest copies, of one logical cluster or of all.
    pub(super) fn list(&self, cluster: Option<&str>) -> Vec<Arc<Value>> {
        let of_one = |cluster| self.0.get(cluster).into_iter().flat_map(BTreeMap::values);
        match cluster {
            Some(cluster) => of_one(cluster).filter_map(|copies| newest(copies)).collect(),
            None => self.0.values().flat_map(BTreeMap::values).filter_map(|copies| newest(copies)).collect(),
        }
    }

    /// Replaces all replicas and returns the logical clusters in which something changed. Those that a new store does not
    /// have yet are kept.
    pub(super) fn replace(&mut self, items: Vec<Value>, is_new_store: bool) -> Vec<Box<str>> {
        let mut replicas = Self::default();
        for item in items {
            replicas.put(item);
        }
        let before = core::mem::replace(self, replicas);
        for (cluster, names) in &before.0 {
            for (name, copies) in names {
                for copy in copies.iter().filter(|copy| is_new_store || copy.is_kept) {
                    self.keep(cluster, name, copy);
                }
            }
        }
        let clusters: BTreeSet<&str> =
            before.0.keys().chain(self.0.keys()).map(|cluster| &**cluster).collect();
        let differs = |cluster: &&str| before.versions(cluster) != self.versions(cluster);
        clusters.into_iter().filter(differs).map(Into::into).collect()
    }

    /// Keeps a replica of an older store, unless its shard has written it to the present one.
    fn keep(&mut self, cluster: &str, name: &str, replica: &Replica) {
        let copies = self.0.entry(cluster.into()).or_default().entry(name.into()).or_default();
        if copies.iter().all(|copy| copy.shard != replica.shard) {
            copies.push(Replica { is_kept: true, ..replica.clone() });
        }
    }

    /// Drops what is kept of these shards; returns the logical clusters in which something changed.
    pub(super) fn release(&mut self, shards: &BTreeSet<Box<str>>) -> Vec<Box<str>> {
        let mut touched = Vec::new();
        if shards.is_empty() {
            return touched;
        }
        self.0.retain(|cluster, names| {
            let mut is_touched = false;
            names.retain(|_, copies| {
                let before = copies.len();
                copies.retain(|copy| !copy.is_kept || !shards.contains(&copy.shard));
                is_touched |= copies.len() < before;
                !copies.is_empty()
            });
            if is_touched {
                touched.push(cluster.clone());
            }
            !names.is_empty()
        });
        touched
    }

    /// Adds the shards of which something is kept.
    pub(super) fn kept_of(&self, shards: &mut BTreeSet<Box<str>>) {
        self.shards_of(true, shards);
    }

    /// Adds the shards that have written something to the present store.
    pub(super) fn current_of(&self, shards: &mut BTreeSet<Box<str>>) {
        self.shards_of(false, shards);
    }

    fn shards_of(&self, is_kept: bool, shards: &mut BTreeSet<Box<str>>) {
        for copy in self.0.values().flat_map(BTreeMap::values).flatten() {
            if copy.is_kept == is_kept && !shards.contains(&copy.shard) {
                shards.insert(copy.shard.clone());
            }
        }
    }

    /// Adds or replaces a replica; returns its logical cluster.
    pub(super) fn put(&mut self, item: Value) -> Option<Box<str>> {
        let ReplicaMetadata { shard, cluster, name, resource_version } = ReplicaMetadata::of(&item)?;
        let replica =
            Replica { shard: shard.into(), resource_version, is_kept: false, object: Arc::default() };
        let (cluster, name): (Box<str>, Box<str>) = (cluster.into(), name.into());
        let copies = self.0.entry(cluster.clone()).or_default().entry(name).or_default();
        copies.retain(|copy| copy.shard != replica.shard);
        copies.push(Replica { object: Arc::new(item), ..replica });
        Some(cluster)
    }

    /// Removes a replica; returns its logical cluster.
    pub(super) fn remove(&mut self, item: &Value) -> Option<Box<str>> {
        let ReplicaMetadata { shard, cluster, name, .. } = ReplicaMetadata::of(item)?;
        let names = self.0.get_mut(cluster)?;
        let copies = names.get_mut(name)?;
        copies.retain(|copy| *copy.shard != *shard);
        if copies.is_empty() {
            names.remove(name);
        }
        if names.is_empty() {
            self.0.remove(cluster);
        }
        Some(cluster.into())
    }

    /// Shards, versions and UIDs of the copies in a logical cluster: they differ between two states.
    fn versions(&self, cluster: &str) -> Vec<(&str, bool, u64, &str)> {
        let copies = self.0.get(cluster).into_iter().flat_map(BTreeMap::values).flatten();
        copies
            .map(|copy| {
                let uid = copy.object["metadata"]["uid"].as_str().unwrap_or_default();
                (&*copy.shard, copy.is_kept, copy.resource_version, uid)
            })
            .collect()
    }
}

fn newest(copies: &[Replica]) -> Option<Arc<Value>> {
    // Versions of different stores cannot be compared.
    copies
        .iter()
        .max_by_key(|copy| (!copy.is_kept, copy.resource_version))
        .map(|copy| Arc::clone(&copy.object))
}

/// The parts of a replica's metadata that locate it.
struct ReplicaMetadata<'a> {
    shard: &'a str,
    cluster: &'a str,
    name: &'a str,
    resource_version: u64,
}

impl<'a> ReplicaMetadata<'a> {
    fn of(item: &'a Value) -> Option<Self> {
        let metadata = &item["metadata"];
        let annotations = &metadata["annotations"];
        Some(Self {
            shard: annotations[annotation::CACHE_SHARD].as_str()?,
            cluster: annotations[annotation::CLUSTER].as_str()?,
            name: metadata["name"].as_str()?,
            resource_version: metadata["resourceVersion"].as_str()?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn replica(shard: &str, cluster: &str, name: &str, version: u64) -> Value {
        json!({"metadata": {"name": name, "uid": format!("{shard}-{name}"), "resourceVersion": version.to_string(),
            "annotations": {annotation::CACHE_SHARD: shard, annotation::CLUSTER: cluster}}})
    }

    fn versions(replicas: &Replicas, cluster: Option<&str>) -> Vec<String> {
        let text =
            |object: &Arc<Value>| object["metadata"]["resourceVersion"].as_str().unwrap_or("?").to_owned();
        replicas.list(cluster).iter().map(text).collect()
    }

    #[test]
    fn replicas_are_found_by_logical_cluster_and_name() {
        let mut replicas = Replicas::default();
        let all = vec![replica("s1", "a", "y", 1), replica("s1", "a", "x", 2), replica("s2", "b", "x", 3)];
        replicas.replace(all, false);
        assert_eq!(replicas.put(replica("s1", "a", "z", 4)).as_deref(), Some("a"));
        assert_eq!(replicas.remove(&replica("s1", "a", "y", 5)).as_deref(), Some("a"));
        assert_eq!(versions(&replicas, Some("a")), ["2", "4"]);
        assert_eq!(versions(&replicas, None), ["2", "4", "3"]);
        assert!(replicas.get("a", "y").is_none() && replicas.get("b", "x").is_some());
        assert_eq!(replicas.remove(&replica("s1", "c", "y", 5)), None);
        assert_eq!(replicas.put(json!({"metadata": {"name": "nowhere"}})), None);
    }

    #[test]
    fn the_newest_copy_is_returned() {
        let mut replicas = Replicas::default();
        replicas.replace(vec![replica("old", "a", "x", 7), replica("new", "a", "x", 9)], false);
        assert_eq!(versions(&replicas, Some("a")), ["9"]);
        replicas.remove(&replica("old", "a", "x", 10));
        assert_eq!(versions(&replicas, Some("a")), ["9"]);
        replicas.put(replica("old", "a", "x", 11));
        replicas.remove(&replica("old", "a", "x", 12));
        assert_eq!(versions(&replicas, Some("a")), ["9"]);
    }

    #[test]
    fn replacing_the_list_returns_changed_logical_clusters() {
        let mut replicas = Replicas::default();
        let first = vec![
            replica("s", "same", "x", 1),
            replica("s", "removed", "x", 2),
            replica("s", "other", "x", 3),
        ];
        let touched = |clusters: Vec<Box<str>>| clusters.join(" ");
        assert_eq!(touched(replicas.replace(first, false)), "other removed same");
        let second =
            vec![replica("s", "same", "x", 1), replica("s", "other", "x", 4), replica("s", "new", "x", 5)];
        assert_eq!(touched(replicas.replace(second, false)), "new other removed");
        assert_eq!(touched(replicas.replace(Vec::new(), false)), "new other same");
    }

    #[test]
    fn replicas_that_a_new_store_lacks_are_kept_until_they_are_released() {
        let mut replicas = Replicas::default();
        let old =
            vec![replica("s1", "a", "x", 500), replica("s1", "a", "y", 501), replica("s2", "b", "x", 502)];
        replicas.replace(old, false);
        replicas.replace(vec![replica("s1", "a", "y", 7)], true);
        let shards = |of: fn(&Replicas, &mut BTreeSet<Box<str>>), replicas: &Replicas| {
            let mut shards = BTreeSet::new();
            of(replicas, &mut shards);
            shards.into_iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(versions(&replicas, None), ["500", "7", "502"]);
        assert_eq!(shards(Replicas::kept_of, &replicas), "s1 s2");
        assert_eq!(shards(Replicas::current_of, &replicas), "s1");
        // A list of the same store, such as after a compaction, changes nothing about it.
        assert_eq!(replicas.replace(vec![replica("s1", "a", "y", 7)], false), [""; 0].map(Box::from));
        // The logical cluster has moved to another shard: its copy counts, although its version is lower.
        replicas.put(replica("s3", "b", "x", 8));
        assert_eq!(versions(&replicas, Some("b")), ["8"]);
        let touched = replicas.release(&BTreeSet::from(["s1".into()]));
        assert_eq!(touched.join(" "), "a");
        assert_eq!(versions(&replicas, Some("a")), ["7"]);
        replicas.put(replica("s2", "b", "x", 9));
        assert_eq!(shards(Replicas::kept_of, &replicas), "");
        assert_eq!(replicas.release(&BTreeSet::from(["s2".into()])), [""; 0].map(Box::from));
    }
}
