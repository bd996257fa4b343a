//! `k8s.io/api/authentication/v1` and `authorization/v1`.

use super::meta::{FIELD_SELECTOR_REQUIREMENT, LABEL_SELECTOR_REQUIREMENT, OBJECT_META};
use crate::protobuf::table::Kind::{Bool, Int64, Message as Nested, Text, Time, WrappedTexts};
use crate::protobuf::table::{Message, keep_zero, list, map, plain};

pub(super) static TOKEN_REVIEW: Message = Message {
    definition: "io.k8s.api.authentication.v1.TokenReview",
    fields: &[
        plain(1, "metadata", Nested(&OBJECT_META)),
        plain(2, "spec", Nested(&TOKEN_REVIEW_SPEC)),
        plain(3, "status", Nested(&TOKEN_REVIEW_STATUS)),
    ],
};

static TOKEN_REVIEW_SPEC: Message = Message {
    definition: "io.k8s.api.authentication.v1.TokenReviewSpec",
    fields: &[plain(1, "token", Text), list(2, "audiences", Text)],
};

static TOKEN_REVIEW_STATUS: Message = Message {
    definition: "io.k8s.api.authentication.v1.TokenReviewStatus",
    fields: &[
        plain(1, "authenticated", Bool),
        plain(2, "user", Nested(&USER_INFO)),
        plain(3, "error", Text),
        list(4, "audiences", Text),
    ],
};

static USER_INFO: Message = Message {
    definition: "io.k8s.api.authentication.v1.UserInfo",
    fields: &[
        plain(1, "username", Text),
        plain(2, "uid", Text),
        list(3, "groups", Text),
        map(4, "extra", WrappedTexts),
    ],
};

pub(super) static TOKEN_REQUEST: Message = Message {
    definition: "io.k8s.api.authentication.v1.TokenRequest",
    fields: &[
        plain(1, "metadata", Nested(&OBJECT_META)),
        plain(2, "spec", Nested(&TOKEN_REQUEST_SPEC)),
        plain(3, "status", Nested(&TOKEN_REQUEST_STATUS)),
    ],
};

static TOKEN_REQUEST_SPEC: Message = Message {
    definition: "io.k8s.api.authentication.v1.TokenRequestSpec",
    fields: &[
        list(1, "audiences", Text),
        plain(3, "boundObjectRef", Nested(&BOUND_OBJECT_REFERENCE)),
        keep_zero(4, "expirationSeconds", Int64),
    ],
};

static BOUND_OBJECT_REFERENCE: Message = Message {
    definition: "io.k8s.api.authentication.v1.BoundObjectReference",
    fields: &[
        plain(1, "kind", Text),
        plain(2, "apiVersion", Text),
        plain(3, "name", Text),
        plain(4, "uid", Text),
    ],
};

static TOKEN_REQUEST_STATUS: Message = Message {
    definition: "io.k8s.api.authentication.v1.TokenRequestStatus",
    fields: &[keep_zero(1, "token", Text), plain(2, "expirationTimestamp", Time)],
};

pub(super) static SELF_SUBJECT_REVIEW: Message = Message {
    definition: "io.k8s.api.authentication.v1.SelfSubjectReview",
    fields: &[
        plain(1, "metadata", Nested(&OBJECT_META)),
        plain(2, "status", Nested(&SELF_SUBJECT_REVIEW_STATUS)),
    ],
};

static SELF_SUBJECT_REVIEW_STATUS: Message = Message {
    definition: "io.k8s.api.authentication.v1.SelfSubjectReviewStatus",
    fields: &[plain(1, "userInfo", Nested(&USER_INFO))],
};

pub(super) static SUBJECT_ACCESS_REVIEW: Message = Message {
    definition: "io.k8s.api.authorization.v1.SubjectAccessReview",
    fields: &[
        plain(1, "metadata", Nested(&OBJECT_META)),
        plain(2, "spec", Nested(&SUBJECT_ACCESS_REVIEW_SPEC)),
        plain(3, "status", Nested(&SUBJECT_ACCESS_REVIEW_STATUS)),
    ],
};

pub(super) static LOCAL_SUBJECT_ACCESS_REVIEW: Message = Message {
    definition: "io.k8s.api.authorization.v1.LocalSubjectAccessReview",
    fields: &[
        plain(1, "metadata", Nested(&OBJECT_META)),
        plain(2, "spec", Nested(&SUBJECT_ACCESS_REVIEW_SPEC)),
        plain(3, "status", Nested(&SUBJECT_ACCESS_REVIEW_STATUS)),
    ],
};

