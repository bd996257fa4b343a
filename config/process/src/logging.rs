//! Logs: to standard error, as text or JSON, filtered.

use fairlead_config::{LogConfig, LogFormat};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::util::TryInitError;

use crate::error::FatalError;

/// Filters of libraries that log an error for every misbehaving peer, so that scanners cannot flood the log.
const LIBRARY_FILTERS: &[&str] =
    &["pingora=off", "pingora_core=off", "pingora_proxy=off", "h2=error", "hyper=error", "rustls=error"];

/// Logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The configured level is not a filter.
    #[error("the log level {0:?} is not a valid filter")]
    Level(String, #[source] ParseError),
    /// Another logger is installed.
    #[error("logging is set up already")]
    AlreadySet(#[source] TryInitError),
}

impl FatalError for LoggingError {}

/// Starts logging for the whole process and logs panics. `RUST_LOG` overrides the configured level.
pub fn init_logging(config: &LogConfig) -> Result<(), LoggingError> {
    let level = std::env::var("RUST_LOG").ok().filter(|level| !level.is_empty());
    let filter = filter(level.as_deref().unwrap_or(&config.level))?;
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    match config.format {
        LogFormat::Text => tracing_subscriber::util::SubscriberInitExt::try_init(builder.finish()),
        LogFormat::Json => tracing_subscriber::util::SubscriberInitExt::try_init(builder.json().finish()),
    }
    .map_err(LoggingError::AlreadySet)?;
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let message =
            text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no text)");
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(location, message, "panic: this is a bug");
    }));
    Ok(())
}

/// The filters of libraries come first, so that the rules of the operator override them.
fn filter(level: &str) -> Result<EnvFilter, LoggingError> {
    let rules = format!("{},{level}", LIBRARY_FILTERS.join(","));
    EnvFilter::try_new(rules).map_err(|e| LoggingError::Level(level.to_owned(), e))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn libraries_log_less_unless_configured() {
        let printed = |level: &str| filter(level).unwrap().to_string();
        assert!(printed("info").contains("h2=error"), "{}", printed("info"));
        assert!(
            printed("info,h2=trace").contains("h2=trace") && !printed("info,h2=trace").contains("h2=error")
        );
        assert!(matches!(filter("a=b=c"), Err(LoggingError::Level(level, _)) if level == "a=b=c"));
    }
}
