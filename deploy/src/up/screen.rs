//! What `up` shows: a live table on a terminal, lines elsewhere.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use super::board::{Announcement, Board, Condition, Follower, Row};

/// Whoever is told what happens.
pub(crate) trait Audience {
    /// Tells it. Whether it arrives does not matter to `up`.
    fn hear(&mut self, announcement: &Announcement);
}

/// The person at the terminal, or whatever reads standard output.
#[derive(Debug)]
pub(crate) struct Screen {
    follower: Follower,
    style: Style,
    /// How many lines of a table stand above the cursor.
    drawn: usize,
    welcome: Welcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Table,
    Lines,
}

/// What the closing screen mentions.
#[derive(Clone, Debug)]
pub(crate) struct Welcome {
    /// How people reach the gateway.
    pub gateway: String,
    pub kubeconfig: PathBuf,
    pub edge_kubeconfig: PathBuf,
    pub logs: PathBuf,
    /// How to run this program.
    pub program: String,
    /// How to make it end.
    pub stop: Stop,
}

/// How `up` ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It has the terminal.
    ControlC,
    /// It runs in the background; with the directory if that has to be named.
    Down { directory: Option<PathBuf> },
}

impl Screen {
    /// Standard output, with a live table if it is a terminal.
    pub(crate) fn new(welcome: Welcome) -> Self {
        let style = if io::stdout().is_terminal() { Style::Table } else { Style::Lines };
        Self { follower: Follower::default(), style, drawn: 0, welcome }
    }

    fn text(&mut self, announcement: &Announcement) -> String {
        self.follower.hear(announcement);
        let board = &self.follower.board;
        match (announcement, self.style) {
            (Announcement::Beginning(_), Style::Table) => self.redraw(),
            // Once it has scrolled away a table cannot be changed any more.
            (Announcement::News(_), Style::Table) if self.drawn > 0 => self.redraw(),
            (Announcement::News(news), _) => line(board, news.process),
            (Announcement::Beginning(_) | Announcement::Failed { .. }, _) => String::new(),
            (Announcement::Note(note), _) => self.below(&format!("Note: {note}.\n")),
            (Announcement::Ready { after_ms, edge }, _) => {
                let text = self.welcome.text(board.rows.len(), *after_ms, edge);
                self.below(&text)
            }
            (Announcement::Stopping, _) => self.below("Stopping.\n"),
        }
    }

    fn redraw(&mut self) -> String {
        let up = match self.drawn {
            0 => String::new(),
            lines => format!("\x1b[{lines}A"),
        };
        self.drawn = self.follower.board.rows.len();
        let lines = (0..self.drawn).map(|row| format!("\x1b[2K{}", line(&self.follower.board, row)));
        up + &lines.collect::<String>()
    }

    /// Text below the table, which ends its life.
    fn below(&mut self, text: &str) -> String {
        self.drawn = 0;
        text.to_owned()
    }
}

