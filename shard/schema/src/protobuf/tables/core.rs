//! `k8s.io/api/core/v1`, `events/v1` and `coordination/v1`.

use super::meta::OBJECT_META;
use crate::protobuf::table::Kind::{
    Bool, Bytes, Int32, Message as Nested, MicroTime, Text, Time, WrappedText,
};
use crate::protobuf::table::{Message, keep_zero, list, map, plain};

pub(super) static NAMESPACE: Message = Message {
    definition: "io.k8s.api.core.v1.Namespace",
    fields: &[
        plain(1, "metadata", Nested(&OBJECT_META)),
        plain(2, "spec", Nested(&NAMESPACE_SPEC)),
        plain(3, "status", Nested(&NAMESPACE_STATUS)),
    ],
};

static NAMESPACE_SPEC: Message =
    Message { definition: "io.k8s.api.core.v1.NamespaceSpec", fields: &[list(1, "finalizers", Text)] };

static NAMESPACE_STATUS: Message = Message {
    definition: "io.k8s.api.core.v1.NamespaceStatus",
    fields: &[plain(1, "phase", Text), list(2, "conditions", Nested(&NAMESPACE_CONDITION))],
};

static NAMESPACE_CONDITION: Message = Message {
    definition: "io.k8s.api.core.v1.NamespaceCondition",
    fields: &[
        keep_zero(1, "type", Text),
        keep_zero(2, "status", Text),
        plain(4, "lastTransitionTime", Time),
        plain(5, "reason", Text),
        plain(6, "message", Text),
    ],
};

pub(super) static CONFIG_MAP: Message = Message {
    definition: "io.k8s.api.core.v1.ConfigMap",
    fields: &[
        plain(1, "metadata", Nested(&OBJECT_META)),
        map(2, "data", Text),
        map(3, "binaryData", Bytes),
        keep_zero(4, "immutable", Bool),
    ],
};

pub(super) static SECRET: Message = Message {
    definition: "io.k8s.api.core.v1.Secret",
    fields: &[
        plain(1, "metadata", Nested(&OBJECT_META)),
        map(2, "data", Bytes),
        plain(3, "type", Text),
        map(4, "stringData", Text),
        keep_zero(5, "immutable", Bool),
    ],
};

pub(super) static SERVICE_ACCOUNT: Message = Message {
    definition: "io.k8s.api.core.v1.ServiceAccount",
    fields: &[
        plain(1, "metadata", Nested(&OBJECT_META)),
        list(2, "secrets", Nested(&OBJECT_REFERENCE)),
        list(3, "imagePullSecrets", Nested(&LOCAL_OBJECT_REFERENCE)),
        keep_zero(4, "automountServiceAccountToken", Bool),
    ],
};

static OBJECT_REFERENCE: Message = Message {
    definition: "io.k8s.api.core.v1.ObjectReference",
    fields: &[
        plain(1, "kind", Text),
        plain(2, "namespace", Text),
        plain(3, "name", Text),
        plain(4, "uid", Text),
        plain(5, "apiVersion", Text),
        plain(6, "resourceVersion", Text),
        plain(7, "fieldPath", Text),
    ],
};

static LOCAL_OBJECT_REFERENCE: Message =
    Message { definition: "io.k8s.api.core.v1.LocalObjectReference", fields: &[plain(1, "name", Text)] };

pub(super) static EVENT: Message = Message {
    definition: "io.k8s.api.core.v1.Event",
    fields: &[
        plain(1, "metadata", Nested(&OBJECT_META)),
        plain(2, "involvedObject", Nested(&OBJECT_REFERENCE)),
        plain(3, "reason", Text),
        plain(4, "message", Text),
        plain(5, "source", Nested(&EVENT_SOURCE)),
        plain(6, "firstTimestamp", Time),
        plain(7, "lastTimestamp", Time),
        plain(8, "count", Int32),
        plain(9, "type", Text),
        plain(10, "eventTime", MicroTime),
        plain(11, "series", Nested(&EVENT_SERIES)),
        plain(12, "action", Text),
        plain(13, "related", Nested(&OBJECT_REFERENCE)),
        keep_zero(14, "reportingComponent", Text),
        keep_zero(15, "reportingInstance", Text),
    ],
};

