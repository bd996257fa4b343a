//! RBAC kinds: roles and role bindings.

use serde_json::{Value, json};

use super::{Semantics, insert_missing_text, list, text};
use crate::field::{FieldError, FieldPath};
use crate::metadata::Scope;
use crate::names::{NameRule, label_value, qualified_name};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Role and ClusterRole.
#[derive(Debug)]
pub(crate) struct Role {
    /// Namespaced roles have no non-resource URLs and no aggregation.
    pub(crate) scope: Scope,
}

impl Semantics for Role {
    /// Go writes the rules even if there are none, and the storage does not tell an empty list from an absent one.
    fn default(&self, object: &mut Value) {
        if list(object, "rules").is_empty()
            && let Value::Object(fields) = object
        {
            fields.insert("rules".to_owned(), Value::Null);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (index, rule) in list(object, "rules").iter().enumerate() {
            self.validate_rule(rule, &FieldPath::new("rules").index(index), &mut errors);
        }
        if self.scope == Scope::Cluster
            && let Some(aggregation) = object.get("aggregationRule")
        {
            validate_aggregation(aggregation, &mut errors);
        }
        errors
    }
}

impl Role {
    fn validate_rule(&self, rule: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
        if list(rule, "verbs").is_empty() {
            errors.push(FieldError::required(path.child("verbs"), "verbs must contain at least one value"));
        }
        if !list(rule, "nonResourceURLs").is_empty() {
            let at = path.child("nonResourceURLs");
            if self.scope == Scope::Namespaced {
                let detail = "namespaced rules cannot apply to non-resource URLs";
                errors.push(FieldError::invalid(at.clone(), &rule["nonResourceURLs"], detail));
            }
            if ["apiGroups", "resources", "resourceNames"].iter().any(|field| !list(rule, field).is_empty()) {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                errors.push(FieldError::invalid(at, &rule["nonResourceURLs"], detail));
            }
            return;
        }
        if list(rule, "apiGroups").is_empty() {
            let detail = "resource rules must supply at least one api group";
            errors.push(FieldError::required(path.child("apiGroups"), detail));
        }
        if list(rule, "resources").is_empty() {
            let detail = "resource rules must supply at least one resource";
            errors.push(FieldError::required(path.child("resources"), detail));
        }
    }
}

fn validate_aggregation(aggregation: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("aggregationRule").child("clusterRoleSelectors");
    let selectors = list(aggregation, "clusterRoleSelectors");
    if selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required(path, detail));
        return;
    }
    for (index, selector) in selectors.iter().enumerate() {
        validate_label_selector(selector, &path.index(index), errors);
    }
}

pub(super) fn validate_label_selector(selector: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        let at = path.child("matchLabels");
        errors.extend(qualified_name(key).iter().map(|p| FieldError::invalid_str(at.clone(), key, p)));
        let value = value.as_str().unwrap_or_default();
        errors.extend(label_value(value).iter().map(|p| FieldError::invalid_str(at.clone(), value, p)));
    }
    for (index, requirement) in list(selector, "matchExpressions").iter().enumerate() {
        let at = path.child("matchExpressions").index(index);
        let values = list(requirement, "values");
        match text(requirement, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(at.child("values"), detail));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(at.child("values"), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                errors.push(FieldError::invalid_str(
                    at.child("operator"),
                    other,
                    "not a valid selector operator",
                ));
            }
        }
        let key = text(requirement, "key");
        let at = at.child("key");
        errors.extend(qualified_name(key).iter().map(|p| FieldError::invalid_str(at.clone(), key, p)));
    }
}

/// RoleBinding and ClusterRoleBinding.
#[derive(Debug)]
pub(crate) struct RoleBinding {
    /// Namespaced bindings may refer to a Role.
    pub(crate) scope: Scope,
}

