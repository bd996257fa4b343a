//! The CEL rules of kcp's schemas, evaluated natively.
//!
//! A rule is identified by its text: [`native`] returns the Rust implementation of every rule that [`crate::resources`] uses
//! (a test checks it). So validation needs no CEL engine and costs one pass over the schema.

use serde_json::Value;

use crate::ResourceDefinition;

/// A rule that an object violates.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// The path of the value, such as `spec.cluster`.
    pub path: String,
    /// The new value at that path.
    pub value: Value,
    /// The rule's message, equal to kcp's.
    pub message: String,
}

impl Violation {
    /// The message of a Status cause: `Invalid value: "abc": cluster is immutable`. Composite values are left out, as in
    /// Kubernetes 1.36.
    pub fn cause(&self) -> String {
        match &self.value {
            Value::Object(_) | Value::Array(_) => format!("Invalid value: {}", self.message),
            scalar => format!("Invalid value: {scalar}: {}", self.message),
        }
    }
}

impl ResourceDefinition {
    /// Checks the rules of one version; `old` is the stored object of an update. An unknown version has no rules.
    pub fn validate_rules(&self, version: &str, old: Option<&Value>, new: &Value) -> Vec<Violation> {
        self.version(version).map(|version| validate_rules(&version.schema, old, new)).unwrap_or_default()
    }
}

/// Checks every rule in `schema` that has a native implementation; the others are skipped ([`unknown_rules`] lists them).
///
/// Rules that compare with `oldSelf` run only if there is an old value. The other rules are skipped for unchanged values
/// (KEP-4008, ratcheting).
pub fn validate_rules(schema: &Value, old: Option<&Value>, new: &Value) -> Vec<Violation> {
    let mut violations = Vec::new();
    validate_value(schema, old, new, "", &mut violations);
    violations
}

/// The rules in `schema` without a native implementation.
pub fn unknown_rules(schema: &Value) -> Vec<&str> {
    let mut unknown = Vec::new();
    collect_unknown(schema, &mut unknown);
    unknown
}

/// The native implementation of a rule.
enum Check {
    /// Checks the value alone.
    Value(fn(&Value) -> bool),
    /// Checks the new value against the old one, in this order.
    Change(fn(&Value, &Value) -> bool),
}

/// The schema of kcp declares the selector of a claim immutable. A kcp server does not enforce this rule, and kcp's
/// end-to-end tests change selectors.
const NOT_ENFORCED: &str = "Permission claim selector is immutable";

fn native(rule: &str) -> Option<Check> {
    Some(match rule {
        "self == oldSelf" => Check::Change(|new, old| new == old),
        "!has(oldSelf.URL) || has(self.URL)" => Check::Change(|new, old| !has(old, "URL") || has(new, "URL")),
        "!has(oldSelf.cluster) || has(self.cluster)" => {
            Check::Change(|new, old| !has(old, "cluster") || has(new, "cluster"))
        }
        "self.name == oldSelf.name" => Check::Change(|new, old| new["name"] == old["name"]),
        "has(oldSelf.path) == has(self.path)" => {
            Check::Change(|new, old| has(new, "path") == has(old, "path"))
        }
        "!has(oldSelf.path) || !has(self.path) || self.path == oldSelf.path" => {
            Check::Change(|new, old| !has(old, "path") || !has(new, "path") || new["path"] == old["path"])
        }
        "has(oldSelf.apiVersion) == has(self.apiVersion)" => {
            Check::Change(|new, old| has(new, "apiVersion") == has(old, "apiVersion"))
        }
        "has(oldSelf.kind) == has(self.kind)" => {
            Check::Change(|new, old| has(new, "kind") == has(old, "kind"))
        }
        "has(oldSelf.name) == has(self.name)" => {
            Check::Change(|new, old| has(new, "name") == has(old, "name"))
        }
        "has(self.crd) != has(self.virtual)" => Check::Value(|new| has(new, "crd") != has(new, "virtual")),
        "!(has(self.matchAll) && self.matchAll && has(self.selector))" => {
            Check::Value(|new| !(is_true(new, "matchAll") && has(new, "selector")))
        }
        "has(self.__namespace__) || has(self.name)" => {
            Check::Value(|new| has(new, "namespace") || has(new, "name"))
        }
        "(has(self.all) && self.all) != (has(self.resourceSelector) && size(self.resourceSelector) > 0)" => {
            Check::Value(|new| is_true(new, "all") != (size(new, "resourceSelector") > 0))
        }
        "size(self.versions) == 1 || (size(self.versions) > 1 && has(self.conversion))" => {
            Check::Value(|new| match size(new, "versions") {
                0 => false,
                1 => true,
                _ => has(new, "conversion"),
            })
        }
        "(self.strategy == 'None' && !has(self.webhook))  || (self.strategy == 'Webhook' && has(self.webhook))" => {
            Check::Value(|new| match new["strategy"].as_str() {
                Some("None") => !has(new, "webhook"),
                Some("Webhook") => has(new, "webhook"),
                _ => false,
            })
        }
        "has(self.claim) || has(self.expression)" => {
            Check::Value(|new| has(new, "claim") || has(new, "expression"))
        }
        "!(has(self.claim) && has(self.expression))" => {
            Check::Value(|new| !(has(new, "claim") && has(new, "expression")))
        }
        "!(has(self.prefix)) || has(self.claim)" => {
            Check::Value(|new| !has(new, "prefix") || has(new, "claim"))
        }
        "(has(self.expression) && !has(self.requiredValue)) || (has(self.claim) && has(self.requiredValue))" => {
            Check::Value(|new| {
                let required = has(new, "requiredValue");
                (has(new, "expression") && !required) || (has(new, "claim") && required)
            })
        }
        "(has(self.expression) && has(self.message)) || (has(self.claim) && !has(self.message))" => {
            Check::Value(|new| {
                let message = has(new, "message");
                (has(new, "expression") && message) || (has(new, "claim") && !message)
            })
        }
        _ => return native_label_rule(rule),
    })
}

