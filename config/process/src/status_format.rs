//! Content negotiation for `Status` responses: JSON, indented JSON, YAML or Kubernetes protobuf.
//!
//! The rules are those of `k8s.io/apiserver` for responses without a resource.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Response;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use serde_json::Value;

use crate::status::Status;

/// Encoding of a `Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusFormat {
    /// JSON on one line.
    Json,
    /// Indented JSON.
    IndentedJson,
    /// YAML with sorted keys.
    Yaml,
    /// Protobuf after the four bytes `k8s\0`.
    Protobuf,
}

impl StatusFormat {
    /// The encoding that a request accepts; indented JSON if it accepts none of them.
    pub fn accepted_by(headers: &HeaderMap, query: Option<&str>) -> Self {
        let Some(accept) = headers.get(ACCEPT) else {
            return Self::json(headers, query);
        };
        let accept = String::from_utf8_lossy(accept.as_bytes());
        let mut media_ranges: Vec<(&str, f32)> = accept.split(',').filter_map(media_range).collect();
        media_ranges.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let found = media_ranges.into_iter().find_map(|(media, _)| match media {
            "application/json" | "application/*" | "*/*" => Some(Self::json(headers, query)),
            "application/yaml" => Some(Self::Yaml),
            "application/vnd.kubernetes.protobuf" => Some(Self::Protobuf),
            _ => None,
        });
        found.unwrap_or(Self::IndentedJson)
    }

    fn json(headers: &HeaderMap, query: Option<&str>) -> Self {
        let parameter = query.into_iter().flat_map(|query| query.split('&')).find_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (name == "pretty").then_some(value)
        });
        let is_pretty = match parameter {
            Some(value) => !matches!(value, "0" | "false"),
            None => headers.get(USER_AGENT).is_some_and(|agent| {
                ["curl", "Wget", "Mozilla/5.0"]
                    .iter()
                    .any(|browser| agent.as_bytes().starts_with(browser.as_bytes()))
            }),
        };
        if is_pretty { Self::IndentedJson } else { Self::Json }
    }
}

/// A media range without its parameters, and its quality value. `as=Table` matches nothing, because a `Status` has no table
/// form.
fn media_range(text: &str) -> Option<(&str, f32)> {
    let mut parts = text.split(';').map(str::trim);
    let media = parts.next().filter(|media| !media.is_empty())?;
    let mut quality = 1.0;
    for parameter in parts {
        match parameter.split_once('=') {
            Some(("q", value)) => quality = value.parse().ok()?,
            Some(("as", _)) => return None,
            _ => {}
        }
    }
    (quality > 0.0).then_some((media, quality))
}

impl Status {
    /// The whole response in an encoding.
    pub fn to_response_as(&self, format: StatusFormat) -> Response<Bytes> {
        let mut response = self.to_response();
        let (media, body) = match format {
            StatusFormat::Json => return response,
            StatusFormat::IndentedJson => ("application/json", self.indented()),
            StatusFormat::Yaml => ("application/yaml", self.yaml()),
            StatusFormat::Protobuf => ("application/vnd.kubernetes.protobuf", Some(self.protobuf())),
        };
        if let Some(body) = body {
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
            *response.body_mut() = body;
        }
        response
    }

    /// Indents the JSON text without parsing it, which preserves the order of the fields.
    fn indented(&self) -> Option<Bytes> {
        let json = self.to_json();
        let text = std::str::from_utf8(&json).ok()?.trim_end();
        let mut indented = String::with_capacity(text.len() * 2);
        let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
        let mut characters = text.chars().peekable();
        let line = |out: &mut String, depth: usize| {
            out.push('\n');
            out.extend(std::iter::repeat_n("  ", depth));
        };
        while let Some(character) = characters.next() {
            if in_string {
                indented.push(character);
                in_string = character != '"' || escaped;
                escaped = character == '\\' && !escaped;
                continue;
            }
            match character {
                '{' | '[' => {
                    indented.push(character);
                    if let Some(end) = characters.next_if(|next| matches!(next, '}' | ']')) {
                        indented.push(end);
                    } else {
                        depth += 1;
                        line(&mut indented, depth);
                    }
                }
                '}' | ']' => {
                    depth = depth.saturating_sub(1);
                    line(&mut indented, depth);
                    indented.push(character);
                }
                ',' => {
                    indented.push(',');
                    line(&mut indented, depth);
                }
                ':' => indented.push_str(": "),
                other => {
                    in_string = other == '"';
                    indented.push(other);
                }
            }
        }
        indented.push('\n');
        Some(Bytes::from(indented))
    }

    fn yaml(&self) -> Option<Bytes> {
        let fields: BTreeMap<String, Value> = serde_json::from_slice(&self.to_json()).ok()?;
        serde_saphyr::to_string(&fields).ok().map(Bytes::from)
    }