impl Semantics for RoleBinding {
    fn default(&self, object: &mut Value) {
        if let Some(reference) = object.get_mut("roleRef") {
            insert_missing_text(reference, "apiGroup", GROUP);
        }
        let Some(Value::Array(subjects)) = object.get_mut("subjects") else {
            return;
        };
        for subject in subjects {
            if matches!(text(subject, "kind"), "User" | "Group") {
                insert_missing_text(subject, "apiGroup", GROUP);
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        self.validate_role_reference(&object["roleRef"], &mut errors);
        for (index, subject) in list(object, "subjects").iter().enumerate() {
            self.validate_subject(subject, &FieldPath::new("subjects").index(index), &mut errors);
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(object);
        let (new, old) = (&object["roleRef"], &old["roleRef"]);
        if ["apiGroup", "kind", "name"].iter().any(|field| text(new, field) != text(old, field)) {
            // Kubernetes prints its internal struct with the Go names of the fields.
            let printed = json!({
                "APIGroup": text(new, "apiGroup"), "Kind": text(new, "kind"), "Name": text(new, "name"),
            });
            errors.push(FieldError::invalid(FieldPath::new("roleRef"), &printed, "cannot change roleRef"));
        }
        errors
    }
}

impl RoleBinding {
    fn validate_role_reference(&self, reference: &Value, errors: &mut Vec<FieldError>) {
        let path = FieldPath::new("roleRef");
        if text(reference, "apiGroup") != GROUP {
            errors.push(FieldError::not_supported(
                path.child("apiGroup"),
                &json!(text(reference, "apiGroup")),
                &[GROUP],
            ));
        }
        let kinds: &[&str] =
            if self.scope == Scope::Namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
        let kind = text(reference, "kind");
        if !kinds.contains(&kind) {
            errors.push(FieldError::not_supported(path.child("kind"), &json!(kind), kinds));
        }
        let name = text(reference, "name");
        let path = path.child("name");
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else {
            let problems = NameRule::PathSegment.check_name(name);
            errors.extend(problems.iter().map(|p| FieldError::invalid_str(path.clone(), name, p)));
        }
    }

    fn validate_subject(&self, subject: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
        let name = text(subject, "name");
        if name.is_empty() {
            errors.push(FieldError::required(path.child("name"), ""));
        }
        let group = text(subject, "apiGroup");
        let check_api_group = |expected: &str, errors: &mut Vec<FieldError>| {
            if group != expected {
                let path = path.child("apiGroup");
                errors.push(FieldError::not_supported(path, &json!(group), &[expected]));
            }
        };
        match text(subject, "kind") {
            "ServiceAccount" => {
                if !name.is_empty() {
                    let problems = NameRule::Dns1123Subdomain.check_name(name);
                    errors.extend(
                        problems.iter().map(|p| FieldError::invalid_str(path.child("name"), name, p)),
                    );
                }
                check_api_group("", errors);
                // In a namespaced binding, the registry sets the namespace of the binding.
                if self.scope == Scope::Cluster && text(subject, "namespace").is_empty() {
                    errors.push(FieldError::required(path.child("namespace"), ""));
                }
            }
            "User" | "Group" => check_api_group(GROUP, errors),
            other => {
                let kinds = ["ServiceAccount", "User", "Group"];
                errors.push(FieldError::not_supported(path.child("kind"), &json!(other), &kinds));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::texts;
    use super::*;

    const CLUSTER_ROLE: Role = Role { scope: Scope::Cluster };
    const BINDING: RoleBinding = RoleBinding { scope: Scope::Namespaced };
    const CLUSTER_BINDING: RoleBinding = RoleBinding { scope: Scope::Cluster };

    #[test]
    fn a_role_without_rules_has_null() {
        let role = Role { scope: Scope::Cluster };
        let one = json!([{"verbs": ["get"]}]);
        for (rules, expected) in [(json!([]), Value::Null), (Value::Null, Value::Null), (one.clone(), one)] {
            let mut object = json!({"rules": rules});
            role.default(&mut object);
            assert_eq!(object, json!({"rules": expected}));
        }
        let mut object = json!({});
        role.default(&mut object);
        assert_eq!(object, json!({"rules": null}));
    }

    #[test]
    fn rules_are_checked() {
        let role = json!({"rules": [
            {"apiGroups": [""], "resources": ["x"]},
            {"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["y"]},
            {"verbs": ["get"]},
            {"verbs": ["get"], "nonResourceURLs": ["/x"]},
        ]});
        let common = [
            "rules[0].verbs: Required value: verbs must contain at least one value",
            r#"rules[1].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular resources and non-resource URLs"#,
            "rules[2].apiGroups: Required value: resource rules must supply at least one api group",
            "rules[2].resources: Required value: resource rules must supply at least one resource",
        ];
        assert_eq!(texts(&CLUSTER_ROLE.validate(&role)), common);
        let namespaced = texts(&Role { scope: Scope::Namespaced }.validate(&role));
        assert!(namespaced.contains(
            &r#"rules[3].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs"#
                .to_owned()
        ));
    }

    #[test]
    fn aggregation_needs_valid_selectors() {
        for (rule, expected) in [
            (json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}), vec![]),
            (
                json!({}),
                vec![
                    "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required \
                     if aggregationRule is non-nil",
                ],
            ),
            (
                json!({"clusterRoleSelectors": [{"matchExpressions": [{"key": "a", "operator": "Has"}]}]}),
                vec![
                    "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].operator: Invalid value: \"Has\": \
                     not a valid selector operator",
                ],
            ),
        ] {
            assert_eq!(texts(&CLUSTER_ROLE.validate(&json!({"aggregationRule": rule}))), expected);
        }
    }

    #[test]
    fn bindings_default_their_groups() {
        let mut binding = json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
            {"kind": "User", "name": "u"}, {"kind": "Group", "name": "g", "apiGroup": "x"},
            {"kind": "ServiceAccount", "name": "s"}]});
        BINDING.default(&mut binding);
        assert_eq!(
            binding,
            json!({"roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "r"}, "subjects": [
                {"kind": "User", "name": "u", "apiGroup": GROUP}, {"kind": "Group", "name": "g", "apiGroup": "x"},
                {"kind": "ServiceAccount", "name": "s"}]})
        );
    }

    #[test]
    fn bindings_are_checked() {
        let binding = json!({"roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "r"}, "subjects": [
            {"kind": "ServiceAccount", "name": "s"}, {"kind": "Z", "name": ""},
            {"kind": "User", "apiGroup": "x", "name": "u"}]});
        let z = [
            "subjects[1].name: Required value",
            r#"subjects[1].kind: Unsupported value: "Z": supported values: "ServiceAccount", "User", "Group""#,
            r#"subjects[2].apiGroup: Unsupported value: "x": supported values: "rbac.authorization.k8s.io""#,
        ];
        assert_eq!(texts(&BINDING.validate(&binding)), z);
        let cluster = texts(&CLUSTER_BINDING.validate(&binding));
        assert_eq!(cluster[0], r#"roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole""#);
        assert_eq!(cluster[1], "subjects[0].namespace: Required value");
    }

    #[test]
    fn the_role_of_a_binding_is_immutable() {
        let old = json!({"roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "c1"}});
        let new = json!({"roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "other"}});
        assert!(CLUSTER_BINDING.validate_update(&old, &old).is_empty());
        assert_eq!(
            texts(&CLUSTER_BINDING.validate_update(&new, &old)),
            [
                r#"roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"ClusterRole","Name":"other"}: cannot change roleRef"#
            ]
        );
    }
}
