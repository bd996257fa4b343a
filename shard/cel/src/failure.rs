//! Errors of evaluations.

use std::borrow::Cow;
use std::fmt;

use thiserror::Error;

/// The reason why an evaluation has no result.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EvaluationError {
    /// The expression fails for this input: a missing key, an overflow, a value of another type. In the words of
    /// Kubernetes; a retry does not help.
    #[error("{0}")]
    Failed(Box<str>),
    /// The expression costs more than one evaluation may.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    /// The budget of the object is exhausted.
    #[error("validation failed due to running out of cost budget, no further validation rules will be run")]
    BudgetExhausted,
    /// The deadline has passed; a retry may help.
    #[error("operation interrupted")]
    Interrupted,
}

/// An error within an evaluation.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// An error that `&&` and `||` may ignore.
    Error(Cow<'static, str>),
    /// The end of the evaluation.
    Abort(Abort),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abort {
    CostLimit,
    Deadline,
}

impl Failure {
    pub(crate) fn error(message: impl Into<Cow<'static, str>>) -> Self {
        Self::Error(message.into())
    }

    pub(crate) fn no_such_overload() -> Self {
        Self::error("no such overload")
    }

    /// A result beyond the size that one operation may produce.
    pub(crate) fn too_large() -> Self {
        Self::Abort(Abort::CostLimit)
    }
}

impl From<Failure> for EvaluationError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Error(message) => Self::Failed(message.into()),
            Failure::Abort(Abort::CostLimit) => Self::CostLimit,
            Failure::Abort(Abort::Deadline) => Self::Interrupted,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(message) => f.write_str(message),
            Self::Abort(_) => EvaluationError::CostLimit.fmt(f),
        }
    }
}
