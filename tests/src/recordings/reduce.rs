//! Reduces recordings to the facts that tests compare.
//!
//! Removed: descriptions, HTML pages, help texts, managed fields, certificates, header fields that depend on the connection or
//! the time, and everything that no test reads. The same input always gives the same output.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, GzBuilder};
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Body, Document, Exchange, RecordingError, Response, Watch};

/// A file of reduced data.
#[derive(Debug)]
pub struct Reduced {
    /// Path below the output folder.
    pub path: PathBuf,
    /// Number of records (lines).
    pub records: usize,
    /// Size of the file.
    pub bytes: usize,
}

/// Reduces the recordings in `from` (the recorder's folders `transcripts`, `discovery`, `objects`, `metrics`,
/// `flags`) to the files that tests read, and writes them below `to`.
///
/// # Errors
/// If a recording is missing or in an unknown form, or a file cannot be written.
pub fn reduce(from: &Path, to: &Path) -> Result<Vec<Reduced>, RecordingError> {
    let mut output = Output { folder: to, files: Vec::new() };
    for name in TRANSCRIPTS {
        output.write_lines("transcripts", name, &transcript(from, name, Transcript::Replayed)?)?;
    }
    output.write_lines(
        "transcripts",
        FRONT_PROXY,
        &transcript(from, FRONT_PROXY, Transcript::OfFrontProxy)?,
    )?;
    for place in DISCOVERED_PLACES {
        output.write_lines("discovery", place, &discovery(&from.join("discovery").join(place))?)?;
    }
    for place in PLACES_WITH_OBJECTS {
        output.write_lines("objects", place, &objects(&from.join("objects").join(place))?)?;
    }
    let metrics = columns(&from.join("metrics/front-proxy.tsv"), &["name", "type", "labels"])?;
    output.write_text("metrics/front-proxy.tsv", &metrics)?;
    for (recorded, kept) in [
        ("kcp-front-proxy", "kcp-front-proxy"),
        ("kcp-start-all", "kcp-start"),
        ("cache-server", "cache-server"),
    ] {
        let flags = columns(&from.join(format!("flags/{recorded}.tsv")), &["name"])?;
        output.write_text(&format!("flags/{kept}.tsv"), &flags)?;
    }
    Ok(output.files)
}

/// The transcripts that are replayed against an installation.
const TRANSCRIPTS: [&str; 4] =
    ["a-kubectl-basics", "b-workspaces", "c-ordinary-objects", "g-shards-partitions"];

/// The transcript that is replayed against a gateway before simulated shards.
const FRONT_PROXY: &str = "h-front-proxy";

const DISCOVERED_PLACES: [&str; 3] = ["root", "system-admin.root-shard", "system-admin.shard-1"];

const PLACES_WITH_OBJECTS: [&str; 11] = [
    "root",
    "fresh-organization",
    "fresh-universal",
    "system-admin.root-shard",
    "system-admin.shard-1",
    "system-bound-crds.root-shard",
    "system-bound-crds.shard-1",
    "system-shard.root-shard",
    "system-shard.shard-1",
    "system-system-crds.root-shard",
    "system-system-crds.shard-1",
];

/// Clients set these by themselves, or they vary without effect.
const DROPPED_REQUEST_HEADERS: [&str; 5] =
    ["host", "content-length", "connection", "kubectl-command", "kubectl-session"];

/// Header fields that depend on the connection or the time. Those of flow control are always empty in kcp.
const DROPPED_RESPONSE_HEADERS: [&str; 8] = [
    "date",
    "content-length",
    "connection",
    "transfer-encoding",
    "last-modified",
    "process-start-time-unix",
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
];

/// Of these header fields only the presence is compared.
const MASKED_RESPONSE_HEADERS: [&str; 2] = ["audit-id", "expires"];

/// The header fields of the front proxy's own responses that are compared.
const FRONT_PROXY_HEADERS: [&str; 4] = ["content-type", "x-content-type-options", "location", "retry-after"];

/// Preference for aggregated discovery, as client-go sends it.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

const JSON: &str = "application/json";

static CERTIFICATE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new("(?s)-----BEGIN CERTIFICATE-----.*-----END CERTIFICATE-----").ok());

