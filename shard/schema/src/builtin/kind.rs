//! The table of built-in kinds: names, scope, verbs and subresources, as discovery shows them.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustc_hash::FxHashMap;
use sha2::{Digest as _, Sha256};

use super::semantics::{self, Semantics};
use crate::metadata::Scope;
use crate::names::NameRule;

/// A kind that the server serves without a CRD.
#[derive(Debug)]
pub struct BuiltinKind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Version: always `v1` so far.
    pub version: &'static str,
    /// Kind of one object.
    pub kind: &'static str,
    /// Resource name in URLs.
    pub plural: &'static str,
    /// `singularName` of discovery.
    pub singular: &'static str,
    /// Short names of discovery.
    pub short_names: &'static [&'static str],
    /// Categories of discovery.
    pub categories: &'static [&'static str],
    /// Whether objects are namespaced.
    pub namespaced: bool,
    /// Verbs, sorted.
    pub verbs: &'static [&'static str],
    /// Subresources, in the order of discovery.
    pub subresources: &'static [BuiltinSubresource],
    /// Name of the OpenAPI component, for example `io.k8s.api.core.v1.ConfigMap`.
    pub definition: &'static str,
    /// Rule for object names.
    pub name_rule: NameRule,
    /// Fields usable in field selectors beside `metadata.name` and `metadata.namespace`.
    pub selectable_fields: &'static [&'static str],
    /// Whether a PUT to a missing name creates the object.
    pub allows_create_on_update: bool,
    /// Whether an update without a resourceVersion is accepted.
    pub allows_unconditional_update: bool,
    /// Whether the response to a delete is the object, instead of a Status.
    pub returns_deleted: bool,
    /// Whether `metadata.generation` is maintained.
    pub has_generation: bool,
    /// The version in which kcp stores the kind; the discovery hash is computed from it.
    hashed_version: &'static str,
    semantics: &'static dyn Semantics,
}

/// A subresource of a [`BuiltinKind`].
#[derive(Debug)]
pub struct BuiltinSubresource {
    /// The last path segment: `status`, `token`.
    pub name: &'static str,
    /// Verbs, sorted.
    pub verbs: &'static [&'static str],
    /// Group, version and kind of the body, if they differ from those of the parent.
    pub body: Option<(&'static str, &'static str, &'static str)>,
}

impl BuiltinKind {
    /// `apiVersion` of its objects: `v1` or `rbac.authorization.k8s.io/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Kind of a list of its objects.
    #[must_use]
    pub fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    /// Whether objects are stored. Reviews are not: the server responds with their result only.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        self.verbs.contains(&"get")
    }

    /// `storageVersionHash` of discovery; `None` for kinds that are not stored.
    #[must_use]
    pub fn storage_version_hash(&self) -> Option<String> {
        self.is_stored()
            .then(|| storage_version_hash("", self.storage_group(), self.hashed_version, self.kind))
    }

    /// The group under which objects are stored: events of both groups are the same objects.
    #[must_use]
    pub fn storage_group(&self) -> &'static str {
        if self.group == "events.k8s.io" { "" } else { self.group }
    }

    /// Defaulting, validation and preparation of the kind.
    #[must_use]
    pub fn semantics(&self) -> &'static dyn Semantics {
        self.semantics
    }
}

/// All built-in kinds; groups in the order of `/apis`, resources sorted by name within a group version.
#[must_use]
pub fn builtin_kinds() -> &'static [BuiltinKind] {
    KINDS
}

/// The kind of a URL such as `/apis/<group>/<version>/<plural>`. One look-up by the plural name, because each key of the store
/// is read with it.
#[must_use]
pub fn builtin_by_resource(group: &str, version: &str, plural: &str) -> Option<&'static BuiltinKind> {
    static BY_PLURAL: LazyLock<FxHashMap<&str, Vec<&BuiltinKind>>> = LazyLock::new(|| {
        let mut kinds: FxHashMap<&str, Vec<&BuiltinKind>> = FxHashMap::default();
        KINDS.iter().for_each(|kind| kinds.entry(kind.plural).or_default().push(kind));
        kinds
    });
    let kinds = BY_PLURAL.get(plural)?;
    kinds.iter().copied().find(|kind| kind.group == group && kind.version == version)
}

