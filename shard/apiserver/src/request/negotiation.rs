//! Content negotiation: the format of the request body, and the form of the response.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};

use super::Query;

/// The format of a request body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BodyFormat {
    /// `application/json`, also when the header is missing.
    Json,
    /// `application/vnd.kubernetes.protobuf`, the default of typed Go clients from Kubernetes 1.32 on.
    Protobuf,
    /// `application/yaml`.
    Yaml,
}

impl BodyFormat {
    /// The format of a create or update body.
    ///
    /// # Errors
    /// [`NegotiationError::ContentType`].
    pub fn of(headers: &HeaderMap) -> Result<Self, NegotiationError> {
        match media_type(headers) {
            "" | "application/json" => Ok(Self::Json),
            "application/yaml" => Ok(Self::Yaml),
            "application/vnd.kubernetes.protobuf" => Ok(Self::Protobuf),
            other => Err(NegotiationError::ContentType {
                found: other.to_owned(),
                supported: "application/json, application/yaml, application/vnd.kubernetes.protobuf",
            }),
        }
    }
}

/// The kind of a PATCH body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PatchKind {
    /// Server-side apply.
    Apply,
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Strategic merge patch, driven by the schema of built-in kinds.
    Strategic,
}

impl PatchKind {
    /// The kind of a PATCH body.
    ///
    /// # Errors
    /// [`NegotiationError::ContentType`].
    pub fn of(headers: &HeaderMap) -> Result<Self, NegotiationError> {
        match media_type(headers) {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            other => Err(NegotiationError::ContentType { found: other.to_owned(), supported: Self::ALL }),
        }
    }

    /// All patch types of built-in kinds, for messages.
    pub const ALL: &'static str = "application/json-patch+json, application/merge-patch+json, \
                                   application/strategic-merge-patch+json, application/apply-patch+yaml";
}

fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// The requested form of the objects in a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ResponseFormat {
    /// The view of the objects.
    pub form: Form,
    /// Whether the response is YAML instead of JSON.
    pub is_yaml: bool,
    /// Whether the response is indented.
    pub is_pretty: bool,
}

