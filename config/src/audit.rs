//! The settings of the audit log of a shard.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::check::Checker;
use crate::setting::{Setting, inline_json, plain_settings, settings};
use crate::units::{ByteSize, Timespan};
use crate::values::{InputFile, OwnPath, SecretFile};

settings! {
    /// Records of requests, as a policy selects them.
    pub struct AuditConfig {
        /// File with a Policy of audit.k8s.io; without it nothing is recorded. Flag: --audit-policy-file.
        policy_file ("policyFile"): Option<InputFile> = None;
        /// The log file; "-" is standard output, null no log. Flag: --audit-log-path.
        log_path ("logPath"): Option<AuditLogPath> = None;
        /// Form of its lines: json or legacy. Flag: --audit-log-format.
        log_format ("logFormat"): AuditLogFormat = AuditLogFormat::Json;
        /// Whether requests wait for the log: batch, blocking or blocking-strict. Flag: --audit-log-mode.
        log_mode ("logMode"): AuditMode = AuditMode::Blocking;
        /// Days for which rotated files are kept; 0 means no limit. Flag: --audit-log-maxage.
        log_max_age ("logMaxAge"): u32 = 366;
        /// Number of rotated files that are kept; 0 means no limit. Flag: --audit-log-maxbackup.
        log_max_backups ("logMaxBackups"): u32 = 100;
        /// Size in MiB at which the file is rotated; 0 means never. Flag: --audit-log-maxsize.
        log_max_size ("logMaxSize"): u32 = 100;
        /// Whether rotated files are compressed by gzip. Flag: --audit-log-compress.
        log_compress ("logCompress"): bool = false;
        /// Batches of the log, in mode batch. Flags: --audit-log-batch-*.
        batch ("batch"): AuditLogBatchConfig = AuditLogBatchConfig::default();
        /// Limits of the log's events. Flags: --audit-log-truncate-*.
        truncate ("truncate"): AuditTruncateConfig = AuditTruncateConfig::default();
        /// A server that receives the events. Flags: --audit-webhook-*.
        webhook ("webhook"): Option<AuditWebhookConfig> = None;
    }

    /// A server that receives audit events.
    pub struct AuditWebhookConfig {
        /// Kubeconfig with its URL and credentials. Flag: --audit-webhook-config-file.
        kubeconfig ("kubeconfig"): SecretFile = "audit-webhook.kubeconfig".into();
        /// Whether requests wait for the server: batch, blocking or blocking-strict. Flag: --audit-webhook-mode.
        mode ("mode"): AuditMode = AuditMode::Batch;
        /// Pause before the first repetition of a failed request. Flag: --audit-webhook-initial-backoff.
        initial_backoff ("initialBackoff"): Timespan = Timespan::from_secs(10);
        /// Batches, in mode batch. Flags: --audit-webhook-batch-*.
        batch ("batch"): AuditWebhookBatchConfig = AuditWebhookBatchConfig::default();
        /// Limits of events. Flags: --audit-webhook-truncate-*.
        truncate ("truncate"): AuditTruncateConfig = AuditTruncateConfig::default();
    }

    /// Batches of events for the log.
    pub struct AuditLogBatchConfig {
        /// Events that wait for the log; further ones are dropped and counted.
        buffer_size ("bufferSize"): usize = 10_000;
        /// Events per batch.
        max_size ("maxSize"): usize = 1;
        /// Time after which an incomplete batch is written.
        max_wait ("maxWait"): Timespan = Timespan::from_secs(0);
        /// Whether the rate of batches is limited.
        throttle_enable ("throttleEnable"): bool = false;
        /// Batches per second.
        throttle_qps ("throttleQPS"): f64 = 0.0;
        /// Batches in a burst.
        throttle_burst ("throttleBurst"): u32 = 0;
    }

    /// Batches of events for the webhook.
    pub struct AuditWebhookBatchConfig {
        /// Events that wait for the server; further ones are dropped and counted.
        buffer_size ("bufferSize"): usize = 10_000;
        /// Events per batch.
        max_size ("maxSize"): usize = 400;
        /// Time after which an incomplete batch is sent.
        max_wait ("maxWait"): Timespan = Timespan::from_secs(30);
        /// Whether the rate of batches is limited.
        throttle_enable ("throttleEnable"): bool = true;
        /// Batches per second.
        throttle_qps ("throttleQPS"): f64 = 10.0;
        /// Batches in a burst.
        throttle_burst ("throttleBurst"): u32 = 15;
    }

    /// Limits of audit events.
    pub struct AuditTruncateConfig {
        /// Whether larger events lose their request and response bodies, or are dropped.
        enabled ("enabled"): bool = false;
        /// Size of a batch.
        max_batch_size ("maxBatchSize"): ByteSize = ByteSize::mib(10);
        /// Size of an event.
        max_event_size ("maxEventSize"): ByteSize = ByteSize::kib(100);
    }
}

/// Destination of the audit log: a file, or `-` for standard output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum AuditLogPath {
    /// Standard output.
    Stdout,
    /// A file, created if it does not exist.
    File(OwnPath),
}

impl From<String> for AuditLogPath {
    fn from(text: String) -> Self {
        if text == "-" { Self::Stdout } else { Self::File(text.into()) }
    }
}

impl From<AuditLogPath> for String {
    fn from(path: AuditLogPath) -> Self {
        match path {
            AuditLogPath::Stdout => "-".to_owned(),
            AuditLogPath::File(file) => file.to_string_lossy().into_owned(),
        }
    }
}

impl Setting for AuditLogPath {
    fn resolve_paths(&mut self, base: &Path) {
        if let Self::File(file) = self {
            file.resolve_paths(base);
        }
    }

    fn inline(&self) -> String {
        inline_json(self)
    }
}

/// Form of the lines of an audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditLogFormat {
    /// One Event of audit.k8s.io/v1 per line.
    Json,
    /// One line of text per event.
    Legacy,
}

/// Relation of a request to the record of its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditMode {
    /// Events are recorded in batches, and no request waits.
    Batch,
    /// A response waits for the record of its event.
    Blocking,
    /// As `blocking`, and a request fails if its RequestReceived event cannot be recorded.
    BlockingStrict,
}

plain_settings!(AuditLogFormat, AuditMode);

impl AuditConfig {
    pub(crate) fn check(&self, checker: &mut Checker) {
        if self.policy_file.is_some() && self.log_path.is_none() && self.webhook.is_none() {
            let message = "a policy without a log or a webhook records nothing";
            checker.fault("policyFile", message, "set logPath or webhook");
        }
        checker.within("batch", |checker| {
            let batch = &self.batch;
            checker.at_least("bufferSize", batch.buffer_size, 1);
            checker.at_least("maxSize", batch.max_size, 1);
            check_throttle(checker, batch.throttle_enable, batch.throttle_qps, batch.throttle_burst);
        });
        if let Some(webhook) = &self.webhook {
            checker.within("webhook.batch", |checker| {
                let batch = &webhook.batch;
                checker.at_least("bufferSize", batch.buffer_size, 1);
                checker.at_least("maxSize", batch.max_size, 1);
                check_throttle(checker, batch.throttle_enable, batch.throttle_qps, batch.throttle_burst);
            });
        }
    }
}

fn check_throttle(checker: &mut Checker, is_enabled: bool, qps: f64, burst: u32) {
    if !is_enabled {
        return;
    }
    if !(qps > 0.0 && qps.is_finite()) {
        let message = format!("{qps} batches per second are no rate");
        checker.fault("throttleQPS", &message, "use a positive number");
    }
    checker.at_least("throttleBurst", burst, 1);
}
