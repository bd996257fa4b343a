//! The resources that workspaces publish by ClusterCachedResources.
//!
//! A ClusterCachedResource names a resource of its workspace. Its shard writes copies of the objects under the identity of the
//! ClusterCachedResource, `<resource>:<identity>`. This server serves such a resource as long as it has a copy of a
//! ClusterCachedResource for it; all of them that share identity and resource are served as one, in all their versions.

use std::collections::BTreeSet;
use std::sync::Arc;

use fairlead_api::annotation;
use fairlead_apiserver::hub::{Hub, ObjectEvent};
use fairlead_apiserver::registry::{
    Conversion, ObjectStore, Registry, ServedKey, ServedResource, ServedVersion, Versions,
};
use fairlead_apiserver::resource::{PrinterColumns, Shape, Verbs};
use fairlead_apiserver::{RequestedResource, ScopeSelector};
use fairlead_names::{Origin, ResourceName};
use fairlead_process::Status;
use fairlead_schema::names::NameRule;
use fairlead_schema::version_priority;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::definitions::CopyStrategy;

/// The resources of ClusterCachedResources. A look-up costs a map look-up, in one logical cluster one for each of its resources.
pub(crate) struct CachedResources {
    registry: Arc<dyn Registry>,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    by_object: FxHashMap<ObjectKey, Published>,
    by_identity: FxHashMap<Identified, Shared>,
    /// The resources of each logical cluster.
    by_cluster: FxHashMap<Box<str>, Vec<(ObjectKey, Identified)>>,
}

/// Scope and name of a ClusterCachedResource.
type ObjectKey = (Box<str>, Box<str>);

/// A resource of an identity.
type Identified = (Box<str>, ResourceName);

/// The published resource of one ClusterCachedResource.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Published {
    identity: Box<str>,
    name: ResourceName,
    version: Box<str>,
    kind: Box<str>,
}

/// The published resource of all ClusterCachedResources with one identity.
struct Shared {
    members: BTreeSet<ObjectKey>,
    served: Arc<ServedResource>,
}

impl CachedResources {
    /// Reads all ClusterCachedResources and follows the hub.
    ///
    /// # Errors
    /// 500 if the store cannot be read.
    pub(crate) fn follow(
        objects: &ObjectStore,
        hub: &Hub,
        registry: Arc<dyn Registry>,
    ) -> Result<Arc<Self>, Status> {
        let cached = Arc::new(Self { registry, state: RwLock::default() });
        let resource = ResourceName::new("cache.kcp.io", "clustercachedresources");
        objects.for_each(&resource, &Origin::Custom, &ScopeSelector::all(), &mut |listed| {
            let object = serde_json::from_slice::<Value>(listed.object.json()).unwrap_or_default();
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            cached.put((listed.scope.into(), name.into()), Published::read(&object));
        })?;
        // The registry has the hub, so a reference from the hub's observer would keep the store from being closed.
        let follower = Arc::downgrade(&cached);
        hub.observe(
            resource,
            Box::new(move |event: &ObjectEvent| {
                let Some(follower) = follower.upgrade() else { return };
                let published = match event.is_deletion() {
                    true => None,
                    false => serde_json::from_slice(event.object().json())
                        .ok()
                        .and_then(|object| Published::read(&object)),
                };
                follower.put(((*event.scope).into(), event.name.clone()), published);
            }),
        );
        Ok(cached)
    }

    /// The resource of a request, in kcp's order: of an identity in all logical clusters; only metadata in all logical clusters, of any
    /// identity; of one logical cluster, with or without its identity.
    pub(crate) fn resolve(
        &self,
        scopes: &ScopeSelector,
        wanted: &RequestedResource<'_>,
    ) -> Option<Arc<ServedResource>> {
        let state = self.state.read();
        let cluster = match scopes {
            ScopeSelector::One(scope) => scope.as_str().rsplit('/').next(),
            ScopeSelector::Every { last, .. } => last.as_deref(),
        };
        let identified = match (cluster, wanted.identity) {
            (Some(cluster), identity) => state
                .by_cluster
                .get(cluster)?
                .iter()
                .map(|(_, of)| of)
                .find(|of| of.1 == *wanted.name && identity.is_none_or(|identity| *of.0 == *identity))?,
            (None, Some(identity)) => {
                return state
                    .by_identity
                    .get(&(identity.into(), wanted.name.clone()))
                    .map(|shared| Arc::clone(&shared.served));
            }
            (None, None) if wanted.is_metadata_only => {
                state.by_identity.keys().find(|of| of.1 == *wanted.name)?
            }
            (None, None) => return None,
        };
        state.by_identity.get(identified).map(|shared| Arc::clone(&shared.served))
    }

