//! The type check of ValidatingAdmissionPolicies: their expressions against the schemas of the kinds that they review.
//! Admission does not depend on it; the findings are warnings in the status.

use std::sync::Arc;

use fairlead_cel::{AdmissionVariables, CompileError, DeclType, Environment, Variable};
use serde_json::{Value, json};

use crate::builtin::structural_schema;
use crate::field::FieldPath;

/// A kind that a policy reviews, or that of its parameters.
#[derive(Clone, Debug)]
pub struct TypedKind {
    /// API group.
    pub group: String,
    /// Version of the API group.
    pub version: String,
    /// Kind of the objects.
    pub kind: String,
    /// Its structural schema.
    pub schema: Value,
}

impl TypedKind {
    /// The declaration of its objects, with all fields of `metadata`.
    fn declaration(&self) -> Option<Arc<DeclType>> {
        let mut schema = self.schema.clone();
        let text = json!({"type": "string"});
        let properties = schema.as_object_mut()?.entry("properties").or_insert_with(|| json!({}));
        let properties = properties.as_object_mut()?;
        for field in ["apiVersion", "kind"] {
            properties.insert(field.to_owned(), text.clone());
        }
        let metadata = structural_schema("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")?;
        properties.insert("metadata".to_owned(), metadata);
        DeclType::from_schema(&schema, &self.kind, true).map(Arc::new)
    }