/// A view of objects.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// The aggregated discovery document of this version (`v2`, `v2beta1`).
    AggregatedDiscovery(&'static str),
    /// The objects themselves.
    Object,
    /// Only their metadata (`meta.k8s.io/v1` or `v1beta1`).
    PartialMetadata(&'static str),
    /// Rows of a table (`meta.k8s.io/v1` or `v1beta1`).
    Table(&'static str),
}

impl ResponseFormat {
    /// Chooses the first media range, by weight and then order, that can be served.
    ///
    /// # Errors
    /// [`NegotiationError::Accept`] when none can be.
    pub fn of(headers: &HeaderMap, query: &Query<'_>) -> Result<Self, NegotiationError> {
        Self::chosen(headers, query, |_| true)
    }

    /// As [`of`](Self::of), for a watch: a stream of YAML documents is not defined.
    ///
    /// # Errors
    /// [`NegotiationError::Accept`] when no range can be served as a stream.
    pub fn of_watch(headers: &HeaderMap, query: &Query<'_>) -> Result<Self, NegotiationError> {
        Self::chosen(headers, query, |is_yaml| !is_yaml)
    }

    fn chosen(
        headers: &HeaderMap,
        query: &Query<'_>,
        is_served: impl Fn(bool) -> bool,
    ) -> Result<Self, NegotiationError> {
        let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_browser = ["curl", "Wget", "Mozilla"].iter().any(|prefix| agent.starts_with(prefix));
        let is_pretty = if query.has("pretty") { query.flag("pretty") } else { is_browser };
        let mut ranges: Vec<(f32, Form, bool)> = Vec::new();
        let mut has_ranges = false;
        for value in headers.get_all(ACCEPT) {
            for range in value.to_str().unwrap_or_default().split(',') {
                let range = range.trim();
                if range.is_empty() {
                    continue;
                }
                has_ranges = true;
                if let Some(found) = parse_range(range).filter(|(_, _, is_yaml)| is_served(*is_yaml)) {
                    ranges.push(found);
                }
            }
        }
        if !has_ranges {
            return Ok(Self { form: Form::Object, is_yaml: false, is_pretty });
        }
        ranges.retain(|(weight, ..)| *weight > 0.0);
        // A stable sort keeps the client's order among equal weights.
        ranges.sort_by(|one, other| other.0.total_cmp(&one.0));
        let (_, form, is_yaml) = ranges.first().copied().ok_or(NegotiationError::Accept)?;
        Ok(Self { form, is_yaml, is_pretty })
    }

    /// The Content-Type of a response in this form.
    pub fn content_type(&self) -> &'static str {
        match (self.is_yaml, self.form) {
            (true, _) => "application/yaml",
            (false, Form::AggregatedDiscovery("v2beta1")) => {
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
            (false, Form::AggregatedDiscovery(_)) => {
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            (false, Form::Object | Form::PartialMetadata(_) | Form::Table(_)) => "application/json",
        }
    }
}

fn parse_range(range: &str) -> Option<(f32, Form, bool)> {
    let mut parts = range.split(';').map(str::trim);
    let is_yaml = match parts.next()? {
        "application/json" | "application/*" | "*/*" => false,
        "application/yaml" => true,
        _ => return None,
    };
    let (mut weight, mut group, mut version, mut shape) = (1.0, "", "", "");
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        match name {
            "q" => weight = value.parse().ok()?,
            "g" => group = value,
            "v" => version = value,
            "as" => shape = value,
            _ => {}
        }
    }
    let form = match (shape, group, version) {
        ("", _, _) => Form::Object,
        ("Table", "meta.k8s.io", "v1") => Form::Table("v1"),
        ("Table", "meta.k8s.io", "v1beta1") => Form::Table("v1beta1"),
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => {
            Form::PartialMetadata("v1")
        }
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1beta1") => {
            Form::PartialMetadata("v1beta1")
        }
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Form::AggregatedDiscovery("v2"),
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2beta1") => Form::AggregatedDiscovery("v2beta1"),
        _ => return None,
    };
    Some((weight, form, is_yaml))
}

/// A media type that this server does not support; a client error.
#[derive(Debug, thiserror::Error)]
pub enum NegotiationError {
    /// None of the accepted types can be served: 406.
    #[error("only the following media types are accepted: application/json, application/yaml")]
    Accept,
    /// The body's type is not understood: 415.
    #[error("the body of the request was in an unknown format - accepted media types include: {supported}")]
    ContentType {
        /// The media type that the client sent.
        found: String,
        /// The media types that the server accepts.
        supported: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn accept(text: &'static str) -> Result<ResponseFormat, NegotiationError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(text));
        ResponseFormat::of(&headers, &Query::default())
    }

    #[test]
    fn accept_headers_of_real_clients() {
        for (text, form, yaml) in [
            ("*/*", Form::Object, false),
            ("application/json, */*", Form::Object, false),
            ("application/vnd.kubernetes.protobuf,application/json", Form::Object, false),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                Form::Table("v1"),
                false,
            ),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
                Form::AggregatedDiscovery("v2"),
                false,
            ),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
                Form::PartialMetadata("v1"),
                false,
            ),
            ("application/yaml", Form::Object, true),
            ("application/yaml;q=0.5,application/json;q=0.9", Form::Object, false),
            ("application/json;as=Unknown;g=x;v=v1,application/json", Form::Object, false),
            ("application/json;q=0,application/yaml;q=0.1", Form::Object, true),
        ] {
            let accepted = accept(text).unwrap();
            assert_eq!((accepted.form, accepted.is_yaml), (form, yaml), "{text}");
        }
    }

    #[test]
    fn unsupported_accept_headers_are_rejected() {
        assert!(accept("application/vnd.kubernetes.protobuf").is_err());
        assert!(accept("application/cbor").is_err());
        assert!(accept("application/json;q=0").is_err());
    }

    #[test]
    fn browsers_get_indented_text() {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static("curl/8"));
        assert!(ResponseFormat::of(&headers, &Query::default()).unwrap().is_pretty);
        assert!(!ResponseFormat::of(&headers, &Query::parse("pretty=false")).unwrap().is_pretty);
    }
}
