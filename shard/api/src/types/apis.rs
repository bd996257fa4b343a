//! `apis.kcp.io`: v1alpha2 of exports and bindings, v1alpha1 of the rest.
#![allow(
    clippy::upper_case_acronyms,
    reason = "APIExport and its relatives keep the spelling of their kinds"
)]

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{LabelSelector, NoStatus, Object, SelectorRequirement, is_default};
use crate::Condition;

/// A provider's offer of resources.
pub type APIExport = Object<APIExportSpec, APIExportStatus>;
/// A consumer's use of an APIExport.
pub type APIBinding = Object<APIBindingSpec, APIBindingStatus>;
/// The immutable definition of a resource.
pub type APIResourceSchema = Object<APIResourceSchemaSpec, NoStatus>;
/// The URLs at which a provider finds its consumers' objects.
pub type APIExportEndpointSlice = Object<APIExportEndpointSliceSpec, APIExportEndpointSliceStatus>;

/// Spec of an APIExport.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct APIExportSpec {
    /// Reference to the identity's key, set by a controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Upper limit of consumers' permissions on the exported resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximal_permission_policy: Option<PermissionPolicy>,
    /// Resources of its consumers to which the provider claims access.
    #[serde(skip_serializing_if = "is_default")]
    pub permission_claims: Vec<PermissionClaim>,
    /// The exported resources.
    #[serde(skip_serializing_if = "is_default")]
    pub resources: Vec<ExportedResource>,
}

/// The identity of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Identity {
    /// The Secret with the private key under `key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
}

/// A reference to a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecretReference {
    /// Name of the Secret.
    #[serde(skip_serializing_if = "is_default")]
    pub name: String,
    /// Namespace of the Secret.
    #[serde(skip_serializing_if = "is_default")]
    pub namespace: String,
}

/// A maximal permission policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PermissionPolicy {
    /// Authorization by the RBAC of the export's logical cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<NoStatus>,
}

/// A resource of consumers to which a provider claims access.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PermissionClaim {
    /// API group; empty for core.
    pub group: String,
    /// Plural name.
    pub resource: String,
    /// Verbs that the provider may use.
    pub verbs: Vec<String>,
    /// Identity of the export that provides it; empty for built-ins.
    #[serde(skip_serializing_if = "is_default")]
    pub identity_hash: String,
    /// Selector for bindings that are created automatically.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_selector: Option<ClaimSelector>,
}

/// The objects that a claim covers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSelector {
    /// Whether all objects are covered; excludes the other fields.
    #[serde(skip_serializing_if = "is_default")]
    pub match_all: bool,
    /// Labels that must be present with these values.
    #[serde(skip_serializing_if = "is_default")]
    pub match_labels: std::collections::BTreeMap<String, String>,
    /// Further requirements.
    #[serde(skip_serializing_if = "is_default")]
    pub match_expressions: Vec<SelectorRequirement>,
}

/// An exported resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExportedResource {
    /// API group of the resource.
    pub group: String,
    /// Plural name.
    pub name: String,
    /// Name of the APIResourceSchema.
    pub schema: String,
    /// Location of the objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
}

/// Location of the objects of an exported resource: exactly one field is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Storage {
    /// The consumer's shard stores the objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crd: Option<NoStatus>,
    /// Another endpoint serves the objects (virtual storage).
    #[serde(rename = "virtual", skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<Value>,
}

/// Status of an APIExport.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct APIExportStatus {
    /// SHA-256 of the identity's key, in hexadecimal; empty until known.
    #[serde(skip_serializing_if = "is_default")]
    pub identity_hash: String,
    /// Conditions of the export.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}

/// Spec of an APIBinding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct APIBindingSpec {
    /// Reference to the bound export.
    pub reference: BindingReference,
    /// The accepted and rejected claims of the export.
    #[serde(skip_serializing_if = "is_default")]
    pub permission_claims: Vec<AcceptedClaim>,
}

/// Reference to the bound export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BindingReference {
    /// Reference to an APIExport.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub export: Option<ExportReference>,
}

/// A reference to an APIExport.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct ExportReference {
    /// Path of its workspace; empty for the same one.
    #[serde(skip_serializing_if = "is_default")]
    pub path: String,
    /// Name of the APIExport.
    pub name: String,
}

/// A claim with the consumer's decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AcceptedClaim {
    /// The claim.
    #[serde(flatten)]
    pub claim: PermissionClaim,
    /// The objects that the claim covers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<ClaimSelector>,
    /// The consumer's decision; absent in the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<ClaimState>,
}

/// A consumer's decision on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimState {
    /// The provider may use the claim.
    Accepted,
    /// The provider may not use the claim.
    Rejected,
}

