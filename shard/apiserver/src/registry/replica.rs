//! Replicas of another server's resources, for reads and watches.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use fairlead_names::{Origin, ResourceName};
use fairlead_process::Status;
use fairlead_schema::names::NameRule;
use fairlead_store::{Expect, Mutation};
use serde::Deserialize;
use serde_json::{Value, json};

use super::objects::read_status;
use super::{
    Conversion, ObjectStore, ReadOnly, ServedKey, ServedResource, ServedVersion, StoreRegistry, Versions,
};
use crate::hub::Hub;
use crate::resource::{CustomStrategy, PrinterColumns, Shape, Verb, Verbs};
use crate::scope::ScopeSelector;

/// A resource as another server's discovery document describes it (`APIResource`).
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredResource {
    /// The plural name.
    pub name: String,
    /// The singular name.
    #[serde(default)]
    pub singular_name: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// The kind.
    pub kind: String,
    /// The short names that kubectl accepts.
    #[serde(default)]
    pub short_names: Vec<String>,
    /// The categories by which kubectl lists it.
    #[serde(default)]
    pub categories: Vec<String>,
}

/// The objects of a resource of another server, in a store of this process.
///
/// Objects keep their UIDs, times and generations. Their resourceVersions are those of the store, and they have no managed fields.
/// The scope of an object is its scope annotation.
pub struct ResourceReplica {
    resource: Arc<ServedResource>,
    objects: ObjectStore,
}

impl ResourceReplica {
    /// An empty replica. `group_version` is `v1` or `<group>/<version>`.
    pub fn new(discovered: &DiscoveredResource, group_version: &str, objects: ObjectStore, hub: Hub) -> Self {
        let registry = StoreRegistry::replica(objects.clone(), hub, Arc::new(ReadOnly));
        let resource = Arc::new(served(discovered, group_version, registry));
        Self { resource, objects }
    }

    /// The resource, with the verbs `get`, `list` and `watch`.
    pub fn resource(&self) -> &Arc<ServedResource> {
        &self.resource
    }

    /// Creates or replaces an object. Equal content is no change.
    ///
    /// # Errors
    /// 500 if it has no name or scope, or if the store fails.
    pub async fn put(&self, mut object: Value) -> Result<(), Status> {
        let key = self.key(&object)?;
        // Lists of built-in kinds leave them out.
        object["apiVersion"] =
            self.resource.api_version(&self.resource.versions.storage.name).as_str().into();
        object["kind"] = (*self.resource.kind).into();
        let encoded = self.objects.encode(object, self.resource.schema_hash)?;
        let known = self.objects.store().get(&key).map_err(|error| read_status(&error))?;
        if known.is_some_and(|known| known.value == *encoded.stored()) {
            return Ok(());
        }
        let put = Mutation::put(key, encoded.stored().clone());
        self.objects.commit(vec![put]).await.map(drop).map_err(Status::internal)
    }

    /// Deletes an object, if it exists.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn remove(&self, object: &Value) -> Result<(), Status> {
        self.delete(self.key(object)?).await
    }

    /// Makes these objects the only ones. Each of them is a commit of its own, in any order.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn replace_all(&self, objects: Vec<Value>) -> Result<(), Status> {
        let mut present = HashSet::with_capacity(objects.len());
        for object in objects {
            present.insert(self.key(&object)?);
            self.put(object).await?;
        }
        let ServedResource { name, origin, .. } = &*self.resource;
        for known in self.objects.list(name, origin, &ScopeSelector::all(), None)? {
            let key = self.key(&self.objects.tree(&known)?)?;
            if !present.contains(&key) {
                self.delete(key).await?;
            }
        }
        Ok(())
    }

    async fn delete(&self, key: Bytes) -> Result<(), Status> {
        let delete = Mutation::delete(key, Expect::Any);
        self.objects.commit(vec![delete]).await.map(drop).map_err(Status::internal)
    }

    fn key(&self, object: &Value) -> Result<Bytes, Status> {
        let metadata = &object["metadata"];
        let segments: Option<Vec<&str>> =
            self.objects.annotations().iter().map(|key| metadata["annotations"][*key].as_str()).collect();
        let (Some(segments), Some(name)) = (segments, metadata["name"].as_str()) else {
            let message = format!("an object of {} has no name or no scope annotation", self.resource.name);
            return Err(Status::internal(message));
        };
        let ServedResource { name: resource, origin, .. } = &*self.resource;
        let namespace = metadata["namespace"].as_str().filter(|_| self.resource.namespaced);
        Ok(self.objects.key(resource, origin, &segments.join("/"), namespace, name))
    }
}

