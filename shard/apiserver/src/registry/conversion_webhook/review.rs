//! ConversionReview: the request that a webhook gets, and the checks of its response.

use fairlead_schema::crd::ReviewVersion;
use fairlead_schema::metadata::{validate_annotations, validate_labels};
use fairlead_schema::{FieldPath, aggregate_message};
use serde_json::{Map, Value, json};

use crate::webhook_client::CallError;

/// A review that has failed, in the words of Kubernetes.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewFailure {
    #[error("failed: {0}")]
    Call(#[from] CallError),
    #[error("failed: {0}")]
    Response(String),
    #[error("returned {got} objects, expected {expected}")]
    Count { got: usize, expected: usize },
    #[error("returned invalid {place}: {reason}")]
    Object { place: String, reason: String },
    #[error("returned invalid metadata{place}: {reason}")]
    Metadata { place: String, reason: String },
}

/// The body of a request.
pub(super) fn request(version: ReviewVersion, uid: &str, desired: &str, objects: &[Value]) -> Value {
    json!({
        "kind": "ConversionReview",
        "apiVersion": version.api_version(),
        "request": {"uid": uid, "desiredAPIVersion": desired, "objects": objects},
    })
}

/// The converted objects of a response. They keep the metadata of the originals, except for labels and annotations.
pub(super) fn converted(
    version: ReviewVersion,
    uid: &str,
    body: &[u8],
    desired: &str,
    originals: Vec<Value>,
) -> Result<Vec<Value>, ReviewFailure> {
    let converted = converted_objects(version, uid, body).map_err(ReviewFailure::Response)?;
    if converted.len() != originals.len() {
        return Err(ReviewFailure::Count { got: converted.len(), expected: originals.len() });
    }
    let is_batch = originals.len() > 1;
    let pairs = originals.into_iter().zip(converted).enumerate();
    let checked = pairs.map(|(index, (original, converted))| {
        let invalid = |reason: String, names_index: bool| {
            let place = match (is_batch, names_index) {
                (true, _) => format!("converted object at index {index}"),
                (false, true) => format!("object at index {index}"),
                (false, false) => "object".to_owned(),
            };
            ReviewFailure::Object { place, reason }
        };
        check_types(&original, &converted, desired).map_err(|reason| invalid(reason, true))?;
        check_identity(&original, &converted).map_err(|reason| invalid(reason, false))?;
        restore_metadata(original, converted).map_err(|reason| {
            let place = if is_batch { format!(" in object at index {index}") } else { String::new() };
            ReviewFailure::Metadata { place, reason }
        })
    });
    checked.collect()
}

