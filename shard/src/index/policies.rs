//! Parsed roles and bindings of logical clusters.

use std::num::NonZeroUsize;
use std::sync::Arc;

use fairlead_apiserver::authz::{Binding, Policy, Role};
use fairlead_apiserver::hub::{Hub, ObjectEvent};
use fairlead_apiserver::object::{EncodedObject, encode};
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_names::ResourceName;
use fairlead_process::Status;
use serde_json::Value;

use super::cluster_cache::ClusterCache;
use crate::global::GlobalView;
use crate::names::{BUILT_IN, CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, SYSTEM_ADMIN};

/// Number of logical clusters whose policies are cached; some 3 KiB each.
const CACHED_CLUSTERS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(2047);

/// Policies by logical cluster: of this shard, and of the replicas of other shards.
pub(crate) struct PolicyIndex {
    objects: ObjectStore,
    global: Arc<GlobalView>,
    local: ClusterCache<Policy>,
    remote: ClusterCache<Policy>,
}

impl PolicyIndex {
    /// Creates an index that follows the hub and the cache server.
    pub(crate) fn follow(objects: ObjectStore, hub: &Hub, global: Arc<GlobalView>) -> Arc<Self> {
        let index = Arc::new(Self {
            objects,
            global: global.clone(),
            local: ClusterCache::new(CACHED_CLUSTERS),
            remote: ClusterCache::new(CACHED_CLUSTERS),
        });
        for resource in [&*ROLES, &*ROLE_BINDINGS, &*CLUSTER_ROLES, &*CLUSTER_ROLE_BINDINGS] {
            let follower = index.clone();
            hub.observe(
                resource.clone(),
                Box::new(move |event: &ObjectEvent| follower.local.invalidate(&event.scope)),
            );
        }
        for resource in [&*CLUSTER_ROLES, &*CLUSTER_ROLE_BINDINGS] {
            let follower = Arc::downgrade(&index);
            global.on_change(
                resource.clone(),
                Box::new(move |cluster| {
                    if let Some(follower) = follower.upgrade() {
                        follower.remote.invalidate(cluster);
                    }
                }),
            );
        }
        index
    }

    /// The policy that applies in every logical cluster, from the roles and bindings of `system:admin`.
    ///
    /// # Errors
    /// 500 when the store cannot be read.
    pub(crate) fn system(&self) -> Result<Arc<Policy>, Status> {
        self.of(SYSTEM_ADMIN)
    }

    /// The policy of a logical cluster of this shard. Costs a look-up, or a read of the roles and bindings.
    ///
    /// # Errors
    /// 500 when the store cannot be read.
    pub(crate) fn of(&self, cluster: &str) -> Result<Arc<Policy>, Status> {
        self.local.get(cluster, |_| {
            let roles =
                [&*ROLES, &*CLUSTER_ROLES].map(|resource| self.parsed(resource, cluster, Role::parse));
            let bindings = [&*ROLE_BINDINGS, &*CLUSTER_ROLE_BINDINGS]
                .map(|resource| self.parsed(resource, cluster, Binding::parse));
            let [mut all_roles, cluster_roles] = roles;
            let [mut all_bindings, cluster_bindings] = bindings;
            all_roles.as_mut().map_err(|status| status.clone())?.extend(cluster_roles?);
            all_bindings.as_mut().map_err(|status| status.clone())?.extend(cluster_bindings?);
            Ok(Arc::new(Policy::new(all_roles?, all_bindings?)))
        })
    }

    /// The policy of a logical cluster of another shard, from its replicated roles and bindings.
    ///
    /// # Errors
    /// None; the type is that of [`of`](Self::of).
    pub(crate) fn replicated(&self, cluster: &str) -> Result<Arc<Policy>, Status> {
        self.remote.get(cluster, |_| {
            let encoded = |resource: &ResourceName| -> Vec<EncodedObject> {
                let objects = self.global.list(resource, Some(cluster));
                objects.iter().filter_map(|object: &Arc<Value>| encode(object, 0).ok()).collect()
            };
            let roles = encoded(&CLUSTER_ROLES);
            let roles = roles.iter().filter_map(|object| Role::parse(object.as_object()).ok());
            let bindings = encoded(&CLUSTER_ROLE_BINDINGS);
            let bindings =
                bindings.iter().filter_map(|object| Binding::parse(object.as_object()).ok()).collect();
            Ok(Arc::new(Policy::new(roles, bindings)))
        })
    }

    fn parsed<T>(
        &self,
        resource: &ResourceName,
        cluster: &str,
        parse: impl Fn(
            fairlead_apiserver::object::ObjectBytes<'_>,
        ) -> Result<T, fairlead_apiserver::object::MalformedObject>,
    ) -> Result<Vec<T>, Status> {
        let stored =
            self.objects.list(resource, &BUILT_IN, &ScopeSelector::One(Scope::new(cluster)), None)?;
        let readable = stored.iter().filter_map(|stored| {
            parse(stored.object.as_object())
                .inspect_err(
                    |error| tracing::warn!(cluster, %resource, %error, "skipped a malformed role or binding"),
                )
                .ok()
        });
        Ok(readable.collect())
    }
}
