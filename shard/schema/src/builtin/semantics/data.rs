//! ConfigMap and Secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::{Semantics, immutable, insert_missing_text, text};
use crate::field::{FieldError, FieldPath};

/// Maximum size of all values together: 1 MiB.
const MAX_DATA_BYTES: usize = 1 << 20;

/// ConfigMap: text and bytes by key. It can be immutable.
#[derive(Debug)]
pub(crate) struct ConfigMap;

impl Semantics for ConfigMap {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut bytes = 0;
        for (key, value) in entries(object, "data") {
            check_key("data", key, &mut errors);
            if object["binaryData"].get(key).is_some() {
                let detail = "duplicate of key present in binaryData";
                errors.push(FieldError::invalid_str(FieldPath::new("data").key(key), key, detail));
            }
            bytes += value.as_str().map_or(0, str::len);
        }
        for (key, value) in entries(object, "binaryData") {
            check_key("binaryData", key, &mut errors);
            bytes += decoded_length(value);
        }
        check_size("", bytes, &mut errors);
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = validate_immutable_data(object, old, &["data", "binaryData"]);
        errors.extend(self.validate(object));
        errors
    }
}

/// Secret: bytes by key, with an immutable type. `stringData` is write-only.
#[derive(Debug)]
pub(crate) struct Secret;

impl Semantics for Secret {
    fn default(&self, object: &mut Value) {
        insert_missing_text(object, "type", "Opaque");
        merge_string_data(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        // Old clients could omit the type in an update.
        if text(object, "type").is_empty() {
            insert_missing_text(object, "type", text(old, "type"));
        }
        merge_string_data(object);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut bytes = 0;
        for (key, value) in entries(object, "data") {
            check_key("data", key, &mut errors);
            bytes += decoded_length(value);
        }
        check_size("data", bytes, &mut errors);
        self.check_type(object, &mut errors);
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors: Vec<_> = immutable(object, old, "type").into_iter().collect();
        errors.extend(validate_immutable_data(object, old, &["data"]));
        errors.extend(self.validate(object));
        errors
    }
}

impl Secret {
    fn check_type(&self, object: &Value, errors: &mut Vec<FieldError>) {
        let mut needs = |keys: &[&str]| {
            for key in keys {
                if object["data"].get(key).is_none() {
                    errors.push(FieldError::required(FieldPath::new("data").key(key), ""));
                }
            }
        };
        match text(object, "type") {
            "kubernetes.io/dockercfg" => needs(&[".dockercfg"]),
            "kubernetes.io/dockerconfigjson" => needs(&[".dockerconfigjson"]),
            "kubernetes.io/ssh-auth" => needs(&["ssh-privatekey"]),
            "kubernetes.io/tls" => needs(&["tls.crt", "tls.key"]),
            "kubernetes.io/basic-auth" => {
                let has = |key: &str| object["data"].get(key).is_some();
                if !has("username") && !has("password") {
                    needs(&["username", "password"]);
                }
            }
            "kubernetes.io/service-account-token" => {
                let annotation = "kubernetes.io/service-account.name";
                if text(&object["metadata"]["annotations"], annotation).is_empty() {
                    let path = FieldPath::new("metadata.annotations").key(annotation);
                    errors.push(FieldError::required(path, ""));
                }
            }
            _ => {}
        }
        for key in [".dockercfg", ".dockerconfigjson"] {
            let docker =
                matches!(text(object, "type"), "kubernetes.io/dockercfg" | "kubernetes.io/dockerconfigjson");
            let Some(value) = object["data"].get(key).filter(|_| docker) else {
                continue;
            };
            let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
            if serde_json::from_slice::<Map<String, Value>>(&bytes).is_err() {
                let path = FieldPath::new("data").key(key);
                errors.push(FieldError::invalid_str(path, "<secret contents redacted>", "invalid JSON"));
            }
        }
    }
}

/// Copies `stringData` over `data`, key by key, and removes it.
fn merge_string_data(object: &mut Value) {
    let Value::Object(fields) = object else { return };
    let Some(Value::Object(plain)) = fields.remove("stringData") else {
        return;
    };
    let data = fields.entry("data").or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(data) = data else { return };
    for (key, value) in plain {
        let encoded = STANDARD.encode(value.as_str().unwrap_or_default());
        data.insert(key, Value::String(encoded));
    }
}

fn entries<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.get(field).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}

/// Length of the decoded base64 text, computed without decoding it.
fn decoded_length(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    text.len() / 4 * 3 - text.bytes().rev().take_while(|byte| *byte == b'=').count().min(text.len() / 4 * 3)
}

fn check_key(field: &str, key: &str, errors: &mut Vec<FieldError>) {
    let problems = config_key_problems(key);
    let path = FieldPath::new(field).key(key);
    errors.extend(problems.iter().map(|problem| FieldError::invalid_str(path.clone(), key, problem)));
}

/// Kubernetes reports the size of a whole ConfigMap at the path `[]`.
fn check_size(field: &str, bytes: usize, errors: &mut Vec<FieldError>) {
    if bytes > MAX_DATA_BYTES {
        let path = if field.is_empty() { FieldPath::new("[]") } else { FieldPath::new(field) };
        errors.push(FieldError::too_long(path, MAX_DATA_BYTES));
    }
}

