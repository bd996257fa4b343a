//! `tenancy.kcp.io/v1alpha1`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{LabelSelector, Object, Phase, is_default};
use crate::Condition;

/// A workspace, an object of its parent.
pub type Workspace = Object<WorkspaceSpec, WorkspaceStatus>;
/// A type of workspaces.
pub type WorkspaceType = Object<WorkspaceTypeSpec, WorkspaceTypeStatus>;

/// Spec of a Workspace: the user's input and the scheduler's decisions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkspaceSpec {
    /// URL of the workspace, set by the scheduler.
    #[serde(rename = "URL", skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Logical cluster of the workspace, set by the scheduler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Constraints on the shard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<WorkspaceLocation>,
    /// The mounted object, whose URL is served instead of a logical cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<WorkspaceMount>,
    /// Type of the workspace; absent on mounts.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_reference: Option<TypeReference>,
}

/// Constraints on the shard of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkspaceLocation {
    /// Labels that the shard must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// The mount of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkspaceMount {
    /// Reference to the mounted object.
    #[serde(rename = "ref")]
    pub reference: MountReference,
}

/// A reference to an object of the same workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MountReference {
    /// Group and version of the object.
    pub api_version: String,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "is_default")]
    pub namespace: String,
}

/// Status of a Workspace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkspaceStatus {
    /// Phase of the workspace.
    pub phase: Phase,
    /// Conditions of the workspace.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// Pending initializers.
    #[serde(skip_serializing_if = "is_default")]
    pub initializers: Vec<String>,
    /// Pending terminators.
    #[serde(skip_serializing_if = "is_default")]
    pub terminators: Vec<String>,
}

/// A reference to a WorkspaceType.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct TypeReference {
    /// Name of the object.
    pub name: String,
    /// Path or logical cluster that holds the object. If empty, the workspace and its ancestors are searched.
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

/// Spec of a WorkspaceType.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkspaceTypeSpec {
    /// Labels for new workspaces.
    #[serde(skip_serializing_if = "is_default")]
    pub additional_workspace_labels: BTreeMap<String, String>,
    /// WorkspaceAuthenticationConfigurations of the same logical cluster, whose issuers the workspaces trust.
    #[serde(skip_serializing_if = "is_default")]
    pub authentication_configurations: Vec<AuthenticationConfigurationReference>,
    /// Whether default bindings are kept up to date: `InitializeOnly` (or absent) or `Maintain`.
    #[serde(rename = "defaultAPIBindingLifecycle", skip_serializing_if = "Option::is_none")]
    pub default_api_binding_lifecycle: Option<String>,
    /// Exports that new workspaces are bound to.
    #[serde(rename = "defaultAPIBindings", skip_serializing_if = "is_default")]
    pub default_api_bindings: Vec<DefaultBinding>,
    /// Type of children whose spec has no type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_child_workspace_type: Option<TypeReference>,
    /// Types that this one extends.
    #[serde(skip_serializing_if = "is_default")]
    pub extend: ExtendedTypes,
    /// Whether the type adds an initializer.
    #[serde(skip_serializing_if = "is_default")]
    pub initializer: bool,
    /// Permissions of the initializer.
    #[serde(skip_serializing_if = "is_default")]
    pub initializer_permissions: Vec<PolicyRule>,
    /// Allowed types of children.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_allowed_children: Option<TypeSelector>,
    /// Allowed types of parents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_allowed_parents: Option<TypeSelector>,
    /// Whether the type adds a terminator.
    #[serde(skip_serializing_if = "is_default")]
    pub terminator: bool,
    /// Permissions of the terminator.
    #[serde(skip_serializing_if = "is_default")]
    pub terminator_permissions: Vec<PolicyRule>,
}

/// Types that another type extends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExtendedTypes {
    /// The extended types, in order of precedence.
    #[serde(skip_serializing_if = "is_default")]
    pub with: Vec<TypeReference>,
}

/// A reference to a WorkspaceAuthenticationConfiguration.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct AuthenticationConfigurationReference {
    /// Name of the object.
    pub name: String,
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

/// A limit on the types of parents or children.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TypeSelector {
    /// Whether no type is allowed.
    #[serde(skip_serializing_if = "is_default")]
    pub none: bool,
    /// The allowed types.
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
    /// URL paths, for rules about other requests than those for resources.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "is_default")]
    pub non_resource_urls: Vec<String>,
    /// Names of objects; if not empty, the rule applies to these only.
    #[serde(skip_serializing_if = "is_default")]
    pub resource_names: Vec<String>,
    /// Resources and subresources; `*` for all.
    #[serde(skip_serializing_if = "is_default")]
    pub resources: Vec<String>,
    /// Verbs; `*` for all.
    pub verbs: Vec<String>,
}

/// Status of a WorkspaceType.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkspaceTypeStatus {
    /// Conditions of the type.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// URLs for initializers and terminators.
    #[serde(skip_serializing_if = "is_default")]
    pub virtual_workspaces: Vec<TypeVirtualWorkspace>,
}

/// The URL of a virtual workspace of one shard for one type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TypeVirtualWorkspace {
    /// `initializing` or `terminating`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Base URL of the virtual workspace.
    pub url: String,
}
