//! Look-up of the copies behind bound resources and endpoint slices.

use std::sync::Arc;

use fairlead_api::annotation;
use fairlead_apiserver::Scope;
use fairlead_names::ResourceName;
use fairlead_process::{GroupResource, Status, StatusReason};
use serde_json::Value;

use crate::exports::{ExportLookup, PublishedExport};
use crate::global::GlobalView;
use crate::index::BindingIndex;
use crate::names::{CLUSTER_CACHED_RESOURCE_ENDPOINT_SLICES, CLUSTER_CACHED_RESOURCES};

/// The copies of the objects that a ClusterCachedResource publishes, in the cache server.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct CopySource {
    /// The shard that writes them.
    pub(super) shard: Box<str>,
    /// The logical cluster of the ClusterCachedResource.
    pub(super) cluster: Box<str>,
    pub(super) resource: ResourceName,
    pub(super) version: Box<str>,
    pub(super) identity: Arc<str>,
}

/// What a request reads copies by.
#[derive(Clone, Debug)]
pub(super) enum CopyReference {
    /// A resource that a logical cluster has bound.
    Bound { consumer: Scope, resource: ResourceName },
    /// Logical cluster and name of a ClusterCachedResourceEndpointSlice.
    Slice { cluster: Box<str>, name: Box<str>, resource: ResourceName },
}

/// A ClusterCachedResourceEndpointSlice whose references fit together.
pub(crate) struct PublishedSlice {
    /// The export that has the slice as a storage.
    pub(crate) export: Arc<PublishedExport>,
    pub(crate) resource: ResourceName,
    /// The name of the APIResourceSchema of the export.
    pub(crate) schema: Box<str>,
    pub(super) source: CopySource,
}

/// Finds copies. Costs some map look-ups: all objects except bindings are replicas of the cache server, as in kcp.
pub(crate) struct SourceLookup {
    pub(crate) bindings: Arc<BindingIndex>,
    pub(crate) exports: Arc<ExportLookup>,
    pub(crate) global: Arc<GlobalView>,
}

impl SourceLookup {
    /// The copies of a reference, and the logical clusters whose objects determine them.
    ///
    /// # Errors
    /// 404 if the logical cluster has not bound the resource, 500 if the export does not lead to copies, 501 if it has another kind of
    /// storage.
    pub(super) fn find(&self, reference: &CopyReference) -> Result<(CopySource, Vec<Box<str>>), Status> {
        let found = match reference {
            CopyReference::Bound { consumer, resource } => self.bound(consumer.as_str(), resource)?,
            CopyReference::Slice { cluster, name, resource } => {
                let slice = self.slice(cluster, name)?.filter(|slice| slice.resource == *resource);
                slice.ok_or_else(|| unresolved(resource))?
            }
        };
        let mut clusters = vec![found.export.cluster.clone(), found.source.cluster.clone()];
        if let CopyReference::Bound { consumer, .. } = reference {
            clusters.push(consumer.as_str().into());
        }
        clusters.sort_unstable();
        clusters.dedup();
        Ok((found.source, clusters))
    }

    /// An endpoint slice of an export that has it as the storage of a resource. `None` if any reference does not fit: the identity of the
    /// ClusterCachedResource must be that of the export, so nobody exports objects whose identity is unknown to it.
    ///
    /// # Errors
    /// 500 if the store cannot be read.
    pub(crate) fn slice(&self, cluster: &str, name: &str) -> Result<Option<PublishedSlice>, Status> {
        let Some(slice) = self.global.get(&CLUSTER_CACHED_RESOURCE_ENDPOINT_SLICES, cluster, name) else {
            return Ok(None);
        };
        let (path, export) = reference(&slice["spec"]["export"], cluster);
        let export = self.exports.find(path, export)?.filter(|export| *export.cluster == *cluster);
        let Some(export) = export else { return Ok(None) };
        let resources = export.object["spec"]["resources"].as_array().map(Vec::as_slice);
        let entry = resources.unwrap_or_default().iter().find(|entry| {
            let reference = &entry["storage"]["virtual"]["reference"];
            is_slice(reference) && reference["name"] == name
        });
        let Some(entry) = entry else { return Ok(None) };
        let (path, cached) = reference(&slice["spec"]["clusterCachedResource"], cluster);
        let Some(cached) = self.cached_resource(path, cached) else { return Ok(None) };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let resource = ResourceName::new(&text(&entry["group"]), &text(&entry["name"]));
        let (spec, annotations) = (&cached["spec"], &cached["metadata"]["annotations"]);
        let identity = text(&cached["status"]["identityHash"]);
        let fits = !identity.is_empty()
            && entry["storage"]["virtual"]["identityHash"] == *identity
            && resource == ResourceName::new(&text(&spec["group"]), &text(&spec["resource"]));
        if !fits {
            return Ok(None);
        }
        let source = CopySource {
            shard: text(&annotations[annotation::CACHE_SHARD]).into(),
            cluster: text(&annotations[annotation::CLUSTER]).into(),
            resource: resource.clone(),
            version: text(&spec["version"]).into(),
            identity: identity.into(),
        };
        let schema = text(&entry["schema"]).into();
        Ok(Some(PublishedSlice { export, resource, schema, source }))
    }

