//! Spans as OTLP's JSON has them (opentelemetry-proto 1.x, "OTLP/JSON").

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::Trace;
use crate::access_log::beginning;

/// The longest text of an attribute, in bytes.
const MAX_TEXT: usize = 1024;
/// `SpanKind`.
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
/// `StatusCode`.
const ERROR: u8 = 2;

/// A traced request that has ended.
#[derive(Debug)]
pub(crate) struct Traced {
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
    pub(crate) why: Option<&'static str>,
    pub(crate) phases: Vec<(&'static str, Duration)>,
}

impl Traced {
    /// How many spans it may have.
    pub(crate) const SPANS: u64 = 2;

    fn spans(&self) -> Vec<Value> {
        let Trace { id, parent, span, asking, began, asked } = &*self.trace;
        let ended = *began + self.took;
        let mut attributes = vec![
            text("http.request.method", &self.method),
            text("url.path", &self.path),
            number("http.response.status_code", u64::from(self.code)),
            text("client.address", &self.client.to_string()),
            text("fairlead.listener", &self.listener),
            text("fairlead.class", self.class),
        ];
        let named =
            [("fairlead.cluster", self.cluster.as_deref()), ("fairlead.shard", self.shard.as_deref())];
        let named = named.into_iter().chain([("fairlead.why", self.why)]);
        attributes.extend(named.filter_map(|(key, value)| Some(text(key, value?))));
        attributes.extend(self.phases.iter().map(|(phase, took)| {
            number(&format!("fairlead.phase.{phase}_us"), u64::try_from(took.as_micros()).unwrap_or(u64::MAX))
        }));
        let mut own = json!({
            "traceId": id.to_string(),
            "spanId": span.to_string(),
            "name": self.method,
            "kind": SERVER,
            "startTimeUnixNano": nanos(*began),
            "endTimeUnixNano": nanos(ended),
            "attributes": attributes,
        });
        if let Some(parent) = parent {
            own["parentSpanId"] = json!(parent.to_string());
        }
        if self.code >= 500 {
            own["status"] = json!({"code": ERROR});
        }
        let Some(asked) = asked.get() else { return vec![own] };
        let shard = self.shard.as_deref().unwrap_or_default();
        let of_shard = json!({
            "traceId": id.to_string(),
            "spanId": asking.to_string(),
            "parentSpanId": span.to_string(),
            "name": self.method,
            "kind": CLIENT,
            "startTimeUnixNano": nanos(*began + *asked),
            "endTimeUnixNano": nanos(ended),
            "attributes": [text("http.request.method", &self.method), text("fairlead.shard", shard)],
        });
        vec![own, of_shard]
    }
}

/// A request for the collector, and how many spans it has.
pub(super) fn encode(service: &str, batch: &[Box<Traced>]) -> (Vec<u8>, u64) {
    let spans: Vec<Value> = batch.iter().flat_map(|traced| traced.spans()).collect();
    let count = spans.len() as u64;
    let version = env!("CARGO_PKG_VERSION");
    let request = json!({"resourceSpans": [{
        "resource": {"attributes": [text("service.name", service), text("service.version", version)]},
        "scopeSpans": [{"scope": {"name": "fairlead-gateway", "version": version}, "spans": spans}],
    }]});
    (request.to_string().into_bytes(), count)
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": beginning(value, MAX_TEXT)}})
}

/// 64 bits are text in protobuf's JSON.
fn number(key: &str, value: u64) -> Value {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

fn nanos(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}