    fn title(&self) -> String {
        format!("{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// Checks the validations and messages of a policy against each kind. Returns `status.typeChecking.expressionWarnings`.
/// `params` is the kind of the parameters, if it is known.
///
/// Costs about a millisecond per kind.
#[must_use]
pub fn check_policy_types(policy: &Value, kinds: &[TypedKind], params: Option<&TypedKind>) -> Vec<Value> {
    let spec = &policy["spec"];
    let environments: Vec<(String, Environment)> = kinds
        .iter()
        .filter_map(|kind| Some((kind.title(), environment(spec, &kind.declaration()?, params))))
        .collect();
    let mut warnings = Vec::new();
    let validations = spec["validations"].as_array().map_or(&[][..], Vec::as_slice);
    for (index, validation) in validations.iter().enumerate() {
        for field in ["expression", "messageExpression"] {
            let source = validation[field].as_str().unwrap_or_default();
            if source.is_empty() {
                continue;
            }
            let found = environments.iter().filter_map(|(title, environment)| {
                match environment.compile(source) {
                    Err(CompileError::Invalid(issues)) => Some(format!("{title}: {issues}\n")),
                    // Constants are not evaluated.
                    Ok(_) | Err(CompileError::Constant(_)) => None,
                }
            });
            let found: Vec<String> = found.collect();
            if !found.is_empty() {
                let path = FieldPath::new("spec.validations").index(index).child(field);
                warnings.push(json!({"fieldRef": path.as_str(), "warning": found.join("\n")}));
            }
        }
    }
    warnings
}

/// The environment with objects of a kind, and with the variables of the policy.
fn environment(spec: &Value, object: &Arc<DeclType>, params: Option<&TypedKind>) -> Environment {
    let has_params = spec["paramKind"].is_object();
    let variables = AdmissionVariables { params: has_params, authorizer: true, patch_types: false };
    let mut environment = Environment::default()
        .with_admission_variables(variables)
        .with_variable("object", Variable::Json(Arc::clone(object)))
        .with_variable("oldObject", Variable::Json(Arc::clone(object)));
    if let Some(params) = params.and_then(TypedKind::declaration) {
        environment = environment.with_variable("params", Variable::Json(params));
    }
    for variable in spec["variables"].as_array().into_iter().flatten() {
        let text = |field: &str| variable[field].as_str().unwrap_or_default();
        // A variable with a mistake has any type, so that the mistake is reported once.
        for source in [text("expression"), "dyn(null)"] {
            if let Ok(with_variable) = environment.clone().with_named_expression(text("name"), source) {
                environment = with_variable;
                break;
            }
        }
    }
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_map() -> TypedKind {
        TypedKind {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            schema: structural_schema("io.k8s.api.core.v1.ConfigMap").unwrap_or_default(),
        }
    }

    fn widget() -> TypedKind {
        TypedKind {
            group: "example.com".to_owned(),
            version: "v1".to_owned(),
            kind: "Widget".to_owned(),
            schema: json!({"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
            }}),
        }
    }

    fn policy(expression: &str) -> Value {
        json!({"spec": {
            "variables": [{"name": "size", "expression": "object.spec.size"}],
            "validations": [{"expression": expression, "messageExpression": "object.metadata.nope"}],
        }})
    }

    #[test]
    fn mistakes_are_reported_for_each_kind() {
        let warnings = check_policy_types(&policy("variables.size > 'a'"), &[config_map(), widget()], None);
        let expected = json!([
            {
                "fieldRef": "spec.validations[0].expression",
                "warning": "example.com/v1, Kind=Widget: ERROR: <input>:1:16: found no matching overload for '_>_' applied \
                    to '(int, string)'\n | variables.size > 'a'\n | ...............^\n",
            },
            {
                "fieldRef": "spec.validations[0].messageExpression",
                "warning": "/v1, Kind=ConfigMap: ERROR: <input>:1:16: undefined field 'nope'\n | object.metadata.nope\n | \
                    ...............^\n\nexample.com/v1, Kind=Widget: ERROR: <input>:1:16: undefined field 'nope'\n | \
                    object.metadata.nope\n | ...............^\n",
            },
        ]);
        assert_eq!(json!(warnings), expected);
    }

    /// The warnings of Kubernetes' type checker. It appends a random number to the names of types.
    #[test]
    fn findings_are_those_of_kubernetes() {
        for (expression, expected) in [
            ("object.metadata.namespace == 'x' || object.metadata.__namespace__ == 'y'", None),
            ("object.metadata.labels.x == 'y' && oldObject == null", None),
            ("object.spec.size", None),
            ("namespaceObject.metadata.namespace == 'x'", None),
            (
                "object.metadata.nope == 'x'",
                Some("1:16: undefined field 'nope'\n | object.metadata.nope == 'x'\n | ...............^"),
            ),
            (
                "object.spec + 1 == 2",
                Some(
                    "1:13: found no matching overload for '_+_' applied to '(Widget.spec, int)'\n | object.spec + 1 == 2\n | \
                     ............^",
                ),
            ),
            (
                "params.x == 1",
                Some("1:1: undeclared reference to 'params' (in container '')\n | params.x == 1\n | ^"),
            ),
            (
                "request.namespace == 'x' && request.nope == 'y'",
                Some(
                    "1:36: undefined field 'nope'\n | request.namespace == 'x' && request.nope == 'y'\n | \
                     ...................................^",
                ),
            ),
        ] {
            let policy = json!({"spec": {"validations": [{"expression": expression}]}});
            let warnings = check_policy_types(&policy, &[widget()], None);
            let found = warnings.first().map(|warning| warning["warning"].as_str().unwrap_or_default());
            let expected =
                expected.map(|text| format!("example.com/v1, Kind=Widget: ERROR: <input>:{text}\n"));
            assert_eq!(found, expected.as_deref(), "{expression}");
        }
    }

    #[test]
    fn correct_expressions_have_no_warnings() {
        for (expression, kind) in [
            ("object.spec.size > 1 && oldObject == null", widget()),
            ("object.metadata.labels.all(key, key != 'x') && has(object.metadata.ownerReferences)", widget()),
            (
                "object.data['a'] == params.data['b'] && object.metadata.namespace == request.namespace",
                config_map(),
            ),
            (
                "namespaceObject.metadata.name == 'x' && authorizer.group('').resource('a').check('b').allowed()",
                widget(),
            ),
        ] {
            let policy = json!({"spec": {
                "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [{"expression": expression}],
            }});
            let warnings = check_policy_types(&policy, &[kind], Some(&config_map()));
            assert_eq!(json!(warnings), json!([]), "{expression}");
        }
    }
}