impl Audience for Screen {
    fn hear(&mut self, announcement: &Announcement) {
        let text = self.text(announcement);
        let mut out = io::stdout().lock();
        // Nobody looks any more: no reason to stop serving.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

impl Welcome {
    fn text(&self, processes: usize, after_ms: u64, edge: &str) -> String {
        let here = std::env::current_dir().unwrap_or_default();
        let short = |path: &Path| path.strip_prefix(&here).unwrap_or(path).display().to_string();
        let (kubeconfig, edge_kubeconfig) = (short(&self.kubeconfig), short(&self.edge_kubeconfig));
        let stop = match &self.stop {
            Stop::ControlC => "Ctrl-C".to_owned(),
            Stop::Down { directory: None } => format!("`{} down`", self.program),
            Stop::Down { directory: Some(directory) } => {
                format!("`{} down --dir {}`", self.program, directory.display())
            }
        };
        // All but the gateway, the cache server and the issuer.
        let shards = match processes.saturating_sub(3) {
            1 => "1 shard".to_owned(),
            shards => format!("{shards} shards"),
        };
        let (gateway, program, logs) = (&self.gateway, &self.program, short(&self.logs));
        format!(
            "\nFairlead is up at {gateway} with {shards}, after {} s.\n\
             Kubeconfig: {kubeconfig}   Logs: {logs}\n\
             Door for tokens: {edge}   Kubeconfig: {edge_kubeconfig}\n\
             \n\
             Try:\n  \
               export KUBECONFIG={}\n  \
               {program} ws create hello --enter\n  \
               kubectl create configmap greeting --from-literal=text=ahoy\n\
             \n\
             Stop with {stop}.\n",
            seconds(after_ms),
            self.kubeconfig.display()
        )
    }
}

/// One process on one line.
fn line(board: &Board, row: usize) -> String {
    let width = board.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let Some(row) = board.rows.get(row) else {
        return String::new();
    };
    format!("  {:width$}  {}\n", row.name, told(row))
}

fn told(row: &Row) -> String {
    match (&row.condition, row.pid) {
        (Condition::Starting, None) => "starting".to_owned(),
        (Condition::Starting, Some(pid)) => format!("starting (process {pid})"),
        (Condition::Ready { after_ms }, _) => format!("ready in {} s", seconds(*after_ms)),
        (Condition::Waiting { how, pause_ms }, _) => {
            format!("ended ({how}), starts again in {} s", seconds(*pause_ms))
        }
        (Condition::Stopping, _) => "stopping".to_owned(),
        (Condition::Stopped, _) => "stopped".to_owned(),
    }
}

fn seconds(milliseconds: u64) -> String {
    // Tenths are what people feel; the rest is noise.
    format!("{}.{}", milliseconds / 1000, milliseconds % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::up::board::{Change, News};

    fn screen(style: Style) -> Screen {
        let welcome = Welcome {
            gateway: "https://127.0.0.1:6443".to_owned(),
            kubeconfig: "/x/admin.kubeconfig".into(),
            edge_kubeconfig: "/x/edge.kubeconfig".into(),
            logs: "/x/logs".into(),
            program: "fairlead".to_owned(),
            stop: Stop::ControlC,
        };
        Screen { follower: Follower::default(), style, drawn: 0, welcome }
    }

    fn story(style: Style) -> String {
        let mut screen = screen(style);
        let news = |process, change| Announcement::News(News { process, change });
        let announcements = [
            Announcement::Beginning(["gateway", "root", "cache", "issuer"].map(str::to_owned).to_vec()),
            Announcement::Note("something".to_owned()),
            news(1, Change::Started { pid: 7 }),
            news(1, Change::Ended { how: "exit code 1".to_owned(), pause_ms: 100 }),
            news(1, Change::Ready { after_ms: 1_260 }),
            Announcement::Ready { after_ms: 1_999, edge: "https://127.0.0.1:8443".to_owned() },
            news(0, Change::Stopping),
            Announcement::Stopping,
        ];
        announcements.iter().map(|announcement| screen.text(announcement)).collect()
    }

    #[test]
    fn a_pipe_gets_lines() {
        expect![[r#"
            Note: something.
              root     starting (process 7)
              root     ended (exit code 1), starts again in 0.1 s
              root     ready in 1.2 s

            Fairlead is up at https://127.0.0.1:6443 with 1 shard, after 1.9 s.
            Kubeconfig: /x/admin.kubeconfig   Logs: /x/logs
            Door for tokens: https://127.0.0.1:8443   Kubeconfig: /x/edge.kubeconfig

            Try:
              export KUBECONFIG=/x/admin.kubeconfig
              fairlead ws create hello --enter
              kubectl create configmap greeting --from-literal=text=ahoy

            Stop with Ctrl-C.
              gateway  stopping
            Stopping.
        "#]]
        .assert_eq(&story(Style::Lines));
    }

    #[test]
    fn a_terminal_gets_a_table_that_is_redrawn_in_place() {
        let mut screen = screen(Style::Table);
        let beginning = Announcement::Beginning(["gateway", "root"].map(str::to_owned).to_vec());
        let first = screen.text(&beginning);
        assert_eq!(first, "\x1b[2K  gateway  starting\n\x1b[2K  root     starting\n");
        let news = News { process: 0, change: Change::Ready { after_ms: 40 } };
        let second = screen.text(&Announcement::News(news.clone()));
        assert_eq!(second, "\x1b[2A\x1b[2K  gateway  ready in 0.0 s\n\x1b[2K  root     starting\n");
        screen.text(&Announcement::Ready { after_ms: 50, edge: String::new() });
        let third = screen.text(&Announcement::News(news));
        assert_eq!(third, "  gateway  ready in 0.0 s\n", "what has scrolled away is not redrawn");
    }
}
