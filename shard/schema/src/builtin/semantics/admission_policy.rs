//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy.

use std::collections::BTreeSet;

use fairlead_cel::{ExpressionKind, PolicyEnvironments, RESERVED_WORDS};
use serde_json::{Value, json};

use super::match_conditions::{expression_error, validate_match_conditions};
use super::match_resources::{default_match_resources, validate_match_resources};
use super::{Semantics, insert_missing_text, list, text};
use crate::field::{FieldError, FieldPath};
use crate::names::{dns1035_label, dns1123_subdomain, qualified_name};

const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const PATCH_TYPES: [&str; 2] = ["ApplyConfiguration", "JSONPatch"];
const REINVOCATION_POLICIES: [&str; 2] = ["Never", "IfNeeded"];
const MUTATING_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
const MAX_AUDIT_ANNOTATIONS: usize = 20;
const MAX_VALUE_EXPRESSION: usize = 5 * 1024;

/// Policies that refuse writes. Their status has the result of the type check.
#[derive(Debug)]
pub(crate) struct ValidatingAdmissionPolicy;

/// Policies that change objects.
#[derive(Debug)]
pub(crate) struct MutatingAdmissionPolicy;

impl Semantics for ValidatingAdmissionPolicy {
    fn default(&self, object: &mut Value) {
        default_policy(object);
        if let Value::Object(fields) = object {
            fields.entry("status").or_insert_with(|| json!({}));
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        if let Value::Object(fields) = object {
            fields.insert("status".to_owned(), json!({}));
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        if let (Value::Object(fields), Some(status)) = (object, old.get("status")) {
            fields.insert("status".to_owned(), status.clone());
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        let path = FieldPath::new("spec");
        let mut errors = Vec::new();
        let environments = validate_common(spec, &path, &mut errors, |_, _, _| {});
        let checks = Expressions { environments, errors: &mut errors };
        checks.validations(object, spec, &path);
        errors
    }

    /// Expressions of an unchanged specification are not compiled again: the status changes more often.
    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = if object["spec"] == old["spec"] { Vec::new() } else { self.validate(object) };
        validate_status(&object["status"], &mut errors);
        errors
    }
}

impl Semantics for MutatingAdmissionPolicy {
    fn default(&self, object: &mut Value) {
        default_policy(object);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        let path = FieldPath::new("spec");
        let mut errors = Vec::new();
        let environments = validate_common(spec, &path, &mut errors, validate_mutating_operations);
        let checks = Expressions { environments, errors: &mut errors };
        checks.mutations(spec, &path.child("mutations"));
        let policy = text(spec, "reinvocationPolicy");
        let path = path.child("reinvocationPolicy");
        if policy.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if !REINVOCATION_POLICIES.contains(&policy) {
            errors.push(FieldError::not_supported(path, &json!(policy), &REINVOCATION_POLICIES));
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        if object["spec"] == old["spec"] { Vec::new() } else { self.validate(object) }
    }
}

fn default_policy(object: &mut Value) {
    let Value::Object(fields) = object else { return };
    let spec = fields.entry("spec").or_insert_with(|| json!({}));
    insert_missing_text(spec, "failurePolicy", "Fail");
    if let Some(constraints) = spec.get_mut("matchConstraints") {
        default_match_resources(constraints);
    }
}

/// Checks what both kinds of policies have, in the order of Kubernetes, and returns the environments of the other
/// expressions.
fn validate_common(
    spec: &Value,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
    check_constraints: fn(&Value, &FieldPath, &mut Vec<FieldError>),
) -> PolicyEnvironments {
    let failure_policy = &spec["failurePolicy"];
    if !failure_policy.as_str().is_some_and(|policy| FAILURE_POLICIES.contains(&policy)) {
        let path = path.child("failurePolicy");
        errors.push(FieldError::not_supported(path, failure_policy, &FAILURE_POLICIES));
    }
    let has_params = spec["paramKind"].is_object();
    if has_params {
        validate_param_kind(&spec["paramKind"], &path.child("paramKind"), errors);
    }
    let constraints = &spec["matchConstraints"];
    let constraints_path = path.child("matchConstraints");
    if constraints.is_object() {
        validate_match_resources(constraints, &constraints_path, errors);
        if list(constraints, "resourceRules").is_empty() {
            errors.push(FieldError::required(constraints_path.child("resourceRules"), ""));
        }
        check_constraints(constraints, &constraints_path, errors);
    } else {
        errors.push(FieldError::required(constraints_path, ""));
    }
    let conditions = list(spec, "matchConditions");
    validate_match_conditions(conditions, has_params, &path.child("matchConditions"), errors);
    let mut environments = PolicyEnvironments::new(has_params);
    for (index, variable) in list(spec, "variables").iter().enumerate() {
        validate_variable(variable, &path.child("variables").index(index), &mut environments, errors);
    }
    environments
}

/// Deletes cannot be changed.
pub(super) fn validate_mutating_operations(
    constraints: &Value,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let operations = list(constraints, "resourceRules").iter().flat_map(|rule| list(rule, "operations"));
    for operation in operations {
        if !MUTATING_OPERATIONS.contains(&operation.as_str().unwrap_or_default()) {
            let path = path.child("resourceRules").child("operations");
            errors.push(FieldError::not_supported(path, operation, &MUTATING_OPERATIONS));
        }
    }
}

fn validate_param_kind(kind: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let api_version = text(kind, "apiVersion");
    let version_path = path.child("apiVersion");
    let mut refuse = |path: &FieldPath, value: &str, detail: &str| {
        errors.push(FieldError::invalid_str(path.clone(), value, detail));
    };
    match api_version.split('/').collect::<Vec<_>>().as_slice() {
        [""] => errors.push(FieldError::required(version_path, "")),
        [_, _, _, ..] => {
            let detail = format!("unexpected GroupVersion string: {api_version}");
            refuse(&version_path, api_version, &detail);
        }
        parts => {
            let (group, version) = match parts {
                [group, version] => (*group, *version),
                [version] => ("", *version),
                _ => ("", ""),
            };
            let problems = if group.is_empty() { Vec::new() } else { dns1123_subdomain(group) };
            if !problems.is_empty() {
                refuse(&version_path, group, &problems.join(","));
            }
            if version.is_empty() {
                refuse(&version_path, api_version, "version must be specified");
            } else {
                let problems = dns1035_label(version);
                if !problems.is_empty() {
                    refuse(&version_path, version, &problems.join(","));
                }
            }
        }
    }
    let name = text(kind, "kind");
    let path = path.child("kind");
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let problems = dns1035_label(&name.to_lowercase());
    if !problems.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", problems.join(","));
        errors.push(FieldError::invalid_str(path, name, &detail));
    }
}

fn validate_variable(
    variable: &Value,
    path: &FieldPath,
    environments: &mut PolicyEnvironments,
    errors: &mut Vec<FieldError>,
) {
    let (name, expression) = (text(variable, "name"), text(variable, "expression"));
    if name.trim().is_empty() {
        errors.push(FieldError::required(path.child("name"), "name is not specified"));
    } else if !is_identifier(name) {
        let detail = "name is not a valid CEL identifier";
        errors.push(FieldError::invalid_str(path.child("name"), name, detail));
    }
    let path = path.child("expression");
    if expression.trim().is_empty() {
        errors.push(FieldError::required(path, "expression is not specified"));
    } else if let Err(error) = environments.add_variable(name, expression) {
        errors.push(expression_error(path, expression, &error));
    }
}

fn is_identifier(name: &str) -> bool {
    let is_start = |c: char| c == '_' || c.is_ascii_alphabetic();
    name.starts_with(is_start)
        && name.chars().all(|c| is_start(c) || c.is_ascii_digit())
        && !RESERVED_WORDS.contains(&name)
}

/// Checks the expressions of a policy.
struct Expressions<'e> {
    environments: PolicyEnvironments,
    errors: &'e mut Vec<FieldError>,
}

impl Expressions<'_> {
    fn compile(&mut self, kind: ExpressionKind, source: &str, path: FieldPath) {
        if let Err(error) = self.environments.compile(kind, source) {
            self.errors.push(expression_error(path, source, &error));
        }
    }

