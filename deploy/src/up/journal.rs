//! `up.log`: what `up` itself has to tell, for those who come later.

use std::io::Write;

use super::board::{Announcement, Change, Follower};
use super::logs::Log;
use crate::site::{Site, now_as_text};

/// Writes announcements to the log of `up`.
#[derive(Debug)]
pub(crate) struct Journal {
    log: Log,
    follower: Follower,
}

impl Journal {
    pub(crate) fn of(site: &Site) -> Self {
        Self { log: Log::at(site.log("up")), follower: Follower::default() }
    }

    /// Notes it. A log that cannot be written stops nobody.
    pub(crate) fn hear(&mut self, announcement: &Announcement) {
        self.follower.hear(announcement);
        let entry = format!("{} {}\n", now_as_text(), self.entry(announcement));
        let _ = self.log.rotate();
        if let Ok(mut file) = self.log.open() {
            let _ = file.write_all(entry.as_bytes());
        }
    }

    fn entry(&self, announcement: &Announcement) -> String {
        match announcement {
            Announcement::Beginning(names) => {
                format!("up {} starts {}", env!("CARGO_PKG_VERSION"), names.join(", "))
            }
            Announcement::Note(note) => format!("note: {note}"),
            Announcement::Ready { after_ms, .. } => format!("all ready after {after_ms} ms"),
            Announcement::Stopping => "stopping".to_owned(),
            Announcement::Failed { message, .. } => format!("failed: {message}"),
            Announcement::News(news) => {
                let row = self.follower.board.rows.get(news.process);
                let name = row.map_or("?", |row| row.name.as_str());
                match &news.change {
                    Change::Started { pid } => format!("{name}: started, process {pid}"),
                    Change::Ready { after_ms } => format!("{name}: ready after {after_ms} ms"),
                    Change::Ended { how, pause_ms } => {
                        format!("{name}: ended, {how}; again in {pause_ms} ms")
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
    use crate::up::board::News;

    #[test]
    fn the_journal_names_processes_and_has_times() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("logs")).unwrap();
        let site = Site::at(folder.path()).unwrap();
        let mut journal = Journal::of(&site);
        journal.hear(&Announcement::Beginning(vec!["gateway".to_owned(), "root".to_owned()]));
        let change = Change::Ended { how: "signal 9".to_owned(), pause_ms: 100 };
        journal.hear(&Announcement::News(News { process: 1, change }));
        let text = std::fs::read_to_string(site.log("up")).unwrap();
        let entries: Vec<_> = text.lines().map(|line| line.split_once(' ').unwrap()).collect();
        assert!(entries.iter().all(|(time, _)| time.parse::<jiff::Timestamp>().is_ok()), "{text}");
        assert!(entries[0].1.ends_with("starts gateway, root"), "{text}");
        assert_eq!(entries[1].1, "root: ended, signal 9; again in 100 ms");
    }
}
