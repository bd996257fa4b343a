//! Errors of opening, and the meaning of etcd's errors for a request.

use std::path::PathBuf;
use std::sync::Arc;

use etcd_client::Error;
use fairlead_store::{Cause, OpenError};
use tonic::Code;

/// The error of opening an [`EtcdStore`](crate::EtcdStore). Nothing was changed in etcd or in the local copy.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EtcdError {
    /// The options contradict each other: the operator changes them.
    #[error("the options of etcd cannot be used: {reason}")]
    Options {
        /// The contradiction.
        reason: String,
    },
    /// No member of the cluster answers, or it has no quorum. A retry helps once it is available.
    #[error("etcd cannot be reached: {cause}")]
    Unreachable {
        /// The last failure.
        cause: Cause,
    },
    /// etcd does not accept the user or its certificate, or the user may not use the prefix: the operator changes that.
    #[error("etcd refuses access: {reason}")]
    Denied {
        /// etcd's message.
        reason: String,
    },
    /// Another cluster answers at the address, or the same one has lost data. The operator checks the address. If the cluster was
    /// restored on purpose, the operator removes the local copy.
    #[error("{endpoint} is not the etcd of this store: {reason}")]
    Foreign {
        /// The URL.
        endpoint: String,
        /// The difference.
        reason: String,
    },
    /// The prefix belongs to another server: the operator chooses another prefix.
    #[error("the prefix {prefix} in etcd {reason}: choose another prefix")]
    Occupied {
        /// The prefix.
        prefix: String,
        /// The present owner.
        reason: String,
    },
    /// The prefix is the target of a copy: the operator waits for its end, or empties the prefix if it was broken off.
    #[error("the prefix {prefix} in etcd has an incomplete copy, which is being made or was broken off")]
    Incomplete {
        /// The prefix.
        prefix: String,
    },
    /// The quota of etcd is used up: the operator makes room and disarms the alarm.
    #[error("etcd has no space: {reason}")]
    NoSpace {
        /// etcd's message.
        reason: String,
    },
    /// The prefix, the source of a copy, has no store.
    #[error("the prefix {prefix} in etcd has no store")]
    Empty {
        /// The prefix.
        prefix: String,
    },
    /// The server of the prefix, the source of a copy, runs.
    #[error("the prefix {prefix} in etcd is in use by its server")]
    InUse {
        /// The prefix.
        prefix: String,
    },
    /// The file of the local copy cannot be used.
    #[error(transparent)]
    View(Arc<OpenError>),
    /// The local copy cannot be written, as on a full disk. Nothing is lost, because etcd has everything. The operator makes
    /// room, and the store is opened again.
    #[error("the local copy {} cannot be written: {cause}", path.display())]
    ViewFailed {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: Cause,
    },
}

impl From<OpenError> for EtcdError {
    fn from(error: OpenError) -> Self {
        Self::View(Arc::new(error))
    }
}

impl EtcdError {
    pub(crate) fn into_cause(self) -> Cause {
        Arc::new(self)
    }

    /// Whether another member may serve what this one cannot.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Foreign { .. })
    }
}

/// The outcome of a request that got an error, as far as it is known.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was not executed, and may be on another connection.
    NotExecuted(Cause),
    /// It was not executed, and a repetition gets the same error: no access, no space, too large.
    Refused(Cause),
    /// It may or may not have been executed.
    Unknown(Cause),
}

