//! Traces: sampling, the propagation to shards, and spans for a collector.
//!
//! A request that is not traced costs a load, a look-up of a header at listeners that continue their clients' traces, and a
//! random number. A traced request has two spans: the gateway's own, and that of the upstream request, which is the parent
//! of the shard's spans.

mod context;
mod export;
mod otlp;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use fairlead_client::NameResolver;
use fairlead_config::TracingConfig;
use fairlead_process::{Metrics, MetricsError, Shutdown, Tasks};
use http::header::HeaderMap;
use parking_lot::Mutex;

use crate::telemetry::random::{random_id, sample};
pub(crate) use context::{SpanContext, SpanId, TRACEPARENT, TRACESTATE, TraceId};
pub(crate) use export::CollectorError;
use export::{Collector, Results, Spans};
pub(crate) use otlp::TracedRequest;

/// Tracing of all listeners.
pub(crate) struct Tracing {
    /// `None` while tracing is off.
    active: ArcSwapOption<Active>,
    results: Results,
    /// The active configuration; locked while it is changed.
    configured: Mutex<TracingConfig>,
    tasks: Tasks,
    shutdown: Shutdown,
    names: NameResolver,
}

/// A configuration that can be applied.
pub(crate) struct PreparedTracing {
    config: TracingConfig,
    collector: Option<Collector>,
}

struct Active {
    sample: f64,
    /// `None` without a collector.
    spans: Option<Spans>,
}

/// The trace of one request.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) id: TraceId,
    /// The client's span, if it sent one.
    pub(crate) parent: Option<SpanId>,
    /// The gateway's span.
    pub(crate) span: SpanId,
    /// The span of the upstream request.
    pub(crate) upstream_span: SpanId,
    pub(crate) began: SystemTime,
    /// Time of the upstream request, since the start of the request.
    pub(crate) sent_after: OnceLock<Duration>,
}

impl Tracing {
    /// Tracing that is off.
    ///
    /// # Errors
    /// If it is called twice with the same metrics.
    pub(crate) fn new(
        metrics: &Metrics,
        tasks: &Tasks,
        shutdown: &Shutdown,
        names: &NameResolver,
    ) -> Result<Self, MetricsError> {
        Ok(Self {
            active: ArcSwapOption::empty(),
            results: Results::new(metrics)?,
            configured: Mutex::default(),
            tasks: tasks.clone(),
            shutdown: shutdown.clone(),
            names: names.clone(),
        })
    }

    /// Prepares a configuration without applying it. `None` if it is already active.
    ///
    /// # Errors
    /// The configuration of the collector is invalid.
    pub(crate) fn prepare(&self, config: &TracingConfig) -> Result<Option<PreparedTracing>, CollectorError> {
        if *self.configured.lock() == *config {
            return Ok(None);
        }
        let make = |url| Collector::new(url, config, &self.names, self.results.clone());
        let collector = config.otlp_endpoint.as_ref().map(make).transpose()?;
        Ok(Some(PreparedTracing { config: config.clone(), collector }))
    }

    /// Applies a prepared configuration.
    pub(crate) fn apply(&self, prepared: Option<PreparedTracing>) {
        let Some(PreparedTracing { config, collector }) = prepared else { return };
        let mut configured = self.configured.lock();
        let spans = collector.map(|collector| {
            let (spans, waiting) = Spans::new(config.queue);
            // Ends when the sending side is dropped.
            self.tasks.spawn("spans", collector.run(waiting, self.shutdown.clone()));
            spans
        });
        let sample = config.sample.get();
        let is_wanted = spans.is_some() || sample > 0.0;
        self.active.store(is_wanted.then(|| Arc::new(Active { sample, spans })));
        *configured = config;
    }

    /// A trace for a request, if it is sampled. The client's valid trace context decides, if it is accepted.
    pub(crate) fn begin(&self, parent: Option<SpanContext>) -> Option<Trace> {
        let active = self.active.load();
        let active = active.as_ref()?;
        if !parent.map_or_else(|| sample(active.sample), |parent| parent.is_sampled) {
            return None;
        }
        Some(Trace {
            id: parent.map_or_else(|| TraceId(random_id()), |parent| parent.trace),
            parent: parent.map(|parent| parent.span),
            span: SpanId(random_id()),
            upstream_span: SpanId(random_id()),
            began: SystemTime::now(),
            sent_after: OnceLock::new(),
        })
    }

    /// True if requests are traced. Costs an atomic load.
    pub(crate) fn is_on(&self) -> bool {
        self.active.load().is_some()
    }

    /// True if spans are exported.
    pub(crate) fn exports(&self) -> bool {
        self.active.load().as_ref().is_some_and(|active| active.spans.is_some())
    }

    /// Queues the spans of a completed request. Never blocks: if the queue is full, they are dropped and counted.
    pub(crate) fn ended(&self, traced: Box<TracedRequest>) {
        if let Some(active) = &*self.active.load()
            && let Some(spans) = &active.spans
            && !spans.enqueue(traced)
        {
            self.results.dropped.inc_by(TracedRequest::SPANS);
        }
    }

    /// Called after the last request: queued spans are sent, and tracing is switched off.
    pub(crate) fn finish(&self) {
        self.active.store(None);
    }
}

impl Trace {
    /// Sets the shard's trace headers, in place of the client's.
    pub(crate) fn inject_traceparent(&self, headers: &mut HeaderMap, after: Duration) {
        if self.parent.is_none() {
            // `tracestate` belongs to the client's `traceparent`, which is missing or invalid.
            headers.remove(TRACESTATE);
        }
        let upstream_parent = SpanContext { trace: self.id, span: self.upstream_span, is_sampled: true };
        headers.insert(TRACEPARENT, upstream_parent.to_header());
        // A retry belongs to the same span.
        let _ = self.sent_after.set(after);
    }
}
