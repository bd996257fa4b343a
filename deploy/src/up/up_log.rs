//! `up.log`: the events of `up`.

use std::io::Write;

use super::log_file::LogFile;
use super::process_table::{Change, Event, TableFollower};
use crate::installation::{Installation, now_as_text};

/// Writes events to `up.log`.
#[derive(Debug)]
pub(crate) struct UpLog {
    log: LogFile,
    follower: TableFollower,
}

impl UpLog {
    pub(crate) fn of(installation: &Installation) -> Self {
        Self { log: LogFile::at(installation.log("up")), follower: TableFollower::default() }
    }

    /// Writes an event. Errors are ignored: a log that cannot be written must not stop the servers.
    pub(crate) fn send(&mut self, event: &Event) {
        self.follower.send(event);
        let entry = format!("{} {}\n", now_as_text(), self.entry(event));
        let _ = self.log.rotate();
        if let Ok(mut file) = self.log.open() {
            let _ = file.write_all(entry.as_bytes());
        }
    }

    fn entry(&self, event: &Event) -> String {
        match event {
            Event::Starting(names) => {
                format!("up {} starts {}", env!("CARGO_PKG_VERSION"), names.join(", "))
            }
            Event::Note(note) => format!("note: {note}"),
            Event::Ready { after_ms, .. } => format!("all ready after {after_ms} ms"),
            Event::Stopping => "stopping".to_owned(),
            Event::Failed { message, .. } => format!("failed: {message}"),
            Event::ProcessEvent(event) => {
                let row = self.follower.table.rows.get(event.process);
                let name = row.map_or("?", |row| row.name.as_str());
                match &event.change {
                    Change::Started { pid } => format!("{name}: started, process {pid}"),
                    Change::Ready { after_ms } => format!("{name}: ready after {after_ms} ms"),
                    Change::Ended { exit, pause_ms } => {
                        format!("{name}: ended, {exit}; restarts in {pause_ms} ms")
                    }
                    Change::Stopping => format!("{name}: stopping"),
                    Change::Stopped => format!("{name}: stopped"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::up::process_table::ProcessEvent;

    #[test]
    fn entries_have_a_time_and_the_name_of_the_process() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("logs")).unwrap();
        let installation = Installation::at(folder.path()).unwrap();
        let mut up_log = UpLog::of(&installation);
        up_log.send(&Event::Starting(vec!["gateway".to_owned(), "root".to_owned()]));
        let change = Change::Ended { exit: "signal 9".to_owned(), pause_ms: 100 };
        up_log.send(&Event::ProcessEvent(ProcessEvent { process: 1, change }));
        let text = std::fs::read_to_string(installation.log("up")).unwrap();
        let entries: Vec<_> = text.lines().map(|line| line.split_once(' ').unwrap()).collect();
        assert!(entries.iter().all(|(time, _)| time.parse::<jiff::Timestamp>().is_ok()), "{text}");
        assert!(entries[0].1.ends_with("starts gateway, root"), "{text}");
        assert_eq!(entries[1].1, "root: ended, signal 9; restarts in 100 ms");
    }
}
