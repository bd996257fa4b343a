//! Trace of the decisions about a request, for Explain (dry run).

use fairlead_authn::{Identity, Observer, Verdict};
use parking_lot::Mutex;
use serde::Serialize;

/// The stage of request processing that an entry belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stage {
    /// Selection of the listener.
    Listener,
    /// The connection: its peer address and TLS.
    Peer,
    /// The host of the request, and its headers.
    Host,
    /// The path.
    Path,
    /// Request quotas and rate limits.
    Quota,
    /// The verdict of one authenticator.
    Credential,
    /// The authenticated identity.
    Identity,
    /// Resolution of the workspace path.
    Workspace,
    /// A mounted workspace.
    Mount,
    /// The path mapping.
    Mapping,
    /// The target shard.
    Shard,
}

/// The result of a stage.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StageResult {
    /// The request continues.
    Passed,
    /// Additional information; the request continues.
    Info,
    /// The request is rejected, or an authenticator rejects the credential.
    Refused,
}

/// One entry of the trace.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct TraceEntry {
    pub(crate) stage: Stage,
    pub(crate) result: StageResult,
    /// One line of text. It may contain names that a client chose.
    pub(crate) message: String,
}

/// The trace of one request.
#[derive(Debug, Default)]
pub(crate) struct DecisionLog {
    entries: Mutex<Vec<TraceEntry>>,
    dropped_groups: Mutex<Vec<String>>,
}

/// Maximum number of entries: a path may have thousands of labels.
const MAX_ENTRIES: usize = 500;

impl DecisionLog {
    /// Adds an entry.
    pub(crate) fn record(&self, stage: Stage, result: StageResult, message: impl FnOnce() -> String) {
        let mut entries = self.entries.lock();
        if entries.len() < MAX_ENTRIES {
            entries.push(TraceEntry { stage, result, message: message() });
        }
    }

    /// The entries, and the groups that were removed from the user.
    pub(crate) fn into_parts(self) -> (Vec<TraceEntry>, Vec<String>) {
        (self.entries.into_inner(), self.dropped_groups.into_inner())
    }
}

impl Observer for DecisionLog {
    fn on_verdict(&self, authenticator: &'static str, verdict: &Verdict) {
        let (outcome, message) = match verdict {
            // The authenticators of the union have reported their verdicts already.
            Verdict::Declined(_) | Verdict::Refused(_) | Verdict::Accepted(_) if authenticator == UNION => {
                return;
            }
            Verdict::Accepted(identity) => {
                (StageResult::Passed, format!("accepted as {:?}", identity.user().name))
            }
            Verdict::NoOpinion => (StageResult::Info, "no credential for this authenticator".to_owned()),
            Verdict::Declined(reason) => (StageResult::Refused, format!("not accepted: {reason}")),
            Verdict::Refused(reason) => {
                (StageResult::Refused, format!("refused, later authenticators are skipped: {reason}"))
            }
        };
        self.record(Stage::Credential, outcome, || format!("{authenticator}: {message}"));
    }

    fn on_cached_identity(&self, authenticator: &'static str, identity: &Identity) {
        self.record(Stage::Credential, StageResult::Passed, || {
            let name = &identity.user().name;
            format!("{authenticator}: accepted as {name:?} from the cache")
        });
    }

    fn on_accepted(&self, before: &Identity, after: &Identity) {
        let remaining = &after.user().groups;
        let dropped = before.user().groups.iter().filter(|group| !remaining.contains(group)).cloned();
        let dropped: Vec<String> = dropped.collect();
        if !dropped.is_empty() {
            self.record(Stage::Identity, StageResult::Info, || {
                format!("groups dropped at this listener: {}", dropped.join(", "))
            });
        }
        *self.dropped_groups.lock() = dropped;
    }
}

/// The authenticator that calls the token authenticators in turn.
const UNION: &str = "bearer token";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_bounded() {
        let log = DecisionLog::default();
        for number in 0..10_000 {
            log.record(Stage::Workspace, StageResult::Passed, || number.to_string());
        }
        let (entries, _) = log.into_parts();
        assert_eq!((entries.len(), entries[499].message.as_str()), (MAX_ENTRIES, "499"));
    }
}
