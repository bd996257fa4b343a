//! Publishes objects of workspaces to the cache server by ClusterCachedResources.
//!
//! A ClusterCachedResource gets an identity, as an export does, and its state is maintained ([`CachedResources`]). While it is complete,
//! the objects that it selects and their copies are followed ([`Publication`]), and each object is compared with its copy
//! ([`Copies`]), as for the objects that shards replicate themselves. A deleted one stays until its copies are deleted.

mod copies;
mod plan;
mod publication;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fairlead_api::{IDENTITY_NAMESPACE, finalizer};
use fairlead_apiserver::hub::{Hub, ObjectEvent};
use fairlead_apiserver::object::ObjectMetaRef;
use fairlead_apiserver::registry::{ListedObject, ObjectStore, ServedResource, StoredObject};
use fairlead_apiserver::request::LabelSelector;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_client::{Client, DeleteOptions};
use fairlead_names::ResourceName;
use fairlead_process::{Shutdown, Status, Tasks};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::mpsc;

use self::copies::{Copies, CopyKey};
use self::plan::{Counts, Observed, ResourceState};
use self::publication::{Publication, PublicationSpec, Publications};
use super::content_controllers::for_each_key;
use super::deletion::commit;
use super::identity::{self, IdentityKey};
use crate::controller_runtime::{Controller, Queue, ReconcileOutcome, drive, feed};
use crate::global::CacheResource;
use crate::index::{ClusterIndex, Definitions};
use crate::names::{
    API_BINDINGS, BUILT_IN, CLUSTER_CACHED_RESOURCES, CUSTOM, CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES,
    SECRETS,
};
use crate::writes::Writes;

/// Logical cluster and name of a ClusterCachedResource.
type CachedResourceKey = (Box<str>, Box<str>);

/// The pause before a changed number of objects is written to the status.
const COUNT_PAUSE: Duration = Duration::from_millis(200);
/// The pause while writes of copies are running that began before a deletion.
const WRITE_PAUSE: Duration = Duration::from_millis(20);

/// Dependencies of the controllers of ClusterCachedResources.
pub(crate) struct CachedResourceControllers {
    pub(crate) objects: ObjectStore,
    pub(crate) hub: Hub,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) clusters: Arc<ClusterIndex>,
    /// A client of the cache server.
    pub(crate) cache: Client,
    /// The name of this shard.
    pub(crate) shard: String,
}

impl CachedResourceControllers {
    /// Starts the controllers. They run until the process drains.
    pub(crate) fn start(self, tasks: &Tasks, shutdown: &Shutdown) {
        let queue = Arc::new(Queue::with_groups(|(cluster, _): &CachedResourceKey| cluster));
        let copy_queue = Arc::new(Queue::with_groups(|(cluster, _, _): &CopyKey| cluster));
        let (started, new_publications) = mpsc::unbounded_channel();
        let publications = Arc::new(Publications::new(started));
        let copies = Arc::new(Copies {
            objects: self.objects.clone(),
            publications: publications.clone(),
            cache: self.cache.clone(),
            shard: self.shard.clone(),
            queue: copy_queue.clone(),
            counts: queue.clone(),
        });
        let following = copies.clone().follow(self.hub.clone(), new_publications, shutdown.clone());
        tasks.spawn("published objects", following);
        tasks.spawn("copies of published objects", drive(copies, copy_queue, shutdown.clone()));
        let hub = self.hub.clone();
        let controller = Arc::new(CachedResources {
            objects: self.objects,
            definitions: self.definitions,
            clusters: self.clusters,
            publications,
            cache: self.cache,
            shard: self.shard,
        });
        tasks.spawn("cached resources", drive(controller.clone(), queue.clone(), shutdown.clone()));
        for (name, resource, origin) in [
            ("events of cached resources", &CLUSTER_CACHED_RESOURCES, CUSTOM),
            ("identities of cached resources", &SECRETS, BUILT_IN),
            ("definitions of cached resources", &CUSTOM_RESOURCE_DEFINITIONS, BUILT_IN),
            ("bindings of cached resources", &API_BINDINGS, CUSTOM),
        ] {
            let (controller, resync_queue, event_queue) = (controller.clone(), queue.clone(), queue.clone());
            let objects = controller.objects.clone();
            let resync = move || {
                let add = |cluster, name| resync_queue.add((cluster, name));
                for_each_key(&objects, &CLUSTER_CACHED_RESOURCES, &CUSTOM, add);
            };
            let keys = move |event: &ObjectEvent| {
                controller.keys_of(event).into_iter().for_each(|key| event_queue.add(key));
            };
            tasks.spawn(
                name,
                feed(hub.clone(), (**resource).clone(), Some(origin), shutdown.clone(), resync, keys),
            );
        }
    }
}

