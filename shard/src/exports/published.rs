//! An APIExport with the schemas of its resources, as bindings need it.

use std::sync::Arc;

use fairlead_api::annotation;
use fairlead_process::Status;
use fairlead_schema::crd::CrdNames;
use serde_json::Value;

/// An APIExport of any logical cluster, with what its bindings need of its schemas.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PublishedExport {
    /// Its logical cluster.
    pub(crate) cluster: Box<str>,
    /// The canonical path of its workspace; the name of the logical cluster if it has none.
    pub(crate) path: Box<str>,
    pub(crate) name: Box<str>,
    /// The hash of its identity; `None` until it has one.
    pub(crate) identity: Option<Arc<str>>,
    /// The APIExport in version v1alpha2.
    pub(crate) object: Arc<Value>,
    /// The schemas of its resources, in the order of `spec.resources`.
    pub(crate) schemas: Vec<PublishedSchema>,
    /// The first schema that does not exist.
    pub(crate) missing_schema: Option<Box<str>>,
}

/// A resource of an export, with the properties of its APIResourceSchema.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PublishedSchema {
    pub(crate) group: Box<str>,
    /// The plural name.
    pub(crate) resource: Box<str>,
    /// The name of the APIResourceSchema.
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
    pub(crate) storage_version: Box<str>,
    pub(crate) names: CrdNames,
    /// Whether objects are stored on the shards of the bindings, and not read from another endpoint.
    pub(crate) is_stored: bool,
    /// Whether a conversion is missing between several versions.
    pub(crate) lacks_conversion: bool,
}

impl PublishedExport {
    /// Reads an APIExport (v1alpha2). `schema` returns an APIResourceSchema of its logical cluster by name.
    ///
    /// # Errors
    /// Those of `schema`.
    pub(crate) fn read(
        cluster: &str,
        object: Arc<Value>,
        mut schema: impl FnMut(&str) -> Result<Option<Arc<Value>>, Status>,
    ) -> Result<Self, Status> {
        let mut schemas = Vec::new();
        let mut missing_schema = None;
        for resource in object["spec"]["resources"].as_array().into_iter().flatten() {
            let name = resource["schema"].as_str().unwrap_or_default();
            let found = schema(name)?;
            match found.as_deref().and_then(|schema| PublishedSchema::read(schema, &resource["storage"])) {
                Some(schema) => schemas.push(schema),
                None if missing_schema.is_none() => missing_schema = Some(name.into()),
                None => {}
            }
        }
        let metadata = &object["metadata"];
        Ok(Self {
            cluster: cluster.into(),
            path: metadata["annotations"][annotation::PATH].as_str().unwrap_or(cluster).into(),
            name: metadata["name"].as_str().unwrap_or_default().into(),
            identity: object["status"]["identityHash"]
                .as_str()
                .filter(|hash| !hash.is_empty())
                .map(Arc::from),
            schemas,
            missing_schema,
            object,
        })
    }

    /// The permission claims of the export.
    pub(crate) fn claims(&self) -> &[Value] {
        self.object["spec"]["permissionClaims"].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    /// The annotations of the export that its bindings have, too.
    pub(crate) fn extra_annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.object["metadata"]["annotations"].as_object();
        let extra = all.into_iter().flatten().filter(|(key, _)| key.starts_with(annotation::EXTRA_PREFIX));
        extra.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
    }

    /// Whether roles in its logical cluster limit what users may do with its resources.
    pub(crate) fn has_maximal_policy(&self) -> bool {
        self.object["spec"]["maximalPermissionPolicy"]["local"].is_object()
    }
}

impl PublishedSchema {
    fn read(schema: &Value, storage: &Value) -> Option<Self> {
        let spec = &schema["spec"];
        let versions = spec["versions"].as_array()?;
        let stored = versions.iter().find(|version| version["storage"] == true)?;
        let names = CrdNames::read(&spec["names"]);
        Some(Self {
            group: spec["group"].as_str().unwrap_or_default().into(),
            resource: names.plural.as_str().into(),
            name: schema["metadata"]["name"].as_str()?.into(),
            uid: schema["metadata"]["uid"].as_str()?.into(),
            storage_version: stored["name"].as_str()?.into(),
            is_stored: !storage["virtual"].is_object(),
            lacks_conversion: versions.len() > 1 && spec["conversion"].is_null(),
            names,
        })
    }

    /// The name of the resource in locks and messages, `<resource>.<group>`.
    pub(crate) fn lock_name(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_string()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }
}