/// The kind of an object, by its group, version and kind.
#[must_use]
pub fn builtin_by_kind(group: &str, version: &str, kind: &str) -> Option<&'static BuiltinKind> {
    KINDS.iter().find(|known| known.kind == kind && known.group == group && known.version == version)
}

/// The hash by which storage migrators detect a new storage version: the first eight bytes of the SHA-256 of
/// `<cluster>/<group>/<version>/<kind>` in base64. The cluster is empty for built-in kinds.
#[must_use]
pub fn storage_version_hash(cluster: &str, group: &str, version: &str, kind: &str) -> String {
    let digest = Sha256::digest(format!("{cluster}/{group}/{version}/{kind}"));
    STANDARD.encode(&digest[..8])
}

const STANDARD_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const CREATE_ONLY: &[&str] = &["create"];
const STATUS: BuiltinSubresource =
    BuiltinSubresource { name: "status", verbs: &["get", "patch", "update"], body: None };

/// The common values of stored kinds.
const STORED: BuiltinKind = BuiltinKind {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    verbs: STANDARD_VERBS,
    subresources: &[],
    definition: "",
    name_rule: NameRule::Dns1123Subdomain,
    selectable_fields: &[],
    allows_create_on_update: false,
    allows_unconditional_update: true,
    returns_deleted: false,
    has_generation: false,
    hashed_version: "v1",
    semantics: &semantics::SchemaOnly,
};

const REVIEW: BuiltinKind = BuiltinKind { namespaced: false, verbs: CREATE_ONLY, ..STORED };

const AUTHENTICATION: BuiltinKind = BuiltinKind { group: "authentication.k8s.io", ..REVIEW };

const AUTHORIZATION: BuiltinKind =
    BuiltinKind { group: "authorization.k8s.io", semantics: &semantics::AccessReview, ..REVIEW };

const RBAC: BuiltinKind = BuiltinKind {
    group: "rbac.authorization.k8s.io",
    name_rule: NameRule::PathSegment,
    allows_create_on_update: true,
    ..STORED
};

const ADMISSION: BuiltinKind = BuiltinKind {
    group: "admissionregistration.k8s.io",
    categories: &["api-extensions"],
    namespaced: false,
    has_generation: true,
    ..STORED
};