/// The rules of PartitionSet's selector, identified by their beginnings, because they repeat long patterns.
fn native_label_rule(rule: &str) -> Option<Check> {
    if rule.starts_with(r#"self.contains("/") ? self.split("#) {
        return Some(Check::Value(|new| new.as_str().is_some_and(is_label_key)));
    }
    if rule.starts_with(r#"self.all(k, k.contains("/") ? k.split("#) {
        return Some(Check::Value(|new| {
            new.as_object().is_some_and(|labels| labels.keys().all(|key| is_label_key(key)))
        }));
    }
    if rule.starts_with(r#"self.all(k, self[k].matches("^[A-Za-z0-9]("#) {
        return Some(Check::Value(|new| {
            new.as_object()
                .is_some_and(|labels| labels.values().all(|value| value.as_str().is_some_and(is_label_name)))
        }));
    }
    if rule.starts_with(r#"self.operator in ["In", "NotIn"] ? size(self.values) > 0"#) {
        return Some(Check::Value(|new| match new["operator"].as_str() {
            Some("In" | "NotIn") => size(new, "values") > 0,
            Some("Exists" | "DoesNotExist") => !has(new, "values"),
            _ => true,
        }));
    }
    None
}

fn validate_value(
    schema: &Value,
    old: Option<&Value>,
    new: &Value,
    path: &str,
    violations: &mut Vec<Violation>,
) {
    // An unchanged value breaks no rule that compares it with the old one, and the others are skipped.
    if new.is_null() || old == Some(new) {
        return;
    }
    for rule in array(schema, "x-kubernetes-validations") {
        let message = rule["message"].as_str().unwrap_or_default();
        let holds = match rule["rule"].as_str().and_then(native) {
            _ if message == NOT_ENFORCED => true,
            Some(Check::Value(check)) => check(new),
            Some(Check::Change(check)) => old.is_none_or(|old| check(new, old)),
            None => true,
        };
        if !holds {
            violations.push(Violation {
                path: path.to_owned(),
                value: new.clone(),
                message: message.to_owned(),
            });
        }
    }
    if let Some(properties) = schema["properties"].as_object() {
        for (name, schema) in properties {
            if let Some(value) = new.get(name) {
                let path = join(path, name);
                validate_value(schema, old.and_then(|old| old.get(name)), value, &path, violations);
            }
        }
    }
    if let (Some(schema), Some(entries)) = (schema.get("additionalProperties"), new.as_object()) {
        for (key, value) in entries {
            let path = format!("{path}[{key}]");
            validate_value(schema, old.and_then(|old| old.get(key)), value, &path, violations);
        }
    }
    if let (Some(items), Some(values)) = (schema.get("items"), new.as_array()) {
        for (index, value) in values.iter().enumerate() {
            let path = format!("{path}[{index}]");
            validate_value(items, same_item(schema, old, value), value, &path, violations);
        }
    }
}

