//! What was found out about a request that is only rehearsed, in the order in which it was found out.

use fairlead_authn::{Identity, Observer, Verdict};
use parking_lot::Mutex;
use serde::Serialize;

/// What a step is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stage {
    /// The listener.
    Listener,
    /// Who may connect, and for whom.
    Peer,
    /// The names of the listener, and what is asked for in headers.
    Host,
    /// The path.
    Path,
    /// What may be asked how often.
    Quota,
    /// What one authenticator says.
    Credential,
    /// Who it is.
    Identity,
    /// The way through the tree of workspaces.
    Workspace,
    /// A mounted workspace.
    Mount,
    /// What is mapped to a path.
    Mapping,
    /// The server.
    Shard,
}

/// What a step does to the request.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StageResult {
    /// It goes on.
    Passed,
    /// Something to know; it goes on.
    Info,
    /// It ends here, or somebody does not believe it.
    Refused,
}

/// One step.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct TraceEntry {
    pub(crate) stage: Stage,
    pub(crate) result: StageResult,
    /// One line. Names in it may be anybody's choice.
    pub(crate) message: String,
}

/// The steps of one request.
#[derive(Debug, Default)]
pub(crate) struct DecisionLog {
    entries: Mutex<Vec<TraceEntry>>,
    dropped_groups: Mutex<Vec<String>>,
}

/// Steps kept: a path may have thousands of labels.
const MOST: usize = 500;

impl DecisionLog {
    /// One more.
    pub(crate) fn tell(&self, stage: Stage, result: StageResult, message: impl FnOnce() -> String) {
        let mut entries = self.entries.lock();
        if entries.len() < MOST {
            entries.push(TraceEntry { stage, result, message: message() });
        }
    }

    /// All of them, and the groups that were taken away from the user.
    pub(crate) fn into_parts(self) -> (Vec<TraceEntry>, Vec<String>) {
        (self.entries.into_inner(), self.dropped_groups.into_inner())
    }
}

impl Observer for DecisionLog {
    fn on_verdict(&self, authenticator: &'static str, verdict: &Verdict) {
        let (outcome, says) = match verdict {
            // Those behind it have been heard.
            Verdict::Declined(_) | Verdict::Refused(_) | Verdict::Accepted(_) if authenticator == UNION => {
                return;
            }
            Verdict::Accepted(identity) => {
                (StageResult::Passed, format!("accepted as {:?}", identity.user().name))
            }
            Verdict::NoOpinion => (StageResult::Info, "shown nothing that it judges".to_owned()),
            Verdict::Declined(reason) => (StageResult::Refused, format!("not accepted: {reason}")),
            Verdict::Refused(reason) => {
                (StageResult::Refused, format!("refused, and nobody else is asked: {reason}"))
            }
        };
        self.tell(Stage::Credential, outcome, || format!("{authenticator}: {says}"));
    }

    fn on_cached_identity(&self, authenticator: &'static str, identity: &Identity) {
        self.tell(Stage::Credential, StageResult::Passed, || {
            let name = &identity.user().name;
            format!("{authenticator}: accepted as {name:?} a moment ago, so nobody is asked again")
        });
    }

    fn on_accepted(&self, before: &Identity, after: &Identity) {
        let kept = &after.user().groups;
        let dropped = before.user().groups.iter().filter(|group| !kept.contains(group)).cloned();
        let dropped: Vec<String> = dropped.collect();
        if !dropped.is_empty() {
            self.tell(Stage::Identity, StageResult::Info, || {
                format!("groups dropped at this listener: {}", dropped.join(", "))
            });
        }
        *self.dropped_groups.lock() = dropped;
    }
}

/// The authenticator that asks the others about tokens.
const UNION: &str = "bearer token";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_bounded() {
        let steps = DecisionLog::default();
        for number in 0..10_000 {
            steps.tell(Stage::Workspace, StageResult::Passed, || number.to_string());
        }
        let (entries, _) = steps.into_parts();
        assert_eq!((entries.len(), entries[499].message.as_str()), (MOST, "499"));
    }
}
