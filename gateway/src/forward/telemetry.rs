//! Reports a request to metrics, busy workspaces, access log and traces: when it arrives, is forwarded, gets its first byte, and
//! completes.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fairlead_config::TraceContextPolicy;
use http::header::{HeaderMap, HeaderName};
use http::request::Parts;
use http::{HeaderValue, Method};
use smallvec::SmallVec;

use crate::forward::request_context::{LogFields, LogPath, RequestContext};
use crate::forward::target::Forward;
use crate::request::RequestClass;
use crate::request::response::AUDIT_ID;
use crate::telemetry::Telemetry;
use crate::telemetry::access_log::{Line, LoggedOutcome, LoggedRequest, truncate};
use crate::telemetry::metrics::RequestStage;
use crate::telemetry::request_stats::RequestAnnotations;
use crate::telemetry::trace::{SpanContext, TRACEPARENT, TRACESTATE, TracedRequest};

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
/// Bytes of a path that are logged.
const MAX_PATH: usize = 2048;
/// Bytes of a method, and of a header value, that are logged.
const MAX_METHOD: usize = 32;
const MAX_VALUE: usize = 256;
/// Durations in a log line: the stages, the first byte and the total.
const TIMES: usize = RequestStage::OF_REQUEST.len() + 2;

/// A request has arrived. At a listener that restarts traces, the client's trace headers are removed.
pub(crate) fn on_request(telemetry: &Telemetry, context: &mut RequestContext, head: &mut Parts) {
    let policy = context.connection().listener.policy.load().trace_context;
    if policy == TraceContextPolicy::Restart {
        head.headers.remove(TRACEPARENT);
        head.headers.remove(TRACESTATE);
    }
    let (is_logged, is_traced) =
        (telemetry.access_log.is_on() || telemetry.tail.has_subscribers(), telemetry.traces.is_on());
    if !is_logged && !is_traced {
        return;
    }
    // Listeners that restart traces have removed the headers above.
    let parent = SpanContext::of(&head.headers);
    context.trace = telemetry.traces.begin(parent).map(Arc::new);
    if is_logged || context.trace.is_some() {
        context.log_fields = Some(Box::new(LogFields {
            request: Some((
                head.version,
                LogPath::from_slice(truncate(head.uri.path(), MAX_PATH).as_bytes()),
            )),
            impersonated: head.headers.get(IMPERSONATE_USER).map(truncated),
            trace: context.trace.as_ref().map(|trace| trace.id).or(parent.map(|parent| parent.trace)),
            ..LogFields::default()
        }));
    }
}

/// Bytes have arrived that are no request.
pub(crate) fn on_malformed_request(telemetry: &Telemetry, context: &mut RequestContext) {
    if telemetry.access_log.is_on() || telemetry.tail.has_subscribers() {
        context.log_fields = Some(Box::default());
    }
}

/// A request is about to be forwarded.
pub(crate) fn on_forward(telemetry: &Telemetry, context: &mut RequestContext) {
    if context.class == RequestClass::Watch {
        let watch = |annotations: &RequestAnnotations| {
            annotations.cluster.as_ref().map(|cluster| telemetry.top.watch(cluster))
        };
        context.watching = context.stats.with(watch);
    }
}

/// Adds `traceparent` and `tracestate` for the upstream.
pub(crate) fn inject_traceparent(context: &RequestContext, headers: &mut HeaderMap) {
    if let Some(trace) = &context.trace {
        trace.inject_traceparent(headers, context.began.elapsed());
    }
}

/// The head of the upstream's response has arrived.
pub(crate) fn on_first_byte(context: &RequestContext, forward: &Forward) {
    let waited = context.began.elapsed();
    let listener = &context.connection().listener.series;
    forward.upstream.metrics.first_byte(listener, context.class, waited);
    context.stats.first_byte(waited);
}

/// Records the Audit-Id of a response, the upstream's or the gateway's own.
pub(crate) fn on_response_headers(context: &RequestContext, headers: &HeaderMap) {
    if let Some(log_fields) = &context.log_fields
        && let Some(id) = headers.get(AUDIT_ID)
    {
        let _ = log_fields.audit_id.set(SmallVec::from_slice(beginning_of(id)));
    }
}

