//! Responses as documents that can be compared: status, significant header fields, body.

use fairlead_tests::recordings::{Body, Response as Recorded};
use http::HeaderMap;
use serde_json::{Map, Value, json};

use super::normalize::Normalizer;
use super::raw_client::Response;

/// Fields that depend on the connection or the time. Those of flow control are always empty in kcp.
const IGNORED_HEADERS: [&str; 8] = [
    "date",
    "content-length",
    "connection",
    "transfer-encoding",
    "last-modified",
    "process-start-time-unix",
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
];

/// Fields of which only the presence is compared.
const MASKED_HEADERS: [&str; 3] = ["audit-id", "etag", "expires"];

/// kcp's response, before normalisation.
pub fn recorded(response: &Recorded) -> (Value, Body) {
    let headers = response.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    (head(response.status, headers), response.body.clone())
}

/// Fairlead's response, before normalisation.
pub fn received(response: &Response) -> (Value, Body) {
    let body = Body::parse(content_type(&response.headers), &response.body);
    (received_head(response.status.as_u16(), &response.headers), body)
}

/// Status and header fields of Fairlead's response.
pub fn received_head(status: u16, headers: &HeaderMap) -> Value {
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default()));
    head(status, headers)
}

/// The whole response, normalised. `other` is the other side's body: a binary body is not decoded, but searched for
/// the texts of the other side's body.
pub fn document(normalizer: &Normalizer, head: &Value, body: &Body, other: &Body) -> Value {
    let mut document = normalizer.value(head.clone());
    document["body"] = match (body, other) {
        (Body::Json(value), Body::Binary(binary)) => missing_texts(normalizer, value, binary),
        (Body::Binary(_), Body::Json(_)) => json!({}),
        (Body::Json(value), _) => normalizer.value(value.clone()),
        (Body::Empty, _) => "".into(),
        (Body::Text(text), _) => normalizer.text(text).into(),
        (Body::Binary(binary), _) => normalizer.text(&String::from_utf8_lossy(binary)).into(),
    };
    document
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn head<'a>(status: u16, headers: impl Iterator<Item = (&'a str, &'a str)>) -> Value {
    let mut map = Map::new();
    let mut warnings = Vec::new();
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        if name == "warning" {
            warnings.push(value.to_owned());
        } else if MASKED_HEADERS.contains(&name.as_str()) {
            map.insert(name, "<some>".into());
        } else if !IGNORED_HEADERS.contains(&name.as_str()) {
            map.insert(name, value.into());
        }
    }
    warnings.sort();
    if !warnings.is_empty() {
        map.insert("warning".to_owned(), warnings.into());
    }
    json!({"status": status, "headers": map})
}

/// The texts of a JSON document that do not occur in the protobuf form of the same object. Texts that vary between
/// installations are left out.
fn missing_texts(normalizer: &Normalizer, value: &Value, binary: &[u8]) -> Value {
    let mut texts = Vec::new();
    collect_texts("", value, &mut texts);
    let missing = texts.into_iter().filter(|(_, text)| {
        let varies = normalizer.text(text) != **text || text.bytes().all(|byte| byte.is_ascii_digit());
        !varies && !binary.windows(text.len().max(1)).any(|window| window == text.as_bytes())
    });
    Value::Object(missing.map(|(at, text)| (at, Value::String(text.to_owned()))).collect())
}

fn collect_texts<'a>(at: &str, value: &'a Value, texts: &mut Vec<(String, &'a str)>) {
    match value {
        Value::String(text) if !text.is_empty() => texts.push((at.to_owned(), text)),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(at, item, texts)),
        Value::Object(object) => {
            // The data of secrets is base64 in JSON only. Managed fields are not compared. Descriptions are not in the
            // recordings.
            const SKIPPED: [&str; 3] = ["managedFields", "data", "kubernetes.io/description"];
            let object = object.iter().filter(|(key, _)| !SKIPPED.contains(&key.as_str()));
            object.for_each(|(key, value)| collect_texts(&format!("{at}.{key}"), value, texts));
        }
        _ => {}
    }
}