fn converted_objects(version: ReviewVersion, uid: &str, body: &[u8]) -> Result<Vec<Value>, String> {
    let mut review: Value =
        serde_json::from_slice(body).map_err(|error| format!("the response is not JSON: {error}"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    // The older version is not checked, for the sake of webhooks that were written for it.
    let is_checked = version == ReviewVersion::V1;
    let (got_version, got_kind) = (text(&review["apiVersion"]), text(&review["kind"]));
    if is_checked && (got_version != version.api_version() || got_kind != "ConversionReview") {
        return Err(format!(
            "expected webhook response of {}, Kind=ConversionReview, got {got_version}, Kind={got_kind}",
            version.api_version()
        ));
    }
    let Some(response) = review.get_mut("response").filter(|response| response.is_object()) else {
        return Err("no response provided".to_owned());
    };
    let got_uid = text(&response["uid"]);
    if is_checked && got_uid != uid {
        return Err(format!("expected response.uid={uid:?}, got {got_uid:?}"));
    }
    let result = &response["result"];
    if result["status"] != "Success" {
        let message = text(&result["message"]);
        let status = text(&result["status"]);
        return Err(if message.is_empty() {
            format!("response.result.status was '{status}', not 'Success'")
        } else {
            message
        });
    }
    match response["convertedObjects"].take() {
        Value::Array(objects) => Ok(objects),
        _ => Ok(Vec::new()),
    }
}

fn check_types(original: &Value, converted: &Value, desired: &str) -> Result<(), String> {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let version = text(converted, "apiVersion");
    if version != desired {
        return Err(format!("invalid groupVersion (expected {desired}, received {version})"));
    }
    let (expected, received) = (text(original, "kind"), text(converted, "kind"));
    if expected != received {
        return Err(format!("invalid kind (expected {expected}, received {received})"));
    }
    Ok(())
}

fn check_identity(original: &Value, converted: &Value) -> Result<(), String> {
    for (field, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let of = |object: &Value| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (expected, got) = (of(original), of(converted));
        if expected != got {
            return Err(format!("must have the same {name}: {expected} != {got}"));
        }
    }
    Ok(())
}

/// The converted object with the original's metadata and its own labels and annotations.
fn restore_metadata(mut original: Value, mut converted: Value) -> Result<Value, String> {
    let own = match converted["metadata"].take() {
        Value::Object(own) => own,
        Value::Null => return Err("missing metadata in converted object".to_owned()),
        _ => return Err("invalid metadata in converted object".to_owned()),
    };
    let mut metadata = match original["metadata"].take() {
        Value::Object(metadata) => metadata,
        _ => Map::new(),
    };
    for field in ["labels", "annotations"] {
        let value = match own.get(field) {
            None | Some(Value::Null) => {
                metadata.remove(field);
                continue;
            }
            Some(value) => value,
        };
        let Some(entries) = value.as_object() else {
            return Err(format!("invalid metadata.{field} in converted object"));
        };
        if let Some((key, _)) = entries.iter().find(|(_, value)| !value.is_string()) {
            return Err(format!("metadata.{field}[{key}] must be a string in converted object"));
        }
        if metadata.get(field) != Some(value) {
            let path = FieldPath::new("metadata").child(field);
            let errors = match field {
                "labels" => validate_labels(entries, &path),
                _ => validate_annotations(entries, &path),
            };
            if !errors.is_empty() {
                return Err(aggregate_message(&errors));
            }
        }
        metadata.insert(field.to_owned(), value.clone());
    }
    converted["metadata"] = Value::Object(metadata);
    Ok(converted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn original() -> Value {
        json!({"apiVersion": "g/v1", "kind": "K", "metadata": {
            "name": "a", "uid": "u", "generation": 3, "labels": {"x": "1"}, "annotations": {"y": "2"}}})
    }

    fn outcome(changes: &[(&str, Value)], converted: Value) -> Result<Vec<Value>, String> {
        let mut review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": {
            "uid": "r", "result": {"status": "Success"}, "convertedObjects": converted}});
        for (pointer, value) in changes {
            *review.pointer_mut(pointer).unwrap() = value.clone();
        }
        let body = review.to_string();
        super::converted(ReviewVersion::V1, "r", body.as_bytes(), "g/v2", vec![original()])
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn metadata_is_kept_except_for_labels_and_annotations() {
        let converted = json!([{"apiVersion": "g/v2", "kind": "K", "spec": 1, "metadata": {
            "name": "a", "uid": "u", "generation": 9, "finalizers": ["f"], "labels": {"z": "3"}}}]);
        let expected = json!([{"apiVersion": "g/v2", "kind": "K", "spec": 1, "metadata": {
            "name": "a", "uid": "u", "generation": 3, "labels": {"z": "3"}}}]);
        assert_eq!(outcome(&[], converted).map(Value::from), Ok(expected));
    }

    #[test]
    fn lies_are_refused_in_the_words_of_kubernetes() {
        let object = |changes: Value| {
            let mut object =
                json!({"apiVersion": "g/v2", "kind": "K", "metadata": {"name": "a", "uid": "u"}});
            for (field, value) in changes.as_object().unwrap() {
                object[field] = value.clone();
            }
            json!([object])
        };
        let good = || object(json!({}));
        let other = |field: &str, value: &str| {
            let mut metadata = json!({"name": "a", "uid": "u"});
            metadata[field] = value.into();
            object(json!({"metadata": metadata}))
        };
        let labels = |labels: Value| object(json!({"metadata": {"name": "a", "uid": "u", "labels": labels}}));
        for (changes, converted, expected) in [
            (vec![("/response/uid", json!("x"))], good(), r#"failed: expected response.uid="r", got "x""#),
            (vec![("/response", json!(null))], good(), "failed: no response provided"),
            (
                vec![("/kind", json!("Other"))],
                good(),
                "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got \
                 apiextensions.k8s.io/v1, Kind=Other",
            ),
            (
                vec![("/response/result", json!({"status": "Failed", "message": "no such unit"}))],
                good(),
                "failed: no such unit",
            ),
            (
                vec![("/response/result", json!({}))],
                good(),
                "failed: response.result.status was '', not 'Success'",
            ),
            (vec![], json!([]), "returned 0 objects, expected 1"),
            (
                vec![],
                object(json!({"apiVersion": "g/v1"})),
                "returned invalid object at index 0: invalid groupVersion (expected g/v2, received g/v1)",
            ),
            (
                vec![],
                object(json!({"kind": "L"})),
                "returned invalid object at index 0: invalid kind (expected K, received L)",
            ),
            (vec![], other("name", "b"), "returned invalid object: must have the same name: a != b"),
            (vec![], other("uid", "v"), "returned invalid object: must have the same UID: u != v"),
            (vec![], other("namespace", "n"), "returned invalid object: must have the same namespace:  != n"),
            (
                vec![],
                labels(json!(["a"])),
                "returned invalid metadata: invalid metadata.labels in converted object",
            ),
            (
                vec![],
                labels(json!({"a": 1})),
                "returned invalid metadata: metadata.labels[a] must be a string in converted object",
            ),
        ] {
            assert_eq!(outcome(&changes, converted), Err(expected.to_owned()));
        }
        let invalid = outcome(&[], labels(json!({"a b": "1"}))).unwrap_err();
        assert!(
            invalid.starts_with("returned invalid metadata: metadata.labels: Invalid value: \"a b\""),
            "{invalid}"
        );
    }

    #[test]
    fn the_older_review_is_not_checked() {
        let body = json!({"response": {"result": {"status": "Success"}, "convertedObjects": [
            {"apiVersion": "g/v2", "kind": "K", "metadata": {"name": "a", "uid": "u"}}]}});
        let converted = super::converted(
            ReviewVersion::V1beta1,
            "r",
            body.to_string().as_bytes(),
            "g/v2",
            vec![original()],
        );
        assert_eq!(converted.unwrap().len(), 1);
        for body in ["[]", "1", r#"{"response": []}"#] {
            let refused =
                super::converted(ReviewVersion::V1beta1, "r", body.as_bytes(), "g/v2", vec![original()]);
            assert_eq!(refused.unwrap_err().to_string(), "failed: no response provided", "{body}");
        }
    }
}
