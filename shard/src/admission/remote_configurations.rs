//! Webhooks and policies of logical clusters on other shards, which review the objects of their APIs on this one.

use std::sync::{Arc, Weak};

use fairlead_apiserver::DynamicAdmission;
use fairlead_apiserver::hub::{Hub, ObjectChange, ObjectEvent};
use fairlead_names::ResourceName;
use parking_lot::Mutex;

use crate::global::GlobalView;
use crate::index::ClusterIndex;
use crate::names::LOGICAL_CLUSTERS;

/// Copies replicas of webhooks and policies into the dynamic admission.
struct RemoteConfigurations {
    /// The view holds this observer.
    global: Weak<GlobalView>,
    clusters: Arc<ClusterIndex>,
    dynamic: Arc<DynamicAdmission>,
    /// Held while one logical cluster is read and set, so that the last change wins.
    updates: Mutex<()>,
}

/// Follows the replicas. To be called after `clusters` follows the hub, and before the hub runs.
pub(crate) fn follow_remote_configurations(
    hub: &Hub,
    global: &Arc<GlobalView>,
    clusters: &Arc<ClusterIndex>,
    dynamic: &Arc<DynamicAdmission>,
) {
    let configurations = Arc::new(RemoteConfigurations {
        global: Arc::downgrade(global),
        clusters: Arc::clone(clusters),
        dynamic: Arc::clone(dynamic),
        updates: Mutex::default(),
    });
    let resources: Arc<[ResourceName]> = dynamic.configuration_resources().cloned().collect();
    for resource in resources.iter() {
        let (follower, name) = (Arc::clone(&configurations), resource.clone());
        global.on_change(resource.clone(), Box::new(move |cluster| follower.update(&name, cluster)));
    }
    hub.observe(
        LOGICAL_CLUSTERS.clone(),
        Box::new(move |event: &ObjectEvent| {
            // The logical cluster has come to this shard, or has left it.
            if matches!(event.change, ObjectChange::Created(_) | ObjectChange::Deleted(_)) {
                resources.iter().for_each(|resource| configurations.update(resource, &event.scope));
            }
        }),
    );
}

impl RemoteConfigurations {
    /// Sets the configurations of a logical cluster. One of this shard has its own.
    fn update(&self, resource: &ResourceName, cluster: &str) {
        let _update = self.updates.lock();
        let objects = match self.clusters.get(cluster) {
            Some(_) => Vec::new(),
            None => {
                self.global.upgrade().map(|global| global.list(resource, Some(cluster))).unwrap_or_default()
            }
        };
        if let Err(status) = self.dynamic.set_remote(resource, cluster, &objects) {
            tracing::error!(%resource, cluster, %status, "replicas of configurations cannot be used");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use fairlead_api::{LOGICAL_CLUSTER_NAME, annotation};
    use fairlead_apiserver::Scope;
    use fairlead_apiserver::hub::HubOptions;
    use fairlead_apiserver::registry::{ObjectStore, is_built_in};
    use fairlead_client::WriteOptions;
    use fairlead_names::KeyCodec;
    use fairlead_process::Shutdown;
    use fairlead_store::{Expect, MemoryStore, Mutation, Store};
    use serde_json::{Value, json};

    use super::*;
    use crate::global::CacheResource;
    use crate::global::test_cache::{TestCache, until_view};
    use crate::names::CUSTOM;

    #[tokio::test]
    async fn replicas_review_writes_unless_their_logical_cluster_is_on_this_shard() {
        let cache = TestCache::start().await;
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let codec = KeyCodec::new("/registry", 1, is_built_in);
        let objects = ObjectStore::new(store.clone(), codec, &[annotation::CLUSTER]);
        let hub = Hub::new(store, codec, HubOptions::default());
        let clusters = ClusterIndex::follow(&objects, &hub).unwrap();
        let global = GlobalView::new();
        let dynamic = DynamicAdmission::follow(objects.clone(), &hub).unwrap();
        follow_remote_configurations(&hub, &global, &clusters, &dynamic);
        let (followed, client) = (global.clone(), cache.client());
        tokio::spawn(async move { followed.run(client, Shutdown::new(&Default::default())).await });
        let driven = hub.clone();
        tokio::spawn(async move { driven.run().await });

        let (group, provider) = ("admissionregistration.k8s.io", Scope::new("provider"));
        for (plural, kind) in [
            ("mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
            ("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
            ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
            ("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
            ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
            ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
        ] {
            let resource = CacheResource::new(group, "v1", plural);
            let replica =
                json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": "a"}});
            let path = resource.collection("s2", "provider");
            cache.client().create::<Value>(&path, &replica, &WriteOptions::default()).await.unwrap();
            until_view(&global, plural, || dynamic.has_configurations(&provider)).await;

            let key = objects.key(&LOGICAL_CLUSTERS, &CUSTOM, "provider", None, LOGICAL_CLUSTER_NAME);
            let logical_cluster = json!({
                "apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster",
                "metadata": {"name": LOGICAL_CLUSTER_NAME}, "spec": {},
            });
            let encoded = objects.encode(logical_cluster, 0).unwrap();
            let arrival = Mutation::create(key.clone(), encoded.stored().clone());
            for (mutation, is_remote) in [(arrival, false), (Mutation::delete(key, Expect::Present), true)] {
                let revision = objects.store().commit(vec![mutation]).await.unwrap();
                hub.wait(revision).await.unwrap();
                assert_eq!(dynamic.has_configurations(&provider), is_remote, "{plural}");
            }
            cache
                .client()
                .delete(&resource.object("s2", "provider", "a"), &Default::default())
                .await
                .unwrap();
            until_view(&global, "a deletion", || !dynamic.has_configurations(&provider)).await;
        }
    }
}