static BINARY_SECRETS: LazyLock<Vec<regex::bytes::Regex>> = LazyLock::new(|| {
    let patterns = [
        "(?s-u)-----BEGIN CERTIFICATE-----.*-----END CERTIFICATE-----",
        r"(?-u)eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+",
    ];
    patterns.iter().filter_map(|pattern| regex::bytes::Regex::new(pattern).ok()).collect()
});

/// The purpose of a transcript decides what is kept of it.
#[derive(Clone, Copy, PartialEq)]
enum Transcript {
    /// All exchanges, with bodies as documents.
    Replayed,
    /// The exchanges with the front proxy: its own responses byte for byte, no responses of shards.
    OfFrontProxy,
}

/// A line of a recorded transcript.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Line {
    Http(Box<Recorded>),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Recorded {
    seq: u32,
    upstream: String,
    identity: String,
    #[serde(default)]
    t_ms: u64,
    #[serde(default)]
    duration_ms: u64,
    request: RecordedRequest,
    response: RecordedResponse,
}

#[derive(Deserialize)]
struct RecordedRequest {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body: Option<String>,
    body_b64: Option<String>,
}

#[derive(Deserialize)]
struct RecordedResponse {
    status: u16,
    headers: Vec<(String, String)>,
    body: Option<String>,
    body_b64: Option<String>,
    #[serde(default)]
    body_omitted: Option<Value>,
    frames: Option<Vec<Frame>>,
    ended_by: Option<String>,
}

#[derive(Deserialize)]
struct Frame {
    data: Option<String>,
    data_b64: Option<String>,
}

fn transcript(from: &Path, name: &str, purpose: Transcript) -> Result<Vec<Exchange>, RecordingError> {
    let path = from.join("transcripts").join(format!("{name}.jsonl"));
    let text = read(&path)?;
    let mut exchanges = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = serde_json::from_str(line).map_err(RecordingError::line(&path, index + 1))?;
        let Line::Http(recorded) = line else { continue };
        if purpose == Transcript::OfFrontProxy && recorded.upstream != "front-proxy" {
            continue;
        }
        let seq = recorded.seq;
        let exchange = exchange(*recorded, purpose);
        exchanges.push(
            exchange
                .ok_or_else(|| RecordingError::content(&path, format!("record {seq}: invalid base64")))?,
        );
    }
    Ok(exchanges)
}

/// `None` if a body is not valid base64.
fn exchange(recorded: Recorded, purpose: Transcript) -> Option<Exchange> {
    let Recorded { seq, identity, t_ms, duration_ms, request, response, .. } = recorded;
    let bytes = bytes(request.body, request.body_b64)?;
    let body = match String::from_utf8(bytes) {
        Ok(text) if text.is_empty() => Body::Empty,
        Ok(text) => Body::Text(text),
        Err(error) => Body::Binary(error.into_bytes()),
    };
    let response = match purpose {
        Transcript::Replayed => Some(replayed_response(response)?),
        Transcript::OfFrontProxy => front_proxy_response(&request.method, response)?,
    };
    let headers = fields(request.headers, |name| !DROPPED_REQUEST_HEADERS.contains(&name));
    let RecordedRequest { method, url, .. } = request;
    Some(Exchange { seq, start_ms: t_ms, duration_ms, identity, method, url, headers, body, response })
}

fn replayed_response(recorded: RecordedResponse) -> Option<Response> {
    let RecordedResponse { status, headers, body, body_b64, body_omitted, frames, ended_by } = recorded;
    let headers = fields(headers, |name| !DROPPED_RESPONSE_HEADERS.contains(&name));
    let content_type = headers.iter().find(|(name, _)| name == "content-type");
    let content_type = content_type.map(|(_, value)| value.clone()).unwrap_or_default();
    let headers = headers.into_iter().map(|(name, value)| {
        let value =
            if MASKED_RESPONSE_HEADERS.contains(&name.as_str()) { "<some>".to_owned() } else { value };
        (name, value)
    });
    let mut bytes = bytes(body, body_b64)?;
    let mut watch = None;
    if let Some(frames) = frames {
        let mut events = Vec::new();
        for frame in frames {
            let event = frame.data.as_deref().and_then(|data| serde_json::from_str(data).ok());
            if status < 300 {
                events.extend(event.map(without_prose));
            } else {
                bytes.extend(self::bytes(frame.data, frame.data_b64)?);
            }
        }
        watch = Some(Watch { events, ended_by_server: ended_by.as_deref() == Some("server") });
    }
    let is_page = content_type.starts_with("text/html");
    let body = match Body::parse(&content_type, &bytes) {
        _ if is_page => Body::Empty,
        Body::Json(value) => Body::Json(without_prose(value)),
        Body::Binary(bytes) => Body::Binary(masked_binary(bytes)),
        other => other,
    };
    Some(Response {
        status,
        headers: headers.collect(),
        body,
        is_body_omitted: is_page || body_omitted.is_some(),
        watch,
    })
}

