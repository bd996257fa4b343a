//! `k8s.io/api/admissionregistration/v1`.

use super::meta::{CONDITION, LABEL_SELECTOR, OBJECT_META};
use crate::protobuf::table::Kind::{Bytes, Inline, Int32, Int64, Message as Nested, Text};
use crate::protobuf::table::{Message, keep_zero, list, plain};

macro_rules! admission {
    ($($(#[$doc:meta])* $visibility:vis $name:ident = $definition:literal [$($field:expr),* $(,)?];)*) => {$(
        $(#[$doc])*
        $visibility static $name: Message = Message {
            definition: concat!("io.k8s.api.admissionregistration.v1.", $definition),
            fields: &[$($field),*],
        };
    )*};
}

admission! {
    pub(super) VALIDATING_ADMISSION_POLICY = "ValidatingAdmissionPolicy" [
        plain(1, "metadata", Nested(&OBJECT_META)),
        plain(2, "spec", Nested(&VALIDATING_SPEC)),
        plain(3, "status", Nested(&VALIDATING_STATUS)),
    ];
    VALIDATING_SPEC = "ValidatingAdmissionPolicySpec" [
        plain(1, "paramKind", Nested(&PARAM_KIND)),
        plain(2, "matchConstraints", Nested(&MATCH_RESOURCES)),
        list(3, "validations", Nested(&VALIDATION)),
        keep_zero(4, "failurePolicy", Text),
        list(5, "auditAnnotations", Nested(&AUDIT_ANNOTATION)),
        list(6, "matchConditions", Nested(&MATCH_CONDITION)),
        list(7, "variables", Nested(&VARIABLE)),
    ];
    VALIDATING_STATUS = "ValidatingAdmissionPolicyStatus" [
        plain(1, "observedGeneration", Int64),
        plain(2, "typeChecking", Nested(&TYPE_CHECKING)),
        list(3, "conditions", Nested(&CONDITION)),
    ];
    TYPE_CHECKING = "TypeChecking" [list(1, "expressionWarnings", Nested(&EXPRESSION_WARNING))];
    EXPRESSION_WARNING = "ExpressionWarning" [keep_zero(2, "fieldRef", Text), keep_zero(3, "warning", Text)];
    VALIDATION = "Validation" [
        keep_zero(1, "expression", Text),
        plain(2, "message", Text),
        keep_zero(3, "reason", Text),
        plain(4, "messageExpression", Text),
    ];
    AUDIT_ANNOTATION = "AuditAnnotation" [keep_zero(1, "key", Text), keep_zero(2, "valueExpression", Text)];
    pub(super) VALIDATING_ADMISSION_POLICY_BINDING = "ValidatingAdmissionPolicyBinding" [
        plain(1, "metadata", Nested(&OBJECT_META)),
        plain(2, "spec", Nested(&VALIDATING_BINDING_SPEC)),
    ];
    VALIDATING_BINDING_SPEC = "ValidatingAdmissionPolicyBindingSpec" [
        plain(1, "policyName", Text),
        plain(2, "paramRef", Nested(&PARAM_REF)),
        plain(3, "matchResources", Nested(&MATCH_RESOURCES)),
        list(4, "validationActions", Text),
    ];
    pub(super) MUTATING_ADMISSION_POLICY = "MutatingAdmissionPolicy" [
        plain(1, "metadata", Nested(&OBJECT_META)),
        plain(2, "spec", Nested(&MUTATING_SPEC)),
    ];
    MUTATING_SPEC = "MutatingAdmissionPolicySpec" [
        plain(1, "paramKind", Nested(&PARAM_KIND)),
        plain(2, "matchConstraints", Nested(&MATCH_RESOURCES)),
        list(3, "variables", Nested(&VARIABLE)),
        list(4, "mutations", Nested(&MUTATION)),
        keep_zero(5, "failurePolicy", Text),
        list(6, "matchConditions", Nested(&MATCH_CONDITION)),
        plain(7, "reinvocationPolicy", Text),
    ];
    MUTATION = "Mutation" [
        keep_zero(2, "patchType", Text),
        plain(3, "applyConfiguration", Nested(&APPLY_CONFIGURATION)),
        plain(4, "jsonPatch", Nested(&JSON_PATCH)),
    ];
    APPLY_CONFIGURATION = "ApplyConfiguration" [plain(1, "expression", Text)];
    JSON_PATCH = "JSONPatch" [plain(1, "expression", Text)];
    pub(super) MUTATING_ADMISSION_POLICY_BINDING = "MutatingAdmissionPolicyBinding" [
        plain(1, "metadata", Nested(&OBJECT_META)),
        plain(2, "spec", Nested(&MUTATING_BINDING_SPEC)),
    ];
    MUTATING_BINDING_SPEC = "MutatingAdmissionPolicyBindingSpec" [
        plain(1, "policyName", Text),
        plain(2, "paramRef", Nested(&PARAM_REF)),
        plain(3, "matchResources", Nested(&MATCH_RESOURCES)),
    ];
    PARAM_KIND = "ParamKind" [plain(1, "apiVersion", Text), plain(2, "kind", Text)];
    PARAM_REF = "ParamRef" [
        plain(1, "name", Text),
        plain(2, "namespace", Text),
        plain(3, "selector", Nested(&LABEL_SELECTOR)),
        keep_zero(4, "parameterNotFoundAction", Text),
    ];
    VARIABLE = "Variable" [keep_zero(1, "name", Text), keep_zero(2, "expression", Text)];
    MATCH_CONDITION = "MatchCondition" [keep_zero(1, "name", Text), keep_zero(2, "expression", Text)];
    MATCH_RESOURCES = "MatchResources" [
        plain(1, "namespaceSelector", Nested(&LABEL_SELECTOR)),
        plain(2, "objectSelector", Nested(&LABEL_SELECTOR)),
        list(3, "resourceRules", Nested(&NAMED_RULE)),
        list(4, "excludeResourceRules", Nested(&NAMED_RULE)),
        keep_zero(7, "matchPolicy", Text),
    ];
    NAMED_RULE = "NamedRuleWithOperations" [
        list(1, "resourceNames", Text),
        plain(2, "", Inline(&RULE_WITH_OPERATIONS)),
    ];
    RULE_WITH_OPERATIONS = "RuleWithOperations" [list(1, "operations", Text), plain(2, "", Inline(&RULE))];
    /// Without a definition of its own in OpenAPI.
    RULE = "Rule" [
        list(1, "apiGroups", Text),
        list(2, "apiVersions", Text),
        list(3, "resources", Text),
        keep_zero(4, "scope", Text),
    ];
    pub(super) VALIDATING_WEBHOOK_CONFIGURATION = "ValidatingWebhookConfiguration" [
        plain(1, "metadata", Nested(&OBJECT_META)),
        list(2, "webhooks", Nested(&VALIDATING_WEBHOOK)),
    ];
    VALIDATING_WEBHOOK = "ValidatingWebhook" [
        keep_zero(1, "name", Text),
        keep_zero(2, "clientConfig", Nested(&CLIENT_CONFIG)),
        list(3, "rules", Nested(&RULE_WITH_OPERATIONS)),
        keep_zero(4, "failurePolicy", Text),
        plain(5, "namespaceSelector", Nested(&LABEL_SELECTOR)),
        keep_zero(6, "sideEffects", Text),
        keep_zero(7, "timeoutSeconds", Int32),
        list(8, "admissionReviewVersions", Text),
        keep_zero(9, "matchPolicy", Text),
        plain(10, "objectSelector", Nested(&LABEL_SELECTOR)),
        list(11, "matchConditions", Nested(&MATCH_CONDITION)),
    ];
    pub(super) MUTATING_WEBHOOK_CONFIGURATION = "MutatingWebhookConfiguration" [
        plain(1, "metadata", Nested(&OBJECT_META)),
        list(2, "webhooks", Nested(&MUTATING_WEBHOOK)),
    ];
    MUTATING_WEBHOOK = "MutatingWebhook" [
        keep_zero(1, "name", Text),
        keep_zero(2, "clientConfig", Nested(&CLIENT_CONFIG)),
        list(3, "rules", Nested(&RULE_WITH_OPERATIONS)),
        keep_zero(4, "failurePolicy", Text),
        plain(5, "namespaceSelector", Nested(&LABEL_SELECTOR)),
        keep_zero(6, "sideEffects", Text),
        keep_zero(7, "timeoutSeconds", Int32),
        list(8, "admissionReviewVersions", Text),
        keep_zero(9, "matchPolicy", Text),
        keep_zero(10, "reinvocationPolicy", Text),
        plain(11, "objectSelector", Nested(&LABEL_SELECTOR)),
        list(12, "matchConditions", Nested(&MATCH_CONDITION)),
    ];
    CLIENT_CONFIG = "WebhookClientConfig" [
        plain(1, "service", Nested(&SERVICE_REFERENCE)),
        plain(2, "caBundle", Bytes),
        keep_zero(3, "url", Text),
    ];
    SERVICE_REFERENCE = "ServiceReference" [
        keep_zero(1, "namespace", Text),
        keep_zero(2, "name", Text),
        keep_zero(3, "path", Text),
        keep_zero(4, "port", Int32),
    ];
}