    fn put(&self, key: ObjectKey, published: Option<Published>) {
        let mut state = self.state.write();
        if state.by_object.get(&key) == published.as_ref() {
            return;
        }
        if let Some(before) = state.by_object.remove(&key) {
            state.remove(&key, &before, &self.registry);
        }
        if let Some(published) = published {
            state.insert(key, published, &self.registry);
        }
    }
}

impl State {
    fn insert(&mut self, key: ObjectKey, published: Published, registry: &Arc<dyn Registry>) {
        let identified = published.identified();
        let cluster = cluster_of(&key);
        self.by_cluster.entry(cluster).or_default().push((key.clone(), identified.clone()));
        self.by_object.insert(key.clone(), published);
        let mut members =
            self.by_identity.remove(&identified).map(|shared| shared.members).unwrap_or_default();
        members.insert(key);
        self.serve(identified, members, registry);
    }

    fn remove(&mut self, key: &ObjectKey, published: &Published, registry: &Arc<dyn Registry>) {
        let cluster = cluster_of(key);
        if let Some(own) = self.by_cluster.get_mut(&cluster) {
            own.retain(|(other, _)| other != key);
            if own.is_empty() {
                self.by_cluster.remove(&cluster);
            }
        }
        let identified = published.identified();
        if let Some(mut shared) = self.by_identity.remove(&identified) {
            shared.members.remove(key);
            self.serve(identified, shared.members, registry);
        }
    }

    fn serve(&mut self, identified: Identified, members: BTreeSet<ObjectKey>, registry: &Arc<dyn Registry>) {
        let published: Vec<&Published> = members.iter().filter_map(|key| self.by_object.get(key)).collect();
        if let Some(served) = served(&published, Arc::clone(registry)) {
            self.by_identity.insert(identified, Shared { members, served: Arc::new(served) });
        }
    }
}

impl Published {
    /// `None` until its shard has determined the identity and the kind.
    fn read(object: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let (spec, annotations) = (&object["spec"], &object["metadata"]["annotations"]);
        // Namespaced resources cannot be published.
        if annotations[annotation::CACHED_RESOURCE_SCOPE] != "Cluster" {
            return None;
        }
        // The core group has no segment in kcp's paths below /apis.
        let group = text(&spec["group"]).unwrap_or_else(|| "core".to_owned());
        Some(Self {
            identity: text(&object["status"]["identityHash"])?.into(),
            name: ResourceName::new(&group, &text(&spec["resource"])?),
            version: text(&spec["version"])?.into(),
            kind: text(&annotations[annotation::CACHED_RESOURCE_KIND])?.into(),
        })
    }

    fn identified(&self) -> Identified {
        (self.identity.clone(), self.name.clone())
    }
}

fn cluster_of((scope, _): &ObjectKey) -> Box<str> {
    scope.rsplit('/').next().unwrap_or_default().into()
}

/// A resource without a schema, in the versions of all its ClusterCachedResources.
fn served(published: &[&Published], registry: Arc<dyn Registry>) -> Option<ServedResource> {
    let first = published.first()?;
    let names: BTreeSet<&str> = published.iter().map(|one| &*one.version).collect();
    let mut versions: Vec<ServedVersion> = names.iter().copied().map(version).collect();
    versions.sort_by_cached_key(|version| version_priority(&version.name));
    let storage = versions.first()?.clone();
    let (kind, group, resource) = (&*first.kind, &*first.name.group, &*first.name.resource);
    let mut parts = vec![b"cached".as_slice(), first.identity.as_bytes(), group.as_bytes()];
    parts.extend([resource.as_bytes(), kind.as_bytes()]);
    parts.extend(names.iter().map(|name| name.as_bytes()));
    Some(ServedResource {
        name: first.name.clone(),
        kind: kind.into(),
        list_kind: format!("{kind}List").into(),
        singular: kind.to_ascii_lowercase().into(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: false,
        origin: Origin::Identity((*first.identity).into()),
        key: ServedKey::of(&parts),
        versions: Arc::new(Versions { served: versions, storage }),
        schema_hash: 0,
        conversion: Conversion::None,
        storage_version_hash: None,
        // The shard that wrote the copy has validated the name by the resource's own rule.
        name_rule: NameRule::PathSegment,
        verbs: Verbs::STANDARD,
        registry,
    })
}

fn version(name: &str) -> ServedVersion {
    ServedVersion {
        name: name.into(),
        shape: Shape::Anything,
        open_api: Some(Arc::new(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}))),
        columns: Arc::new(PrinterColumns::new(Vec::new())),
        selectable_fields: Vec::new(),
        deprecation_warning: None,
        subresources: Vec::new(),
        strategy: Arc::new(CopyStrategy),
    }
}