    /// `runtime.Unknown` around `meta.v1.Status`, with the empty fields that Go's encoder writes.
    fn protobuf(&self) -> Bytes {
        let metadata = self.metadata.as_deref();
        let mut list = Vec::new();
        text(&mut list, 1, "");
        text(&mut list, 2, metadata.map_or("", |metadata| &metadata.resource_version));
        text(&mut list, 3, metadata.map_or("", |metadata| &metadata.continue_token));
        let mut status = Vec::new();
        bytes(&mut status, 1, &list);
        text(&mut status, 2, "Failure");
        text(&mut status, 3, &self.message);
        text(&mut status, 4, self.reason.as_str());
        if let Some(details) = &self.details {
            let mut message = Vec::new();
            text(&mut message, 1, &details.name);
            text(&mut message, 2, &details.group);
            text(&mut message, 3, &details.kind);
            for cause in &details.causes {
                let mut inner = Vec::new();
                text(&mut inner, 1, &cause.reason);
                text(&mut inner, 2, &cause.message);
                text(&mut inner, 3, &cause.field);
                bytes(&mut message, 4, &inner);
            }
            number(&mut message, 5, u64::from(details.retry_after_seconds));
            text(&mut message, 6, &details.uid);
            bytes(&mut status, 5, &message);
        }
        number(&mut status, 6, u64::from(self.code));
        let mut kind = Vec::new();
        text(&mut kind, 1, "v1");
        text(&mut kind, 2, "Status");
        let mut unknown = b"k8s\0".to_vec();
        bytes(&mut unknown, 1, &kind);
        bytes(&mut unknown, 2, &status);
        text(&mut unknown, 3, "");
        text(&mut unknown, 4, "");
        Bytes::from(unknown)
    }
}

fn text(out: &mut Vec<u8>, field: u8, value: impl AsRef<str>) {
    bytes(out, field, value.as_ref().as_bytes());
}

fn bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    out.push(field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn number(out: &mut Vec<u8>, field: u8, value: u64) {
    out.push(field << 3);
    varint(out, value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::status::GroupResource;

    fn wanted(accept: &str, agent: &str, query: Option<&str>) -> StatusFormat {
        let mut headers = HeaderMap::new();
        for (name, value) in [(ACCEPT, accept), (USER_AGENT, agent)] {
            if !value.is_empty() {
                headers.insert(name, value.parse().unwrap());
            }
        }
        StatusFormat::accepted_by(&headers, query)
    }

    #[test]
    fn responses_have_the_format_that_the_client_accepts() {
        use StatusFormat::{IndentedJson, Json, Protobuf, Yaml};
        for (accept, agent, query, expected) in [
            ("", "", None, Json),
            ("", "curl/8", None, IndentedJson),
            ("*/*", "curl/8", None, IndentedJson),
            ("application/json", "kubectl", Some("pretty=true"), IndentedJson),
            ("application/json", "curl/8", Some("a=b&pretty=false"), Json),
            ("application/yaml", "curl/8", None, Yaml),
            ("application/vnd.kubernetes.protobuf,application/json", "", None, Protobuf),
            ("application/json;q=0.5, application/yaml", "", None, Yaml),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "", None, Json),
            ("text/html", "", None, IndentedJson),
        ] {
            assert_eq!(wanted(accept, agent, query), expected, "{accept} {agent}");
        }
    }

    #[test]
    fn all_status_formats_have_the_same_content() {
        let status = Status::forbidden(GroupResource::default(), "", "User \"\" cannot, {a: [b]}");
        let body = |format| {
            let response = status.to_response_as(format);
            assert_eq!(response.status(), 403);
            String::from_utf8_lossy(response.body()).into_owned()
        };
        let expected = "{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {},\n  \
            \"status\": \"Failure\",\n  \"message\": \"forbidden: User \\\"\\\" cannot, {a: [b]}\",\n  \
            \"reason\": \"Forbidden\",\n  \"details\": {},\n  \"code\": 403\n}\n";
        assert_eq!(body(StatusFormat::IndentedJson), expected);
        let yaml: BTreeMap<String, Value> = serde_saphyr::from_str(&body(StatusFormat::Yaml)).unwrap();
        let json: BTreeMap<String, Value> = serde_json::from_str(&body(StatusFormat::Json)).unwrap();
        assert_eq!(yaml, json);
    }

    #[test]
    fn protobuf_equals_that_of_kcp() {
        let status = Status::already_exists(GroupResource::new("", "configmaps"), "pb1");
        let expected: &[u8] = b"k8s\0\n\x0c\n\x02v1\x12\x06Status\x12]\n\x06\n\0\x12\0\x1a\0\x12\x07Failure\
            \x1a\x1fconfigmaps \"pb1\" already exists\"\rAlreadyExists*\x17\n\x03pb1\x12\0\x1a\nconfigmaps(\x002\0\
            0\x99\x03\x1a\0\"\0";
        assert_eq!(&*status.protobuf(), expected);
    }
}