    fn validations(mut self, object: &Value, spec: &Value, path: &FieldPath) {
        let (validations, annotations) = (list(spec, "validations"), list(spec, "auditAnnotations"));
        if validations.is_empty() && annotations.is_empty() {
            let detail = "validations or auditAnnotations must contain at least one item";
            for field in ["validations", "auditAnnotations"] {
                self.errors.push(FieldError::required(path.child(field), detail));
            }
            return;
        }
        for (index, validation) in validations.iter().enumerate() {
            self.validation(validation, &path.child("validations").index(index));
        }
        let path = path.child("auditAnnotations");
        if annotations.len() > MAX_AUDIT_ANNOTATIONS {
            let detail = format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
            self.errors.push(FieldError::invalid(path.clone(), &Value::from(annotations.to_vec()), &detail));
        }
        let mut keys = BTreeSet::new();
        for (index, annotation) in annotations.iter().enumerate().take(MAX_AUDIT_ANNOTATIONS) {
            let path = path.index(index);
            self.audit_annotation(text(&object["metadata"], "name"), annotation, &path);
            if !keys.insert(text(annotation, "key")) {
                self.errors.push(FieldError::duplicate(path.child("key"), &annotation["key"]));
            }
        }
    }

    fn validation(&mut self, validation: &Value, path: &FieldPath) {
        let expression = text(validation, "expression");
        if expression.trim().is_empty() {
            let detail = "expression is not specified";
            self.errors.push(FieldError::required(path.child("expression"), detail));
        } else {
            self.compile(ExpressionKind::Validation, expression, path.child("expression"));
        }
        let message = text(validation, "messageExpression");
        let message_path = path.child("messageExpression");
        if !message.is_empty() && message.trim().is_empty() {
            let detail = "must be non-empty if specified";
            self.errors.push(FieldError::invalid_str(message_path, message, detail));
        } else if !message.is_empty() {
            self.compile(ExpressionKind::Message, message, message_path);
        }
        let message = text(validation, "message");
        let message_path = path.child("message");
        if !message.is_empty() && message.trim().is_empty() {
            let detail = "message must be non-empty if specified";
            self.errors.push(FieldError::invalid_str(message_path, message, detail));
        } else if message.trim().contains(['\n', '\r']) {
            let detail = "message must not contain line breaks";
            self.errors.push(FieldError::invalid_str(message_path, message, detail));
        }
        if let Some(reason) = validation.get("reason").filter(|reason| !reason.is_null())
            && !REASONS.contains(&reason.as_str().unwrap_or_default())
        {
            self.errors.push(FieldError::not_supported(path.child("reason"), reason, &REASONS));
        }
    }