/// Validates that neither `immutable` nor the data change once `immutable` is set.
fn validate_immutable_data(object: &Value, old: &Value, data: &[&str]) -> Vec<FieldError> {
    if old.get("immutable") != Some(&Value::Bool(true)) {
        return Vec::new();
    }
    let detail = "field is immutable when `immutable` is set";
    let mut errors = Vec::new();
    if object.get("immutable") != Some(&Value::Bool(true)) {
        errors.push(FieldError::forbidden(FieldPath::new("immutable"), detail));
    }
    for field in data {
        if object.get(field) != old.get(field) {
            errors.push(FieldError::forbidden(FieldPath::new(*field), detail));
        }
    }
    errors
}

/// The errors of a key. Keys become file names.
fn config_key_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if key.len() > 253 {
        problems.push("must be no more than 253 bytes".to_owned());
    }
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        problems.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
             'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    match key {
        "." => problems.push("must not be '.'".to_owned()),
        ".." => problems.push("must not be '..'".to_owned()),
        key if key.starts_with("..") => problems.push("must not start with '..'".to_owned()),
        _ => {}
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::texts;
    use super::*;

    #[test]
    fn secrets_merge_string_data_and_default_their_type() {
        let mut secret = json!({"data": {"a": "eA==", "b": "eA=="}, "stringData": {"b": "y", "c": ""}});
        Secret.default(&mut secret);
        assert_eq!(secret, json!({"type": "Opaque", "data": {"a": "eA==", "b": "eQ==", "c": ""}}));
        let mut empty = json!({"type": ""});
        Secret.default(&mut empty);
        assert_eq!(empty, json!({"type": "Opaque"}));
        let mut update = json!({"stringData": {"n": "v"}});
        Secret.prepare_update(&mut update, &json!({"type": "x"}));
        assert_eq!(update, json!({"type": "x", "data": {"n": "dg=="}}));
    }

    #[test]
    fn config_maps_are_checked() {
        for (object, expected) in [
            (json!({"data": {"a.b_c-1": ""}, "binaryData": {"d": "AA=="}}), vec![]),
            (
                json!({"data": {"a": ""}, "binaryData": {"a": ""}}),
                vec![r#"data[a]: Invalid value: "a": duplicate of key present in binaryData"#],
            ),
            (
                json!({"data": {"..a": ""}}),
                vec![r#"data[..a]: Invalid value: "..a": must not start with '..'"#],
            ),
            (
                json!({"data": {"a b": ""}}),
                vec![
                    "data[a b]: Invalid value: \"a b\": a valid config key must consist of alphanumeric characters, \
                     '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation \
                     is '[-._a-zA-Z0-9]+')",
                ],
            ),
            (
                json!({"data": {"a": "x".repeat(MAX_DATA_BYTES + 1)}}),
                vec!["[]: Too long: may not be more than 1048576 bytes"],
            ),
            (json!({"data": {"a": "x".repeat(MAX_DATA_BYTES)}}), vec![]),
        ] {
            assert_eq!(texts(&ConfigMap.validate(&object)), expected);
        }
    }

    #[test]
    fn immutable_objects_keep_their_data() {
        let old = json!({"immutable": true, "data": {"x": "eA=="}, "type": "Opaque"});
        for (new, expected) in [
            (json!({"immutable": true, "data": {"x": "eA=="}, "type": "Opaque", "metadata": {}}), vec![]),
            (
                json!({"immutable": true, "data": {"x": "eQ=="}, "type": "Opaque"}),
                vec!["data: Forbidden: field is immutable when `immutable` is set"],
            ),
            (
                json!({"immutable": false, "data": {"x": "eA=="}, "type": "Opaque"}),
                vec!["immutable: Forbidden: field is immutable when `immutable` is set"],
            ),
            (
                json!({"immutable": true, "data": {"x": "eA=="}, "type": "x"}),
                vec![r#"type: Invalid value: "x": field is immutable"#],
            ),
        ] {
            assert_eq!(texts(&Secret.validate_update(&new, &old)), expected);
        }
    }

    #[test]
    fn secret_types_have_their_keys() {
        for (object, expected) in [
            (json!({"type": "my/type"}), vec![]),
            (
                json!({"type": "kubernetes.io/dockerconfigjson", "data": {"x": "eA=="}}),
                vec!["data[.dockerconfigjson]: Required value"],
            ),
            (
                json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "eA=="}}),
                vec![r#"data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": invalid JSON"#],
            ),
            (json!({"type": "kubernetes.io/dockercfg", "data": {".dockercfg": "e30="}}), vec![]),
            (
                json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}),
                vec!["data[tls.key]: Required value"],
            ),
            (
                json!({"type": "kubernetes.io/basic-auth"}),
                vec!["data[username]: Required value", "data[password]: Required value"],
            ),
            (json!({"type": "kubernetes.io/basic-auth", "data": {"username": "eA=="}}), vec![]),
            (
                json!({"type": "kubernetes.io/service-account-token", "metadata": {}}),
                vec!["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
            ),
        ] {
            assert_eq!(texts(&Secret.validate(&object)), expected, "{object}");
        }
    }

    #[test]
    fn lengths_of_base64_are_exact() {
        for (text, length) in [("", 0), ("eA==", 1), ("eHg=", 2), ("eHh4", 3), ("eHh4eA==", 4)] {
            assert_eq!(decoded_length(&json!(text)), length);
        }
    }
}
