//! The output of `up`: a live table on a terminal, lines elsewhere.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use super::process_table::{Condition, Event, ProcessTable, Row, TableFollower};
use super::topology::ETCD;

/// A receiver of events.
pub(crate) trait EventSink {
    /// Sends an event. Errors are ignored: the servers run without a receiver.
    fn send(&mut self, event: &Event);
}

/// Writes events to standard output.
#[derive(Debug)]
pub(crate) struct TerminalView {
    follower: TableFollower,
    style: Style,
    /// Number of lines of the table above the cursor.
    drawn: usize,
    welcome: Welcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Table,
    Lines,
}

/// Content of the message that is printed when all processes are ready.
#[derive(Clone, Debug)]
pub(crate) struct Welcome {
    /// URL of the gateway.
    pub gateway: String,
    pub kubeconfig: PathBuf,
    pub edge_kubeconfig: PathBuf,
    pub logs: PathBuf,
    /// Command that runs this program.
    pub program: String,
    /// Way to stop the installation.
    pub stop: Stop,
}

/// Way to stop `up`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Ctrl-C: `up` runs in the foreground.
    ControlC,
    /// `fairlead down`: `up` runs in the background. With the directory, unless it is the default one.
    Down { directory: Option<PathBuf> },
}

impl TerminalView {
    /// Standard output, with a live table if it is a terminal.
    pub(crate) fn new(welcome: Welcome) -> Self {
        let style = if io::stdout().is_terminal() { Style::Table } else { Style::Lines };
        Self { follower: TableFollower::default(), style, drawn: 0, welcome }
    }

    fn text(&mut self, event: &Event) -> String {
        self.follower.send(event);
        let table = &self.follower.table;
        match (event, self.style) {
            (Event::Starting(_), Style::Table) => self.redraw(),
            // A table that has scrolled away cannot be redrawn.
            (Event::ProcessEvent(_), Style::Table) if self.drawn > 0 => self.redraw(),
            (Event::ProcessEvent(event), _) => line(table, event.process),
            (Event::Starting(_) | Event::Failed { .. }, _) => String::new(),
            (Event::Note(note), _) => self.below(&format!("Note: {note}.\n")),
            (Event::Ready { after_ms, edge }, _) => {
                let text = self.welcome.text(shards(&table.rows), *after_ms, edge);
                self.below(&text)
            }
            (Event::Stopping, _) => self.below("Stopping.\n"),
        }
    }

    fn redraw(&mut self) -> String {
        let up = match self.drawn {
            0 => String::new(),
            lines => format!("\x1b[{lines}A"),
        };
        self.drawn = self.follower.table.rows.len();
        let lines = (0..self.drawn).map(|row| format!("\x1b[2K{}", line(&self.follower.table, row)));
        up + &lines.collect::<String>()
    }

    /// Text below the table, which cannot be redrawn any more.
    fn below(&mut self, text: &str) -> String {
        self.drawn = 0;
        text.to_owned()
    }
}