    fn audit_annotation(&mut self, policy: &str, annotation: &Value, path: &FieldPath) {
        let (key, key_path) = (text(annotation, "key"), path.child("key"));
        if policy.is_empty() {
            let detail = "requires metadata.name be non-empty";
            self.errors.push(FieldError::invalid_str(key_path, key, detail));
        } else {
            let name = format!("{policy}/{key}");
            let problems = qualified_name(&name);
            let errors = problems.iter().map(|p| FieldError::invalid_str(key_path.clone(), &name, p));
            self.errors.extend(errors);
        }
        let (expression, path) = (text(annotation, "valueExpression"), path.child("valueExpression"));
        let trimmed = expression.trim();
        if trimmed.is_empty() {
            self.errors.push(FieldError::required(path, "valueExpression is not specified"));
        } else if trimmed.len() > MAX_VALUE_EXPRESSION {
            let detail = format!("must not exceed {MAX_VALUE_EXPRESSION} bytes in length");
            self.errors.push(FieldError::required(path, &detail));
        } else if let Err(error) = self.environments.compile(ExpressionKind::AuditAnnotation, trimmed) {
            self.errors.push(expression_error(path, expression, &error));
        }
    }

    fn mutations(mut self, spec: &Value, path: &FieldPath) {
        let mutations = list(spec, "mutations");
        if mutations.is_empty() {
            self.errors.push(FieldError::required(path.clone(), "mutations must contain at least one item"));
        }
        for (index, mutation) in mutations.iter().enumerate() {
            let path = path.index(index);
            let (kind, field, other) = match text(mutation, "patchType") {
                "" => {
                    self.errors.push(FieldError::required(path.child("patchType"), ""));
                    continue;
                }
                "JSONPatch" => (ExpressionKind::JsonPatch, "jsonPatch", "applyConfiguration"),
                "ApplyConfiguration" => {
                    (ExpressionKind::ApplyConfiguration, "applyConfiguration", "jsonPatch")
                }
                unknown => {
                    let path = path.child("patchType");
                    self.errors.push(FieldError::not_supported(path, &json!(unknown), &PATCH_TYPES));
                    continue;
                }
            };
            let patch_type = text(mutation, "patchType");
            if mutation[field].is_object() {
                let expression = text(&mutation[field], "expression").trim();
                let path = path.child(field).child("expression");
                if expression.is_empty() {
                    self.errors.push(FieldError::required(path, ""));
                } else {
                    self.compile(kind, expression, path);
                }
            } else {
                let detail = format!("must be specified when patchType is {patch_type}");
                self.errors.push(FieldError::required(path.child(field), &detail));
            }
            if mutation[other].is_object() {
                let detail = format!("must not be specified when patchType is {patch_type}");
                let value = format!("{{{other}}}");
                self.errors.push(FieldError::invalid_str(path.child(other), &value, &detail));
            }
        }
    }
}

fn validate_status(status: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("status.typeChecking.expressionWarnings");
    let warnings = list(&status["typeChecking"], "expressionWarnings");
    for (index, warning) in warnings.iter().enumerate() {
        let path = path.index(index);
        for field in ["warning", "fieldRef"] {
            if text(warning, field).trim().is_empty() {
                errors.push(FieldError::required(path.child(field), ""));
            }
        }
    }
}

#[cfg(test)]
mod tests;
