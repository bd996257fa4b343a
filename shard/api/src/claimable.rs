//! Built-in resources that exports can claim without an identity.

/// A built-in resource that permission claims can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimableBuiltIn {
    /// API group; empty for core.
    pub group: &'static str,
    /// The version in which the virtual workspace of an export serves it.
    pub version: &'static str,
    /// Plural name.
    pub resource: &'static str,
    /// Singular name.
    pub singular: &'static str,
    /// Kind of one object.
    pub kind: &'static str,
    /// Whether objects are in namespaces.
    pub namespaced: bool,
    /// Whether it has the subresource `status`.
    pub has_status: bool,
    /// Whether objects can only be created: reviews, which are not stored.
    pub create_only: bool,
}

/// The built-in resources that exports can claim without an identity, as in kcp. Resources of `apis.kcp.io` need none either.
pub fn claimable_built_ins() -> &'static [ClaimableBuiltIn] {
    CLAIMABLE
}

/// The built-in resource of this group and plural name, if exports can claim it.
pub fn claimable_built_in(group: &str, resource: &str) -> Option<&'static ClaimableBuiltIn> {
    CLAIMABLE.iter().find(|known| known.group == group && known.resource == resource)
}

const CLAIMABLE: &[ClaimableBuiltIn] = &[
    cluster("", "v1", "namespaces", "namespace", "Namespace").with_status(),
    namespaced("", "v1", "configmaps", "configmap", "ConfigMap"),
    namespaced("", "v1", "events", "event", "Event"),
    namespaced("", "v1", "resourcequotas", "resourcequota", "ResourceQuota").with_status(),
    namespaced("", "v1", "secrets", "secret", "Secret"),
    namespaced("", "v1", "serviceaccounts", "serviceaccount", "ServiceAccount"),
    cluster(RBAC, "v1", "clusterroles", "clusterrole", "ClusterRole"),
    cluster(RBAC, "v1", "clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding"),
    namespaced(RBAC, "v1", "roles", "role", "Role"),
    namespaced(RBAC, "v1", "rolebindings", "rolebinding", "RoleBinding"),
    cluster(
        "certificates.k8s.io",
        "v1",
        "certificatesigningrequests",
        "certificatesigningrequest",
        "CertificateSigningRequest",
    )
    .with_status(),
    namespaced("coordination.k8s.io", "v1", "leases", "lease", "Lease"),
    cluster(
        ADMISSION,
        "v1",
        "mutatingwebhookconfigurations",
        "mutatingwebhookconfiguration",
        "MutatingWebhookConfiguration",
    ),
    cluster(
        ADMISSION,
        "v1",
        "validatingwebhookconfigurations",
        "validatingwebhookconfiguration",
        "ValidatingWebhookConfiguration",
    ),
    namespaced("events.k8s.io", "v1", "events", "event", "Event"),
    cluster(
        ADMISSION,
        "v1",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicy",
        "MutatingAdmissionPolicy",
    ),
    cluster(
        ADMISSION,
        "v1",
        "mutatingadmissionpolicybindings",
        "mutatingadmissionpolicybinding",
        "MutatingAdmissionPolicyBinding",
    ),
    cluster(
        ADMISSION,
        "v1",
        "validatingadmissionpolicies",
        "validatingadmissionpolicy",
        "ValidatingAdmissionPolicy",
    )
    .with_status(),
    cluster(
        ADMISSION,
        "v1",
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicybinding",
        "ValidatingAdmissionPolicyBinding",
    ),
    cluster(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "customresourcedefinition",
        "CustomResourceDefinition",
    )
    .with_status(),
    cluster("core.kcp.io", "v1alpha1", "logicalclusters", "logicalcluster", "LogicalCluster").with_status(),
    cluster(AUTHORIZATION, "v1", "subjectaccessreviews", "subjectaccessreview", "SubjectAccessReview")
        .create_only(),
    namespaced(
        AUTHORIZATION,
        "v1",
        "localsubjectaccessreviews",
        "localsubjectaccessreview",
        "LocalSubjectAccessReview",
    )
    .create_only(),
    cluster("authentication.k8s.io", "v1", "tokenreviews", "tokenreview", "TokenReview").create_only(),
];

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

const fn cluster(
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    singular: &'static str,
    kind: &'static str,
) -> ClaimableBuiltIn {
    ClaimableBuiltIn {
        group,
        version,
        resource,
        singular,
        kind,
        namespaced: false,
        has_status: false,
        create_only: false,
    }
}

const fn namespaced(
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    singular: &'static str,
    kind: &'static str,
) -> ClaimableBuiltIn {
    ClaimableBuiltIn { namespaced: true, ..cluster(group, version, resource, singular, kind) }
}

impl ClaimableBuiltIn {
    const fn with_status(self) -> Self {
        Self { has_status: true, ..self }
    }

    const fn create_only(self) -> Self {
        Self { create_only: true, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_ins_are_found_by_group_and_resource() {
        for (group, resource, kind) in [
            ("", "configmaps", Some("ConfigMap")),
            ("", "events", Some("Event")),
            ("events.k8s.io", "events", Some("Event")),
            ("core.kcp.io", "logicalclusters", Some("LogicalCluster")),
            ("authentication.k8s.io", "tokenreviews", Some("TokenReview")),
            ("authorization.k8s.io", "selfsubjectaccessreviews", None),
            ("", "pods", None),
            ("example.io", "configmaps", None),
        ] {
            let found = claimable_built_in(group, resource).map(|known| known.kind);
            assert_eq!(found, kind, "{resource}.{group}");
        }
    }

    #[test]
    fn each_built_in_is_listed_once_and_reviews_can_only_be_created() {
        let all = claimable_built_ins();
        assert_eq!(all.len(), 24);
        for (index, one) in all.iter().enumerate() {
            let is_listed_before =
                all[..index].iter().any(|other| (other.group, other.resource) == (one.group, one.resource));
            assert!(!is_listed_before, "{one:?}");
            assert_eq!(one.create_only, one.kind.ends_with("Review"), "{one:?}");
            assert_eq!(one.singular, one.kind.to_lowercase(), "{one:?}");
        }
    }
}
