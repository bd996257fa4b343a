//! `k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1`.

use super::meta::OBJECT_META;
use crate::protobuf::table::Kind::{
    Bool, Bytes, Double, Int32, Int64, Json, Message as Nested, SchemaOrBool, SchemaOrList, SchemaOrTexts,
    Text, Time,
};
use crate::protobuf::table::{Message, keep_zero, list, map, plain};

pub(super) static CUSTOM_RESOURCE_DEFINITION: Message = Message {
    definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    fields: &[
        plain(1, "metadata", Nested(&OBJECT_META)),
        plain(2, "spec", Nested(&SPEC)),
        plain(3, "status", Nested(&STATUS)),
    ],
};

static SPEC: Message = Message {
    definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionSpec",
    fields: &[
        keep_zero(1, "group", Text),
        plain(3, "names", Nested(&NAMES)),
        keep_zero(4, "scope", Text),
        list(7, "versions", Nested(&VERSION)),
        plain(9, "conversion", Nested(&CONVERSION)),
        plain(10, "preserveUnknownFields", Bool),
    ],
};

static STATUS: Message = Message {
    definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus",
    fields: &[
        list(1, "conditions", Nested(&CONDITION)),
        plain(2, "acceptedNames", Nested(&NAMES)),
        list(3, "storedVersions", Text),
        plain(4, "observedGeneration", Int64),
    ],
};

static CONDITION: Message = Message {
    definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionCondition",
    fields: &[
        keep_zero(1, "type", Text),
        keep_zero(2, "status", Text),
        plain(3, "lastTransitionTime", Time),
        plain(4, "reason", Text),
        plain(5, "message", Text),
        plain(6, "observedGeneration", Int64),
    ],
};

static NAMES: Message = Message {
    definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionNames",
    fields: &[
        keep_zero(1, "plural", Text),
        plain(2, "singular", Text),
        list(3, "shortNames", Text),
        keep_zero(4, "kind", Text),
        plain(5, "listKind", Text),
        list(6, "categories", Text),
    ],
};

static VERSION: Message = Message {
    definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionVersion",
    fields: &[
        keep_zero(1, "name", Text),
        keep_zero(2, "served", Bool),
        keep_zero(3, "storage", Bool),
        plain(4, "schema", Nested(&VALIDATION)),
        plain(5, "subresources", Nested(&SUBRESOURCES)),
        list(6, "additionalPrinterColumns", Nested(&COLUMN)),
        plain(7, "deprecated", Bool),
        keep_zero(8, "deprecationWarning", Text),
        list(9, "selectableFields", Nested(&SELECTABLE_FIELD)),
    ],
};

static VALIDATION: Message = Message {
    definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceValidation",
    fields: &[plain(1, "openAPIV3Schema", Nested(&SCHEMA))],
};

static SUBRESOURCES: Message = Message {
    definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceSubresources",
    fields: &[plain(1, "status", Nested(&SUBRESOURCE_STATUS)), plain(2, "scale", Nested(&SUBRESOURCE_SCALE))],
};

static SUBRESOURCE_STATUS: Message = Message {
    definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceSubresourceStatus",
    fields: &[],
};

static SUBRESOURCE_SCALE: Message = Message {
    definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceSubresourceScale",
    fields: &[
        keep_zero(1, "specReplicasPath", Text),
        keep_zero(2, "statusReplicasPath", Text),
        keep_zero(3, "labelSelectorPath", Text),
    ],
};

static COLUMN: Message = Message {
    definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceColumnDefinition",
    fields: &[
        keep_zero(1, "name", Text),
        keep_zero(2, "type", Text),
        plain(3, "format", Text),
        plain(4, "description", Text),
        plain(5, "priority", Int32),
        keep_zero(6, "jsonPath", Text),
    ],
};

static SELECTABLE_FIELD: Message = Message {
    definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.SelectableField",
    fields: &[keep_zero(1, "jsonPath", Text)],
};