/// The old item with the same keys. Only items of map lists can be matched with old ones.
fn same_item<'a>(schema: &Value, old: Option<&'a Value>, new: &Value) -> Option<&'a Value> {
    if schema["x-kubernetes-list-type"] != "map" {
        return None;
    }
    let keys = array(schema, "x-kubernetes-list-map-keys");
    old?.as_array()?
        .iter()
        .find(|old| keys.iter().filter_map(Value::as_str).all(|key| old.get(key) == new.get(key)))
}

fn collect_unknown<'a>(schema: &'a Value, unknown: &mut Vec<&'a str>) {
    for rule in array(schema, "x-kubernetes-validations") {
        if let Some(text) = rule["rule"].as_str().filter(|text| native(text).is_none()) {
            unknown.push(text);
        }
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(schema) = schema.get(inner) {
            collect_unknown(schema, unknown);
        }
    }
    for schema in schema["properties"].as_object().into_iter().flatten() {
        collect_unknown(schema.1, unknown);
    }
}

fn array<'a>(schema: &'a Value, keyword: &str) -> &'a [Value] {
    schema.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn has(value: &Value, field: &str) -> bool {
    value.get(field).is_some_and(|value| !value.is_null())
}

fn is_true(value: &Value, field: &str) -> bool {
    value.get(field) == Some(&Value::Bool(true))
}

fn size(value: &Value, field: &str) -> usize {
    value.get(field).and_then(Value::as_array).map_or(0, Vec::len)
}

/// `[prefix/]name`. kcp allows no dots in the prefix.
fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        None => is_label_name(key),
        Some((prefix, name)) => {
            let edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            has_form(prefix, 253, edge, |byte| edge(byte) || *byte == b'-') && is_label_name(name)
        }
    }
}

fn is_label_name(name: &str) -> bool {
    has_form(name, 63, u8::is_ascii_alphanumeric, |byte| {
        byte.is_ascii_alphanumeric() || b"-_.".contains(byte)
    })
}

