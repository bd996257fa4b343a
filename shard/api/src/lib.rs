//! The kcp API groups as Rust types and their schemas.
//!
//! Pure data and pure functions: the shape of each kcp kind, its validation rules, the objects of a fresh installation, and
//! names, labels and URLs derived from other names. No I/O, no HTTP, no storage. The JSON on the wire is equal to kcp's; tests
//! compare it with recordings.

mod bootstrap;
mod claimable;
mod condition;
mod conversion;
mod derived;
mod keys;
mod naming;
mod partial;
mod permission_claims;
mod rules;
mod schema;
mod types;
mod workspace_types;

pub use bootstrap::{
    BOOTSTRAP_VERSION, identity_namespace, identity_secret, root_export_names, root_export_of, root_phase0,
    root_phase1, shard_registration, system_admin, system_crds, system_shard, universal_workspace,
};
pub use claimable::{ClaimableBuiltIn, claimable_built_in, claimable_built_ins};
pub use condition::{
    Condition, ConditionStatus, Severity, conditions_of, find_condition, format_time, is_condition_true,
    set_condition, set_summary, write_conditions,
};
pub use conversion::{ConversionError, apis_to_v1alpha1, apis_to_v1alpha2};
pub use derived::{
    IncompleteSchema, NewLogicalCluster, api_binding, bound_crd, default_api_binding, default_endpoint_slice,
    workspace_admin_binding,
};
pub use keys::{
    API_BINDINGS_INITIALIZER, BOOTSTRAP_USER, IDENTITY_NAMESPACE, LOGICAL_CLUSTER_NAME, annotation,
    condition_type, finalizer, group, label,
};
pub use naming::{
    binding_labels, canonical_path, claim_label, default_binding_name, is_life_cycle_label,
    life_cycle_labels, owner_annotation, username_only_owner_annotation, virtual_workspace_url,
    workspace_url,
};
pub use partial::{
    PartialBinding, PartialBoundResource, PartialLogicalCluster, PartialOwner, PartialWorkspace,
};
pub use permission_claims::{
    InvalidRequirement, SelectorRefusal, accepted_claim, admit_by_selector, claimed_group,
    has_stored_objects, permits_verb, permitted_verbs,
};
pub use rules::{Violation, unknown_rules, validate_rules};
pub use schema::{Column, ResourceDefinition, Scope, Version, resource, resources, system_resources};
pub use types::*;
pub use workspace_types::{
    IncompatibleTypes, LocatedType, TypeError, aliases, check_parent_and_child, default_bindings,
    initializers, search_paths, terminators,
};
