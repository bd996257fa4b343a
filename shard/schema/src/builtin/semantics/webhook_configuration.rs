//! ValidatingWebhookConfiguration and MutatingWebhookConfiguration.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::match_conditions::validate_match_conditions;
use super::match_resources::validate_rule;
use super::rbac::validate_label_selector;
use super::{Semantics, insert_missing_text, list, text};
use crate::field::{FieldError, FieldPath};
use crate::names::{dns1035_label, dns1123_subdomain};
use crate::webhook_client::validate_client_config;

/// Versions of AdmissionReview that the server can send.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// The kinds of admission webhooks.
#[derive(Debug)]
pub(crate) struct WebhookConfiguration {
    /// Mutating webhooks may be called again after a later change.
    pub(crate) is_mutating: bool,
}

impl Semantics for WebhookConfiguration {
    fn default(&self, object: &mut Value) {
        let Some(Value::Array(webhooks)) = object.get_mut("webhooks") else { return };
        for webhook in webhooks {
            insert_missing_text(webhook, "failurePolicy", "Fail");
            insert_missing_text(webhook, "matchPolicy", "Equivalent");
            if self.is_mutating {
                insert_missing_text(webhook, "reinvocationPolicy", "Never");
            }
            if let Value::Object(fields) = webhook {
                fields.entry("namespaceSelector").or_insert_with(|| json!({}));
                fields.entry("objectSelector").or_insert_with(|| json!({}));
                fields.entry("timeoutSeconds").or_insert_with(|| json!(10));
            }
            if let Some(Value::Array(rules)) = webhook.get_mut("rules") {
                for rule in rules {
                    insert_missing_text(rule, "scope", "*");
                }
            }
            let service = webhook.get_mut("clientConfig").and_then(|config| config.get_mut("service"));
            if let Some(Value::Object(service)) = service {
                service.entry("port").or_insert_with(|| json!(443));
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut names = BTreeSet::new();
        for (index, webhook) in list(object, "webhooks").iter().enumerate() {
            let path = FieldPath::new("webhooks").index(index);
            self.validate_webhook(webhook, &path, &mut errors);
            validate_review_versions(webhook, &path.child("admissionReviewVersions"), &mut errors);
            let name = text(webhook, "name");
            if !name.is_empty() && !names.insert(name) {
                errors.push(FieldError::duplicate(path.child("name"), &Value::from(name)));
            }
        }
        errors
    }
}

impl WebhookConfiguration {
    fn validate_webhook(&self, webhook: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
        validate_name(text(webhook, "name"), &path.child("name"), errors);
        for (index, rule) in list(webhook, "rules").iter().enumerate() {
            validate_rule(rule, &path.child("rules").index(index), errors);
        }
        let mut one_of = |field: &str, supported: &[&str]| {
            if let Some(value) = webhook.get(field).filter(|value| !value.is_null())
                && !supported.contains(&value.as_str().unwrap_or_default())
            {
                errors.push(FieldError::not_supported(path.child(field), value, supported));
            }
        };
        one_of("failurePolicy", &["Fail", "Ignore"]);
        one_of("matchPolicy", &["Equivalent", "Exact"]);
        if self.is_mutating {
            one_of("reinvocationPolicy", &["IfNeeded", "Never"]);
        }
        one_of("sideEffects", &["None", "NoneOnDryRun"]);
        if webhook.get("sideEffects").is_none_or(Value::is_null) {
            let detail = "must specify one of None, NoneOnDryRun";
            errors.push(FieldError::required(path.child("sideEffects"), detail));
        }
        if let Some(seconds) = webhook.get("timeoutSeconds")
            && !(1..=30).contains(&seconds.as_i64().unwrap_or_default())
        {
            let detail = "the timeout value must be between 1 and 30 seconds";
            errors.push(FieldError::invalid(path.child("timeoutSeconds"), seconds, detail));
        }
        for selector in ["namespaceSelector", "objectSelector"] {
            validate_label_selector(&webhook[selector], &path.child(selector), errors);
        }
        validate_client_config(&webhook["clientConfig"], &path.child("clientConfig"), errors);
        let conditions = list(webhook, "matchConditions");
        validate_match_conditions(conditions, false, &path.child("matchConditions"), errors);
    }
}

/// A domain name of at least three segments.
fn validate_name(name: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(path.clone(), ""));
        return;
    }
    let problems = dns1123_subdomain(name);
    if problems.is_empty() {
        if name.split('.').count() < 3 {
            let detail = "should be a domain with at least three segments separated by dots";
            errors.push(FieldError::invalid_str(path.clone(), name, detail));
        }
    } else {
        errors.push(FieldError::invalid_str(path.clone(), name, &problems.join(",")));
    }
}

