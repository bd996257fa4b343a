//! The audit log of a shard, from its settings.

use std::path::Path;

use fairlead_apiserver::audit::{
    AuditLog, AuditMetrics, AuditWebhook, AuditWorker, BatchOptions, DestinationOptions, LineFormat, LogFile,
    Mode, Policy, Rotation, Throttle, Truncation,
};
use fairlead_config::{AuditConfig, AuditLogFormat, AuditLogPath, AuditMode, AuditTruncateConfig, ByteSize};

use super::ShardError;

/// The log, and the workers that write its events. `None` if the settings record nothing.
pub(super) fn open(
    config: Option<&AuditConfig>,
    metrics: AuditMetrics,
) -> Result<Option<(AuditLog, Vec<AuditWorker>)>, ShardError> {
    let Some(config) = config else { return Ok(None) };
    let Some(policy_file) = &config.policy_file else { return Ok(None) };
    let unusable = |error: &dyn std::error::Error| ShardError::Audit(with_sources(error));
    let policy = Policy::load(policy_file).map_err(|error| unusable(&error))?;
    let mut log = AuditLog::new(policy, metrics);
    let mut workers = Vec::new();
    if let Some(path) = &config.log_path {
        let path = match path {
            AuditLogPath::Stdout => Path::new("-"),
            AuditLogPath::File(file) => file,
        };
        let rotation = Rotation {
            max_bytes: u64::from(config.log_max_size) << 20,
            max_age_days: config.log_max_age,
            max_backups: usize::try_from(config.log_max_backups).unwrap_or(usize::MAX),
            is_compressed: config.log_compress,
        };
        let file = LogFile::open(path, rotation).map_err(|error| unusable(&error))?;
        let batch = &config.batch;
        let throttle = Throttle { rate: batch.throttle_qps, burst: batch.throttle_burst };
        let batch = BatchOptions {
            buffer_size: batch.buffer_size,
            max_size: batch.max_size,
            max_wait: batch.max_wait.get(),
            throttle: batch.throttle_enable.then_some(throttle),
        };
        let format = match config.log_format {
            AuditLogFormat::Json => LineFormat::Json,
            AuditLogFormat::Legacy => LineFormat::Legacy,
        };
        let options = options(format, config.log_mode, batch, &config.truncate);
        workers.push(log.add_log(file, options));
    }
    if let Some(webhook) = &config.webhook {
        let receiver = AuditWebhook::from_kubeconfig(&webhook.kubeconfig, webhook.initial_backoff.get())
            .map_err(|reason| ShardError::Kubeconfig { path: webhook.kubeconfig.to_path_buf(), reason })?;
        let batch = &webhook.batch;
        let throttle = Throttle { rate: batch.throttle_qps, burst: batch.throttle_burst };
        let batch = BatchOptions {
            buffer_size: batch.buffer_size,
            max_size: batch.max_size,
            max_wait: batch.max_wait.get(),
            throttle: batch.throttle_enable.then_some(throttle),
        };
        let options = options(LineFormat::Json, webhook.mode, batch, &webhook.truncate);
        workers.push(log.add_webhook(receiver, options));
    }
    Ok(Some((log, workers)))
}

fn options(
    format: LineFormat,
    mode: AuditMode,
    batch: BatchOptions,
    truncate: &AuditTruncateConfig,
) -> DestinationOptions {
    let bytes = |size: ByteSize| usize::try_from(size.bytes()).unwrap_or(usize::MAX);
    let truncation = Truncation {
        max_event_bytes: bytes(truncate.max_event_size),
        max_batch_bytes: bytes(truncate.max_batch_size),
    };
    DestinationOptions {
        format,
        mode: match mode {
            AuditMode::Batch => Mode::Batch(batch),
            AuditMode::Blocking => Mode::Blocking,
            AuditMode::BlockingStrict => Mode::BlockingStrict,
        },
        truncation: truncate.enabled.then_some(truncation),
    }
}

/// An error with its causes.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