/// The outer `None` means invalid base64, the inner one that the response is a shard's: only shards audit.
fn front_proxy_response(method: &str, recorded: RecordedResponse) -> Option<Option<Response>> {
    let RecordedResponse { status, headers, body, body_b64, body_omitted, .. } = recorded;
    if headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("audit-id")) {
        return Some(None);
    }
    let text = String::from_utf8_lossy(&bytes(body, body_b64)?).into_owned();
    let body = if text.is_empty() || method == "HEAD" { Body::Empty } else { Body::Text(text) };
    let headers = fields(headers, |name| FRONT_PROXY_HEADERS.contains(&name));
    let is_body_omitted = body_omitted.is_some();
    Some(Some(Response { status, headers, body, is_body_omitted, watch: None }))
}

/// The fields to keep, with names in lower case.
fn fields(headers: Vec<(String, String)>, keep: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let headers = headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value));
    headers.filter(|(name, _)| keep(name)).collect()
}

fn bytes(text: Option<String>, encoded: Option<String>) -> Option<Vec<u8>> {
    match (text, encoded) {
        (_, Some(encoded)) => STANDARD.decode(encoded).ok(),
        (text, None) => Some(text.unwrap_or_default().into_bytes()),
    }
}

fn discovery(folder: &Path) -> Result<Vec<Document>, RecordingError> {
    let mut documents = Vec::new();
    for (accept, kind) in [(JSON, "legacy"), (AGGREGATED, "aggregated")] {
        for root in ["api", "apis"] {
            let body = document(&folder.join(format!("{root}.{kind}.json")))?;
            documents.push(Document { path: format!("/{root}"), accept: accept.to_owned(), body });
        }
    }
    for (name, root) in [("groups", "apis"), ("api.resources", "api"), ("apis.resources", "apis")] {
        let path = folder.join(format!("{name}.json"));
        let Value::Object(bodies) = document(&path)? else {
            return Err(RecordingError::content(&path, "not an object"));
        };
        documents.extend(bodies.into_iter().map(|(name, body)| Document {
            path: format!("/{root}/{name}"),
            accept: JSON.to_owned(),
            body,
        }));
    }
    Ok(documents)
}

/// The recorder named files `<plural>.<version>` or `<plural>.<group>_<version>`.
fn objects(folder: &Path) -> Result<Vec<Document>, RecordingError> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(RecordingError::file(folder))? {
        files.push(entry.map_err(RecordingError::file(folder))?.path());
    }
    files.sort();
    let mut documents = Vec::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = name.trim_end_matches(".gz").trim_end_matches(".json");
        if name == "_summary" {
            continue;
        }
        let path = match name.rsplit_once('_') {
            Some((resource, version)) => {
                resource.split_once('.').map(|(plural, group)| format!("/apis/{group}/{version}/{plural}"))
            }
            None => name.split_once('.').map(|(plural, version)| format!("/api/{version}/{plural}")),
        };
        let path = path.ok_or_else(|| RecordingError::content(&file, "not named after a resource"))?;
        documents.push(Document { path, accept: JSON.to_owned(), body: document(&file)? });
    }
    Ok(documents)
}

/// A recorded JSON document, compressed or not.
fn document(path: &Path) -> Result<Value, RecordingError> {
    let text = read(path)?;
    serde_json::from_str(&text).map(without_prose).map_err(RecordingError::line(path, 1))
}