fn has_form(text: &str, longest: usize, edge: impl Fn(&u8) -> bool, inner: impl Fn(&u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= longest
        && bytes.first().is_some_and(&edge)
        && bytes.last().is_some_and(edge)
        && bytes.iter().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{resource, resources};
    use serde_json::json;

    #[test]
    fn every_rule_of_every_resource_has_a_native_implementation() {
        let mut rules = 0;
        for resource in resources() {
            for version in &resource.versions {
                assert_eq!(
                    unknown_rules(&version.schema),
                    Vec::<&str>::new(),
                    "{} {}",
                    resource.plural,
                    version.name
                );
                rules += version.schema.to_string().matches("x-kubernetes-validations").count();
            }
        }
        assert!(rules > 30, "{rules}");
        assert_eq!(
            unknown_rules(
                &json!({"properties": {"a": {"items": {"x-kubernetes-validations": [{"rule": "self > 1"}]}}}})
            ),
            ["self > 1"]
        );
    }

    #[test]
    fn updates_that_break_a_rule_are_reported_with_path_and_message() {
        let workspace = json!({"spec": {
            "URL": "https://x/clusters/a", "cluster": "abc", "type": {"name": "universal", "path": "root"},
        }});
        let mounted = json!({"spec": {"mount": {"ref": {"apiVersion": "v1", "kind": "A", "name": "a"}}}});
        let binding = json!({"spec": {"reference": {"export": {"path": "root", "name": "a"}}}});
        let export = |storage: Value| {
            json!({"spec": {"resources": [
                {"group": "g", "name": "n", "schema": "s", "storage": storage},
            ]}})
        };
        let edit = |object: &Value, pointer: &str, value: Value| {
            let mut object = object.clone();
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
            if value.is_null() {
                parent.remove(field);
            } else {
                parent.insert(field.to_owned(), value);
            }
            object
        };
        type Expected = &'static [(&'static str, &'static str)];
        let cases: Vec<(&str, &str, Option<&Value>, Value, Expected)> = vec![
            ("tenancy.kcp.io/v1alpha1", "workspaces", Some(&workspace), workspace.clone(), &[]),
            (
                "tenancy.kcp.io/v1alpha1",
                "workspaces",
                Some(&workspace),
                edit(&workspace, "/spec/cluster", json!("other")),
                &[("spec.cluster", "cluster is immutable")],
            ),
            (
                "tenancy.kcp.io/v1alpha1",
                "workspaces",
                Some(&workspace),
                edit(&workspace, "/spec/cluster", Value::Null),
                &[("spec", "cluster cannot be unset")],
            ),
            (
                "tenancy.kcp.io/v1alpha1",
                "workspaces",
                Some(&workspace),
                edit(&workspace, "/spec/URL", Value::Null),
                &[("spec", "URL cannot be unset")],
            ),
            (
                "tenancy.kcp.io/v1alpha1",
                "workspaces",
                Some(&workspace),
                edit(&workspace, "/spec/type", json!({"name": "team"})),
                &[("spec.type", "name is immutable"), ("spec.type", "path is immutable")],
            ),
            (
                "tenancy.kcp.io/v1alpha1",
                "workspaces",
                Some(&workspace),
                edit(&workspace, "/spec/type/path", json!("root:other")),
                &[("spec.type", "path is immutable")],
            ),
            (
                "tenancy.kcp.io/v1alpha1",
                "workspaces",
                Some(&mounted),
                edit(&mounted, "/spec/mount/ref/name", json!("b")),
                &[("spec.mount", "mount is immutable")],
            ),
            (
                "apis.kcp.io/v1alpha2",
                "apibindings",
                Some(&binding),
                edit(&binding, "/spec/reference/export/name", json!("b")),
                &[("spec.reference", "APIExport reference must not be changed")],
            ),
            ("apis.kcp.io/v1alpha2", "apibindings", None, binding.clone(), &[]),
            ("apis.kcp.io/v1alpha2", "apiexports", None, export(json!({"crd": {}})), &[]),
            (
                "apis.kcp.io/v1alpha2",
                "apiexports",
                None,
                export(json!({"crd": {}, "virtual": {}})),
                &[("spec.resources[0].storage", "Exactly one of crd or virtual must be set")],
            ),
            (
                "apis.kcp.io/v1alpha1",
                "apiexports",
                None,
                json!({"spec": {"permissionClaims": [
                    {"resource": "a", "all": true, "resourceSelector": [{"name": "x"}]},
                    {"resource": "b", "resourceSelector": [{}]},
                ]}}),
                &[
                    ("spec.permissionClaims[0]", r#"either "all" or "resourceSelector" must be set"#),
                    ("spec.permissionClaims[1].resourceSelector[0]", "at least one field must be set"),
                ],
            ),
            (
                "topology.kcp.io/v1alpha1",
                "partitionsets",
                None,
                json!({"spec": {"shardSelector": {"matchLabels": {"a/b/c": "x", "ok": "y"}}}}),
                &[(
                    "spec.shardSelector.matchLabels",
                    "Label key prefixes are optional and limited to 253 characters. They should match \"^[a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?$\". Names are limited to 63 characters and should match \"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$\". \"/\" is used as separator.",
                )],
            ),
        ];
        for (group_version, plural, old, new, expected) in cases {
            let (group, version) = group_version.split_once('/').unwrap();
            let found = resource(group, plural).unwrap().validate_rules(version, old, &new);
            let found: Vec<(&str, &str)> =
                found.iter().map(|violation| (violation.path.as_str(), violation.message.as_str())).collect();
            assert_eq!(found, expected, "{plural} {new}");
        }
    }

    #[test]
    fn an_unchanged_invalid_value_is_not_reported() {
        let bad = json!({"spec": {"resources": [{"group": "g", "name": "n", "schema": "s", "storage": {}}]}});
        let exports = resource("apis.kcp.io", "apiexports").unwrap();
        assert_eq!(exports.validate_rules("v1alpha2", None, &bad).len(), 1);
        assert_eq!(exports.validate_rules("v1alpha2", Some(&bad), &bad), []);
        // Items of a list without keys have no old items, but the whole list has an old list.
        let binding = |state: &str| json!({"metadata": {}, "spec": {"permissionClaims": [{"resource": "secrets", "state": state}]}});
        let bindings = resource("apis.kcp.io", "apibindings").unwrap();
        let mut labelled = binding("Accepted");
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(bindings.validate_rules("v1alpha1", Some(&binding("Accepted")), &labelled), []);
        let changed = bindings.validate_rules("v1alpha1", Some(&binding("Accepted")), &binding("Rejected"));
        assert_eq!(changed.len(), 1);
    }

    #[test]
    fn causes_contain_scalar_values_only() {
        let violation = |value: Value| Violation {
            path: "spec.cluster".to_owned(),
            value,
            message: "cluster is immutable".to_owned(),
        };
        assert_eq!(violation(json!("abc")).cause(), r#"Invalid value: "abc": cluster is immutable"#);
        assert_eq!(violation(json!({})).cause(), "Invalid value: cluster is immutable");
    }
}