/// Controller of ClusterCachedResources.
struct CachedResources {
    objects: ObjectStore,
    definitions: Arc<Definitions>,
    clusters: Arc<ClusterIndex>,
    publications: Arc<Publications>,
    cache: Client,
    shard: String,
}

#[async_trait]
impl Controller for CachedResources {
    type Key = CachedResourceKey;

    const NAME: &'static str = "clustercachedresource";
    const WORKERS: usize = 4;

    async fn reconcile(&self, key: &CachedResourceKey) -> Result<ReconcileOutcome, Status> {
        let (cluster, name) = key;
        let scope = Scope::new(cluster);
        let stored = self.objects.get(&CLUSTER_CACHED_RESOURCES, &CUSTOM, &scope, None, name)?;
        let Some(stored) = stored.filter(|_| self.clusters.get(cluster).is_some()) else {
            self.publications.remove(key);
            return Ok(ReconcileOutcome::Done);
        };
        let object = self.objects.tree(&stored)?;
        if object["metadata"]["deletionTimestamp"].is_string() {
            return self.delete(key, &stored, &object).await;
        }
        if self.clusters.get(cluster).is_none_or(|state| state.is_deleted) {
            return Ok(ReconcileOutcome::Done);
        }
        self.maintain(key, &stored, &object).await
    }
}

impl CachedResources {
    /// The ClusterCachedResources to reconcile after an event: of one itself, of a Secret that may be an identity, and of a definition or
    /// binding that may provide the resource. The latter cost a read of the logical cluster's ClusterCachedResources.
    fn keys_of(&self, event: &ObjectEvent) -> Vec<CachedResourceKey> {
        if event.resource == *CLUSTER_CACHED_RESOURCES {
            return vec![((*event.scope).into(), event.name.clone())];
        }
        let secret = (event.resource == *SECRETS).then_some(&event.name);
        let one = ScopeSelector::One(Scope::new(&event.scope));
        let mut keys = Vec::new();
        let listed = self.objects.for_each(&CLUSTER_CACHED_RESOURCES, &CUSTOM, &one, &mut |listed| {
            let Ok(object) = serde_json::from_slice::<Value>(listed.object.json()) else { return };
            let reference = &object["spec"]["identity"]["secretRef"];
            let is_concerned =
                secret.is_none_or(|secret| reference.is_null() || reference["name"] == **secret);
            if let Some(name) = object["metadata"]["name"].as_str().filter(|_| is_concerned) {
                keys.push(((*event.scope).into(), name.into()));
            }
        });
        if let Err(status) = listed {
            tracing::error!(cluster = %event.scope, %status, "cached resources cannot be read");
        }
        keys
    }

    async fn maintain(
        &self,
        key: &CachedResourceKey,
        stored: &StoredObject,
        object: &Value,
    ) -> Result<ReconcileOutcome, Status> {
        let (cluster, name) = key;
        let scope = Scope::new(cluster);
        let served = self.served(&scope, object)?;
        let (namespace, secret) = identity::secret_reference(object)
            .unwrap_or_else(|| (IDENTITY_NAMESPACE.to_owned(), name.to_string()));
        let identity_key = IdentityKey::read(&self.objects, &scope, &namespace, &secret)?;
        let resource = match &served {
            None => ResourceState::Missing,
            Some(served) if served.namespaced => ResourceState::Namespaced,
            Some(served) => ResourceState::Found { kind: served.kind.clone() },
        };
        let mut observed = Observed {
            has_namespace: self
                .objects
                .get(&NAMESPACES, &BUILT_IN, &scope, None, IDENTITY_NAMESPACE)?
                .is_some(),
            selector: LabelSelector::of_object(&object["spec"]["labelSelector"])
                .map_err(|error| error.to_string()),
            resource,
            key: identity_key,
            counts: None,
        };
        if let (Some(served), Some(identity), Ok(selector)) =
            (served, plan::recorded_identity(object, &observed), &observed.selector)
        {
            let text = |field: &str| object["spec"][field].as_str().unwrap_or_default().into();
            let spec = PublicationSpec { version: text("version"), identity, selector: selector.clone() };
            let publication = self.publications.start(key, spec, served);
            observed.counts = Some(Counts {
                local: self.count(&scope, &publication)?,
                cache: publication.replicas.count(),
            });
        }
        let is_new = matches!(observed.key, IdentityKey::Missing)
            && identity::secret_reference(object).is_none()
            && matches!(observed.resource, ResourceState::Found { .. });
        let new_key = is_new.then(identity::random_key).transpose()?;
        let plan = plan::plan(object, &observed, new_key.as_deref(), Timestamp::now());
        let mut writes = Writes::new(&self.objects, &self.definitions);
        for created in plan.created {
            writes.create(cluster, created)?;
        }
        let resource = writes.resource_of(object)?;
        writes.replace(&resource, stored, plan.object)?;
        Ok(if commit(writes).await?.is_some() { ReconcileOutcome::Done } else { ReconcileOutcome::Retry })
    }

