//! The state of each process, and the events that change it.

use serde::{Deserialize, Serialize};

use super::topology::Topology;
use crate::installation::{SavedProcess, SavedState, now_as_text};

/// An event of `up`, shown on the terminal and written to its log. A background `up` sends events to the process that
/// started it, one JSON line each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Event {
    /// Processes with these names are about to be started.
    Starting(Vec<String>),
    /// A note for the user, one sentence.
    Note(String),
    /// A process has changed.
    ProcessEvent(ProcessEvent),
    /// All processes are ready for the first time.
    Ready {
        /// Milliseconds since `up` was started.
        after_ms: u64,
        /// URL of the listener for tokens.
        edge: String,
    },
    /// The processes are being stopped.
    Stopping,
    /// `up` has failed before all processes were ready.
    Failed {
        /// The error, one sentence.
        message: String,
        /// Advice about the error.
        hint: Option<String>,
    },
}

/// A change of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessEvent {
    /// Index of the process.
    pub process: usize,
    pub change: Change,
}

/// The change of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum Change {
    /// The process runs.
    Started { pid: u32 },
    /// The process is ready, this many milliseconds after its start.
    Ready { after_ms: u64 },
    /// The process has ended by itself and will be restarted after a pause.
    Ended { exit: String, pause_ms: u64 },
    /// The process is being stopped.
    Stopping,
    /// The process has ended on request.
    Stopped,
}

/// The state of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Starting,
    Ready { after_ms: u64 },
    Waiting { exit: String, pause_ms: u64 },
    Stopping,
    Stopped,
}

/// A row of the table: one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub name: String,
    pub condition: Condition,
    pub pid: Option<u32>,
    /// Start time of the running process, RFC 3339.
    pub since: Option<String>,
    /// Number of times that the process has ended by itself.
    pub ends: u32,
    pub last_exit: Option<String>,
    /// Whether the process has ever been ready.
    pub was_ready: bool,
}

/// The state of all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessTable {
    pub rows: Vec<Row>,
}

impl ProcessTable {
    /// A table of processes that have not been started yet.
    pub(crate) fn new(names: impl IntoIterator<Item = String>) -> Self {
        let row = |name| Row {
            name,
            condition: Condition::Starting,
            pid: None,
            since: None,
            ends: 0,
            last_exit: None,
            was_ready: false,
        };
        Self { rows: names.into_iter().map(row).collect() }
    }

    /// Applies an event; ignores one of an unknown process. `now` is RFC 3339.
    pub(crate) fn apply(&mut self, event: &ProcessEvent, now: String) {
        let Some(row) = self.rows.get_mut(event.process) else {
            return;
        };
        match &event.change {
            Change::Started { pid } => {
                row.pid = Some(*pid);
                row.since = Some(now);
                row.condition = Condition::Starting;
            }
            Change::Ready { after_ms } => {
                row.was_ready = true;
                row.condition = Condition::Ready { after_ms: *after_ms };
            }
            Change::Ended { exit, pause_ms } => {
                row.pid = None;
                row.since = None;
                row.ends += 1;
                row.last_exit = Some(exit.clone());
                row.condition = Condition::Waiting { exit: exit.clone(), pause_ms: *pause_ms };
            }
            Change::Stopping => row.condition = Condition::Stopping,
            Change::Stopped => {
                row.pid = None;
                row.since = None;
                row.condition = Condition::Stopped;
            }
        }
    }

    pub(crate) fn all_ready(&self) -> bool {
        self.rows.iter().all(|row| matches!(row.condition, Condition::Ready { .. }))
    }

    /// The state file for `fairlead status`.
    pub(crate) fn saved_state(&self, started: &str, topology: &Topology) -> SavedState {
        let record = |(row, process): (&Row, &super::topology::Process)| SavedProcess {
            name: row.name.clone(),
            url: process.url(),
            condition: row.condition.as_str().to_owned(),
            pid: row.pid,
            since: row.since.clone(),
            restarts: row.ends,
            last_exit: row.last_exit.clone(),
        };
        SavedState {
            pid: std::process::id(),
            started: started.to_owned(),
            gateway: topology.gateway().url(),
            edge: topology.edge_url(),
            processes: self.rows.iter().zip(&topology.processes).map(record).collect(),
        }
    }
}

impl Condition {
    /// The name of the condition in the state file.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready { .. } => "ready",
            Self::Waiting { .. } => "waiting",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
        }
    }
}

/// A table that is kept up to date by events.
#[derive(Debug, Default)]
pub(crate) struct TableFollower {
    pub table: ProcessTable,
}

impl TableFollower {
    pub(crate) fn send(&mut self, event: &Event) {
        match event {
            Event::Starting(names) => self.table = ProcessTable::new(names.iter().cloned()),
            Event::ProcessEvent(event) => self.table.apply(event, now_as_text()),
            Event::Note(_) | Event::Ready { .. } | Event::Stopping | Event::Failed { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn board_after(changes: &[Change]) -> ProcessTable {
        let mut process_table = ProcessTable::new(["gateway".to_owned(), "root".to_owned()]);
        for change in changes {
            process_table.apply(&ProcessEvent { process: 1, change: change.clone() }, "now".to_owned());
        }
        process_table
    }

    #[test]
    fn an_event_changes_one_process() {
        let started = Change::Started { pid: 7 };
        let ready = Change::Ready { after_ms: 3 };
        let ended = Change::Ended { exit: "signal 9".to_owned(), pause_ms: 100 };
        for (changes, word, pid, ends, was_ready) in [
            (vec![], "starting", None, 0, false),
            (vec![started.clone()], "starting", Some(7), 0, false),
            (vec![started.clone(), ready.clone()], "ready", Some(7), 0, true),
            (vec![started.clone(), ready.clone(), ended.clone()], "waiting", None, 1, true),
            (vec![started.clone(), ended, started.clone()], "starting", Some(7), 1, false),
            (vec![started.clone(), ready.clone(), Change::Stopping], "stopping", Some(7), 0, true),
            (vec![started, ready, Change::Stopping, Change::Stopped], "stopped", None, 0, true),
        ] {
            let process_table = board_after(&changes);
            let row = &process_table.rows[1];
            assert_eq!(
                (row.condition.as_str(), row.pid, row.ends, row.was_ready),
                (word, pid, ends, was_ready)
            );
            assert_eq!(row.since.is_some(), row.pid.is_some(), "{changes:?}");
            assert_eq!(process_table.rows[0], ProcessTable::new(["gateway".to_owned()]).rows[0]);
        }
    }

    #[test]
    fn all_are_ready_when_each_is() {
        let mut process_table = board_after(&[Change::Ready { after_ms: 1 }]);
        assert!(!process_table.all_ready());
        process_table
            .apply(&ProcessEvent { process: 0, change: Change::Ready { after_ms: 1 } }, String::new());
        assert!(process_table.all_ready());
        process_table.apply(&ProcessEvent { process: 9, change: Change::Stopped }, String::new());
        assert!(process_table.all_ready(), "there is no process 9");
    }

    #[test]
    fn events_can_be_sent_to_another_process() {
        for event in [
            Event::Starting(vec!["a".to_owned()]),
            Event::Note("n".to_owned()),
            Event::ProcessEvent(ProcessEvent {
                process: 1,
                change: Change::Ended { exit: "x".to_owned(), pause_ms: 1 },
            }),
            Event::Ready { after_ms: 5, edge: "e".to_owned() },
            Event::Stopping,
            Event::Failed { message: "m".to_owned(), hint: None },
        ] {
            let line = serde_json::to_string(&event).unwrap();
            assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
        }
    }
}