/// Status of an APIBinding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct APIBindingStatus {
    /// Logical cluster of the export.
    #[serde(skip_serializing_if = "is_default")]
    pub api_export_cluster_name: String,
    /// Empty, `Binding` or `Bound`.
    #[serde(skip_serializing_if = "is_default")]
    pub phase: String,
    /// The resources that the binding serves.
    #[serde(skip_serializing_if = "is_default")]
    pub bound_resources: Vec<BoundResource>,
    /// Claims of the export.
    #[serde(skip_serializing_if = "is_default")]
    pub export_permission_claims: Vec<PermissionClaim>,
    /// Claims that have taken effect.
    #[serde(skip_serializing_if = "is_default")]
    pub applied_permission_claims: Vec<AcceptedClaim>,
    /// Conditions of the binding.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}

/// A resource that a binding serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BoundResource {
    /// API group of the resource.
    pub group: String,
    /// Plural name.
    pub resource: String,
    /// Its schema and identity.
    pub schema: BoundSchema,
    /// Every version in which objects have been stored; empty for virtual storage.
    #[serde(skip_serializing_if = "is_default")]
    pub storage_versions: Vec<String>,
}

/// The schema of a bound resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BoundSchema {
    /// Name of the APIResourceSchema.
    pub name: String,
    /// Its UID, which is also the name of the bound CRD.
    #[serde(rename = "UID")]
    pub uid: String,
    /// Identity of the export.
    pub identity_hash: String,
}

/// Spec of an APIResourceSchema.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct APIResourceSchemaSpec {
    /// API group; empty for core.
    pub group: String,
    /// Names of the resource.
    pub names: SchemaNames,
    /// `Cluster` or `Namespaced`.
    pub scope: String,
    /// Versions of the resource.
    pub versions: Vec<SchemaVersion>,
    /// `DNS1123Subdomain` or `PathSegmentName`.
    #[serde(skip_serializing_if = "is_default")]
    pub name_validation: String,
    /// Conversion between versions; required if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversion: Option<SchemaConversion>,
}

/// Names of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchemaNames {
    /// Plural name, used in URLs.
    pub plural: String,
    /// Singular name.
    #[serde(skip_serializing_if = "is_default")]
    pub singular: String,
    /// Short names for kubectl.
    #[serde(skip_serializing_if = "is_default")]
    pub short_names: Vec<String>,
    /// Kind of one object.
    pub kind: String,
    /// Kind of lists.
    #[serde(skip_serializing_if = "is_default")]
    pub list_kind: String,
    /// Categories for kubectl.
    #[serde(skip_serializing_if = "is_default")]
    pub categories: Vec<String>,
}

/// A version of a resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchemaVersion {
    /// Name of the version.
    pub name: String,
    /// Whether the version is served.
    pub served: bool,
    /// Whether objects are stored in this version.
    pub storage: bool,
    /// Whether the version is deprecated.
    #[serde(skip_serializing_if = "is_default")]
    pub deprecated: bool,
    /// The warning in responses of a deprecated version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecation_warning: Option<String>,
    /// Structural OpenAPI v3 schema.
    pub schema: Value,
    /// The subresources `status` and `scale`.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub subresources: Value,
    /// Printer columns, as in CRDs.
    #[serde(skip_serializing_if = "is_default")]
    pub additional_printer_columns: Vec<Value>,
    /// Fields for field selectors.
    #[serde(skip_serializing_if = "is_default")]
    pub selectable_fields: Vec<Value>,
}

/// Conversion between the versions of a resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SchemaConversion {
    /// `None` or `Webhook`.
    pub strategy: String,
    /// The webhook of strategy `Webhook`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Value>,
}

/// Spec of an APIExportEndpointSlice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct APIExportEndpointSliceSpec {
    /// The export whose endpoints are listed.
    pub export: ExportReference,
    /// A Partition of the same logical cluster, which limits the shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
}

/// Status of an APIExportEndpointSlice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct APIExportEndpointSliceStatus {
    /// Conditions of the endpoint slice.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// One URL per shard with consumers.
    #[serde(skip_serializing_if = "is_default")]
    pub endpoints: Vec<Endpoint>,
    /// The partition's selector in canonical form.
    #[serde(skip_serializing_if = "is_default")]
    pub shard_selector: String,
}

/// An endpoint of an endpoint slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Endpoint {
    /// Base URL of the virtual workspace.
    pub url: String,
    /// The shards that the endpoint covers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards: Option<EndpointShards>,
}

/// The shards that an endpoint covers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointShards {
    /// Whether all shards are covered.
    #[serde(skip_serializing_if = "is_default")]
    pub match_all: bool,
    /// Selector of shards by label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}
