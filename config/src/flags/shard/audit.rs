//! Flags of the audit log.

use super::ShardLine;
use crate::audit::{
    AuditConfig, AuditLogBatchConfig, AuditLogFormat, AuditLogPath, AuditMode, AuditTruncateConfig,
    AuditWebhookBatchConfig, AuditWebhookConfig,
};
use crate::flags::FlagError;
use crate::units::ByteSize;

const MODES: [(&str, AuditMode); 3] = [
    ("batch", AuditMode::Batch),
    ("blocking", AuditMode::Blocking),
    ("blocking-strict", AuditMode::BlockingStrict),
];
const FORMATS: [(&str, AuditLogFormat); 2] =
    [("json", AuditLogFormat::Json), ("legacy", AuditLogFormat::Legacy)];
const VERSION: &str = "audit.k8s.io/v1";

impl ShardLine {
    /// The audit log; `None` if the flags name neither a log nor a webhook.
    pub(super) fn audit(&self) -> Result<Option<AuditConfig>, FlagError> {
        let given = &self.0;
        for flag in ["audit-log-version", "audit-webhook-version"] {
            given.choice(flag, (), &[(VERSION, ())], "version such as audit.k8s.io/v1")?;
        }
        let log_path = given.text("audit-log-path").map(|path| AuditLogPath::from(path.to_owned()));
        let webhook = self.audit_webhook()?;
        if log_path.is_none() && webhook.is_none() {
            return Ok(None);
        }
        let default = AuditConfig::default();
        Ok(Some(AuditConfig {
            policy_file: given.path("audit-policy-file").map(Into::into),
            log_path,
            log_format: given.choice("audit-log-format", default.log_format, &FORMATS, "json or legacy")?,
            log_mode: self.audit_mode("audit-log-mode", default.log_mode)?,
            log_max_age: given.count("audit-log-maxage", default.log_max_age)?,
            log_max_backups: given.count("audit-log-maxbackup", default.log_max_backups)?,
            log_max_size: given.count("audit-log-maxsize", default.log_max_size)?,
            log_compress: given.switch("audit-log-compress", default.log_compress),
            batch: self.audit_log_batch()?,
            truncate: self.audit_truncate([
                "audit-log-truncate-enabled",
                "audit-log-truncate-max-batch-size",
                "audit-log-truncate-max-event-size",
            ])?,
            webhook,
        }))
    }

    /// As in Kubernetes, a policy alone is no error.
    pub(super) fn policy_without_destination(&self) -> Option<String> {
        let is_given = |flag| self.0.text(flag).is_some();
        let is_alone = is_given("audit-policy-file")
            && !is_given("audit-log-path")
            && !is_given("audit-webhook-config-file");
        is_alone.then(|| {
            "--audit-policy-file records nothing without --audit-log-path or --audit-webhook-config-file"
                .to_owned()
        })
    }

    fn audit_webhook(&self) -> Result<Option<AuditWebhookConfig>, FlagError> {
        let given = &self.0;
        let Some(kubeconfig) = given.path("audit-webhook-config-file") else { return Ok(None) };
        let default = AuditWebhookConfig::default();
        Ok(Some(AuditWebhookConfig {
            kubeconfig: kubeconfig.into(),
            mode: self.audit_mode("audit-webhook-mode", default.mode)?,
            initial_backoff: given
                .duration("audit-webhook-initial-backoff")
                .unwrap_or(default.initial_backoff),
            batch: self.audit_webhook_batch()?,
            truncate: self.audit_truncate([
                "audit-webhook-truncate-enabled",
                "audit-webhook-truncate-max-batch-size",
                "audit-webhook-truncate-max-event-size",
            ])?,
        }))
    }

    fn audit_mode(&self, flag: &'static str, default: AuditMode) -> Result<AuditMode, FlagError> {
        self.0.choice(flag, default, &MODES, "batch, blocking or blocking-strict")
    }

    fn audit_log_batch(&self) -> Result<AuditLogBatchConfig, FlagError> {
        let (given, default) = (&self.0, AuditLogBatchConfig::default());
        Ok(AuditLogBatchConfig {
            buffer_size: given.count("audit-log-batch-buffer-size", default.buffer_size)?,
            max_size: given.count("audit-log-batch-max-size", default.max_size)?,
            max_wait: given.duration("audit-log-batch-max-wait").unwrap_or(default.max_wait),
            throttle_enable: given.switch("audit-log-batch-throttle-enable", default.throttle_enable),
            throttle_qps: given.float("audit-log-batch-throttle-qps").unwrap_or(default.throttle_qps),
            throttle_burst: given.count("audit-log-batch-throttle-burst", default.throttle_burst)?,
        })
    }

    fn audit_webhook_batch(&self) -> Result<AuditWebhookBatchConfig, FlagError> {
        let (given, default) = (&self.0, AuditWebhookBatchConfig::default());
        Ok(AuditWebhookBatchConfig {
            buffer_size: given.count("audit-webhook-batch-buffer-size", default.buffer_size)?,
            max_size: given.count("audit-webhook-batch-max-size", default.max_size)?,
            max_wait: given.duration("audit-webhook-batch-max-wait").unwrap_or(default.max_wait),
            throttle_enable: given.switch("audit-webhook-batch-throttle-enable", default.throttle_enable),
            throttle_qps: given.float("audit-webhook-batch-throttle-qps").unwrap_or(default.throttle_qps),
            throttle_burst: given.count("audit-webhook-batch-throttle-burst", default.throttle_burst)?,
        })
    }

    fn audit_truncate(&self, flags: [&'static str; 3]) -> Result<AuditTruncateConfig, FlagError> {
        let (given, default) = (&self.0, AuditTruncateConfig::default());
        let [enabled, batch, event] = flags;
        let size = |flag, default: ByteSize| given.count(flag, default.bytes()).map(ByteSize::of_bytes);
        Ok(AuditTruncateConfig {
            enabled: given.switch(enabled, default.enabled),
            max_batch_size: size(batch, default.max_batch_size)?,
            max_event_size: size(event, default.max_event_size)?,
        })
    }
}
