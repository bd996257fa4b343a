//! The `scale` subresource: its paths and their validation.

use serde_json::{Map, Value, json};

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

    /// The errors of the desired replicas of an object. Paths are printed with their leading dot, as in Kubernetes.
    pub fn validate_spec(&self, object: &Value) -> Vec<FieldError> {
        replicas_error(object, &self.spec_replicas_path).into_iter().collect()
    }

    /// The errors of the actual replicas and of the selector.
    pub fn validate_status(&self, object: &Value) -> Vec<FieldError> {
        let mut errors: Vec<FieldError> =
            replicas_error(object, &self.status_replicas_path).into_iter().collect();
        if let Some(path) = &self.label_selector_path
            && let Some(value) = at(object, path).filter(|value| !value.is_string())
        {
            errors.push(FieldError::invalid_str(
                FieldPath::new(path.as_str()),
                "",
                &mistyped(path, value, "string"),
            ));
        }
        errors
    }

    /// The Scale of an object.
    ///
    /// # Errors
    /// The reason why a value at one of the paths has the wrong type.
    pub fn scale_of(&self, object: &Value) -> Result<Scale, String> {
        let replicas = |path: &str| match at(object, path) {
            None => Ok(None),
            Some(value) => value.as_i64().map(Some).ok_or_else(|| mistyped(path, value, "int64")),
        };
        let desired = replicas(&self.spec_replicas_path)?;
        let actual = replicas(&self.status_replicas_path)?;
        let selector = match &self.label_selector_path {
            None => None,
            Some(path) => match at(object, path) {
                None => None,
                Some(value) => Some(value.as_str().ok_or_else(|| mistyped(path, value, "string"))?),
            },
        };
        let mut metadata = Map::new();
        for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = object["metadata"].get(field) {
                metadata.insert(field.to_owned(), value.clone());
            }
        }
        let mut status = json!({"replicas": actual.unwrap_or(0)});
        if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
            status["selector"] = selector.into();
        }
        let mut object = json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": {}, "status": status,
        });
        if let Some(desired) = desired.filter(|desired| *desired != 0) {
            object["spec"]["replicas"] = desired.into();
        }
        Ok(Scale { object, has_replicas: desired.is_some() })
    }

    /// The object after a write of its Scale: the desired replicas and the resourceVersion of the Scale count, everything else
    /// stays.
    ///
    /// # Errors
    /// The reason why the replicas cannot be set.
    pub fn apply(&self, scale: &Value, old: &Value) -> Result<Value, String> {
        let replicas = match &scale["spec"]["replicas"] {
            Value::Null => 0,
            value => value.as_i64().unwrap_or(ABSENT_REPLICAS),
        };
        if replicas == ABSENT_REPLICAS {
            return Err(format!("the spec replicas field {:?} cannot be empty", self.spec_replicas_path));
        }
        let mut object = old.clone();
        if !self.set_spec_replicas(&mut object, replicas) {
            return Err(format!(
                "value cannot be set because {:?} is not an object",
                self.spec_replicas_path
            ));
        }
        let version = &scale["metadata"]["resourceVersion"];
        if version.as_str().is_some_and(|version| !version.is_empty()) {
            object["metadata"]["resourceVersion"] = version.clone();
        }
        Ok(object)
    }

    /// The path of the desired replicas, `.spec.replicas`.
    pub fn spec_path(&self) -> &str {
        &self.spec_replicas_path
    }

    /// Sets the desired replicas and creates missing parent objects. Returns false if a parent is not an object.
    fn set_spec_replicas(&self, object: &mut Value, replicas: i64) -> bool {
        let mut value = object;
        for name in names(&self.spec_replicas_path) {
            if value.is_null() {
                *value = Value::Object(Map::new());
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

/// The Scale of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// The `autoscaling/v1` Scale.
    pub object: Value,
    /// Whether the object has desired replicas; without them it cannot be read as a Scale.
    pub has_replicas: bool,
}

impl Scale {
    /// The Scale that a write changes. Missing replicas are a value that no client sends, so that a patch must set them.
    #[must_use]
    pub fn for_update(self) -> Value {
        let mut object = self.object;
        if !self.has_replicas {
            object["spec"]["replicas"] = ABSENT_REPLICAS.into();
        }
        object
    }
}

/// Replicas of a Scale whose object has none: the least 32-bit number.
const ABSENT_REPLICAS: i64 = i32::MIN as i64;

fn replicas_error(object: &Value, path: &str) -> Option<FieldError> {
    let field = FieldPath::new(path);
    let value = at(object, path)?;
    match value.as_i64() {
        None => Some(FieldError::invalid(field, &Value::from(0), &mistyped(path, value, "int64"))),
        Some(replicas) if replicas < 0 => {
            Some(FieldError::invalid(field, value, "should be a non-negative integer"))
        }
        Some(replicas) if replicas > i64::from(i32::MAX) => {
            let detail = format!("should be less than or equal to {}", i32::MAX);
            Some(FieldError::invalid(field, value, &detail))
        }
        Some(_) => None,
    }
}

fn mistyped(path: &str, value: &Value, expected: &str) -> String {
    format!("{path} accessor error: {}, expected {expected}", describe(value))
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
