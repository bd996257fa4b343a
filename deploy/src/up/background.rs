//! `up --detach`: the installation runs in a background process, which sends its events to the process in the
//! foreground until all servers are ready.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::UpError;
use super::process_table::Event;
use super::terminal::EventSink;
use crate::installation::Installation;

/// Sends events to the waiting process, one JSON object per line.
#[derive(Debug)]
pub(crate) struct Relay {
    out: io::Stdout,
}

impl Relay {
    /// Sends to standard output. Also leaves the session of the terminal, so that closing the terminal does not end `up`.
    pub(crate) fn of_standard_output() -> Self {
        // It fails only for a session leader, which needs no new session.
        let _ = rustix::process::setsid();
        Self { out: io::stdout() }
    }
}

impl EventSink for Relay {
    fn send(&mut self, event: &Event) {
        let Ok(mut line) = serde_json::to_vec(event) else {
            return;
        };
        line.push(b'\n');
        // The process in the foreground ends as soon as all servers are ready.
        let mut out = self.out.lock();
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }
}

/// Starts the background process and returns when it is ready or has failed.
pub(crate) fn start(installation: &Installation, events: &mut dyn EventSink) -> Result<(), UpError> {
    let program = std::env::current_exe().map_err(UpError::NoOwnPath)?;
    let mut child = Command::new(program)
        .args(arguments_in_background(std::env::args_os().skip(1)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(UpError::Runtime)?;
    let out = child.stdout.take().map(BufReader::new);
    forward_events(out.into_iter().flat_map(BufRead::lines).map_while(Result::ok), events)
        .unwrap_or_else(|| Err(UpError::BackgroundProcessLost { log: installation.log("up") }))
}

fn arguments_in_background(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let others = arguments.filter(|argument| argument != "--detach");
    others.chain(["--relay".into()]).collect()
}

/// Forwards events until there is a result; `None` if the lines end without one.
fn forward_events(
    lines: impl Iterator<Item = String>,
    events: &mut dyn EventSink,
) -> Option<Result<(), UpError>> {
    // Other lines on standard output are ignored.
    for event in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
        events.send(&event);
        match event {
            Event::Ready { .. } => return Some(Ok(())),
            Event::Failed { message, hint } => {
                return Some(Err(UpError::BackgroundProcessFailed { message, hint }));
            }
            Event::Starting(_) | Event::Note(_) | Event::ProcessEvent(_) | Event::Stopping => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[derive(Default)]
    struct ReceivedEvents(Vec<Event>);

    impl EventSink for ReceivedEvents {
        fn send(&mut self, event: &Event) {
            self.0.push(event.clone());
        }
    }

    fn forward(events: &[Event]) -> (Option<Result<(), UpError>>, usize) {
        let lines = events.iter().map(|event| serde_json::to_string(event).unwrap());
        let mut received = ReceivedEvents::default();
        let outcome = forward_events(["unrelated".to_owned()].into_iter().chain(lines), &mut received);
        (outcome, received.0.len())
    }

    #[test]
    fn forwarding_ends_with_the_result() {
        let starting = Event::Starting(vec!["a".to_owned()]);
        let ready = Event::Ready { after_ms: 1, edge: String::new() };
        let failed = Event::Failed { message: "port 1 is in use".to_owned(), hint: Some("h".to_owned()) };
        let (outcome, received) = forward(&[starting.clone(), ready, Event::Stopping]);
        assert!(matches!(outcome, Some(Ok(()))) && received == 2, "later events are not read");
        let (outcome, _) = forward(&[starting.clone(), failed]);
        let error = outcome.unwrap().unwrap_err();
        assert_eq!((error.to_string().as_str(), error.hint().as_deref()), ("port 1 is in use", Some("h")));
        assert!(forward(&[starting]).0.is_none());
    }

    #[test]
    fn the_background_process_gets_the_same_options() {
        let given = ["up", "--detach", "--port", "1"].map(OsString::from);
        assert_eq!(arguments_in_background(given.into_iter()), ["up", "--port", "1", "--relay"]);
    }
}