static CONVERSION: Message = Message {
    definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceConversion",
    fields: &[keep_zero(1, "strategy", Text), plain(2, "webhook", Nested(&WEBHOOK_CONVERSION))],
};

static WEBHOOK_CONVERSION: Message = Message {
    definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.WebhookConversion",
    fields: &[
        plain(2, "clientConfig", Nested(&WEBHOOK_CLIENT_CONFIG)),
        list(3, "conversionReviewVersions", Text),
    ],
};

static WEBHOOK_CLIENT_CONFIG: Message = Message {
    definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.WebhookClientConfig",
    fields: &[
        plain(1, "service", Nested(&SERVICE_REFERENCE)),
        plain(2, "caBundle", Bytes),
        keep_zero(3, "url", Text),
    ],
};

static SERVICE_REFERENCE: Message = Message {
    definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ServiceReference",
    fields: &[
        keep_zero(1, "namespace", Text),
        keep_zero(2, "name", Text),
        keep_zero(3, "path", Text),
        keep_zero(4, "port", Int32),
    ],
};

static SCHEMA: Message = Message {
    definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
    fields: &[
        plain(1, "id", Text),
        plain(2, "$schema", Text),
        keep_zero(3, "$ref", Text),
        plain(4, "description", Text),
        plain(5, "type", Text),
        plain(6, "format", Text),
        plain(7, "title", Text),
        keep_zero(8, "default", Json),
        keep_zero(9, "maximum", Double),
        plain(10, "exclusiveMaximum", Bool),
        keep_zero(11, "minimum", Double),
        plain(12, "exclusiveMinimum", Bool),
        keep_zero(13, "maxLength", Int64),
        keep_zero(14, "minLength", Int64),
        plain(15, "pattern", Text),
        keep_zero(16, "maxItems", Int64),
        keep_zero(17, "minItems", Int64),
        plain(18, "uniqueItems", Bool),
        keep_zero(19, "multipleOf", Double),
        list(20, "enum", Json),
        keep_zero(21, "maxProperties", Int64),
        keep_zero(22, "minProperties", Int64),
        list(23, "required", Text),
        keep_zero(24, "items", SchemaOrList(&SCHEMA)),
        list(25, "allOf", Nested(&SCHEMA)),
        list(26, "oneOf", Nested(&SCHEMA)),
        list(27, "anyOf", Nested(&SCHEMA)),
        plain(28, "not", Nested(&SCHEMA)),
        map(29, "properties", Nested(&SCHEMA)),
        keep_zero(30, "additionalProperties", SchemaOrBool(&SCHEMA)),
        map(31, "patternProperties", Nested(&SCHEMA)),
        map(32, "dependencies", SchemaOrTexts(&SCHEMA)),
        keep_zero(33, "additionalItems", SchemaOrBool(&SCHEMA)),
        map(34, "definitions", Nested(&SCHEMA)),
        plain(35, "externalDocs", Nested(&EXTERNAL_DOCUMENTATION)),
        keep_zero(36, "example", Json),
        plain(37, "nullable", Bool),
        keep_zero(38, "x-kubernetes-preserve-unknown-fields", Bool),
        plain(39, "x-kubernetes-embedded-resource", Bool),
        plain(40, "x-kubernetes-int-or-string", Bool),
        list(41, "x-kubernetes-list-map-keys", Text),
        keep_zero(42, "x-kubernetes-list-type", Text),
        keep_zero(43, "x-kubernetes-map-type", Text),
        list(44, "x-kubernetes-validations", Nested(&VALIDATION_RULE)),
    ],
};

static EXTERNAL_DOCUMENTATION: Message = Message {
    definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ExternalDocumentation",
    fields: &[plain(1, "description", Text), plain(2, "url", Text)],
};

static VALIDATION_RULE: Message = Message {
    definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ValidationRule",
    fields: &[
        keep_zero(1, "rule", Text),
        plain(2, "message", Text),
        plain(3, "messageExpression", Text),
        keep_zero(4, "reason", Text),
        plain(5, "fieldPath", Text),
        keep_zero(6, "optionalOldSelf", Bool),
    ],
};