fn read(path: &Path) -> Result<String, RecordingError> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(RecordingError::file(path))?;
    let result = if path.extension().is_some_and(|extension| extension == "gz") {
        flate2::read::GzDecoder::new(file).read_to_string(&mut text)
    } else {
        std::io::BufReader::new(file).read_to_string(&mut text)
    };
    result.map_err(RecordingError::file(path))?;
    Ok(text)
}

/// The named columns of a table with a header line, without that line.
fn columns(path: &Path, names: &[&str]) -> Result<String, RecordingError> {
    let text = read(path)?;
    let mut rows = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let header = rows.next().unwrap_or_default();
    let position = |name: &&str| header.iter().position(|column| column == name);
    let indices: Option<Vec<usize>> = names.iter().map(position).collect();
    let indices =
        indices.ok_or_else(|| RecordingError::content(path, format!("no columns {names:?}: {header:?}")))?;
    let rows = rows.map(|row| {
        let cells: Vec<&str> =
            indices.iter().map(|index| row.get(*index).copied().unwrap_or_default()).collect();
        cells.join("\t") + "\n"
    });
    Ok(rows.collect())
}

/// Removes descriptions and managed fields, and masks certificates. A property that is named `description` is kept.
fn without_prose(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(key, value)| {
                key != "managedFields" && (key != "description" || !value.is_string())
            });
            let reduced = kept.map(|(key, value)| {
                let value = match value {
                    Value::String(text) if key == "kubernetes.io/description" => {
                        mask_description(&text).into()
                    }
                    value => without_prose(value),
                };
                (key, value)
            });
            Value::Object(reduced.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.into_iter().map(without_prose).collect(),
        Value::String(text) => match &*CERTIFICATE {
            Some(pattern) => pattern.replace_all(&text, "<certificate>").into_owned().into(),
            None => text.into(),
        },
        other => other,
    }
}

/// Overwrites certificates, tokens and Kubernetes' text in the annotation `kubernetes.io/description` of a protobuf
/// message with as many letters, so that the message stays readable.
fn masked_binary(mut bytes: Vec<u8>) -> Vec<u8> {
    let mut ranges = Vec::new();
    for pattern in BINARY_SECRETS.iter() {
        ranges.extend(pattern.find_iter(&bytes).map(|found| found.range()));
    }
    let key = b"kubernetes.io/description";
    let positions = 0..bytes.len().saturating_sub(key.len());
    for start in positions.filter(|start| bytes[*start..].starts_with(key)) {
        // The value of a map entry: field 2, the length as a varint of at most two bytes, the text.
        let length = match bytes[start + key.len()..] {
            [0x12, low, high, ..] if low >= 0x80 => {
                Some((3, usize::from(low & 0x7f) | usize::from(high) << 7))
            }
            [0x12, low, ..] => Some((2, usize::from(low))),
            _ => None,
        };
        if let Some((head, length)) = length {
            let start = start + key.len() + head;
            ranges.push(start..(start + length).min(bytes.len()));
        }
    }
    for range in ranges {
        bytes[range].fill(b'x');
    }
    bytes
}

/// Kubernetes' text in the annotation `kubernetes.io/description` is compared by its length.
#[must_use]
pub fn mask_description(text: &str) -> String {
    format!("<{} characters>", text.chars().count())
}

/// The output folder and what was written to it.
struct Output<'a> {
    folder: &'a Path,
    files: Vec<Reduced>,
}

