//! The audit log: which client did what, by a policy, to a file and to a webhook (`audit.k8s.io/v1`).
//!
//! Without a policy a request costs one branch. With one, a request is compared with the rules, and only a recorded request builds
//! an event. The events of each destination wait in a queue that is bounded in number and bytes. Objects are recorded after they
//! are decoded, so the level of the policy decides alone whether secrets get into the log; credentials are never part of an event.

mod batch;
mod destination;
mod event;
mod log_file;
mod policy;
mod record;
mod rotation;
mod webhook;

use std::sync::Arc;

use fairlead_process::{Metrics, MetricsError};
use prometheus::{IntCounter, IntCounterVec};

use destination::Destination;
use event::Event;

pub use batch::{BatchOptions, Throttle};
pub use destination::{AuditWorker, DestinationOptions, LineFormat, Mode, Truncation};
pub use event::{Level, Stage};
pub use log_file::{LogFile, LogFileError};
pub use policy::{Policy, PolicyError};
pub use rotation::Rotation;
pub use webhook::AuditWebhook;

pub(crate) use record::{AuditRecord, Capture, MAX_RESPONSE_OBJECT, RequestFacts};

/// The audit log of a server: the policy and the destinations.
pub struct AuditLog {
    policy: Policy,
    destinations: Vec<Destination>,
    metrics: AuditMetrics,
}

impl AuditLog {
    /// A log without destinations: it records nothing.
    pub fn new(policy: Policy, metrics: AuditMetrics) -> Self {
        Self { policy, destinations: Vec::new(), metrics }
    }

    /// Adds a log file. The worker writes the events; it must run until the last request has been served.
    pub fn add_log(&mut self, file: LogFile, options: DestinationOptions) -> AuditWorker {
        self.add(destination::Writer::Log(Some(file)), options)
    }

    /// Adds a webhook. The worker sends the events; it must run until the last request has been served.
    pub fn add_webhook(&mut self, webhook: AuditWebhook, options: DestinationOptions) -> AuditWorker {
        self.add(destination::Writer::Webhook(Arc::new(webhook)), options)
    }

    fn add(&mut self, writer: destination::Writer, options: DestinationOptions) -> AuditWorker {
        let (destination, worker) = destination::open(writer, options, self.metrics.errors.clone());
        self.destinations.push(destination);
        worker
    }

    /// Begins the record of a request, unless the policy excludes it.
    pub(crate) fn begin(self: &Arc<Self>, facts: &RequestFacts<'_>) -> Option<AuditRecord> {
        let treatment = self.policy.evaluate(facts.user, facts.action);
        self.metrics.levels.with_label_values(&[treatment.level.as_str()]).inc();
        (treatment.level > Level::None).then(|| AuditRecord::new(Arc::clone(self), treatment, facts))
    }

    /// Sends an event to all destinations. Returns false if one of them is strict and has not stored it.
    async fn send(&self, event: &Event) -> bool {
        self.metrics.events.inc();
        let mut is_stored = true;
        for destination in &self.destinations {
            is_stored &= destination.send(event).await;
        }
        is_stored
    }

    /// Queues an event in all destinations, without waiting.
    fn queue(&self, event: &Event) {
        self.metrics.events.inc();
        for destination in &self.destinations {
            destination.queue(event);
        }
    }
}

/// The metrics of the audit log, under the names of Kubernetes. They exist without a policy, too.
#[derive(Clone)]
pub struct AuditMetrics {
    events: IntCounter,
    levels: IntCounterVec,
    errors: IntCounterVec,
    rejected: IntCounter,
}

impl AuditMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When they are registered already.
    pub fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            events: metrics.counter("apiserver_audit_event_total", "Audit events that were generated.")?,
            levels: metrics.counters(
                "apiserver_audit_level_total",
                "Requests by the level of the audit policy.",
                &["level"],
            )?,
            errors: metrics.counters(
                "apiserver_audit_error_total",
                "Audit events that were lost, by destination.",
                &["plugin"],
            )?,
            rejected: metrics.counter(
                "apiserver_audit_requests_rejected_total",
                "Requests that were refused because their audit event could not be stored.",
            )?,
        })
    }
}
