//! Field numbers of every kind that clients may send as protobuf, from the published `.proto` files.
//!
//! Tests compare them with an independent encoder and with the OpenAPI definitions.

mod admission;
mod apiextensions;
mod certificates;
mod core;
mod meta;
mod rbac;
mod review;

use std::collections::HashMap;
use std::sync::OnceLock;

use super::table::Message;

/// The table of a kind. Kubernetes registers `DeleteOptions` and `Status` in every group.
pub(super) fn message_of(api_version: &str, kind: &str) -> Option<&'static Message> {
    match kind {
        "DeleteOptions" => return Some(&meta::DELETE_OPTIONS),
        "Status" => return Some(&meta::STATUS),
        _ => {}
    }
    KINDS
        .iter()
        .find(|(version, name, _)| *version == api_version && *name == kind)
        .map(|(_, _, table)| *table)
}

type Row = (&'static str, &'static str, &'static Message);

pub(super) static KINDS: &[Row] = &[
    ("v1", "Namespace", &core::NAMESPACE),
    ("v1", "ConfigMap", &core::CONFIG_MAP),
    ("v1", "Secret", &core::SECRET),
    ("v1", "ServiceAccount", &core::SERVICE_ACCOUNT),
    ("v1", "Event", &core::EVENT),
    ("v1", "ResourceQuota", &core::RESOURCE_QUOTA),
    ("events.k8s.io/v1", "Event", &core::EVENTS_EVENT),
    ("certificates.k8s.io/v1", "CertificateSigningRequest", &certificates::CERTIFICATE_SIGNING_REQUEST),
    ("coordination.k8s.io/v1", "Lease", &core::LEASE),
    ("rbac.authorization.k8s.io/v1", "Role", &rbac::ROLE),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", &rbac::ROLE_BINDING),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", &rbac::CLUSTER_ROLE),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", &rbac::CLUSTER_ROLE_BINDING),
    ("authentication.k8s.io/v1", "TokenReview", &review::TOKEN_REVIEW),
    ("authentication.k8s.io/v1", "TokenRequest", &review::TOKEN_REQUEST),
    ("authentication.k8s.io/v1", "SelfSubjectReview", &review::SELF_SUBJECT_REVIEW),
    ("authorization.k8s.io/v1", "SubjectAccessReview", &review::SUBJECT_ACCESS_REVIEW),
    ("authorization.k8s.io/v1", "LocalSubjectAccessReview", &review::LOCAL_SUBJECT_ACCESS_REVIEW),
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview", &review::SELF_SUBJECT_ACCESS_REVIEW),
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview", &review::SELF_SUBJECT_RULES_REVIEW),
    ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy", &admission::MUTATING_ADMISSION_POLICY),
    (
        "admissionregistration.k8s.io/v1",
        "MutatingAdmissionPolicyBinding",
        &admission::MUTATING_ADMISSION_POLICY_BINDING,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        &admission::MUTATING_WEBHOOK_CONFIGURATION,
    ),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", &admission::VALIDATING_ADMISSION_POLICY),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        &admission::VALIDATING_ADMISSION_POLICY_BINDING,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        &admission::VALIDATING_WEBHOOK_CONFIGURATION,
    ),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", &apiextensions::CUSTOM_RESOURCE_DEFINITION),
];

/// All tables by the name of their OpenAPI definition.
pub(super) fn by_definition() -> &'static HashMap<&'static str, &'static Message> {
    static TABLES: OnceLock<HashMap<&'static str, &'static Message>> = OnceLock::new();
    TABLES.get_or_init(|| {
        let mut tables = HashMap::new();
        let mut queue: Vec<&'static Message> = KINDS.iter().map(|(_, _, message)| *message).collect();
        queue.extend([&meta::DELETE_OPTIONS, &meta::STATUS]);
        while let Some(message) = queue.pop() {
            if tables.insert(message.definition, message).is_none() {
                queue.extend(message.fields.iter().filter_map(|field| field.kind.nested()));
            }
        }
        tables
    })
}