static SUBJECT_ACCESS_REVIEW_SPEC: Message = Message {
    definition: "io.k8s.api.authorization.v1.SubjectAccessReviewSpec",
    fields: &[
        plain(1, "resourceAttributes", Nested(&RESOURCE_ATTRIBUTES)),
        plain(2, "nonResourceAttributes", Nested(&NON_RESOURCE_ATTRIBUTES)),
        plain(3, "user", Text),
        list(4, "groups", Text),
        map(5, "extra", WrappedTexts),
        plain(6, "uid", Text),
    ],
};

static SUBJECT_ACCESS_REVIEW_STATUS: Message = Message {
    definition: "io.k8s.api.authorization.v1.SubjectAccessReviewStatus",
    fields: &[
        keep_zero(1, "allowed", Bool),
        plain(2, "reason", Text),
        plain(3, "evaluationError", Text),
        plain(4, "denied", Bool),
    ],
};

static RESOURCE_ATTRIBUTES: Message = Message {
    definition: "io.k8s.api.authorization.v1.ResourceAttributes",
    fields: &[
        plain(1, "namespace", Text),
        plain(2, "verb", Text),
        plain(3, "group", Text),
        plain(4, "version", Text),
        plain(5, "resource", Text),
        plain(6, "subresource", Text),
        plain(7, "name", Text),
        plain(8, "fieldSelector", Nested(&FIELD_SELECTOR_ATTRIBUTES)),
        plain(9, "labelSelector", Nested(&LABEL_SELECTOR_ATTRIBUTES)),
    ],
};

static FIELD_SELECTOR_ATTRIBUTES: Message = Message {
    definition: "io.k8s.api.authorization.v1.FieldSelectorAttributes",
    fields: &[plain(1, "rawSelector", Text), list(2, "requirements", Nested(&FIELD_SELECTOR_REQUIREMENT))],
};

static LABEL_SELECTOR_ATTRIBUTES: Message = Message {
    definition: "io.k8s.api.authorization.v1.LabelSelectorAttributes",
    fields: &[plain(1, "rawSelector", Text), list(2, "requirements", Nested(&LABEL_SELECTOR_REQUIREMENT))],
};

static NON_RESOURCE_ATTRIBUTES: Message = Message {
    definition: "io.k8s.api.authorization.v1.NonResourceAttributes",
    fields: &[plain(1, "path", Text), plain(2, "verb", Text)],
};

pub(super) static SELF_SUBJECT_ACCESS_REVIEW: Message = Message {
    definition: "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    fields: &[
        plain(1, "metadata", Nested(&OBJECT_META)),
        plain(2, "spec", Nested(&SELF_SUBJECT_ACCESS_REVIEW_SPEC)),
        plain(3, "status", Nested(&SUBJECT_ACCESS_REVIEW_STATUS)),
    ],
};

static SELF_SUBJECT_ACCESS_REVIEW_SPEC: Message = Message {
    definition: "io.k8s.api.authorization.v1.SelfSubjectAccessReviewSpec",
    fields: &[
        plain(1, "resourceAttributes", Nested(&RESOURCE_ATTRIBUTES)),
        plain(2, "nonResourceAttributes", Nested(&NON_RESOURCE_ATTRIBUTES)),
    ],
};

pub(super) static SELF_SUBJECT_RULES_REVIEW: Message = Message {
    definition: "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
    fields: &[
        plain(1, "metadata", Nested(&OBJECT_META)),
        plain(2, "spec", Nested(&SELF_SUBJECT_RULES_REVIEW_SPEC)),
        plain(3, "status", Nested(&SUBJECT_RULES_REVIEW_STATUS)),
    ],
};

static SELF_SUBJECT_RULES_REVIEW_SPEC: Message = Message {
    definition: "io.k8s.api.authorization.v1.SelfSubjectRulesReviewSpec",
    fields: &[plain(1, "namespace", Text)],
};

static SUBJECT_RULES_REVIEW_STATUS: Message = Message {
    definition: "io.k8s.api.authorization.v1.SubjectRulesReviewStatus",
    fields: &[
        list(1, "resourceRules", Nested(&RESOURCE_RULE)),
        list(2, "nonResourceRules", Nested(&NON_RESOURCE_RULE)),
        keep_zero(3, "incomplete", Bool),
        plain(4, "evaluationError", Text),
    ],
};

static RESOURCE_RULE: Message = Message {
    definition: "io.k8s.api.authorization.v1.ResourceRule",
    fields: &[
        list(1, "verbs", Text),
        list(2, "apiGroups", Text),
        list(3, "resources", Text),
        list(4, "resourceNames", Text),
    ],
};

static NON_RESOURCE_RULE: Message = Message {
    definition: "io.k8s.api.authorization.v1.NonResourceRule",
    fields: &[list(1, "verbs", Text), list(2, "nonResourceURLs", Text)],
};