static KINDS: &[BuiltinKind] = &[
    BuiltinKind {
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short_names: &["cm"],
        definition: "io.k8s.api.core.v1.ConfigMap",
        semantics: &semantics::ConfigMap,
        ..STORED
    },
    BuiltinKind {
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        definition: "io.k8s.api.core.v1.Event",
        selectable_fields: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        allows_create_on_update: true,
        semantics: &semantics::CoreEvent,
        ..STORED
    },
    BuiltinKind {
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        short_names: &["ns"],
        namespaced: false,
        verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
        subresources: &[BuiltinSubresource { name: "finalize", verbs: &["update"], body: None }, STATUS],
        definition: "io.k8s.api.core.v1.Namespace",
        name_rule: NameRule::Dns1123Label,
        selectable_fields: &["status.phase"],
        semantics: &semantics::Namespace,
        ..STORED
    },
    BuiltinKind {
        kind: "ResourceQuota",
        plural: "resourcequotas",
        singular: "resourcequota",
        short_names: &["quota"],
        subresources: &[STATUS],
        definition: "io.k8s.api.core.v1.ResourceQuota",
        returns_deleted: true,
        semantics: &semantics::ResourceQuota,
        ..STORED
    },
    BuiltinKind {
        kind: "Secret",
        plural: "secrets",
        singular: "secret",
        definition: "io.k8s.api.core.v1.Secret",
        selectable_fields: &["type"],
        semantics: &semantics::Secret,
        ..STORED
    },
    BuiltinKind {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        short_names: &["sa"],
        subresources: &[BuiltinSubresource {
            name: "token",
            verbs: CREATE_ONLY,
            body: Some(("authentication.k8s.io", "v1", "TokenRequest")),
        }],
        definition: "io.k8s.api.core.v1.ServiceAccount",
        returns_deleted: true,
        ..STORED
    },
    BuiltinKind {
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        definition: "io.k8s.api.authentication.v1.SelfSubjectReview",
        ..AUTHENTICATION
    },
    BuiltinKind {
        kind: "TokenReview",
        plural: "tokenreviews",
        singular: "tokenreview",
        definition: "io.k8s.api.authentication.v1.TokenReview",
        ..AUTHENTICATION
    },
    BuiltinKind {
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        singular: "localsubjectaccessreview",
        namespaced: true,
        definition: "io.k8s.api.authorization.v1.LocalSubjectAccessReview",
        ..AUTHORIZATION
    },
    BuiltinKind {
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        definition: "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
        ..AUTHORIZATION
    },
    BuiltinKind {
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        singular: "selfsubjectrulesreview",
        definition: "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
        ..AUTHORIZATION
    },
    BuiltinKind {
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        definition: "io.k8s.api.authorization.v1.SubjectAccessReview",
        ..AUTHORIZATION
    },
    BuiltinKind {
        group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        plural: "certificatesigningrequests",
        singular: "certificatesigningrequest",
        short_names: &["csr"],
        namespaced: false,
        subresources: &[
            BuiltinSubresource { name: "approval", verbs: &["get", "patch", "update"], body: None },
            STATUS,
        ],
        definition: "io.k8s.api.certificates.v1.CertificateSigningRequest",
        name_rule: NameRule::PathSegment,
        selectable_fields: &["spec.signerName"],
        semantics: &semantics::CertificateSigningRequest,
        ..STORED
    },
    BuiltinKind {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        singular: "lease",
        definition: "io.k8s.api.coordination.v1.Lease",
        allows_create_on_update: true,
        allows_unconditional_update: false,
        semantics: &semantics::Lease,
        ..STORED
    },
    BuiltinKind {
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        singular: "clusterrolebinding",
        namespaced: false,
        definition: "io.k8s.api.rbac.v1.ClusterRoleBinding",
        semantics: &semantics::RoleBinding { scope: Scope::Cluster },
        ..RBAC
    },
    BuiltinKind {
        kind: "ClusterRole",
        plural: "clusterroles",
        singular: "clusterrole",
        namespaced: false,
        definition: "io.k8s.api.rbac.v1.ClusterRole",
        semantics: &semantics::Role { scope: Scope::Cluster },
        ..RBAC
    },
    BuiltinKind {
        kind: "RoleBinding",
        plural: "rolebindings",
        singular: "rolebinding",
        definition: "io.k8s.api.rbac.v1.RoleBinding",
        semantics: &semantics::RoleBinding { scope: Scope::Namespaced },
        ..RBAC
    },
    BuiltinKind {
        kind: "Role",
        plural: "roles",
        singular: "role",
        definition: "io.k8s.api.rbac.v1.Role",
        semantics: &semantics::Role { scope: Scope::Namespaced },
        ..RBAC
    },
    BuiltinKind {
        kind: "MutatingAdmissionPolicy",
        plural: "mutatingadmissionpolicies",
        singular: "mutatingadmissionpolicy",
        definition: "io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicy",
        hashed_version: "v1beta1",
        semantics: &semantics::MutatingAdmissionPolicy,
        ..ADMISSION
    },
    BuiltinKind {
        kind: "MutatingAdmissionPolicyBinding",
        plural: "mutatingadmissionpolicybindings",
        singular: "mutatingadmissionpolicybinding",
        definition: "io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicyBinding",
        hashed_version: "v1beta1",
        semantics: &semantics::PolicyBinding { is_mutating: true },
        ..ADMISSION
    },
    BuiltinKind {
        kind: "MutatingWebhookConfiguration",
        plural: "mutatingwebhookconfigurations",
        singular: "mutatingwebhookconfiguration",
        definition: "io.k8s.api.admissionregistration.v1.MutatingWebhookConfiguration",
        semantics: &semantics::WebhookConfiguration { is_mutating: true },
        ..ADMISSION
    },
    BuiltinKind {
        kind: "ValidatingAdmissionPolicy",
        plural: "validatingadmissionpolicies",
        singular: "validatingadmissionpolicy",
        subresources: &[STATUS],
        definition: "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicy",
        semantics: &semantics::ValidatingAdmissionPolicy,
        ..ADMISSION
    },
    BuiltinKind {
        kind: "ValidatingAdmissionPolicyBinding",
        plural: "validatingadmissionpolicybindings",
        singular: "validatingadmissionpolicybinding",
        definition: "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBinding",
        semantics: &semantics::PolicyBinding { is_mutating: false },
        ..ADMISSION
    },
    BuiltinKind {
        kind: "ValidatingWebhookConfiguration",
        plural: "validatingwebhookconfigurations",
        singular: "validatingwebhookconfiguration",
        definition: "io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration",
        semantics: &semantics::WebhookConfiguration { is_mutating: false },
        ..ADMISSION
    },
    BuiltinKind {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        definition: "io.k8s.api.events.v1.Event",
        selectable_fields: &[
            "reason",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reportingController",
            "type",
        ],
        allows_create_on_update: true,
        semantics: &semantics::EventsEvent,
        ..STORED
    },
    BuiltinKind {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        singular: "customresourcedefinition",
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        subresources: &[STATUS],
        definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
        allows_unconditional_update: false,
        has_generation: true,
        hashed_version: "v1beta1",
        ..STORED
    },
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    /// Hashes from the discovery documents of a kcp server.
    #[test]
    fn storage_version_hashes_are_those_of_kcp() {
        for (group, plural, hash) in [
            ("", "configmaps", "BcsYVNKF43M="),
            ("", "events", "9dDOQsG8mfE="),
            ("", "namespaces", "DYe+LmmEOcs="),
            ("", "resourcequotas", "drjg5y79DvY="),
            ("", "secrets", "cqhVaDyekjw="),
            ("", "serviceaccounts", "4Bd9hRsOD00="),
            ("admissionregistration.k8s.io", "mutatingadmissionpolicies", "psQzeF0nvLY="),
            ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", "DhZzpiid8UU="),
            ("admissionregistration.k8s.io", "validatingadmissionpolicies", "d/uKgE8IEDM="),
            ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "JOV69qiJP9o="),
            ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "nS8Hvd/tfaU="),
            ("admissionregistration.k8s.io", "validatingwebhookconfigurations", "YYJqJUOYU9U="),
            ("apiextensions.k8s.io", "customresourcedefinitions", "E7AaFfG1bHc="),
            ("certificates.k8s.io", "certificatesigningrequests", "8DaGkP8o5QE="),
            ("coordination.k8s.io", "leases", "W2VnCvefUFg="),
            ("events.k8s.io", "events", "9dDOQsG8mfE="),
            ("rbac.authorization.k8s.io", "clusterrolebindings", "vKcsN72GNlU="),
            ("rbac.authorization.k8s.io", "clusterroles", "EaTVTweV/FA="),
            ("rbac.authorization.k8s.io", "rolebindings", "MzIGXqlinao="),
            ("rbac.authorization.k8s.io", "roles", "dL2xUOdnrqs="),
        ] {
            let kind = builtin_by_resource(group, "v1", plural).unwrap();
            assert_eq!(kind.storage_version_hash().as_deref(), Some(hash), "{plural}");
        }
        let review = builtin_by_kind("authentication.k8s.io", "v1", "TokenReview").unwrap();
        assert_eq!(review.storage_version_hash(), None);
    }

    #[test]
    fn verbs_are_sorted_and_every_definition_exists() {
        for kind in builtin_kinds() {
            assert!(kind.verbs.is_sorted(), "{}", kind.kind);
            assert!(super::super::definition_json(kind.definition).is_some(), "{}", kind.definition);
            assert!(
                super::super::definition_json(&format!("{}List", kind.definition)).is_some()
                    == kind.is_stored()
            );
        }
    }
}
