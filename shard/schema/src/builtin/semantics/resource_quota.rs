//! ResourceQuota: limits on the number of objects, and on amounts that they request.

use std::collections::BTreeSet;

use fairlead_cel::Quantity;
use serde_json::{Map, Value};

use super::{Semantics, keep_all_but_status, list, text};
use crate::field::{FieldError, FieldPath};
use crate::names::qualified_name;

/// ResourceQuota. The server writes its status.
#[derive(Debug)]
pub(crate) struct ResourceQuota;

impl Semantics for ResourceQuota {
    fn default(&self, object: &mut Value) {
        let Value::Object(fields) = object else { return };
        for field in ["spec", "status"] {
            fields.entry(field).or_insert_with(|| Value::Object(Map::new()));
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        if let Value::Object(fields) = object {
            fields.remove("status");
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        let Value::Object(fields) = object else { return };
        match old.get("status") {
            Some(status) => fields.insert("status".to_owned(), status.clone()),
            None => fields.remove("status"),
        };
    }

    fn prepare_status_update(&self, object: &mut Value, old: &Value) {
        keep_all_but_status(object, old);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        let mut errors = Vec::new();
        check_amounts(spec, "spec", "hard", &mut errors);
        check_scopes(spec, &mut errors);
        check_scope_selector(spec, &mut errors);
        for field in ["hard", "used"] {
            check_amounts(&object["status"], "status", field, &mut errors);
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(object);
        if scopes(&object["spec"]) != scopes(&old["spec"]) {
            let path = FieldPath::new("spec").child("scopes");
            errors.push(FieldError::invalid(path, &object["spec"]["scopes"], "field is immutable"));
        }
        errors
    }
}

/// The resources without a prefix that a quota may limit.
const STANDARD: [&str; 19] = [
    "configmaps",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
/// Those that are counted.
const COUNTED: [&str; 9] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
const POD_RESOURCES: [&str; 7] =
    ["cpu", "limits.cpu", "limits.memory", "memory", "pods", "requests.cpu", "requests.memory"];
const VOLUME_RESOURCES: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];

fn check_amounts(part: &Value, name: &str, field: &str, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new(name).child(field);
    for (resource, amount) in part[field].as_object().into_iter().flatten() {
        let path = path.key(resource);
        check_resource_name(resource, &path, errors);
        let given = amount.as_str().unwrap_or_default();
        // Amounts that are no quantities have been refused before.
        let Ok(quantity) = Quantity::parse(given) else { continue };
        if quantity.sign() < 0 {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid_str(path.clone(), given, detail));
        }
        if is_integer_resource(resource) && !is_integer(&quantity) {
            errors.push(FieldError::invalid_str(path, given, "must be an integer"));
        }
    }
}

fn check_resource_name(resource: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let problems = qualified_name(resource);
    errors.extend(problems.iter().map(|problem| FieldError::invalid_str(path.clone(), resource, problem)));
    if resource.contains('/') || is_standard(resource) {
        return;
    }
    if problems.is_empty() && resource != "storage" {
        let detail = "must be a standard resource type or fully qualified";
        errors.push(FieldError::invalid_str(path.clone(), resource, detail));
    }
    errors.push(FieldError::invalid_str(path.clone(), resource, "must be a standard resource for quota"));
}

fn is_standard(resource: &str) -> bool {
    let is_huge_pages = resource.starts_with("hugepages-") || resource.starts_with("requests.hugepages-");
    STANDARD.contains(&resource) || is_huge_pages
}

/// Whether only whole amounts make sense: counted resources, and extended ones such as `example.com/gpu`.
fn is_integer_resource(resource: &str) -> bool {
    let is_extended = resource.contains('/')
        && !resource.contains("kubernetes.io/")
        && !resource.starts_with("requests.")
        && qualified_name(&format!("requests.{resource}")).is_empty();
    COUNTED.contains(&resource) || is_extended
}

fn is_integer(quantity: &Quantity) -> bool {
    let value = quantity.as_double();
    // Larger numbers have no fraction in this representation.
    value.abs() >= 9e15 || value.fract() == 0.0
}

fn scopes(spec: &Value) -> BTreeSet<&str> {
    list(spec, "scopes").iter().filter_map(Value::as_str).collect()
}

fn check_scopes(spec: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("spec").child("scopes");
    let mut refuse = |detail| errors.push(FieldError::invalid(path.clone(), &spec["scopes"], detail));
    let given: Vec<&str> = list(spec, "scopes").iter().filter_map(Value::as_str).collect();
    for scope in &given {
        if !is_scope(scope) {
            refuse("unsupported scope");
        }
        for _ in unsuitable(scope, spec) {
            refuse("unsupported scope applied to resource");
        }
    }
    for _ in contradictions(&given) {
        refuse("conflicting scopes");
    }
}

fn check_scope_selector(spec: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("spec").child("scopeSelector").child("matchExpressions");
    let expressions = list(&spec["scopeSelector"], "matchExpressions");
    for expression in expressions {
        let (scope, operator) = (text(expression, "scopeName"), text(expression, "operator"));
        let mut refuse = |field: &str, value: &Value, detail| {
            errors.push(FieldError::invalid(path.child(field), value, detail))
        };
        if !is_scope(scope) {
            refuse("scopeName", &scope.into(), "unsupported scope");
        }
        let takes_only_exists = matches!(
            scope,
            "BestEffort" | "NotBestEffort" | "Terminating" | "NotTerminating" | "CrossNamespacePodAffinity"
        );
        if takes_only_exists && operator != "Exists" {
            refuse("operator", &operator.into(), ONLY_EXISTS);
        }
        let values = list(expression, "values");
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let detail =
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.push(FieldError::required(path.child("values"), detail));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail =
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                refuse("values", &expression["values"], detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => refuse("operator", &operator.into(), "not a valid selector operator"),
        }
        for _ in unsuitable(scope, spec) {
            let detail = "unsupported scope applied to resource";
            errors.push(FieldError::invalid(path.clone(), &spec["scopeSelector"], detail));
        }
    }
    let given: Vec<&str> = expressions.iter().map(|expression| text(expression, "scopeName")).collect();
    for _ in contradictions(&given) {
        errors.push(FieldError::invalid(path.clone(), &spec["scopes"], "conflicting scopes"));
    }
}

const ONLY_EXISTS: &str = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
     ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
     ResourceQuotaScopeCrossNamespacePodAffinity";

fn is_scope(scope: &str) -> bool {
    matches!(
        scope,
        "Terminating"
            | "NotTerminating"
            | "BestEffort"
            | "NotBestEffort"
            | "PriorityClass"
            | "VolumeAttributesClass"
            | "CrossNamespacePodAffinity"
    )
}

/// The limited standard resources that objects of a scope do not have.
fn unsuitable<'s>(scope: &str, spec: &'s Value) -> impl Iterator<Item = &'s str> {
    let suitable: Option<&[&str]> = match scope {
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => Some(&POD_RESOURCES),
        "BestEffort" => Some(&["pods"]),
        "VolumeAttributesClass" => Some(&VOLUME_RESOURCES),
        _ => None,
    };
    let limited = spec["hard"].as_object().into_iter().flat_map(Map::keys).map(String::as_str);
    limited
        .filter(move |resource| suitable.is_some_and(|all| is_standard(resource) && !all.contains(resource)))
}

