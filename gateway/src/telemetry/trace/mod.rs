//! Traces: which requests are traced, what shards are told of it, and spans for a collector.
//!
//! A request that is not traced costs a load, at listeners that continue their clients' traces a look for a header, and a lot
//! that is drawn. One that is has two spans: the gateway's own, and that of asking the shard, which the shard's continue.

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

use crate::telemetry::random::{is_drawn, unique};
pub(crate) use context::{Parent, SpanId, TRACEPARENT, TRACESTATE, TraceId};
pub(crate) use export::CollectorError;
use export::{Collector, Results, Spans};
pub(crate) use otlp::Traced;

/// Traces of all listeners.
pub(crate) struct Tracing {
    /// `None` while nothing is traced.
    active: ArcSwapOption<Active>,
    results: Results,
    /// What is in force; held while that is changed.
    configured: Mutex<TracingConfig>,
    tasks: Tasks,
    shutdown: Shutdown,
    names: NameResolver,
}

/// Settings that can be put in force.
pub(crate) struct PreparedTracing {
    config: TracingConfig,
    collector: Option<Collector>,
}

struct Active {
    sample: f64,
    /// `None` without a collector.
    spans: Option<Spans>,
}

/// A request that is traced.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) id: TraceId,
    /// The client's span, if it has said so.
    pub(crate) parent: Option<SpanId>,
    /// The gateway's span.
    pub(crate) span: SpanId,
    /// That of asking the shard.
    pub(crate) asking: SpanId,
    pub(crate) began: SystemTime,
    /// When the shard was asked, since then.
    pub(crate) asked: OnceLock<Duration>,
}

impl Tracing {
    /// Nothing is traced yet.
    ///
    /// # Errors
    /// Twice with the same metrics.
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

    /// Makes what settings name; nothing changes yet. `None` if they are in force already.
    ///
    /// # Errors
    /// What is wrong with the collector.
    pub(crate) fn prepare(&self, config: &TracingConfig) -> Result<Option<PreparedTracing>, CollectorError> {
        if *self.configured.lock() == *config {
            return Ok(None);
        }
        let make = |url| Collector::new(url, config, &self.names, self.results.clone());
        let collector = config.otlp_endpoint.as_ref().map(make).transpose()?;
        Ok(Some(PreparedTracing { config: config.clone(), collector }))
    }

    /// Puts them in force.
    pub(crate) fn apply(&self, prepared: Option<PreparedTracing>) {
        let Some(PreparedTracing { config, collector }) = prepared else { return };
        let mut configured = self.configured.lock();
        let spans = collector.map(|collector| {
            let (spans, waiting) = Spans::new(config.queue);
            // Ends when nobody has anything to tell it any more.
            self.tasks.spawn("spans", collector.run(waiting, self.shutdown.clone()));
            spans
        });
        let sample = config.sample.get();
        let is_wanted = spans.is_some() || sample > 0.0;
        self.active.store(is_wanted.then(|| Arc::new(Active { sample, spans })));
        *configured = config;
    }

    /// A trace for a request, if it is to be traced. Its client decides, if it has said anything that counts.
    pub(crate) fn begin(&self, parent: Option<Parent>) -> Option<Trace> {
        let active = self.active.load();
        let active = active.as_ref()?;
        if !parent.map_or_else(|| is_drawn(active.sample), |parent| parent.is_sampled) {
            return None;
        }
        Some(Trace {
            id: parent.map_or_else(|| TraceId(unique()), |parent| parent.trace),
            parent: parent.map(|parent| parent.span),
            span: SpanId(unique()),
            asking: SpanId(unique()),
            began: SystemTime::now(),
            asked: OnceLock::new(),
        })
    }

    /// Whether anything is traced. Costs an atomic load.
    pub(crate) fn is_on(&self) -> bool {
        self.active.load().is_some()
    }

    /// Whether spans are sent to anybody.
    pub(crate) fn exports(&self) -> bool {
        self.active.load().as_ref().is_some_and(|active| active.spans.is_some())
    }

    /// A traced request has ended. Waits for nobody: without room it is dropped and counted.
    pub(crate) fn ended(&self, traced: Box<Traced>) {
        if let Some(active) = &*self.active.load()
            && let Some(spans) = &active.spans
            && !spans.tell(traced)
        {
            self.results.dropped.inc_by(Traced::SPANS);
        }
    }

    /// There are no more requests: what waits is sent, and nothing is traced any more.
    pub(crate) fn finish(&self) {
        self.active.store(None);
    }
}

impl Trace {
    /// Tells the shard of it, in place of what the client said.
    pub(crate) fn stamp(&self, headers: &mut HeaderMap, after: Duration) {
        if self.parent.is_none() {
            // It belongs to what the client has not said well enough.
            headers.remove(TRACESTATE);
        }
        let told = Parent { trace: self.id, span: self.asking, is_sampled: true };
        headers.insert(TRACEPARENT, told.to_header());
        // A repetition belongs to the same span.
        let _ = self.asked.set(after);
    }
}
