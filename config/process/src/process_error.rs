//! The reasons that all server processes share for which one cannot start or must end.

use std::io;

use fairlead_config::ConfigError;

use crate::error::FatalError;
use crate::lifecycle::TaskFailed;
use crate::logging::LoggingError;
use crate::metrics::MetricsError;
use crate::reload::LoadError;
use crate::server::BindError;

/// A process cannot start or must end, for a reason that does not depend on what it serves. Errors of a program wrap it and add
/// the program's own reasons.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Logging cannot be set up.
    #[error(transparent)]
    Logging(#[from] LoggingError),
    /// The program declares a metric twice.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// A certificate, an authority or another file cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system refuses threads or signal handlers.
    #[error("the process cannot be set up")]
    System(#[source] io::Error),
    /// A background task failed.
    #[error(transparent)]
    Task(#[from] TaskFailed),
}

impl FatalError for ProcessError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Config(error) => FatalError::hint(error),
            Self::Bind(error) => error.hint(),
            Self::Logging(_) | Self::Metrics(_) | Self::Load(_) | Self::System(_) | Self::Task(_) => None,
        }
    }
}