fn contradictions(scopes: &[&str]) -> impl Iterator<Item = ()> {
    let has = |scope: &str| scopes.contains(&scope);
    let pairs = [has("BestEffort") && has("NotBestEffort"), has("Terminating") && has("NotTerminating")];
    pairs.into_iter().filter(|both| *both).map(|_| ())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::texts;
    use super::*;

    #[test]
    fn limited_resources_are_known_to_quotas_or_qualified() {
        for (hard, expected) in [
            (json!({"count/configmaps": "2", "count/sheriffs.wild.west": "1", "configmaps": "3"}), &[][..]),
            (json!({"requests.cpu": "500m", "example.com/gpu": "4", "hugepages-2Mi": "1Gi"}), &[]),
            (
                json!({"unicorns": "1"}),
                &[
                    "spec.hard[unicorns]: Invalid value: \"unicorns\": must be a standard resource type or fully \
                     qualified",
                    "spec.hard[unicorns]: Invalid value: \"unicorns\": must be a standard resource for quota",
                ],
            ),
            (
                json!({"secrets": "-1"}),
                &["spec.hard[secrets]: Invalid value: \"-1\": must be greater than or equal to 0"],
            ),
            (
                json!({"secrets": "1500m"}),
                &["spec.hard[secrets]: Invalid value: \"1500m\": must be an integer"],
            ),
            (
                json!({"count/a_": "1"}),
                &[
                    "spec.hard[count/a_]: Invalid value: \"count/a_\": name part must consist of alphanumeric characters, \
                   '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  \
                   or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
                ],
            ),
        ] {
            assert_eq!(texts(&ResourceQuota.validate(&json!({"spec": {"hard": hard}}))), expected, "{hard}");
        }
    }

    #[test]
    fn scopes_suit_the_limited_resources() {
        for (scopes, hard, expected) in [
            (json!(["Terminating"]), json!({"pods": "1", "count/configmaps": "1"}), &[][..]),
            (json!(["Sometimes"]), json!({}), &["unsupported scope"]),
            (json!(["BestEffort"]), json!({"cpu": "1"}), &["unsupported scope applied to resource"]),
            (json!(["BestEffort", "NotBestEffort"]), json!({}), &["conflicting scopes"]),
        ] {
            let errors = ResourceQuota.validate(&json!({"spec": {"hard": hard, "scopes": scopes}}));
            let details: Vec<String> = errors
                .iter()
                .map(|error| error.to_string().rsplit(": ").next().unwrap_or_default().to_owned())
                .collect();
            assert_eq!(details, expected, "{scopes} {hard}");
        }
    }

    #[test]
    fn scope_selectors_have_operators_and_values() {
        let selector = |scope: &str, operator: &str, values: Value| {
            let expression = json!({"scopeName": scope, "operator": operator, "values": values});
            let quota = json!({"spec": {"scopeSelector": {"matchExpressions": [expression]}}});
            ResourceQuota.validate(&quota).len()
        };
        for (scope, operator, values, expected) in [
            ("PriorityClass", "In", json!(["high"]), 0),
            ("PriorityClass", "In", json!([]), 1),
            ("PriorityClass", "Exists", json!(["high"]), 1),
            ("Terminating", "Exists", json!([]), 0),
            ("Terminating", "In", json!(["x"]), 1),
            ("PriorityClass", "Like", json!([]), 1),
        ] {
            assert_eq!(selector(scope, operator, values), expected, "{scope} {operator}");
        }
    }

    #[test]
    fn clients_write_neither_the_status_nor_other_scopes() {
        let old =
            json!({"metadata": {"name": "q"}, "spec": {"hard": {}}, "status": {"used": {"secrets": "1"}}});
        let mut new = old.clone();
        new["status"]["used"]["secrets"] = "0".into();
        ResourceQuota.prepare_update(&mut new, &old);
        assert_eq!(new["status"], old["status"]);
        ResourceQuota.prepare_create(&mut new);
        ResourceQuota.default(&mut new);
        assert_eq!(new["status"], json!({}));
        new["spec"]["scopes"] = json!(["BestEffort"]);
        assert_eq!(
            texts(&ResourceQuota.validate_update(&new, &old)),
            ["spec.scopes: Invalid value: [\"BestEffort\"]: field is immutable"]
        );
    }
}
