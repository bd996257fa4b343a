//! Bound schemas for the virtual workspace `apiresourceschema`.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairlead_api::annotation;
use fairlead_apiserver::Scope;
use fairlead_apiserver::registry::{ObjectStore, StoredObject};
use fairlead_process::Status;
use fairlead_store::Revision;
use fairlead_virtual::BoundSchemas;
use serde_json::Value;

use crate::exports::ExportLookup;
use crate::index::BindingIndex;

/// The schemas of all shards, and the bindings of this one.
pub(super) struct SchemaAccess {
    pub(super) objects: ObjectStore,
    pub(super) lookup: Arc<ExportLookup>,
    pub(super) bindings: Arc<BindingIndex>,
}

impl BoundSchemas for SchemaAccess {
    /// Those of an export of which the logical cluster has bound a resource. If two exports have a schema of the same name, it is that
    /// of the last binding by name.
    fn bound(&self, consumer: &Scope) -> Result<BTreeMap<Arc<str>, Scope>, Status> {
        let mut bindings = self.bindings.of_cluster(consumer.as_str());
        bindings.sort_by(|one, other| one.name.cmp(&other.name));
        let mut found = BTreeMap::new();
        for binding in bindings.iter().filter(|binding| !binding.resources.is_empty()) {
            let Some(cluster) = binding.export_cluster.as_deref() else { continue };
            let Some(export) = self.lookup.in_cluster(cluster, &binding.export_name)? else { continue };
            let scope = Scope::new(cluster);
            found.extend(export.schemas.iter().map(|schema| (Arc::from(&*schema.name), scope.clone())));
        }
        Ok(found)
    }

    fn schema(&self, cluster: &Scope, name: &str) -> Result<Option<StoredObject>, Status> {
        let Some(found) = self.lookup.schema(cluster.as_str(), name)? else { return Ok(None) };
        let mut object = (*found).clone();
        let revision = object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        as_original(&mut object);
        let object = self.objects.encode(object, 0)?;
        Ok(Some(StoredObject {
            object,
            revision: Revision(revision.unwrap_or_default()),
            scope: cluster.clone(),
        }))
    }
}

/// Removes what the cache server adds to a replica. Its schema has the UID that bindings name.
fn as_original(object: &mut Value) {
    let metadata = &mut object["metadata"];
    let Some(annotations) = metadata["annotations"].as_object_mut() else { return };
    annotations.remove(annotation::CACHE_SHARD);
    annotations.remove(annotation::ORIGINAL_RESOURCE_VERSION);
    if let Some(uid) = annotations.remove(annotation::ORIGINAL_UID) {
        metadata["uid"] = uid;
    }
}
