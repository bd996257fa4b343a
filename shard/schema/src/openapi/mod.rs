//! OpenAPI v3 documents of group versions, assembled from the resources that a server or workspace serves.
//!
//! Clients get the index, then the group versions that they need. A document never changes under one hash. The
//! documents suffice for `kubectl` 1.29 and newer: explain, apply, create with validation, edit, diff.

mod custom;
mod discovery;
mod gnostic;
mod operations;

#[cfg(test)]
mod tests;
mod v2;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

use crate::builtin::{BuiltinKind, REFERENCE_PREFIX, definition_json, list_definition};

pub use custom::custom_definition_name;
pub use discovery::DiscoveryPath;
pub use gnostic::encode_open_api_v2;
pub use v2::open_api_v2;

/// A resource of an OpenAPI document.
#[derive(Debug, Clone)]
pub struct OpenApiResource {
    /// API group; empty for the core group.
    pub group: String,
    /// API version, such as `v1`.
    pub version: String,
    /// Kind of one object.
    pub kind: String,
    /// Kind of a list.
    pub list_kind: String,
    /// Resource name in URLs.
    pub plural: String,
    /// Whether objects are namespaced.
    pub namespaced: bool,
    /// Verbs, as in discovery.
    pub verbs: Vec<String>,
    /// Subresources of the resource.
    pub subresources: Vec<OpenApiSubresource>,
    /// Schema of its objects.
    pub schema: OpenApiSchema,
}

/// A subresource of an [`OpenApiResource`].
#[derive(Debug, Clone)]
pub struct OpenApiSubresource {
    /// Last segment of the path.
    pub name: String,
    /// Verbs, as in discovery.
    pub verbs: Vec<String>,
    /// Kind of the bodies, if it is not the resource's.
    pub body: Option<OpenApiBody>,
}

/// The kind of a subresource's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenApiBody {
    /// `autoscaling/v1` `Scale`.
    Scale,
    /// `authentication.k8s.io/v1` `TokenRequest`.
    TokenRequest,
}

/// Source of a resource's schema.
#[derive(Debug, Clone)]
pub enum OpenApiSchema {
    /// A built-in definition by its name.
    Builtin(&'static str),
    /// The `openAPIV3Schema` of a custom resource's version.
    Custom(Arc<Value>),
}

/// A complete document. Cloning is cheap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenApiDocument {
    /// The JSON text.
    pub json: Bytes,
    /// Upper-case hex of the text's SHA-512: the `hash` of its URL, and its ETag within quotes.
    pub hash: Arc<str>,
}

impl From<&BuiltinKind> for OpenApiResource {
    fn from(kind: &BuiltinKind) -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let subresources = kind.subresources.iter().map(|subresource| OpenApiSubresource {
            name: subresource.name.to_owned(),
            verbs: owned(subresource.verbs),
            body: subresource.body.map(|_| OpenApiBody::TokenRequest),
        });
        Self {
            group: kind.group.to_owned(),
            version: kind.version.to_owned(),
            kind: kind.kind.to_owned(),
            list_kind: kind.list_kind(),
            plural: kind.plural.to_owned(),
            namespaced: kind.namespaced,
            verbs: owned(kind.verbs),
            subresources: subresources.collect(),
            schema: OpenApiSchema::Builtin(kind.definition),
        }
    }
}

impl OpenApiResource {
    /// Name of the component that describes one object.
    #[must_use]
    pub fn definition(&self) -> String {
        match &self.schema {
            OpenApiSchema::Builtin(name) => (*name).to_owned(),
            OpenApiSchema::Custom(_) => custom_definition_name(&self.group, &self.version, &self.kind),
        }
    }

    /// Name of the component that describes a list.
    #[must_use]
    pub fn list_definition(&self) -> String {
        match &self.schema {
            OpenApiSchema::Builtin(name) => format!("{name}List"),
            OpenApiSchema::Custom(_) => custom_definition_name(&self.group, &self.version, &self.list_kind),
        }
    }
}

