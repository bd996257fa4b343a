//! Changes of the objects that determine which copies a logical cluster reads.

use futures_util::future::select_all;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::watch;

use crate::global::GlobalView;
use crate::index::BindingIndex;
use crate::names::{API_EXPORTS, CLUSTER_CACHED_RESOURCE_ENDPOINT_SLICES, CLUSTER_CACHED_RESOURCES};

/// Notifies watches of copies of changes in the logical clusters that they depend on.
#[derive(Default)]
pub(super) struct SourceChanges {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The logical clusters on which watches depend.
    clusters: FxHashMap<Box<str>, watch::Sender<()>>,
    /// The number of logical clusters at which those without a watch are removed.
    limit: usize,
}

/// The changes in some logical clusters.
pub(super) struct Subscriptions(Vec<watch::Receiver<()>>);

impl SourceChanges {
    /// Follows bindings, and the replicas of exports, endpoint slices and ClusterCachedResources.
    pub(super) fn follow(self: &std::sync::Arc<Self>, bindings: &BindingIndex, global: &GlobalView) {
        let changes = self.clone();
        bindings.on_change(Box::new(move |change| changes.changed(change.cluster)));
        for resource in [&*API_EXPORTS, &*CLUSTER_CACHED_RESOURCE_ENDPOINT_SLICES, &*CLUSTER_CACHED_RESOURCES]
        {
            let changes = self.clone();
            global.on_change(resource.clone(), Box::new(move |cluster| changes.changed(cluster)));
        }
    }

    pub(super) fn subscribe<'c>(&self, clusters: impl IntoIterator<Item = &'c str>) -> Subscriptions {
        let mut known = self.known.lock();
        if known.clusters.len() >= known.limit {
            known.clusters.retain(|_, sender| sender.receiver_count() > 0);
            known.limit = 64 + 2 * known.clusters.len();
        }
        let receivers = clusters.into_iter().map(|cluster| {
            let sender = known.clusters.entry(cluster.into()).or_insert_with(|| watch::Sender::new(()));
            sender.subscribe()
        });
        Subscriptions(receivers.collect())
    }

    fn changed(&self, cluster: &str) {
        if let Some(sender) = self.known.lock().clusters.get(cluster) {
            sender.send_replace(());
        }
    }
}

impl Subscriptions {
    /// Waits for the next change.
    pub(super) async fn next(&mut self) {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        // A sender with a receiver stays in the map.
        let changes = self.0.iter_mut().map(|receiver| Box::pin(receiver.changed()));
        let _ = select_all(changes).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_in_one_of_several_logical_clusters_is_seen() {
        let changes = SourceChanges::default();
        let mut subscriptions = changes.subscribe(["a", "b"]);
        changes.changed("c");
        assert!(tokio::time::timeout(Duration::from_secs(1), subscriptions.next()).await.is_err());
        for cluster in ["a", "b", "a"] {
            changes.changed(cluster);
            subscriptions.next().await;
        }
    }

    #[test]
    fn logical_clusters_without_watches_are_forgotten() {
        let changes = SourceChanges::default();
        for cluster in 0..1000 {
            drop(changes.subscribe([&*cluster.to_string()]));
        }
        assert!(changes.known.lock().clusters.len() <= 64);
    }
}