/// A truncated copy of a value. A clone would keep alive the whole head, with its secrets.
fn truncated(value: &HeaderValue) -> HeaderValue {
    // A prefix of a valid value is valid.
    HeaderValue::from_bytes(beginning_of(value)).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn beginning_of(value: &HeaderValue) -> &[u8] {
    let bytes = value.as_bytes();
    &bytes[..bytes.len().min(MAX_VALUE)]
}

/// Text that was UTF-8 when it was copied.
fn text(log_fields: &[u8]) -> &str {
    std::str::from_utf8(log_fields).unwrap_or_default()
}

/// A request has completed with this status code; `forward` if it was forwarded. The only place that reads the request's
/// statistics.
pub(crate) fn on_complete(
    telemetry: &Telemetry,
    context: &RequestContext,
    method: &Method,
    code: u16,
    forward: Option<&Forward>,
) {
    let (duration, listener) = (context.began.elapsed(), &context.connection().listener.series);
    telemetry.metrics.finished(method, code, duration);
    for stage in RequestStage::OF_REQUEST {
        if let Some(took) = context.stats.duration_of(stage) {
            listener.stage(stage, took);
        }
    }
    if let Some(forward) = forward {
        let metrics = &forward.upstream.metrics;
        metrics.total(listener, context.class, duration);
        metrics.body_bytes(context.request_bytes, context.response_bytes);
        if let Some(shard) = &forward.mapped_shard {
            telemetry.metrics.mapped_body_bytes(shard, context.request_bytes, context.response_bytes);
        }
    }
    // The request is complete, so the lock is not contended, and nothing called here takes it again. For a log line the fields are
    // borrowed: cloning them would contend on reference counts that all threads share.
    context.stats.with(|annotations| {
        if let Some(cluster) = &annotations.cluster {
            let bytes = context.request_bytes + context.response_bytes;
            telemetry.top.ended(cluster, code, bytes, context.began + duration);
        }
        if let Some(log_fields) = &context.log_fields {
            let ended = CompletedRequest {
                telemetry,
                context,
                annotations,
                log_fields,
                method,
                code,
                forward,
                duration,
            };
            ended.log();
            ended.trace();
        }
    });
    tracing::trace!(%method, code, micros = duration.as_micros() as u64, "request");
}

/// A completed request that is logged or traced.
struct CompletedRequest<'e> {
    telemetry: &'e Telemetry,
    context: &'e RequestContext,
    annotations: &'e RequestAnnotations,
    log_fields: &'e LogFields,
    method: &'e Method,
    code: u16,
    forward: Option<&'e Forward>,
    duration: Duration,
}

impl CompletedRequest<'_> {
    fn log(&self) {
        let (context, annotations, log_fields) = (self.context, self.annotations, self.log_fields);
        let outcome = LoggedOutcome {
            code: self.code,
            took: (!context.class.is_long_running()).then_some(self.duration),
            is_write: context.class == RequestClass::Write,
            is_local: annotations.reason.is_some(),
            is_traced: context.trace.is_some(),
        };
        let (is_logged, is_watched) =
            (self.telemetry.access_log.selects(outcome), self.telemetry.tail.has_subscribers());
        if !is_logged && !is_watched {
            return;
        }
        let (mut times, connection) = ([("", Duration::ZERO); TIMES], context.connection());
        let user = annotations.identity.as_ref().map(|identity| identity.user());
        let trace_id = log_fields.trace.map(|id| id.to_string());
        let request = log_fields.request.as_ref();
        let line = Line {
            time: SystemTime::now(),
            audit_id: log_fields.audit_id.get().map(SmallVec::as_slice),
            listener: &connection.listener.name,
            client: context.client,
            connection: connection.id,
            request: request.map(|(protocol, path)| LoggedRequest {
                protocol: *protocol,
                method: self.method.as_str(),
                path: text(path),
            }),
            class: context.class.as_str(),
            code: self.code,
            user: user.map(|user| user.name.as_str()),
            groups: user.map_or(0, |user| user.groups.len()),
            impersonated: log_fields.impersonated.as_ref().map(HeaderValue::as_bytes),
            cluster: annotations.cluster.as_deref(),
            shard: self.forward.map(|forward| &*forward.upstream.name),
            reason: annotations.reason,
            request_bytes: context.request_bytes,
            response_bytes: context.response_bytes + u64::from(annotations.local_bytes),
            stages: self.times(&mut times),
            trace_id: trace_id.as_deref(),
        };
        if is_logged {
            self.telemetry.access_log.log(&line);
        }
        if is_watched {
            self.telemetry.tail.publish(&line);
        }
    }

    fn trace(&self) {
        let Some(trace) = self.context.trace.as_ref().filter(|_| self.telemetry.traces.exports()) else {
            return;
        };
        let path = self.log_fields.request.as_ref().map(|(_, path)| text(path).to_owned());
        self.telemetry.traces.ended(Box::new(TracedRequest {
            trace: Arc::clone(trace),
            took: self.duration,
            method: truncate(self.method.as_str(), MAX_METHOD).to_owned(),
            path: path.unwrap_or_default(),
            code: self.code,
            class: self.context.class.as_str(),
            listener: Arc::clone(&self.context.connection().listener.name),
            client: self.context.client,
            cluster: self.annotations.cluster.clone(),
            shard: self.forward.map(|forward| Arc::clone(&forward.upstream.name)),
            reason: self.annotations.reason,
            stages: self.times(&mut [("", Duration::ZERO); TIMES]).to_vec(),
        }));
    }

    /// The durations that were measured.
    fn times<'t>(&self, times: &'t mut [(&'static str, Duration); TIMES]) -> &'t [(&'static str, Duration)] {
        let stats = &self.context.stats;
        let stages =
            RequestStage::OF_REQUEST.into_iter().map(|stage| (stage.as_str(), stats.duration_of(stage)));
        let all = stages.chain([("first_byte", stats.time_to_first_byte()), ("total", Some(self.duration))]);
        let mut count = 0;
        for (place, (name, took)) in times.iter_mut().zip(all.filter_map(|(name, took)| Some((name, took?))))
        {
            *place = (name, took);
            count += 1;
        }
        &times[..count]
    }
}
