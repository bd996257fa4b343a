//! What is known about the processes, and the news that change it.

use serde::{Deserialize, Serialize};

use super::topology::Topology;
use crate::site::{ProcessRecord, Record, now_as_text};

/// Something that whoever watches `up` may want to know. Also the lines that a detached `up` sends to the one that
/// started it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Announcement {
    /// These processes, by name, are about to be started.
    Beginning(Vec<String>),
    /// Something to know, one sentence.
    Note(String),
    /// A process has changed.
    News(News),
    /// All are ready for the first time.
    Ready {
        /// Milliseconds since the beginning.
        after_ms: u64,
        /// How people reach the door for tokens.
        edge: String,
    },
    /// The processes are being stopped.
    Stopping,
    /// The end, before all were ready.
    Failed {
        /// One sentence.
        message: String,
        /// Advice.
        hint: Option<String>,
    },
}

/// A change of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct News {
    /// Its place among the processes.
    pub process: usize,
    pub change: Change,
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum Change {
    /// It runs.
    Started { pid: u32 },
    /// It serves, this many milliseconds after it was started.
    Ready { after_ms: u64 },
    /// It ended by itself and will be started again after a pause.
    Ended { how: String, pause_ms: u64 },
    /// It was told to end.
    Stopping,
    /// It ended because it was told to.
    Stopped,
}

/// The state of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Starting,
    Ready { after_ms: u64 },
    Waiting { how: String, pause_ms: u64 },
    Stopping,
    Stopped,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub name: String,
    pub condition: Condition,
    pub pid: Option<u32>,
    /// When the running process was started, RFC 3339.
    pub since: Option<String>,
    /// How often it ended by itself.
    pub ends: u32,
    pub last_exit: Option<String>,
    /// Whether it has ever been ready.
    pub was_ready: bool,
}

/// All processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Board {
    pub rows: Vec<Row>,
}

impl Board {
    /// Nothing has been started yet.
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

    /// Takes note of news; those of a process that does not exist are ignored. `now` is RFC 3339.
    pub(crate) fn apply(&mut self, news: &News, now: String) {
        let Some(row) = self.rows.get_mut(news.process) else {
            return;
        };
        match &news.change {
            Change::Started { pid } => {
                row.pid = Some(*pid);
                row.since = Some(now);
                row.condition = Condition::Starting;
            }
            Change::Ready { after_ms } => {
                row.was_ready = true;
                row.condition = Condition::Ready { after_ms: *after_ms };
            }
            Change::Ended { how, pause_ms } => {
                row.pid = None;
                row.since = None;
                row.ends += 1;
                row.last_exit = Some(how.clone());
                row.condition = Condition::Waiting { how: how.clone(), pause_ms: *pause_ms };
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

    /// The same for `fairlead status`.
    pub(crate) fn record(&self, started: &str, topology: &Topology) -> Record {
        let record = |(row, process): (&Row, &super::topology::Process)| ProcessRecord {
            name: row.name.clone(),
            url: process.url(),
            condition: row.condition.word().to_owned(),
            pid: row.pid,
            since: row.since.clone(),
            restarts: row.ends,
            last_exit: row.last_exit.clone(),
        };
        Record {
            pid: std::process::id(),
            started: started.to_owned(),
            gateway: topology.gateway().url(),
            edge: topology.edge_url(),
            processes: self.rows.iter().zip(&topology.processes).map(record).collect(),
        }
    }
}

impl Condition {
    /// One word for it.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready { .. } => "ready",
            Self::Waiting { .. } => "waiting",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
        }
    }
}

/// A board that keeps itself up to date by announcements.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    pub board: Board,
}

impl Follower {
    pub(crate) fn hear(&mut self, announcement: &Announcement) {
        match announcement {
            Announcement::Beginning(names) => self.board = Board::new(names.iter().cloned()),
            Announcement::News(news) => self.board.apply(news, now_as_text()),
            Announcement::Note(_)
            | Announcement::Ready { .. }
            | Announcement::Stopping
            | Announcement::Failed { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn board_after(changes: &[Change]) -> Board {
        let mut board = Board::new(["gateway".to_owned(), "root".to_owned()]);
        for change in changes {
            board.apply(&News { process: 1, change: change.clone() }, "now".to_owned());
        }
        board
    }

    #[test]
    fn news_change_one_process() {
        let started = Change::Started { pid: 7 };
        let ready = Change::Ready { after_ms: 3 };
        let ended = Change::Ended { how: "signal 9".to_owned(), pause_ms: 100 };
        for (changes, word, pid, ends, was_ready) in [
            (vec![], "starting", None, 0, false),
            (vec![started.clone()], "starting", Some(7), 0, false),
            (vec![started.clone(), ready.clone()], "ready", Some(7), 0, true),
            (vec![started.clone(), ready.clone(), ended.clone()], "waiting", None, 1, true),
            (vec![started.clone(), ended, started.clone()], "starting", Some(7), 1, false),
            (vec![started.clone(), ready.clone(), Change::Stopping], "stopping", Some(7), 0, true),
            (vec![started, ready, Change::Stopping, Change::Stopped], "stopped", None, 0, true),
        ] {
            let board = board_after(&changes);
            let row = &board.rows[1];
            assert_eq!(
                (row.condition.word(), row.pid, row.ends, row.was_ready),
                (word, pid, ends, was_ready)
            );
            assert_eq!(row.since.is_some(), row.pid.is_some(), "{changes:?}");
            assert_eq!(board.rows[0], Board::new(["gateway".to_owned()]).rows[0]);
        }
    }

    #[test]
    fn all_are_ready_when_each_is() {
        let mut board = board_after(&[Change::Ready { after_ms: 1 }]);
        assert!(!board.all_ready());
        board.apply(&News { process: 0, change: Change::Ready { after_ms: 1 } }, String::new());
        assert!(board.all_ready());
        board.apply(&News { process: 9, change: Change::Stopped }, String::new());
        assert!(board.all_ready(), "nobody is process 9");
    }

    #[test]
    fn announcements_survive_the_way_to_another_process() {
        for announcement in [
            Announcement::Beginning(vec!["a".to_owned()]),
            Announcement::Note("n".to_owned()),
            Announcement::News(News {
                process: 1,
                change: Change::Ended { how: "x".to_owned(), pause_ms: 1 },
            }),
            Announcement::Ready { after_ms: 5, edge: "e".to_owned() },
            Announcement::Stopping,
            Announcement::Failed { message: "m".to_owned(), hint: None },
        ] {
            let line = serde_json::to_string(&announcement).unwrap();
            assert_eq!(serde_json::from_str::<Announcement>(&line).unwrap(), announcement);
        }
    }
}
