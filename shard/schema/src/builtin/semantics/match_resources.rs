//! Match constraints of admission policies, and the rules that they share with webhooks.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::rbac::validate_label_selector;
use super::{insert_missing_text, list};
use crate::field::{FieldError, FieldPath};
use crate::names::path_segment;

/// Fills in what a client may omit of `matchConstraints` or `matchResources`.
pub(super) fn default_match_resources(resources: &mut Value) {
    let Value::Object(fields) = resources else { return };
    fields.entry("namespaceSelector").or_insert_with(|| json!({}));
    fields.entry("objectSelector").or_insert_with(|| json!({}));
    for field in ["resourceRules", "excludeResourceRules"] {
        if let Some(Value::Array(rules)) = fields.get_mut(field) {
            rules.iter_mut().for_each(|rule| insert_missing_text(rule, "scope", "*"));
        }
    }
    insert_missing_text(resources, "matchPolicy", "Equivalent");
}

/// Checks `matchConstraints` or `matchResources`.
pub(super) fn validate_match_resources(resources: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    const POLICIES: [&str; 2] = ["Equivalent", "Exact"];
    let policy = &resources["matchPolicy"];
    if !policy.as_str().is_some_and(|policy| POLICIES.contains(&policy)) {
        errors.push(FieldError::not_supported(path.child("matchPolicy"), policy, &POLICIES));
    }
    for selector in ["namespaceSelector", "objectSelector"] {
        validate_label_selector(&resources[selector], &path.child(selector), errors);
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in list(resources, field).iter().enumerate() {
            let path = path.child(field).index(index);
            let mut names = BTreeSet::new();
            for (index, name) in list(rule, "resourceNames").iter().enumerate() {
                let text = name.as_str().unwrap_or_default();
                let path = path.child("resourceNames").index(index);
                let problems = path_segment(text);
                errors.extend(problems.iter().map(|p| FieldError::invalid_str(path.clone(), text, p)));
                if !names.insert(text) {
                    errors.push(FieldError::duplicate(path, name));
                }
            }
            validate_rule(rule, &path, errors);
        }
    }
}

/// Checks one rule of a webhook or policy: operations and resources.
pub(super) fn validate_rule(rule: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    let operations = list(rule, "operations");
    for (field, others, may_be_empty) in [
        ("operations", "operations", false),
        ("apiGroups", "API groups", true),
        ("apiVersions", "API versions", false),
    ] {
        let values = list(rule, field);
        if values.is_empty() {
            errors.push(FieldError::required(path.child(field), ""));
        }
        if values.len() > 1 && values.iter().any(|value| value == "*") {
            let detail = format!("if '*' is present, must not specify other {others}");
            errors.push(FieldError::invalid(path.child(field), &Value::from(values.to_vec()), &detail));
        }
        // Operations have an error of their own.
        if !may_be_empty && field != "operations" {
            for (index, _) in values.iter().enumerate().filter(|(_, value)| *value == "") {
                errors.push(FieldError::required(path.child(field).index(index), ""));
            }
        }
    }
    for (index, operation) in operations.iter().enumerate() {
        if !OPERATIONS.contains(&operation.as_str().unwrap_or_default()) {
            let path = path.child("operations").index(index);
            errors.push(FieldError::not_supported(path, operation, &OPERATIONS));
        }
    }
    validate_resources(list(rule, "resources"), &path.child("resources"), errors);
    let scope = &rule["scope"];
    if !scope.is_null() && !matches!(scope.as_str(), Some("*" | "Cluster" | "Namespaced")) {
        let supported = ["*", "Cluster", "Namespaced"];
        errors.push(FieldError::not_supported(path.child("scope"), scope, &supported));
    }
}

fn validate_resources(resources: &[Value], path: &FieldPath, errors: &mut Vec<FieldError>) {
    if resources.is_empty() {
        errors.push(FieldError::required(path.clone(), ""));
    }
    let mut whole_resources = BTreeSet::new();
    let mut whole_subresources = BTreeSet::new();
    let mut has_plain_resource = false;
    let names: Vec<&str> = resources.iter().filter_map(Value::as_str).collect();
    for (index, name) in names.iter().enumerate() {
        if name.is_empty() {
            errors.push(FieldError::required(path.index(index), ""));
            continue;
        }
        let Some((resource, subresource)) = name.split_once('/') else {
            has_plain_resource = *name != "*";
            continue;
        };
        if whole_resources.contains(resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {name}");
            errors.push(FieldError::invalid_str(path.index(index), name, &detail));
        }
        if whole_subresources.contains(subresource) {
            let detail = format!("if '*/{subresource}' is present, must not specify {name}");
            errors.push(FieldError::invalid_str(path.index(index), name, &detail));
        }
        if subresource == "*" {
            whole_resources.insert(resource);
        }
        if resource == "*" {
            whole_subresources.insert(subresource);
        }
    }
    let all = || Value::from(resources.to_vec());
    if names.len() > 1 && names.contains(&"*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(path.clone(), &all(), detail));
    }
    if names.contains(&"*") && has_plain_resource {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(path.clone(), &all(), detail));
    }
}