static EVENT_SOURCE: Message = Message {
    definition: "io.k8s.api.core.v1.EventSource",
    fields: &[plain(1, "component", Text), plain(2, "host", Text)],
};

static EVENT_SERIES: Message = Message {
    definition: "io.k8s.api.core.v1.EventSeries",
    fields: &[plain(1, "count", Int32), plain(2, "lastObservedTime", MicroTime)],
};

pub(super) static EVENTS_EVENT: Message = Message {
    definition: "io.k8s.api.events.v1.Event",
    fields: &[
        plain(1, "metadata", Nested(&OBJECT_META)),
        plain(2, "eventTime", MicroTime),
        plain(3, "series", Nested(&EVENTS_EVENT_SERIES)),
        plain(4, "reportingController", Text),
        plain(5, "reportingInstance", Text),
        plain(6, "action", Text),
        plain(7, "reason", Text),
        plain(8, "regarding", Nested(&OBJECT_REFERENCE)),
        plain(9, "related", Nested(&OBJECT_REFERENCE)),
        plain(10, "note", Text),
        plain(11, "type", Text),
        plain(12, "deprecatedSource", Nested(&EVENT_SOURCE)),
        plain(13, "deprecatedFirstTimestamp", Time),
        plain(14, "deprecatedLastTimestamp", Time),
        plain(15, "deprecatedCount", Int32),
    ],
};

static EVENTS_EVENT_SERIES: Message = Message {
    definition: "io.k8s.api.events.v1.EventSeries",
    fields: &[keep_zero(1, "count", Int32), plain(2, "lastObservedTime", MicroTime)],
};

pub(super) static RESOURCE_QUOTA: Message = Message {
    definition: "io.k8s.api.core.v1.ResourceQuota",
    fields: &[
        plain(1, "metadata", Nested(&OBJECT_META)),
        plain(2, "spec", Nested(&RESOURCE_QUOTA_SPEC)),
        plain(3, "status", Nested(&RESOURCE_QUOTA_STATUS)),
    ],
};

static RESOURCE_QUOTA_SPEC: Message = Message {
    definition: "io.k8s.api.core.v1.ResourceQuotaSpec",
    fields: &[
        map(1, "hard", WrappedText),
        list(2, "scopes", Text),
        plain(3, "scopeSelector", Nested(&SCOPE_SELECTOR)),
    ],
};

static RESOURCE_QUOTA_STATUS: Message = Message {
    definition: "io.k8s.api.core.v1.ResourceQuotaStatus",
    fields: &[map(1, "hard", WrappedText), map(2, "used", WrappedText)],
};

static SCOPE_SELECTOR: Message = Message {
    definition: "io.k8s.api.core.v1.ScopeSelector",
    fields: &[list(1, "matchExpressions", Nested(&SCOPED_RESOURCE_SELECTOR_REQUIREMENT))],
};

static SCOPED_RESOURCE_SELECTOR_REQUIREMENT: Message = Message {
    definition: "io.k8s.api.core.v1.ScopedResourceSelectorRequirement",
    fields: &[keep_zero(1, "scopeName", Text), keep_zero(2, "operator", Text), list(3, "values", Text)],
};

pub(super) static LEASE: Message = Message {
    definition: "io.k8s.api.coordination.v1.Lease",
    fields: &[plain(1, "metadata", Nested(&OBJECT_META)), plain(2, "spec", Nested(&LEASE_SPEC))],
};

static LEASE_SPEC: Message = Message {
    definition: "io.k8s.api.coordination.v1.LeaseSpec",
    fields: &[
        keep_zero(1, "holderIdentity", Text),
        keep_zero(2, "leaseDurationSeconds", Int32),
        plain(3, "acquireTime", MicroTime),
        plain(4, "renewTime", MicroTime),
        keep_zero(5, "leaseTransitions", Int32),
        keep_zero(6, "strategy", Text),
        keep_zero(7, "preferredHolder", Text),
    ],
};