/// Fields are not known here, so that all are kept.
fn served(discovered: &DiscoveredResource, group_version: &str, registry: StoreRegistry) -> ServedResource {
    let (group, version) = group_version.rsplit_once('/').unwrap_or(("", group_version));
    let texts = |texts: &[String]| texts.iter().map(|text| Arc::from(&**text)).collect();
    let served = ServedVersion {
        name: version.into(),
        shape: Shape::Anything,
        open_api: Some(Arc::new(json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }))),
        columns: Arc::new(PrinterColumns::new(Vec::new())),
        selectable_fields: Vec::new(),
        deprecation_warning: None,
        subresources: Vec::new(),
        strategy: Arc::new(CustomStrategy::default()),
    };
    let singular = match &*discovered.singular_name {
        "" => discovered.kind.to_ascii_lowercase(),
        name => name.to_owned(),
    };
    let described = format!("{discovered:?}");
    ServedResource {
        name: ResourceName::new(group, &discovered.name),
        kind: (&*discovered.kind).into(),
        list_kind: format!("{}List", discovered.kind).into(),
        singular: singular.into(),
        short_names: texts(&discovered.short_names),
        categories: texts(&discovered.categories),
        namespaced: discovered.namespaced,
        key: ServedKey::of(&[b"replica", group_version.as_bytes(), described.as_bytes()]),
        origin: Origin::Custom,
        versions: Arc::new(Versions { served: vec![served.clone()], storage: served }),
        schema_hash: 0,
        conversion: Conversion::None,
        storage_version_hash: None,
        name_rule: NameRule::Dns1123Subdomain,
        verbs: Verbs::of(&[Verb::Get, Verb::List, Verb::Watch]),
        registry: Arc::new(registry),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use fairlead_names::KeyCodec;
    use fairlead_store::{MemoryStore, Revision, Store};

    use super::*;
    use crate::hub::HubOptions;

    fn replica() -> ResourceReplica {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::starting_at(Revision(1000)));
        let codec = KeyCodec::new("/replica", 1, |_, _| false);
        let hub = Hub::new(Arc::clone(&store), codec, HubOptions::default());
        let objects = ObjectStore::new(store, codec, &["kcp.io/cluster"]);
        let discovered = json!({ "name": "things", "singularName": "", "namespaced": true, "kind": "Thing" });
        ResourceReplica::new(&serde_json::from_value(discovered).unwrap(), "x.io/v1", objects, hub)
    }

    fn thing(name: &str, colour: &str) -> Value {
        json!({ "spec": { "colour": colour }, "metadata": {
            "name": name, "namespace": "default", "uid": name, "resourceVersion": "7",
            "annotations": { "kcp.io/cluster": "abc" },
        } })
    }

    /// Name, colour and resourceVersion of all objects.
    fn things(replica: &ResourceReplica) -> Vec<(String, String, String)> {
        let ServedResource { name, origin, .. } = &**replica.resource();
        let listed = replica.objects.list(name, origin, &ScopeSelector::all(), None).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let shown = listed.iter().map(|stored| {
            let tree = replica.objects.tree(stored).unwrap();
            assert_eq!((&tree["apiVersion"], &tree["kind"]), (&json!("x.io/v1"), &json!("Thing")));
            assert_eq!(tree["metadata"]["annotations"]["kcp.io/cluster"], "abc");
            let metadata = &tree["metadata"];
            (text(&metadata["name"]), text(&tree["spec"]["colour"]), text(&metadata["resourceVersion"]))
        });
        shown.collect()
    }

    fn row(name: &str, colour: &str, version: &str) -> (String, String, String) {
        (name.to_owned(), colour.to_owned(), version.to_owned())
    }

    #[tokio::test]
    async fn objects_have_the_revisions_of_the_replica_and_equal_content_is_no_change() {
        let replica = replica();
        replica.replace_all(vec![thing("a", "red"), thing("b", "red")]).await.unwrap();
        assert_eq!(things(&replica), [row("a", "red", "1001"), row("b", "red", "1002")]);
        replica.replace_all(vec![thing("b", "red"), thing("c", "blue")]).await.unwrap();
        assert_eq!(things(&replica), [row("b", "red", "1002"), row("c", "blue", "1003")]);
        replica.put(thing("b", "green")).await.unwrap();
        replica.remove(&thing("c", "blue")).await.unwrap();
        replica.remove(&thing("never", "seen")).await.unwrap();
        assert_eq!(things(&replica), [row("b", "green", "1005")]);
    }

    #[tokio::test]
    async fn an_object_without_a_scope_is_refused() {
        let replica = replica();
        let refused = replica.put(json!({ "metadata": { "name": "a" } })).await.unwrap_err();
        assert_eq!(refused.code, 500);
        assert!(things(&replica).is_empty());
    }
}
