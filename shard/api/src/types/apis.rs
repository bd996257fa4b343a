//! `apis.kcp.io`: v1alpha2 of exports and bindings, v1alpha1 of the rest.
#![allow(
    clippy::upper_case_acronyms,
    reason = "APIExport and its relatives keep the spelling of their kinds"
)]

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{LabelSelector, NoStatus, Object, SelectorRequirement, is_default};
use crate::Condition;

/// What a provider offers.
pub type APIExport = Object<APIExportSpec, APIExportStatus>;
/// What a consumer uses.
pub type APIBinding = Object<APIBindingSpec, APIBindingStatus>;
/// The immutable definition of a resource.
pub type APIResourceSchema = Object<APIResourceSchemaSpec, NoStatus>;
/// Where a provider finds its consumers' objects.
pub type APIExportEndpointSlice = Object<APIExportEndpointSliceSpec, APIExportEndpointSliceStatus>;

/// An offer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct APIExportSpec {
    /// Where the identity's key is; filled by a controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// The most that consumers may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximal_permission_policy: Option<PermissionPolicy>,
    /// What the provider wants to see of its consumers.
    #[serde(skip_serializing_if = "is_default")]
    pub permission_claims: Vec<PermissionClaim>,
    /// The resources.
    #[serde(skip_serializing_if = "is_default")]
    pub resources: Vec<ExportedResource>,
}

/// An identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Identity {
    /// The Secret with the private part under `key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
}

/// Names a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecretReference {
    /// Name.
    #[serde(skip_serializing_if = "is_default")]
    pub name: String,
    /// Namespace.
    #[serde(skip_serializing_if = "is_default")]
    pub namespace: String,
}

/// A maximal permission policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PermissionPolicy {
    /// Judge by the RBAC of the export's logical cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<NoStatus>,
}

/// A resource that a provider asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PermissionClaim {
    /// Group; empty for core.
    pub group: String,
    /// Plural name.
    pub resource: String,
    /// Verbs.
    pub verbs: Vec<String>,
    /// Identity of the export that provides it; empty for built-ins.
    #[serde(skip_serializing_if = "is_default")]
    pub identity_hash: String,
    /// Selector for bindings that are made automatically.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_selector: Option<ClaimSelector>,
}

/// Which objects a claim covers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSelector {
    /// All of them; excludes the rest.
    #[serde(skip_serializing_if = "is_default")]
    pub match_all: bool,
    /// Labels with these values.
    #[serde(skip_serializing_if = "is_default")]
    pub match_labels: std::collections::BTreeMap<String, String>,
    /// Further requirements.
    #[serde(skip_serializing_if = "is_default")]
    pub match_expressions: Vec<SelectorRequirement>,
}

/// One exported resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExportedResource {
    /// Group.
    pub group: String,
    /// Plural name.
    pub name: String,
    /// Name of the APIResourceSchema.
    pub schema: String,
    /// Where objects live.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
}

/// Where objects of an exported resource live: exactly one field is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Storage {
    /// On the consumer's shard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crd: Option<NoStatus>,
    /// Behind another endpoint.
    #[serde(rename = "virtual", skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<Value>,
}

/// State of an export.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct APIExportStatus {
    /// SHA-256 of the identity's key, in hexadecimal; empty until known.
    #[serde(skip_serializing_if = "is_default")]
    pub identity_hash: String,
    /// Conditions.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}

/// A use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct APIBindingSpec {
    /// What is bound.
    pub reference: BindingReference,
    /// Answers to claims.
    #[serde(skip_serializing_if = "is_default")]
    pub permission_claims: Vec<AcceptedClaim>,
}

/// What is bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BindingReference {
    /// The export.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub export: Option<ExportReference>,
}

/// Names an APIExport.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct ExportReference {
    /// Path of its workspace; empty for the same one.
    #[serde(skip_serializing_if = "is_default")]
    pub path: String,
    /// Name.
    pub name: String,
}

/// A consumer's answer to a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AcceptedClaim {
    /// The claim.
    #[serde(flatten)]
    pub claim: PermissionClaim,
    /// What it covers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<ClaimSelector>,
    /// Yes or no; absent in the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<ClaimState>,
}