impl Failure {
    pub(crate) fn into_cause(self) -> Cause {
        match self {
            Self::NotExecuted(cause) | Self::Refused(cause) | Self::Unknown(cause) => cause,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let cause = cause_of(&error);
        match meaning(&error) {
            Meaning::NotExecuted => Self::NotExecuted(cause),
            Meaning::Refused => Self::Refused(cause),
            Meaning::Unknown => Self::Unknown(cause),
        }
    }
}

enum Meaning {
    NotExecuted,
    Refused,
    Unknown,
}

fn meaning(error: &Error) -> Meaning {
    let status = match error {
        Error::InvalidArgs(_) | Error::InvalidUri(_) | Error::InvalidMetadataValue(_) => {
            return Meaning::Refused;
        }
        Error::GRpcStatus(status) => status,
        _ => return Meaning::Unknown,
    };
    let message = status.message();
    // A lost connection has some of these codes, too: HTTP/2's reasons are mapped to them. It proves nothing.
    let is_of_etcd =
        message.starts_with("etcdserver: ") || message.contains("received message larger than max");
    match status.code() {
        _ if was_not_sent(status) => Meaning::NotExecuted,
        _ if !is_of_etcd => Meaning::Unknown,
        Code::ResourceExhausted if message.contains("too many requests") => Meaning::NotExecuted,
        Code::Unavailable if message.ends_with("no leader") => Meaning::NotExecuted,
        Code::InvalidArgument
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::OutOfRange
        | Code::ResourceExhausted => Meaning::Refused,
        _ => Meaning::Unknown,
    }
}

/// Whether there was no connection at all.
fn was_not_sent(status: &tonic::Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// As [`message_of`].
pub(crate) fn cause_of(error: &Error) -> Cause {
    cause(message_of(error))
}

/// The message of an error, without the debug output of its metadata, and its first cause: a connection that fails says only
/// "transport error" by itself.
pub(crate) fn message_of(error: &Error) -> String {
    let (message, source) = match error {
        Error::GRpcStatus(status) => {
            let source = std::error::Error::source(status);
            match status.message() {
                "" => (status.code().to_string(), source),
                message => (message.to_owned(), source),
            }
        }
        other => (other.to_string(), std::error::Error::source(other)),
    };
    let first_cause = std::iter::successors(source, |error| error.source()).last().map(ToString::to_string);
    match first_cause {
        Some(first_cause) if !message.contains(&first_cause) => format!("{message}: {first_cause}"),
        _ => message,
    }
}

/// Whether etcd refuses access. A repetition gets the same error until the operator changes something.
pub(crate) fn is_denied(error: &Error) -> bool {
    let Error::GRpcStatus(status) = error else { return false };
    let has_no_access =
        |message: &str| message.contains("authentication failed") || message.contains("user name is empty");
    match status.code() {
        // Messages of versions differ in their prefix. Every member gives this one to a user while authentication is off.
        _ if status.message().ends_with("authentication is not enabled") => true,
        Code::PermissionDenied | Code::Unauthenticated => status.message().starts_with("etcdserver: "),
        Code::InvalidArgument | Code::FailedPrecondition | Code::Unknown => has_no_access(status.message()),
        _ => false,
    }
}

/// Whether the quota of etcd is used up. Reads and deletions go on.
pub(crate) fn is_without_space(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status)
        if status.code() == Code::ResourceExhausted && status.message().contains("database space exceeded"))
}

/// Whether a revision of a request has been compacted.
pub(crate) fn is_compacted(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status)
        if status.code() == Code::OutOfRange && status.message().contains("has been compacted"))
}

/// A cause from a text.
pub(crate) fn cause(text: impl Into<String>) -> Cause {
    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Text(String);
    Arc::new(Text(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_user_is_told_from_an_etcd_that_cannot_be_reached() {
        for (code, message, expected) in [
            (Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password", true),
            (Code::InvalidArgument, "etcdserver: user name is empty", true),
            (Code::FailedPrecondition, "etcdserver: authentication is not enabled", true),
            (Code::Unknown, "authentication is not enabled", true),
            (Code::PermissionDenied, "etcdserver: permission denied", true),
            (Code::Unauthenticated, "etcdserver: invalid auth token", true),
            (Code::PermissionDenied, "h2 protocol error: inadequate security", false),
            (Code::InvalidArgument, "etcdserver: request is too large", false),
            (Code::Unavailable, "etcdserver: no leader", false),
            (Code::Unknown, "transport error", false),
        ] {
            let error = Error::GRpcStatus(tonic::Status::new(code, message));
            assert_eq!(is_denied(&error), expected, "{code:?}: {message}");
        }
    }

    #[test]
    fn only_errors_that_prove_it_say_that_a_request_was_not_executed() {
        let status = |code, message: &str| Error::GRpcStatus(tonic::Status::new(code, message));
        let cases = [
            (status(Code::Unavailable, "etcdserver: no leader"), "not executed"),
            (status(Code::ResourceExhausted, "etcdserver: too many requests"), "not executed"),
            (status(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"), "refused"),
            (status(Code::InvalidArgument, "etcdserver: request is too large"), "refused"),
            (status(Code::PermissionDenied, "etcdserver: permission denied"), "refused"),
            (status(Code::ResourceExhausted, "grpc: received message larger than max (3 vs. 2)"), "refused"),
            (status(Code::ResourceExhausted, "h2 protocol error: too_many_pings"), "unknown"),
            (status(Code::PermissionDenied, "h2 protocol error: inadequate security"), "unknown"),
            (status(Code::Unavailable, "etcdserver: request timed out"), "unknown"),
            (status(Code::Unavailable, "etcdserver: leader changed"), "unknown"),
            (status(Code::Unavailable, "etcdserver: server stopped"), "unknown"),
            (status(Code::Unavailable, "transport error"), "unknown"),
            (status(Code::Cancelled, "operation was canceled"), "unknown"),
            (status(Code::Unknown, "h2 protocol error: broken pipe"), "unknown"),
        ];
        for (error, expected) in cases {
            let shown = error.to_string();
            let found = match Failure::from(error) {
                Failure::NotExecuted(_) => "not executed",
                Failure::Refused(_) => "refused",
                Failure::Unknown(_) => "unknown",
            };
            assert_eq!(found, expected, "{shown}");
        }
    }
}
