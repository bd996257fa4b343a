//! ValidatingAdmissionPolicyBinding and MutatingAdmissionPolicyBinding.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::admission_policy::validate_mutating_operations;
use super::match_resources::{default_match_resources, validate_match_resources};
use super::rbac::validate_label_selector;
use super::{Semantics, list, text};
use crate::field::{FieldError, FieldPath};
use crate::names::{dns1123_subdomain, path_segment};

const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
const NOT_FOUND_ACTIONS: [&str; 2] = ["Deny", "Allow"];

/// Bindings of admission policies.
#[derive(Debug)]
pub(crate) struct PolicyBinding {
    /// Whether it binds a mutating policy. Those of validating policies have actions.
    pub(crate) is_mutating: bool,
}

impl Semantics for PolicyBinding {
    fn default(&self, object: &mut Value) {
        let Value::Object(fields) = object else { return };
        let spec = fields.entry("spec").or_insert_with(|| json!({}));
        if let Some(resources) = spec.get_mut("matchResources") {
            default_match_resources(resources);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (&object["spec"], FieldPath::new("spec"));
        let mut errors = Vec::new();
        let (policy, policy_path) = (text(spec, "policyName"), path.child("policyName"));
        if policy.is_empty() {
            errors.push(FieldError::required(policy_path, ""));
        } else {
            let problems = dns1123_subdomain(policy);
            errors.extend(problems.iter().map(|p| FieldError::invalid_str(policy_path.clone(), policy, p)));
        }
        if spec["paramRef"].is_object() {
            validate_param_ref(&spec["paramRef"], &path.child("paramRef"), &mut errors);
        }
        let resources = &spec["matchResources"];
        if resources.is_object() {
            // The spelling of the other path is that of Kubernetes.
            let path = path.child(if self.is_mutating { "matchResources" } else { "matchResouces" });
            validate_match_resources(resources, &path, &mut errors);
            if self.is_mutating {
                validate_mutating_operations(resources, &path, &mut errors);
            }
        }
        if !self.is_mutating {
            let actions = list(spec, "validationActions");
            validate_actions(actions, &path.child("validationActions"), &mut errors);
        }
        errors
    }
}

fn validate_actions(actions: &[Value], path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (index, action) in actions.iter().enumerate() {
        let name = action.as_str().unwrap_or_default();
        if !ACTIONS.contains(&name) {
            errors.push(FieldError::not_supported(path.index(index), action, &ACTIONS));
        }
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(path.index(index), action));
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.push(FieldError::invalid(path.clone(), &Value::from(actions.to_vec()), detail));
    }
    if seen.is_empty() {
        errors.push(FieldError::required(path.clone(), "at least one validation action is required"));
    }
}

fn validate_param_ref(reference: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let name = text(reference, "name");
    let has_selector = reference["selector"].is_object();
    let exclusive = "name and selector are mutually exclusive";
    if !name.is_empty() {
        let path = path.child("name");
        errors.extend(path_segment(name).iter().map(|p| FieldError::invalid_str(path.clone(), name, p)));
        if has_selector {
            errors.push(FieldError::forbidden(path, exclusive));
        }
    }
    if has_selector {
        let path = path.child("selector");
        validate_label_selector(&reference["selector"], &path, errors);
        if !name.is_empty() {
            errors.push(FieldError::forbidden(path, exclusive));
        }
    }
    if name.is_empty() && !has_selector {
        errors.push(FieldError::required(path.clone(), "one of name or selector must be specified"));
    }
    let (action, path) = (text(reference, "parameterNotFoundAction"), path.child("parameterNotFoundAction"));
    if action.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !NOT_FOUND_ACTIONS.contains(&action) {
        errors.push(FieldError::not_supported(path, &json!(action), &NOT_FOUND_ACTIONS));
    }
}

#[cfg(test)]
mod tests {
    use super::super::texts;
    use super::*;

    fn binding(changes: &Value) -> Value {
        let mut spec = json!({"policyName": "p.example.com", "validationActions": ["Deny"]});
        for (field, value) in changes.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        json!({"metadata": {"name": "b"}, "spec": spec})
    }

    #[test]
    fn faults_of_bindings_are_refused_in_the_words_of_kubernetes() {
        for (changes, expected) in [
            (json!({}), vec![]),
            (json!({"policyName": ""}), vec!["spec.policyName: Required value"]),
            (
                json!({"validationActions": ["Deny", "Warn"]}),
                vec![
                    "spec.validationActions: Invalid value: [\"Deny\",\"Warn\"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)",
                ],
            ),
            (
                json!({"validationActions": ["Stop", "Audit", "Audit"]}),
                vec![
                    "spec.validationActions[0]: Unsupported value: \"Stop\": supported values: \"Audit\", \"Deny\", \"Warn\"",
                    "spec.validationActions[2]: Duplicate value: \"Audit\"",
                ],
            ),
            (
                json!({"validationActions": []}),
                vec!["spec.validationActions: Required value: at least one validation action is required"],
            ),
            (
                json!({"paramRef": {}}),
                vec![
                    "spec.paramRef: Required value: one of name or selector must be specified",
                    "spec.paramRef.parameterNotFoundAction: Required value",
                ],
            ),
            (
                json!({"paramRef": {"name": "a/b", "selector": {}, "parameterNotFoundAction": "Skip"}}),
                vec![
                    "spec.paramRef.name: Invalid value: \"a/b\": may not contain '/'",
                    "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
                    "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
                    "spec.paramRef.parameterNotFoundAction: Unsupported value: \"Skip\": supported values: \"Deny\", \"Allow\"",
                ],
            ),
            (
                json!({"matchResources": {"resourceRules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"]}]}}),
                vec!["spec.matchResouces.resourceRules[0].resources: Required value"],
            ),
        ] {
            let mut object = binding(&changes);
            let semantics = PolicyBinding { is_mutating: false };
            semantics.default(&mut object);
            assert_eq!(texts(&semantics.validate(&object)), expected, "{changes}");
        }
    }

    #[test]
    fn bindings_of_mutating_policies_have_no_actions_and_no_deletes() {
        let semantics = PolicyBinding { is_mutating: true };
        let rule = json!({"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
        let mut object = json!({"spec": {"policyName": "p", "matchResources": {"resourceRules": [rule]}}});
        semantics.default(&mut object);
        let expected = "spec.matchResources.resourceRules.operations: Unsupported value: \"DELETE\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"UPDATE\"";
        assert_eq!(texts(&semantics.validate(&object)), [expected]);
    }
}