/// The path of a group version within `/openapi/v3`, which is also its key in the index: `api/v1`, `apis/<g>/<v>`.
#[must_use]
pub fn open_api_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Assembles the document of one group version; resources of other group versions are ignored. The order of
/// `resources` does not matter. Costs milliseconds for the core group: callers should cache documents by their set of
/// schemas.
#[must_use]
pub fn open_api_document<'a>(
    group: &str,
    version: &str,
    resources: impl IntoIterator<Item = &'a OpenApiResource>,
) -> OpenApiDocument {
    let mut resources: Vec<&OpenApiResource> =
        resources.into_iter().filter(|r| r.group == group && r.version == version).collect();
    resources.sort_by(|a, b| a.plural.cmp(&b.plural));
    let mut components = Components::default();
    let mut paths = BTreeMap::new();
    let root = operations::resource_list(group, version);
    components.add_referenced(&root.1.to_string());
    paths.extend([root]);
    for resource in resources {
        components.add_resource(resource);
        for (path, item) in operations::paths_of(resource) {
            components.add_referenced(&item.to_string());
            paths.insert(path, item);
        }
    }
    assembled(paths, components)
}

/// Assembles the document of a path that belongs to no group version.
#[must_use]
pub fn discovery_document(path: &DiscoveryPath) -> OpenApiDocument {
    let mut components = Components::default();
    let (path, item) = path.path_item();
    components.add_referenced(&item.to_string());
    assembled(BTreeMap::from([(path, item)]), components)
}

fn assembled(paths: BTreeMap<String, Value>, components: Components) -> OpenApiDocument {
    let document = Document {
        openapi: "3.0.0",
        info: json!({"title": "Kubernetes", "version": "1.36"}),
        paths,
        components: json_object("schemas", components.schemas),
    };
    // Serializing maps with text keys into memory cannot fail; an empty document would only hide resources from
    // clients.
    let json = Bytes::from(serde_json::to_vec(&document).unwrap_or_default());
    let hash = Sha512::digest(&json).iter().map(|byte| format!("{byte:02X}")).collect::<String>();
    OpenApiDocument { json, hash: hash.into() }
}

/// The index at `/openapi/v3`, from documents by their [`open_api_path`]. Its URLs begin with `/openapi/v3`, without a
/// cluster: clients prepend their own prefix.
#[must_use]
pub fn open_api_index<'a>(documents: impl IntoIterator<Item = (&'a str, &'a OpenApiDocument)>) -> Bytes {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Entry {
        #[serde(rename = "serverRelativeURL")]
        server_relative_url: String,
    }
    let entries = documents.into_iter().map(|(path, document)| {
        let server_relative_url = format!("/openapi/v3/{path}?hash={}", document.hash);
        (path, Entry { server_relative_url })
    });
    let index = json_object("paths", entries.collect::<BTreeMap<_, _>>());
    Bytes::from(serde_json::to_vec(&index).unwrap_or_default())
}

#[derive(Serialize)]
struct Document {
    openapi: &'static str,
    info: Value,
    paths: BTreeMap<String, Value>,
    components: BTreeMap<&'static str, BTreeMap<String, Schema>>,
}

fn json_object<T>(key: &'static str, value: T) -> BTreeMap<&'static str, T> {
    BTreeMap::from([(key, value)])
}

/// The schema of a component. Built-in definitions are copied as text.
#[derive(Serialize)]
#[serde(untagged)]
enum Schema {
    Text(&'static RawValue),
    Tree(Value),
}

/// The components of one document: only those that it refers to.
#[derive(Default)]
struct Components {
    schemas: BTreeMap<String, Schema>,
}

impl Components {
    fn add_resource(&mut self, resource: &OpenApiResource) {
        let OpenApiSchema::Custom(schema) = &resource.schema else {
            // Built-in components are found through the references of the paths.
            return;
        };
        let definition = resource.definition();
        self.add_tree(definition.clone(), custom::component(resource, schema));
        let list = list_definition(&definition, &resource.group, &resource.version, &resource.list_kind);
        self.add_tree(resource.list_definition(), list);
    }

    fn add_tree(&mut self, name: String, schema: Value) {
        let text = schema.to_string();
        self.schemas.insert(name, Schema::Tree(schema));
        self.add_referenced(&text);
    }

    fn add_referenced(&mut self, text: &str) {
        let mut queue: BTreeSet<String> = references(text).collect();
        while let Some(name) = queue.pop_first() {
            let Some(definition) = definition_json(&name) else { continue };
            if self.schemas.insert(name, Schema::Text(definition)).is_none() {
                queue.extend(references(definition.get()).filter(|name| !self.schemas.contains_key(name)));
            }
        }
    }
}

/// Names of the components that a JSON text refers to. A description that contains the prefix adds a superfluous
/// component, which is harmless.
fn references(text: &str) -> impl Iterator<Item = String> {
    text.split(REFERENCE_PREFIX).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
}