impl Output<'_> {
    /// Writes one JSON document per line, compressed.
    fn write_lines<T: Serialize>(
        &mut self,
        folder: &str,
        name: &str,
        records: &[T],
    ) -> Result<(), RecordingError> {
        let path = PathBuf::from(folder).join(format!("{name}.jsonl.gz"));
        let mut lines = Vec::new();
        for (index, record) in records.iter().enumerate() {
            serde_json::to_writer(&mut lines, record).map_err(RecordingError::line(&path, index + 1))?;
            lines.push(b'\n');
        }
        // No file name and no time in the header: the result depends on the content only.
        let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
        let compressed = encoder.write_all(&lines).and_then(|()| encoder.finish());
        self.write(path.clone(), records.len(), &compressed.map_err(RecordingError::file(&path))?)
    }

    fn write_text(&mut self, path: &str, text: &str) -> Result<(), RecordingError> {
        self.write(path.into(), text.lines().count(), text.as_bytes())
    }

    fn write(&mut self, path: PathBuf, records: usize, content: &[u8]) -> Result<(), RecordingError> {
        let file = self.folder.join(&path);
        let folder = file.parent().unwrap_or(self.folder);
        std::fs::create_dir_all(folder).map_err(RecordingError::file(folder))?;
        std::fs::write(&file, content).map_err(RecordingError::file(&file))?;
        self.files.push(Reduced { path, records, bytes: content.len() });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prose_and_certificates_are_removed_but_no_property_named_description() {
        let pem = "-----BEGIN CERTIFICATE-----\nMIID\n-----END CERTIFICATE-----\n";
        let reduced = without_prose(json!({
            "metadata": {
                "managedFields": [{"manager": "kubectl"}],
                "annotations": {"kubernetes.io/description": "Some text."},
            },
            "properties": {"description": {"type": "string", "description": "Some text."}},
            "data": {"ca.crt": pem},
        }));
        assert_eq!(
            reduced,
            json!({
                "metadata": {"annotations": {"kubernetes.io/description": "<10 characters>"}},
                "properties": {"description": {"type": "string"}},
                "data": {"ca.crt": "<certificate>\n"},
            })
        );
    }

    #[test]
    fn prose_certificates_and_tokens_of_binary_bodies_are_overwritten() {
        let text = "a".repeat(200);
        let mut message = b"k8s\0\x0a\x19kubernetes.io/description\x12\xc8\x01".to_vec();
        message.extend(text.as_bytes());
        message.extend(b"\x22-----BEGIN CERTIFICATE-----\nMIID\n-----END CERTIFICATE-----\x1aeyJhbGciOiJSUz.e30.c2ln\x22b");
        let masked = masked_binary(message.clone());
        assert_eq!(masked.len(), message.len());
        let masked = String::from_utf8_lossy(&masked).into_owned();
        assert!(masked.starts_with("k8s\0") && masked.ends_with("\x22b"), "{masked}");
        for removed in ["aa", "BEGIN", "MIID", "eyJ", "c2ln"] {
            assert!(!masked.contains(removed), "{removed}: {masked}");
        }
    }

    #[test]
    fn an_exchange_keeps_what_is_compared() {
        let recorded = |status: u16, more: Value| -> Recorded {
            let mut response = json!({"status": status, "headers": [
                ["Audit-Id", "1"], ["Date", "today"], ["Content-Type", "application/json"],
            ]});
            response.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value(json!({
                "seq": 7, "upstream": "front-proxy", "identity": "none", "t_ms": 5,
                "request": {"method": "GET", "url": "/x", "headers": [["Host", "h"], ["Accept", "*/*"]]},
                "response": response,
            }))
            .unwrap()
        };
        let watch = json!({"frames": [{"data": "{\"type\": \"ADDED\"}"}], "ended_by": "server"});
        let accepted = exchange(recorded(200, watch.clone()), Transcript::Replayed).unwrap();
        assert_eq!(accepted.headers, [("accept".to_owned(), "*/*".to_owned())]);
        let response = accepted.response.unwrap();
        let audit_id = ("audit-id".to_owned(), "<some>".to_owned());
        assert_eq!(response.headers, [audit_id, ("content-type".to_owned(), "application/json".to_owned())]);
        assert_eq!(
            response.watch,
            Some(Watch { events: vec![json!({"type": "ADDED"})], ended_by_server: true })
        );
        let refused = exchange(recorded(410, watch.clone()), Transcript::Replayed).unwrap().response.unwrap();
        assert_eq!(refused.body, Body::Json(json!({"type": "ADDED"})));
        assert_eq!(refused.watch.unwrap().events, [Value::Null; 0]);
        let forwarded = exchange(recorded(200, watch), Transcript::OfFrontProxy).unwrap();
        assert_eq!(forwarded.response, None, "a response with an audit ID is a shard's");
        let invalid = json!({"body_b64": "?"});
        assert!(exchange(recorded(200, invalid), Transcript::Replayed).is_none());
    }
}
