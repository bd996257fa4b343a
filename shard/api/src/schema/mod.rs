//! Definitions of the kcp resources: names, scope, versions, schemas, columns.

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
    /// The objects have no namespace.
    Cluster,
    /// Every object is in a namespace.
    Namespaced,
}

impl Scope {
    /// The scope as text, as in CRDs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Namespaced => "Namespaced",
        }
    }
}

/// The definition of a kcp resource, from which its CRD or APIResourceSchema is built.
#[derive(Clone, Debug)]
pub struct ResourceDefinition {
    /// API group.
    pub group: &'static str,
    /// Kind of one object; the list kind has the suffix `List`.
    pub kind: &'static str,
    /// Plural name, used in URLs.
    pub plural: &'static str,
    /// Singular name.
    pub singular: &'static str,
    /// Short names for kubectl.
    pub short_names: &'static [&'static str],
    /// Categories: names by which kubectl lists several resources at once.
    pub categories: &'static [&'static str],
    /// Whether objects live in namespaces.
    pub scope: Scope,
    /// All versions, oldest first; exactly one is stored.
    pub versions: Vec<Version>,
    /// Prefix of the APIResourceSchema in `root`, such as `v240903-d6797056a`; `None` for system CRDs.
    pub schema_revision: Option<&'static str>,
}

impl ResourceDefinition {
    /// A cluster-scoped resource of the category `kcp`, without versions. `names` are kind, plural and singular.
    fn cluster_scoped(group: &'static str, names: [&'static str; 3]) -> Self {
        let [kind, plural, singular] = names;
        Self {
            group,
            kind,
            plural,
            singular,
            short_names: &[],
            categories: &["kcp"],
            scope: Scope::Cluster,
            versions: Vec::new(),
            schema_revision: None,
        }
    }
}

/// A version of a resource.
#[derive(Clone, Debug)]
pub struct Version {
    /// Name of the version, for example `v1alpha1`.
    pub name: &'static str,
    /// Whether objects are stored in this version. Every version is served.
    pub storage: bool,
    /// The structural schema (`openAPIV3Schema` of a CRD).
    pub schema: Value,
    /// Whether `/status` is a subresource.
    pub status: bool,
    /// Columns that `kubectl get` prints after the name.
    pub columns: Vec<Column>,
}

/// A printer column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Header of the column.
    pub name: &'static str,
    /// OpenAPI type: `string`, `integer` or `date`.
    pub type_name: &'static str,
    /// JSON path of the value.
    pub json_path: &'static str,
}

/// All kcp resources, system CRDs first. The list is built once.
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

/// The resources that every logical cluster serves without an APIBinding.
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

    /// The name of the APIResourceSchema in `root`. It equals kcp's, because proxies of kcp may look it up.
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
                "versions": self.versions.iter().map(Version::to_crd_version).collect::<Vec<_>>(),
            },
        })
    }

    /// The APIResourceSchema in `root`. `None` for resources that no export of root offers.
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
                "versions": self.versions.iter().map(Version::to_schema_version).collect::<Vec<_>>(),
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

    /// The version as an entry of a CRD.
    fn to_crd_version(&self) -> Value {
        let mut version = self.to_schema_version();
        version["schema"] = json!({"openAPIV3Schema": self.schema});
        version
    }

    /// The version as an entry of an APIResourceSchema.
    fn to_schema_version(&self) -> Value {
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