/// Yes or no to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimState {
    /// Yes.
    Accepted,
    /// No.
    Rejected,
}

/// State of a binding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct APIBindingStatus {
    /// Logical cluster of the export.
    #[serde(skip_serializing_if = "is_default")]
    pub api_export_cluster_name: String,
    /// Empty, `Binding` or `Bound`.
    #[serde(skip_serializing_if = "is_default")]
    pub phase: String,
    /// What is served.
    #[serde(skip_serializing_if = "is_default")]
    pub bound_resources: Vec<BoundResource>,
    /// Claims of the export.
    #[serde(skip_serializing_if = "is_default")]
    pub export_permission_claims: Vec<PermissionClaim>,
    /// Claims in force.
    #[serde(skip_serializing_if = "is_default")]
    pub applied_permission_claims: Vec<AcceptedClaim>,
    /// Conditions.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}

/// One bound resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BoundResource {
    /// Group.
    pub group: String,
    /// Plural name.
    pub resource: String,
    /// Its schema and identity.
    pub schema: BoundSchema,
    /// Versions ever stored; empty for virtual storage.
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

/// A resource definition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct APIResourceSchemaSpec {
    /// Group; empty for core.
    pub group: String,
    /// Names.
    pub names: SchemaNames,
    /// `Cluster` or `Namespaced`.
    pub scope: String,
    /// Versions.
    pub versions: Vec<SchemaVersion>,
    /// `DNS1123Subdomain` or `PathSegmentName`.
    #[serde(skip_serializing_if = "is_default")]
    pub name_validation: String,
    /// Mandatory with several versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversion: Option<SchemaConversion>,
}

/// Names of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchemaNames {
    /// In URLs.
    pub plural: String,
    /// Of one.
    #[serde(skip_serializing_if = "is_default")]
    pub singular: String,
    /// Short names.
    #[serde(skip_serializing_if = "is_default")]
    pub short_names: Vec<String>,
    /// Kind.
    pub kind: String,
    /// Kind of lists.
    #[serde(skip_serializing_if = "is_default")]
    pub list_kind: String,
    /// Categories.
    #[serde(skip_serializing_if = "is_default")]
    pub categories: Vec<String>,
}

/// One version of a resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchemaVersion {
    /// Name.
    pub name: String,
    /// Whether requests may use it.
    pub served: bool,
    /// Whether objects are stored in it.
    pub storage: bool,
    /// Whether its use is discouraged.
    #[serde(skip_serializing_if = "is_default")]
    pub deprecated: bool,
    /// The warning that says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecation_warning: Option<String>,
    /// Structural OpenAPI v3 schema.
    pub schema: Value,
    /// `status` and `scale`.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub subresources: Value,
    /// Columns as CRDs write them.
    #[serde(skip_serializing_if = "is_default")]
    pub additional_printer_columns: Vec<Value>,
    /// Fields for field selectors.
    #[serde(skip_serializing_if = "is_default")]
    pub selectable_fields: Vec<Value>,
}

/// How versions are converted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SchemaConversion {
    /// `None` or `Webhook`.
    pub strategy: String,
    /// The webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Value>,
}

/// What an endpoint slice is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct APIExportEndpointSliceSpec {
    /// The export.
    pub export: ExportReference,
    /// A Partition of the same logical cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
}

/// State of an endpoint slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct APIExportEndpointSliceStatus {
    /// Conditions.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// One URL per shard with consumers.
    #[serde(skip_serializing_if = "is_default")]
    pub endpoints: Vec<Endpoint>,
    /// The partition's selector in canonical form.
    #[serde(skip_serializing_if = "is_default")]
    pub shard_selector: String,
}

/// One URL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Endpoint {
    /// Base of the virtual workspace.
    pub url: String,
    /// The shards it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards: Option<EndpointShards>,
}

/// The shards that an endpoint is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointShards {
    /// All of them.
    #[serde(skip_serializing_if = "is_default")]
    pub match_all: bool,
    /// Those with these labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}
