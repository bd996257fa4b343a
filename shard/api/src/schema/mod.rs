//! What each kcp resource is: names, scope, versions, schemas, columns.

mod apis;
mod apis_v1alpha1;
mod authentication;
mod build;
mod cache;
mod core_group;
mod fragments;
mod migration;
mod tenancy;
mod topology;

use std::sync::LazyLock;

use serde_json::{Value, json};

use self::build::Schema;

/// Whether objects live in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Beside the namespaces.
    Cluster,
    /// In a namespace.
    Namespaced,
}

impl Scope {
    /// As CRDs spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Namespaced => "Namespaced",
        }
    }
}

/// The facts of one kcp resource, from which its CRD or APIResourceSchema is made.
#[derive(Clone, Debug)]
pub struct ResourceDefinition {
    /// API group.
    pub group: &'static str,
    /// Kind of one object; the list kind is this with `List`.
    pub kind: &'static str,
    /// Name in URLs.
    pub plural: &'static str,
    /// Name of one.
    pub singular: &'static str,
    /// Short names for kubectl.
    pub short_names: &'static [&'static str],
    /// Groups of resources that kubectl can ask for at once.
    pub categories: &'static [&'static str],
    /// Whether objects live in namespaces.
    pub scope: Scope,
    /// All versions, oldest first; exactly one is stored.
    pub versions: Vec<Version>,
    /// Prefix of the APIResourceSchema in `root`, such as `v240903-d6797056a`; none for pure system CRDs.
    pub schema_revision: Option<&'static str>,
}

/// One version of a resource.
#[derive(Clone, Debug)]
pub struct Version {
    /// For example `v1alpha1`.
    pub name: &'static str,
    /// Whether objects are stored in this version. Every version is served.
    pub storage: bool,
    /// The structural schema (what a CRD holds under `openAPIV3Schema`).
    pub schema: Value,
    /// Whether `/status` is a subresource.
    pub status: bool,
    /// What `kubectl get` prints after the name.
    pub columns: Vec<Column>,
}

/// A printer column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// OpenAPI type: `string`, `integer` or `date`.
    pub type_name: &'static str,
    /// Where the value is.
    pub json_path: &'static str,
}

/// Every kcp resource, system CRDs first. Built once.
pub fn resources() -> &'static [ResourceDefinition] {
    static ALL: LazyLock<Vec<ResourceDefinition>> = LazyLock::new(|| {
        let mut all = apis::resources();
        all.extend(cache::resources());
        all.extend(core_group::resources());
        all.extend(tenancy::resources());
        all.extend(topology::resources());
        all.extend(migration::resources());
        all
    });
    &ALL
}

/// The definition of `plural` in `group`.
pub fn resource(group: &str, plural: &str) -> Option<&'static ResourceDefinition> {
    resources().iter().find(|resource| resource.group == group && resource.plural == plural)
}

/// The resources that every logical cluster serves without a binding.
pub fn system_resources() -> impl Iterator<Item = &'static ResourceDefinition> {
    resources().iter().filter(|resource| {
        resource.group == "apis.kcp.io"
            || (resource.group == "core.kcp.io" && resource.plural == "logicalclusters")
            || (resource.group == "cache.kcp.io" && resource.plural != "cachedobjects")
    })
}

impl ResourceDefinition {
    /// `<plural>.<group>`, the name of the CRD.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    /// The version in which objects are stored.
    pub fn storage_version(&self) -> Option<&Version> {
        self.versions.iter().find(|version| version.storage)
    }

    /// The version of that name.
    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// The name of the APIResourceSchema in `root`. Wire fact: kcp's proxies may look for it.
    pub fn schema_name(&self) -> Option<String> {
        let revision = self.schema_revision?;
        Some(format!("{revision}.{}.{}", self.plural, self.group))
    }

    /// The CustomResourceDefinition (apiextensions.k8s.io/v1) without status.
    pub fn custom_resource_definition(&self) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.full_name()},
            "spec": {
                "conversion": {"strategy": "None"},
                "group": self.group,
                "names": self.names(),
                "scope": self.scope.as_str(),
                "versions": self.versions.iter().map(Version::in_definition).collect::<Vec<_>>(),
            },
        })
    }

    /// The APIResourceSchema in `root`, for resources that root's exports offer.
    pub fn api_resource_schema(&self) -> Option<Value> {
        Some(json!({
            "apiVersion": "apis.kcp.io/v1alpha1",
            "kind": "APIResourceSchema",
            "metadata": {"name": self.schema_name()?},
            "spec": {
                "group": self.group,
                "nameValidation": "DNS1123Subdomain",
                "names": self.names(),
                "scope": self.scope.as_str(),
                "versions": self.versions.iter().map(Version::in_schema).collect::<Vec<_>>(),
            },
        }))
    }

    fn names(&self) -> Value {
        let mut names = json!({
            "kind": self.kind,
            "listKind": format!("{}List", self.kind),
            "plural": self.plural,
            "singular": self.singular,
        });
        if !self.short_names.is_empty() {
            names["shortNames"] = json!(self.short_names);
        }
        if !self.categories.is_empty() {
            names["categories"] = json!(self.categories);
        }
        names
    }
}

impl Version {
    fn new(name: &'static str, schema: Schema) -> Self {
        Self { name, storage: true, schema: schema.build(), status: false, columns: Vec::new() }
    }

    fn with_status(mut self) -> Self {
        self.status = true;
        self
    }

    fn not_stored(mut self) -> Self {
        self.storage = false;
        self
    }

    fn columns(mut self, columns: Vec<Column>) -> Self {
        self.columns = columns;
        self
    }

    /// As CRDs list it.
    fn in_definition(&self) -> Value {
        let mut version = self.in_schema();
        version["schema"] = json!({"openAPIV3Schema": self.schema});
        version
    }

    /// As APIResourceSchemas list it.
    fn in_schema(&self) -> Value {
        let mut version = json!({
            "name": self.name,
            "served": true,
            "storage": self.storage,
            "schema": self.schema,
            "subresources": if self.status { json!({"status": {}}) } else { json!({}) },
        });
        if !self.columns.is_empty() {
            version["additionalPrinterColumns"] = self
                .columns
                .iter()
                .map(|column| json!({"name": column.name, "type": column.type_name, "jsonPath": column.json_path}))
                .collect();
        }
        version
    }
}

impl Column {
    const fn text(name: &'static str, json_path: &'static str) -> Self {
        Self { name, type_name: "string", json_path }
    }

    const fn integer(name: &'static str, json_path: &'static str) -> Self {
        Self { name, type_name: "integer", json_path }
    }

    const fn age() -> Self {
        Self { name: "Age", type_name: "date", json_path: ".metadata.creationTimestamp" }
    }
}
