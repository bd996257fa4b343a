//! `k8s.io/api/rbac/v1`.

use super::meta::{LABEL_SELECTOR, OBJECT_META};
use crate::protobuf::table::Kind::{Message as Nested, Text};
use crate::protobuf::table::{Message, keep_zero, list, plain};

pub(super) static ROLE: Message = Message {
    definition: "io.k8s.api.rbac.v1.Role",
    fields: &[plain(1, "metadata", Nested(&OBJECT_META)), list(2, "rules", Nested(&POLICY_RULE))],
};

pub(super) static CLUSTER_ROLE: Message = Message {
    definition: "io.k8s.api.rbac.v1.ClusterRole",
    fields: &[
        plain(1, "metadata", Nested(&OBJECT_META)),
        list(2, "rules", Nested(&POLICY_RULE)),
        plain(3, "aggregationRule", Nested(&AGGREGATION_RULE)),
    ],
};

pub(super) static ROLE_BINDING: Message = Message {
    definition: "io.k8s.api.rbac.v1.RoleBinding",
    fields: &[
        plain(1, "metadata", Nested(&OBJECT_META)),
        list(2, "subjects", Nested(&SUBJECT)),
        plain(3, "roleRef", Nested(&ROLE_REF)),
    ],
};

pub(super) static CLUSTER_ROLE_BINDING: Message = Message {
    definition: "io.k8s.api.rbac.v1.ClusterRoleBinding",
    fields: &[
        plain(1, "metadata", Nested(&OBJECT_META)),
        list(2, "subjects", Nested(&SUBJECT)),
        plain(3, "roleRef", Nested(&ROLE_REF)),
    ],
};

static POLICY_RULE: Message = Message {
    definition: "io.k8s.api.rbac.v1.PolicyRule",
    fields: &[
        list(1, "verbs", Text),
        list(2, "apiGroups", Text),
        list(3, "resources", Text),
        list(4, "resourceNames", Text),
        list(5, "nonResourceURLs", Text),
    ],
};

static AGGREGATION_RULE: Message = Message {
    definition: "io.k8s.api.rbac.v1.AggregationRule",
    fields: &[list(1, "clusterRoleSelectors", Nested(&LABEL_SELECTOR))],
};

static SUBJECT: Message = Message {
    definition: "io.k8s.api.rbac.v1.Subject",
    fields: &[
        keep_zero(1, "kind", Text),
        plain(2, "apiGroup", Text),
        keep_zero(3, "name", Text),
        plain(4, "namespace", Text),
    ],
};

static ROLE_REF: Message = Message {
    definition: "io.k8s.api.rbac.v1.RoleRef",
    fields: &[plain(1, "apiGroup", Text), keep_zero(2, "kind", Text), keep_zero(3, "name", Text)],
};
