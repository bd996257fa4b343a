//! The `scale` subresource: its paths and their validation.

use serde_json::Value;

use crate::field::{FieldError, FieldPath};

/// `subresources.scale`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// `specReplicasPath`, under `.spec`.
    pub spec_replicas_path: String,
    /// `statusReplicasPath`, under `.status`.
    pub status_replicas_path: String,
    /// `labelSelectorPath`, under `.spec` or `.status`.
    pub label_selector_path: Option<String>,
}

impl ScalePaths {
    pub(super) fn parse(scale: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) -> Option<Self> {
        let before = errors.len();
        let text = |field: &str| scale.get(field).and_then(Value::as_str).unwrap_or_default();
        let mut check = |field: &str, roots: &[&str], detail: &str| {
            let (value, path) = (text(field), path.child(field));
            if value.is_empty() {
                errors.push(FieldError::required(path, ""));
            } else if !value.starts_with('.') {
                let detail = "must be a simple json path starting with .";
                errors.push(FieldError::invalid_str(path, value, detail));
            } else if !is_dotted(value) {
                let detail = "must be a json path in the dot notation";
                errors.push(FieldError::invalid_str(path, value, detail));
            } else if !roots.iter().any(|root| value.starts_with(root)) {
                errors.push(FieldError::invalid_str(path, value, detail));
            }
        };
        check("specReplicasPath", &[".spec."], "should be a json path under .spec");
        check("statusReplicasPath", &[".status."], "should be a json path under .status");
        let selector = text("labelSelectorPath");
        if !selector.is_empty() {
            let detail = "should be a json path under either .spec or .status";
            check("labelSelectorPath", &[".spec.", ".status."], detail);
        }
        (errors.len() == before).then(|| Self {
            spec_replicas_path: text("specReplicasPath").to_owned(),
            status_replicas_path: text("statusReplicasPath").to_owned(),
            label_selector_path: (!selector.is_empty()).then(|| selector.to_owned()),
        })
    }

    /// Validates the values of an object at the paths. Paths are printed with their leading dot, as in Kubernetes.
    pub fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for path in [&self.spec_replicas_path, &self.status_replicas_path] {
            let field = FieldPath::new(path.as_str());
            let Some(value) = at(object, path) else { continue };
            match value.as_i64() {
                None => {
                    let detail = format!("{path} accessor error: {}, expected int64", describe(value));
                    errors.push(FieldError::invalid(field, &Value::from(0), &detail));
                }
                Some(replicas) if replicas < 0 => {
                    errors.push(FieldError::invalid(field, value, "should be a non-negative integer"));
                }
                Some(replicas) if replicas > i64::from(i32::MAX) => {
                    let detail = format!("should be less than or equal to {}", i32::MAX);
                    errors.push(FieldError::invalid(field, value, &detail));
                }
                Some(_) => {}
            }
        }
        if let Some(path) = &self.label_selector_path
            && let Some(value) = at(object, path).filter(|value| !value.is_string())
        {
            let detail = format!("{path} accessor error: {}, expected string", describe(value));
            errors.push(FieldError::invalid_str(FieldPath::new(path.as_str()), "", &detail));
        }
        errors
    }

    /// `spec.replicas` of the Scale.
    pub fn spec_replicas(&self, object: &Value) -> Option<i64> {
        at(object, &self.spec_replicas_path)?.as_i64()
    }

    /// `status.replicas` of the Scale.
    pub fn status_replicas(&self, object: &Value) -> Option<i64> {
        at(object, &self.status_replicas_path)?.as_i64()
    }

    /// `status.selector` of the Scale.
    pub fn selector<'v>(&self, object: &'v Value) -> Option<&'v str> {
        at(object, self.label_selector_path.as_deref()?)?.as_str()
    }

    /// Sets the desired replicas and creates missing parent objects. Returns false if a parent is not an object.
    pub fn set_spec_replicas(&self, object: &mut Value, replicas: i64) -> bool {
        let mut value = object;
        for name in names(&self.spec_replicas_path) {
            if value.is_null() {
                *value = Value::Object(serde_json::Map::new());
            }
            let Some(fields) = value.as_object_mut() else {
                return false;
            };
            value = fields.entry(name).or_insert(Value::Null);
        }
        *value = Value::from(replicas);
        true
    }
}

fn is_dotted(path: &str) -> bool {
    names(path).all(|name| !name.is_empty() && !name.contains(['[', ']', '\'', '"', '*', '?', ' ']))
}

fn names(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('.').unwrap_or(path).split('.')
}

fn at<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    names(path).try_fold(object, |value, name| value.get(name)).filter(|value| !value.is_null())
}

fn describe(value: &Value) -> String {
    let kind = match value {
        Value::Null => "nil",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    format!("{shown} is of the type {kind}")
}
