//! `tenancy.kcp.io/v1alpha1`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{LabelSelector, Object, Phase, is_default};
use crate::Condition;

/// A child of a workspace.
pub type Workspace = Object<WorkspaceSpec, WorkspaceStatus>;
/// A kind of workspace.
pub type WorkspaceType = Object<WorkspaceTypeSpec, WorkspaceTypeStatus>;

/// What a user wants of a workspace, and what the system decided.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkspaceSpec {
    /// Where it is served; set by the system.
    #[serde(rename = "URL", skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its logical cluster; set by the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Restricts the shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<WorkspaceLocation>,
    /// Serve another object's URL instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<WorkspaceMount>,
    /// Its type; absent on mounts.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_reference: Option<TypeReference>,
}

/// Restricts the shards of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkspaceLocation {
    /// Labels of the shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// What is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkspaceMount {
    /// The mounted object.
    #[serde(rename = "ref")]
    pub reference: MountReference,
}

/// An object of the same workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MountReference {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "is_default")]
    pub namespace: String,
}

/// What has become of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkspaceStatus {
    /// Phase.
    pub phase: Phase,
    /// Conditions.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// Initializers still at work.
    #[serde(skip_serializing_if = "is_default")]
    pub initializers: Vec<String>,
    /// Terminators still at work.
    #[serde(skip_serializing_if = "is_default")]
    pub terminators: Vec<String>,
}

/// Names a WorkspaceType.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct TypeReference {
    /// Name of the object.
    pub name: String,
    /// Path or logical cluster that holds it; empty means "search upwards".
    #[serde(skip_serializing_if = "is_default")]
    pub path: String,
}

impl fmt::Display for TypeReference {
    /// `<path>:<name>`, as in messages, initializers and the annotation of LogicalClusters.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            formatter.write_str(&self.name)
        } else {
            write!(formatter, "{}:{}", self.path, self.name)
        }
    }
}

/// The rules of a type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkspaceTypeSpec {
    /// Labels for new workspaces.
    #[serde(skip_serializing_if = "is_default")]
    pub additional_workspace_labels: BTreeMap<String, String>,
    /// Whether default bindings are kept up to date: `InitializeOnly` (or absent) or `Maintain`.
    #[serde(rename = "defaultAPIBindingLifecycle", skip_serializing_if = "Option::is_none")]
    pub default_api_binding_lifecycle: Option<String>,
    /// Exports that new workspaces are bound to.
    #[serde(rename = "defaultAPIBindings", skip_serializing_if = "is_default")]
    pub default_api_bindings: Vec<DefaultBinding>,
    /// Type of children that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_child_workspace_type: Option<TypeReference>,
    /// Types it builds on.
    #[serde(skip_serializing_if = "is_default")]
    pub extend: ExtendedTypes,
    /// Whether it contributes an initializer.
    #[serde(skip_serializing_if = "is_default")]
    pub initializer: bool,
    /// What the initializer may do.
    #[serde(skip_serializing_if = "is_default")]
    pub initializer_permissions: Vec<PolicyRule>,
    /// Types of children.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_allowed_children: Option<TypeSelector>,
    /// Types of parents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_allowed_parents: Option<TypeSelector>,
    /// Whether it contributes a terminator.
    #[serde(skip_serializing_if = "is_default")]
    pub terminator: bool,
    /// What the terminator may do.
    #[serde(skip_serializing_if = "is_default")]
    pub terminator_permissions: Vec<PolicyRule>,
}

/// Types that another builds on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExtendedTypes {
    /// In order of precedence.
    #[serde(skip_serializing_if = "is_default")]
    pub with: Vec<TypeReference>,
}

/// An export that new workspaces are bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct DefaultBinding {
    /// Name of the APIExport.
    pub export: String,
    /// Path of its workspace; empty for the type's own logical cluster.
    #[serde(skip_serializing_if = "is_default")]
    pub path: String,
}

/// A limit on parents or children.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TypeSelector {
    /// None at all.
    #[serde(skip_serializing_if = "is_default")]
    pub none: bool,
    /// These only.
    #[serde(skip_serializing_if = "is_default")]
    pub types: Vec<TypeReference>,
}

/// `rbacv1.PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    /// Groups of the resources; `*` for all.
    #[serde(skip_serializing_if = "is_default")]
    pub api_groups: Vec<String>,
    /// Paths outside of the resources.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "is_default")]
    pub non_resource_urls: Vec<String>,
    /// Only objects of these names.
    #[serde(skip_serializing_if = "is_default")]
    pub resource_names: Vec<String>,
    /// Resources and subresources; `*` for all.
    #[serde(skip_serializing_if = "is_default")]
    pub resources: Vec<String>,
    /// Verbs; `*` for all.
    pub verbs: Vec<String>,
}

/// What has become of a type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkspaceTypeStatus {
    /// Conditions.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// Where initializers and terminators work.
    #[serde(skip_serializing_if = "is_default")]
    pub virtual_workspaces: Vec<TypeVirtualWorkspace>,
}

/// A virtual workspace of one shard for one type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TypeVirtualWorkspace {
    /// `initializing` or `terminating`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Base URL.
    pub url: String,
}
