//! Spans in OTLP's JSON encoding (opentelemetry-proto 1.x, "OTLP/JSON").

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};

use crate::telemetry::access_log::truncate;
use crate::telemetry::trace::{SpanId, Trace, TraceId};

/// Maximum size of an attribute's text, in bytes.
const MAX_TEXT: usize = 1024;
/// `SpanKind`.
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
/// `StatusCode`.
const ERROR: u8 = 2;

/// A completed traced request.
#[derive(Debug)]
pub(crate) struct TracedRequest {
    pub(crate) trace: Arc<Trace>,
    pub(crate) took: Duration,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) code: u16,
    pub(crate) class: &'static str,
    pub(crate) listener: Arc<str>,
    pub(crate) client: std::net::IpAddr,
    pub(crate) cluster: Option<Arc<str>>,
    pub(crate) shard: Option<Arc<str>>,
    pub(crate) reason: Option<&'static str>,
    pub(crate) stages: Vec<(&'static str, Duration)>,
}

impl TracedRequest {
    /// Maximum number of its spans.
    pub(crate) const SPANS: u64 = 2;

    /// The gateway's span and that of the upstream request.
    fn spans(&self) -> impl Iterator<Item = Span<'_>> {
        let Trace { id, parent, span, upstream_span, began, sent_after } = &*self.trace;
        let ended = *began + self.took;
        let own = Span {
            trace_id: DecimalString(*id),
            span_id: DecimalString(*span),
            parent_span_id: parent.map(DecimalString),
            name: &self.method,
            kind: SERVER,
            start_time_unix_nano: nanos(*began),
            end_time_unix_nano: nanos(ended),
            attributes: Attributes::OfRequest(self),
            status: (self.code >= 500).then_some(State { code: ERROR }),
        };
        let of_shard = sent_after.get().map(|sent_after| Span {
            trace_id: DecimalString(*id),
            span_id: DecimalString(*upstream_span),
            parent_span_id: Some(DecimalString(*span)),
            name: &self.method,
            kind: CLIENT,
            start_time_unix_nano: nanos(*began + *sent_after),
            end_time_unix_nano: nanos(ended),
            attributes: Attributes::OfUpstreamRequest(self),
            status: None,
        });
        [Some(own), of_shard].into_iter().flatten()
    }
}

/// An export request and the number of its spans. Serialized directly, without an intermediate document.
pub(super) fn encode(service: &str, batch: &[Box<TracedRequest>]) -> (Vec<u8>, u64) {
    let version = env!("CARGO_PKG_VERSION");
    let request = Request {
        resource_spans: [ResourceSpans {
            resource: Resource {
                attributes: [
                    Attribute { key: Key::Of("service.name"), value: Value::text(service) },
                    Attribute { key: Key::Of("service.version"), value: Value::text(version) },
                ],
            },
            scope_spans: [ScopeSpans {
                scope: Scope { name: "fairlead-gateway", version },
                spans: Spans(batch),
            }],
        }],
    };
    let count = batch.iter().map(|traced| traced.spans().count() as u64).sum();
    // All values can be serialized.
    (serde_json::to_vec(&request).unwrap_or_default(), count)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'r> {
    resource_spans: [ResourceSpans<'r>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'r> {
    resource: Resource<'r>,
    scope_spans: [ScopeSpans<'r>; 1],
}

#[derive(Serialize)]
struct Resource<'r> {
    attributes: [Attribute<'r>; 2],
}

#[derive(Serialize)]
struct ScopeSpans<'r> {
    scope: Scope<'r>,
    spans: Spans<'r>,
}

#[derive(Serialize)]
struct Scope<'r> {
    name: &'r str,
    version: &'r str,
}

struct Spans<'r>(&'r [Box<TracedRequest>]);

impl Serialize for Spans<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().flat_map(|traced| traced.spans()))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Span<'r> {
    trace_id: DecimalString<TraceId>,
    span_id: DecimalString<SpanId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<DecimalString<SpanId>>,
    name: &'r str,
    kind: u8,
    start_time_unix_nano: DecimalString<u128>,
    end_time_unix_nano: DecimalString<u128>,
    attributes: Attributes<'r>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<State>,
}

#[derive(Serialize)]
struct State {
    code: u8,
}

enum Attributes<'r> {
    OfRequest(&'r TracedRequest),
    OfUpstreamRequest(&'r TracedRequest),
}

impl Serialize for Attributes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = |key, value| Attribute { key: Key::Of(key), value: Value::text(value) };
        match self {
            Self::OfUpstreamRequest(traced) => serializer.collect_seq([
                text("http.request.method", &traced.method),
                text("fairlead.shard", traced.shard.as_deref().unwrap_or_default()),
            ]),
            Self::OfRequest(traced) => {
                let client = Value::StringValue(Text::Address(traced.client));
                let always = [
                    text("http.request.method", &traced.method),
                    text("url.path", &traced.path),
                    Attribute {
                        key: Key::Of("http.response.status_code"),
                        value: Value::IntValue(DecimalString(u128::from(traced.code))),
                    },
                    Attribute { key: Key::Of("client.address"), value: client },
                    text("fairlead.listener", &traced.listener),
                    text("fairlead.class", traced.class),
                ];
                let named = [
                    ("fairlead.cluster", traced.cluster.as_deref()),
                    ("fairlead.shard", traced.shard.as_deref()),
                    ("fairlead.reason", traced.reason),
                ];
                let named = named.into_iter().filter_map(|(key, value)| Some(text(key, value?)));
                let stages = traced.stages.iter().map(|(stage, took)| Attribute {
                    key: Key::OfStage(stage),
                    value: Value::IntValue(DecimalString(took.as_micros())),
                });
                serializer.collect_seq(always.into_iter().chain(named).chain(stages))
            }
        }
    }
}

#[derive(Serialize)]
struct Attribute<'r> {
    key: Key<'r>,
    value: Value<'r>,
}

enum Key<'r> {
    Of(&'r str),
    /// The duration of a stage.
    OfStage(&'r str),
}

impl Serialize for Key<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Of(key) => serializer.serialize_str(key),
            Self::OfStage(stage) => serializer.collect_str(&format_args!("fairlead.stage.{stage}_us")),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Value<'r> {
    StringValue(Text<'r>),
    /// 64-bit integers are strings in protobuf's JSON.
    IntValue(DecimalString<u128>),
}

impl<'r> Value<'r> {
    fn text(value: &'r str) -> Self {
        Self::StringValue(Text::Of(truncate(value, MAX_TEXT)))
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum Text<'r> {
    Of(&'r str),
    Address(std::net::IpAddr),
}

/// Serialized as a string.
struct DecimalString<T>(T);

impl<T: Display> Serialize for DecimalString<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

fn nanos(time: SystemTime) -> DecimalString<u128> {
    DecimalString(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos())
}

/// A request with minimal properties.
#[cfg(test)]
pub(super) fn a_request() -> TracedRequest {
    use super::{SpanId, TraceId};
    TracedRequest {
        trace: Arc::new(Trace {
            id: TraceId([1; 16]),
            parent: None,
            span: SpanId([2; 8]),
            upstream_span: SpanId([3; 8]),
            began: UNIX_EPOCH,
            sent_after: std::sync::OnceLock::new(),
        }),
        took: Duration::ZERO,
        method: "GET".to_owned(),
        path: "/".to_owned(),
        code: 200,
        class: "read",
        listener: "internal".into(),
        client: std::net::IpAddr::from([192, 0, 2, 1]),
        cluster: None,
        shard: None,
        reason: None,
        stages: Vec::new(),
    }
}