impl EventSink for TerminalView {
    fn send(&mut self, event: &Event) {
        let text = self.text(event);
        let mut out = io::stdout().lock();
        // A closed standard output must not end the servers.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

/// The number of shards: of all processes but the gateway, the cache server, the issuer and the etcd, if there is one.
fn shards(rows: &[Row]) -> usize {
    let others = if rows.iter().any(|row| row.name == ETCD) { 4 } else { 3 };
    rows.len().saturating_sub(others)
}

impl Welcome {
    fn text(&self, shards: usize, after_ms: u64, edge: &str) -> String {
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
        let shards = match shards {
            1 => "1 shard".to_owned(),
            shards => format!("{shards} shards"),
        };
        let (gateway, program, logs) = (&self.gateway, &self.program, short(&self.logs));
        format!(
            "\nFairlead is up at {gateway} with {shards}, after {} s.\n\
             Kubeconfig: {kubeconfig}   Logs: {logs}\n\
             Listener for tokens: {edge}   Kubeconfig: {edge_kubeconfig}\n\
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

/// One process as one line.
fn line(table: &ProcessTable, row: usize) -> String {
    let width = table.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let Some(row) = table.rows.get(row) else {
        return String::new();
    };
    format!("  {:width$}  {}\n", row.name, condition(row))
}

fn condition(row: &Row) -> String {
    match (&row.condition, row.pid) {
        (Condition::Starting, None) => "starting".to_owned(),
        (Condition::Starting, Some(pid)) => format!("starting (process {pid})"),
        (Condition::Ready { after_ms }, _) => format!("ready in {} s", seconds(*after_ms)),
        (Condition::Waiting { exit, pause_ms }, _) => {
            format!("ended ({exit}), starts again in {} s", seconds(*pause_ms))
        }
        (Condition::Stopping, _) => "stopping".to_owned(),
        (Condition::Stopped, _) => "stopped".to_owned(),
    }
}

fn seconds(milliseconds: u64) -> String {
    // Tenths are precise enough for people.
    format!("{}.{}", milliseconds / 1000, milliseconds % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::up::process_table::{Change, ProcessEvent};

    fn terminal(style: Style) -> TerminalView {
        let welcome = Welcome {
            gateway: "https://127.0.0.1:6443".to_owned(),
            kubeconfig: "/x/admin.kubeconfig".into(),
            edge_kubeconfig: "/x/edge.kubeconfig".into(),
            logs: "/x/logs".into(),
            program: "fairlead".to_owned(),
            stop: Stop::ControlC,
        };
        TerminalView { follower: TableFollower::default(), style, drawn: 0, welcome }
    }

    fn output(style: Style) -> String {
        let mut terminal = terminal(style);
        let event = |process, change| Event::ProcessEvent(ProcessEvent { process, change });
        let events = [
            Event::Starting(["gateway", "root", "cache", "issuer"].map(str::to_owned).to_vec()),
            Event::Note("something".to_owned()),
            event(1, Change::Started { pid: 7 }),
            event(1, Change::Ended { exit: "exit code 1".to_owned(), pause_ms: 100 }),
            event(1, Change::Ready { after_ms: 1_260 }),
            Event::Ready { after_ms: 1_999, edge: "https://127.0.0.1:8443".to_owned() },
            event(0, Change::Stopping),
            Event::Stopping,
        ];
        events.iter().map(|event| terminal.text(event)).collect()
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
            Listener for tokens: https://127.0.0.1:8443   Kubeconfig: /x/edge.kubeconfig

            Try:
              export KUBECONFIG=/x/admin.kubeconfig
              fairlead ws create hello --enter
              kubectl create configmap greeting --from-literal=text=ahoy

            Stop with Ctrl-C.
              gateway  stopping
            Stopping.
        "#]]
        .assert_eq(&output(Style::Lines));
    }

    #[test]
    fn a_terminal_gets_a_table_that_is_redrawn_in_place() {
        let mut terminal = terminal(Style::Table);
        let starting = Event::Starting(["gateway", "root"].map(str::to_owned).to_vec());
        let first = terminal.text(&starting);
        assert_eq!(first, "\x1b[2K  gateway  starting\n\x1b[2K  root     starting\n");
        let event = ProcessEvent { process: 0, change: Change::Ready { after_ms: 40 } };
        let second = terminal.text(&Event::ProcessEvent(event.clone()));
        assert_eq!(second, "\x1b[2A\x1b[2K  gateway  ready in 0.0 s\n\x1b[2K  root     starting\n");
        terminal.text(&Event::Ready { after_ms: 50, edge: String::new() });
        let third = terminal.text(&Event::ProcessEvent(event));
        assert_eq!(third, "  gateway  ready in 0.0 s\n", "a table that has scrolled away is not redrawn");
    }
}