fn validate_review_versions(webhook: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let versions = list(webhook, "admissionReviewVersions");
    if versions.is_empty() {
        errors.push(FieldError::required(path.clone(), "must specify one of v1, v1beta1"));
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, version) in versions.iter().filter_map(Value::as_str).enumerate() {
        if !seen.insert(version) {
            errors.push(FieldError::invalid_str(path.index(index), version, "duplicate version"));
            continue;
        }
        let problems = dns1035_label(version);
        errors.extend(
            problems.iter().map(|problem| FieldError::invalid_str(path.index(index), version, problem)),
        );
    }
    if !REVIEW_VERSIONS.iter().any(|version| seen.contains(version)) {
        let detail = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(path.clone(), &Value::from(versions.to_vec()), detail));
    }
}

#[cfg(test)]
mod tests {
    use super::super::texts;
    use super::*;

    fn validating() -> WebhookConfiguration {
        WebhookConfiguration { is_mutating: false }
    }

    fn webhook() -> Value {
        json!({
            "name": "a.example.com",
            "clientConfig": {"url": "https://127.0.0.1:8443/review"},
            "rules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
            }],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        })
    }

    #[test]
    fn omitted_fields_get_the_defaults_of_kubernetes() {
        let mut object = json!({"webhooks": [webhook()]});
        WebhookConfiguration { is_mutating: true }.default(&mut object);
        let got = &object["webhooks"][0];
        assert_eq!(got["failurePolicy"], "Fail");
        assert_eq!(got["matchPolicy"], "Equivalent");
        assert_eq!(got["reinvocationPolicy"], "Never");
        assert_eq!(got["timeoutSeconds"], 10);
        assert_eq!(got["namespaceSelector"], json!({}));
        assert_eq!(got["rules"][0]["scope"], "*");
        assert!(validating().validate(&object).is_empty());
    }

    #[test]
    fn faults_are_refused_in_the_words_of_kubernetes() {
        let cases: &[(&str, Value, &str)] = &[
            (
                "/name",
                json!("a.b"),
                "webhooks[0].name: Invalid value: \"a.b\": should be a domain with at least three segments separated by dots",
            ),
            (
                "/clientConfig/url",
                json!("http://h/p"),
                "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
            ),
            (
                "/clientConfig/url",
                json!("https://h/p?a=b"),
                "webhooks[0].clientConfig.url: Invalid value: \"a=b\": query parameters are not permitted in the URL",
            ),
            (
                "/clientConfig",
                json!({}),
                "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
            ),
            (
                "/sideEffects",
                json!("Some"),
                "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
            ),
            (
                "/timeoutSeconds",
                json!(31),
                "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
            ),
            (
                "/admissionReviewVersions",
                json!(["v2"]),
                "webhooks[0].admissionReviewVersions: Invalid value: [\"v2\"]: must include at least one of v1, v1beta1",
            ),
            (
                "/matchConditions",
                json!([{"name": "a", "expression": "params.x"}]),
                "webhooks[0].matchConditions[0].expression: Invalid value: \"params.x\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params.x\n | ^",
            ),
            ("/rules/0/resources", json!([]), "webhooks[0].rules[0].resources: Required value"),
            (
                "/rules/0/resources",
                json!(["*", "pods"]),
                "webhooks[0].rules[0].resources: Invalid value: [\"*\",\"pods\"]: if '*' is present, must not specify other resources without subresources",
            ),
            (
                "/rules/0/operations",
                json!(["READ"]),
                "webhooks[0].rules[0].operations[0]: Unsupported value: \"READ\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"DELETE\", \"UPDATE\"",
            ),
        ];
        for (pointer, value, expected) in cases {
            let mut webhook = webhook();
            match webhook.pointer_mut(pointer) {
                Some(place) => *place = value.clone(),
                None => webhook[pointer.trim_start_matches('/')] = value.clone(),
            }
            let object = json!({"webhooks": [webhook]});
            assert_eq!(texts(&validating().validate(&object)), [*expected], "{pointer}");
        }
    }

    #[test]
    fn names_are_unique() {
        let object = json!({"webhooks": [webhook(), webhook()]});
        assert_eq!(
            texts(&validating().validate(&object)),
            ["webhooks[1].name: Duplicate value: \"a.example.com\""]
        );
    }
}
