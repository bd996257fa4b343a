//! `k8s.io/apimachinery/pkg/apis/meta/v1`.

use crate::protobuf::table::Kind::{Bool, Int32, Int64, Json, Message as Nested, Text, Time};
use crate::protobuf::table::{Message, keep_zero, list, map, plain};

pub(super) static OBJECT_META: Message = Message {
    definition: "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    fields: &[
        plain(1, "name", Text),
        plain(2, "generateName", Text),
        plain(3, "namespace", Text),
        plain(4, "selfLink", Text),
        plain(5, "uid", Text),
        plain(6, "resourceVersion", Text),
        plain(7, "generation", Int64),
        plain(8, "creationTimestamp", Time),
        plain(9, "deletionTimestamp", Time),
        keep_zero(10, "deletionGracePeriodSeconds", Int64),
        map(11, "labels", Text),
        map(12, "annotations", Text),
        list(13, "ownerReferences", Nested(&OWNER_REFERENCE)),
        list(14, "finalizers", Text),
        list(17, "managedFields", Nested(&MANAGED_FIELDS_ENTRY)),
    ],
};

static OWNER_REFERENCE: Message = Message {
    definition: "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
    fields: &[
        keep_zero(1, "kind", Text),
        keep_zero(3, "name", Text),
        keep_zero(4, "uid", Text),
        keep_zero(5, "apiVersion", Text),
        keep_zero(6, "controller", Bool),
        keep_zero(7, "blockOwnerDeletion", Bool),
    ],
};

static MANAGED_FIELDS_ENTRY: Message = Message {
    definition: "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry",
    fields: &[
        plain(1, "manager", Text),
        plain(2, "operation", Text),
        plain(3, "apiVersion", Text),
        plain(4, "time", Time),
        plain(6, "fieldsType", Text),
        plain(7, "fieldsV1", Json),
        plain(8, "subresource", Text),
    ],
};

pub(super) static LABEL_SELECTOR: Message = Message {
    definition: "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    fields: &[map(1, "matchLabels", Text), list(2, "matchExpressions", Nested(&LABEL_SELECTOR_REQUIREMENT))],
};

pub(super) static LABEL_SELECTOR_REQUIREMENT: Message = Message {
    definition: "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement",
    fields: &[keep_zero(1, "key", Text), keep_zero(2, "operator", Text), list(3, "values", Text)],
};

pub(super) static FIELD_SELECTOR_REQUIREMENT: Message = Message {
    definition: "io.k8s.apimachinery.pkg.apis.meta.v1.FieldSelectorRequirement",
    fields: &[keep_zero(1, "key", Text), keep_zero(2, "operator", Text), list(3, "values", Text)],
};

pub(super) static CONDITION: Message = Message {
    definition: "io.k8s.apimachinery.pkg.apis.meta.v1.Condition",
    fields: &[
        keep_zero(1, "type", Text),
        keep_zero(2, "status", Text),
        plain(3, "observedGeneration", Int64),
        keep_zero(4, "lastTransitionTime", Time),
        keep_zero(5, "reason", Text),
        keep_zero(6, "message", Text),
    ],
};

pub(super) static DELETE_OPTIONS: Message = Message {
    definition: "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    fields: &[
        keep_zero(1, "gracePeriodSeconds", Int64),
        plain(2, "preconditions", Nested(&PRECONDITIONS)),
        keep_zero(3, "orphanDependents", Bool),
        keep_zero(4, "propagationPolicy", Text),
        list(5, "dryRun", Text),
        keep_zero(6, "ignoreStoreReadErrorWithClusterBreakingPotential", Bool),
    ],
};

static PRECONDITIONS: Message = Message {
    definition: "io.k8s.apimachinery.pkg.apis.meta.v1.Preconditions",
    fields: &[keep_zero(1, "uid", Text), keep_zero(2, "resourceVersion", Text)],
};

pub(super) static STATUS: Message = Message {
    definition: "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
    fields: &[
        plain(1, "metadata", Nested(&LIST_META)),
        plain(2, "status", Text),
        plain(3, "message", Text),
        plain(4, "reason", Text),
        plain(5, "details", Nested(&STATUS_DETAILS)),
        plain(6, "code", Int32),
    ],
};

static LIST_META: Message = Message {
    definition: "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
    fields: &[
        plain(1, "selfLink", Text),
        plain(2, "resourceVersion", Text),
        plain(3, "continue", Text),
        keep_zero(4, "remainingItemCount", Int64),
    ],
};

static STATUS_DETAILS: Message = Message {
    definition: "io.k8s.apimachinery.pkg.apis.meta.v1.StatusDetails",
    fields: &[
        plain(1, "name", Text),
        plain(2, "group", Text),
        plain(3, "kind", Text),
        list(4, "causes", Nested(&STATUS_CAUSE)),
        plain(5, "retryAfterSeconds", Int32),
        plain(6, "uid", Text),
    ],
};

static STATUS_CAUSE: Message = Message {
    definition: "io.k8s.apimachinery.pkg.apis.meta.v1.StatusCause",
    fields: &[plain(1, "reason", Text), plain(2, "message", Text), plain(3, "field", Text)],
};
