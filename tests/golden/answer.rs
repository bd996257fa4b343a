//! Answers as documents that can be compared: status, headers that matter, body.

use http::HeaderMap;
use serde_json::{Map, Value, json};

use super::normal::Side;
use super::recording::Exchange;
use super::wire::Answer;

/// How a body is to be read.
pub enum Body {
    Json(Value),
    Text(String),
    /// Not readable here; it holds these bytes.
    Binary(Vec<u8>),
}

/// Say nothing about the answer, or are about the connection. The last ones are always empty in kcp.
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

/// Have a value that says nothing.
const MASKED_HEADERS: [&str; 3] = ["audit-id", "etag", "expires"];

/// What kcp answered, before normalisation.
pub fn recorded(exchange: &Exchange) -> (Value, Body) {
    let headers = exchange.response.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let headers: Vec<_> = headers.collect();
    let content_type = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("content-type"))
        .map_or("", |(_, value)| *value);
    let body = read_body(content_type, &exchange.response.body());
    (head(exchange.response.status, headers.iter().copied()), body)
}

/// What was answered now, before normalisation.
pub fn received(answer: &Answer) -> (Value, Body) {
    let body = read_body(content_type(&answer.headers), &answer.body);
    (received_head(answer.status.as_u16(), &answer.headers), body)
}

/// The head of an answer.
pub fn received_head(status: u16, headers: &HeaderMap) -> Value {
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default()));
    head(status, headers)
}

/// The whole answer, normalised. `other` is the other side's body: of a body that cannot be read, only what the
/// other side says is looked for.
pub fn document(side: &Side, head: &Value, body: &Body, other: &Body) -> Value {
    let mut document = side.value(head.clone());
    document["body"] = match (body, other) {
        (Body::Json(value), Body::Binary(binary)) => unsaid(side, value, binary),
        (Body::Binary(_), Body::Json(_)) => json!({}),
        (Body::Json(value), _) => side.value(value.clone()),
        (Body::Text(text), _) => Value::String(side.text(text)),
        (Body::Binary(binary), _) => Value::String(side.text(&String::from_utf8_lossy(binary))),
    };
    document
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn read_body(content_type: &str, body: &[u8]) -> Body {
    if content_type.starts_with("application/vnd.kubernetes.protobuf") {
        return Body::Binary(body.to_vec());
    }
    if content_type.starts_with("application/yaml") {
        let text = std::str::from_utf8(body).unwrap_or_default();
        return serde_saphyr::from_str(text).map_or_else(|_| Body::Text(text.to_owned()), Body::Json);
    }
    match serde_json::from_slice(body) {
        Ok(value) => Body::Json(value),
        Err(_) => Body::Text(String::from_utf8_lossy(body).into_owned()),
    }
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

/// The texts of a document that do not occur in a protobuf message: it holds the same texts, unless they vary.
fn unsaid(side: &Side, value: &Value, binary: &[u8]) -> Value {
    let mut texts = Vec::new();
    collect_texts("", value, &mut texts);
    let unsaid = texts.into_iter().filter(|(_, text)| {
        let varies = side.text(text) != **text || text.bytes().all(|byte| byte.is_ascii_digit());
        !varies && !binary.windows(text.len().max(1)).any(|window| window == text.as_bytes())
    });
    Value::Object(unsaid.map(|(at, text)| (at, Value::String(text.to_owned()))).collect())
}

fn collect_texts<'a>(at: &str, value: &'a Value, texts: &mut Vec<(String, &'a str)>) {
    match value {
        Value::String(text) if !text.is_empty() => texts.push((at.to_owned(), text)),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(at, item, texts)),
        Value::Object(object) => {
            // Secrets' data are encoded in JSON only; managed fields are not compared.
            let object = object.iter().filter(|(key, _)| !["managedFields", "data"].contains(&key.as_str()));
            object.for_each(|(key, value)| collect_texts(&format!("{at}.{key}"), value, texts));
        }
        _ => {}
    }
}