    /// The resource, if the logical cluster serves it in this version.
    fn served(&self, scope: &Scope, object: &Value) -> Result<Option<Arc<ServedResource>>, Status> {
        let text = |field: &str| object["spec"][field].as_str().unwrap_or_default();
        let name = ResourceName::new(text("group"), text("resource"));
        let catalog = self.definitions.catalog(scope)?;
        let found = catalog.resources.iter().find(|resource| resource.name == name);
        Ok(found.filter(|resource| resource.version(text("version")).is_some()).cloned())
    }

    /// The number of objects that are selected. Costs a read of them.
    fn count(&self, scope: &Scope, publication: &Publication) -> Result<usize, Status> {
        let mut count = 0;
        let mut visit = |listed: ListedObject<'_>| {
            let meta = ObjectMetaRef::parse(listed.object);
            count += usize::from(meta.is_ok_and(|meta| publication.selects(&meta)));
        };
        let source = &publication.source;
        let one = ScopeSelector::One(scope.clone());
        self.objects.for_each(&source.name, &source.origin, &one, &mut visit)?;
        Ok(count)
    }

    /// Deletes all copies of a ClusterCachedResource, then itself.
    async fn delete(
        &self,
        key: &CachedResourceKey,
        stored: &StoredObject,
        object: &Value,
    ) -> Result<ReconcileOutcome, Status> {
        let finalizers = object["metadata"]["finalizers"].as_array();
        if !finalizers.is_some_and(|all| all.iter().any(|one| *one == finalizer::CACHED_RESOURCE)) {
            return Ok(ReconcileOutcome::Done);
        }
        let is_writing = self.publications.stop(key);
        let mut writes = Writes::new(&self.objects, &self.definitions);
        let resource = writes.resource_of(object)?;
        if is_writing || object["status"]["phase"] != "Deleting" {
            writes.replace(&resource, stored, plan::deleting(object, Timestamp::now()))?;
            let committed = commit(writes).await?.is_some();
            let next = ReconcileOutcome::RequeueAfter(WRITE_PAUSE);
            return Ok(if committed { next } else { ReconcileOutcome::Retry });
        }
        self.purge(&key.0, object).await?;
        match plan::deleted(object) {
            Some(new) => writes.replace(&resource, stored, new)?,
            None => writes.remove(&resource, stored, object),
        }
        Ok(if commit(writes).await?.is_some() { ReconcileOutcome::Done } else { ReconcileOutcome::Retry })
    }

    /// Deletes all copies. One without an identity has none.
    async fn purge(&self, cluster: &str, object: &Value) -> Result<(), Status> {
        let Some(identity) = object["status"]["identityHash"].as_str().filter(|hash| !hash.is_empty()) else {
            return Ok(());
        };
        let text = |field: &str| object["spec"][field].as_str().unwrap_or_default();
        let name = ResourceName::new(text("group"), text("resource"));
        let resource = CacheResource::published(&name, text("version"), identity);
        let collection = resource.collection(&self.shard, cluster);
        match self.cache.delete(&collection, &DeleteOptions::default()).await {
            Ok(()) => Ok(()),
            // A new store of the cache server knows neither the resource nor copies.
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(Status::service_unavailable(format!("the cache server: {error}"), 1)),
        }
    }
}