    /// Whether a logical cluster has bound the resource of a slice by the slice's export.
    pub(crate) fn is_bound(&self, consumer: &str, export: (&str, &str), resource: &ResourceName) -> bool {
        self.bindings.of_cluster(consumer).iter().any(|binding| {
            binding.export_cluster.as_deref() == Some(export.0)
                && *binding.export_name == *export.1
                && binding.resources.iter().any(|bound| bound.name == *resource)
        })
    }

    fn bound(&self, consumer: &str, resource: &ResourceName) -> Result<PublishedSlice, Status> {
        let bindings = self.bindings.of_cluster(consumer);
        let binding = bindings
            .iter()
            .find(|binding| binding.resources.iter().any(|bound| bound.name == *resource))
            .ok_or_else(Status::unknown_resource)?;
        let cluster = binding.export_cluster.as_deref().ok_or_else(Status::unknown_resource)?;
        let export = self.exports.in_cluster(cluster, &binding.export_name)?;
        let export = export.ok_or_else(|| unresolved(resource))?;
        let resources = export.object["spec"]["resources"].as_array().map(Vec::as_slice).unwrap_or_default();
        let entry = resources
            .iter()
            .find(|entry| entry["group"] == *resource.group && entry["name"] == *resource.resource);
        let reference = entry.map(|entry| &entry["storage"]["virtual"]["reference"]);
        let Some(reference) = reference.filter(|reference| reference.is_object()) else {
            return Err(unresolved(resource));
        };
        if !is_slice(reference) {
            return Err(unsupported(resource, reference));
        }
        let slice = self.slice(cluster, reference["name"].as_str().unwrap_or_default())?;
        let fits = |slice: &PublishedSlice| slice.export.name == export.name && slice.resource == *resource;
        slice.filter(fits).ok_or_else(|| unresolved(resource))
    }

    /// The replica of a ClusterCachedResource at a path or in a logical cluster.
    fn cached_resource(&self, path: &str, name: &str) -> Option<Arc<Value>> {
        let resource = &CLUSTER_CACHED_RESOURCES;
        if let Some(found) = self.global.get(resource, path, name) {
            return Some(found);
        }
        self.global.list(resource, None).into_iter().find(|replica| {
            replica["metadata"]["name"] == name
                && replica["metadata"]["annotations"][annotation::PATH] == path
        })
    }
}

/// The refusal of a resource whose copies cannot be found, in kcp's words. The provider sees the reason in the conditions of its slice.
pub(super) fn unresolved(resource: &ResourceName) -> Status {
    let name = GroupResource::new(&resource.group, &resource.resource);
    Status::internal(format!("error resolving resource {name}; please contact APIExport owner to resolve"))
}

/// Not 503: clients would repeat the request.
fn unsupported(resource: &ResourceName, reference: &Value) -> Status {
    let name = GroupResource::new(&resource.group, &resource.resource);
    let kind = reference["kind"].as_str().unwrap_or_default();
    Status::new(
        501,
        StatusReason::Unknown,
        format!("virtual storage of {name} by {kind} is not supported yet"),
    )
}

fn is_slice(reference: &Value) -> bool {
    reference["apiGroup"] == "cache.kcp.io" && reference["kind"] == "ClusterCachedResourceEndpointSlice"
}

/// Path or logical cluster, and name of a reference. Without a path it means an object of `cluster`.
fn reference<'r>(reference: &'r Value, cluster: &'r str) -> (&'r str, &'r str) {
    let path = reference["path"].as_str().filter(|path| !path.is_empty()).unwrap_or(cluster);
    (path, reference["name"].as_str().unwrap_or_default())
}
