//! `up --detach`: the installation runs in a process in the background, which tells its announcements to the one that
//! the user waits for, until all is ready.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::UpError;
use super::board::Announcement;
use super::screen::Audience;
use crate::site::Site;

/// Tells announcements to the waiting process, one JSON object per line.
#[derive(Debug)]
pub(crate) struct Relay {
    out: io::Stdout,
}

impl Relay {
    /// Also leaves the terminal's session, so that its end is not ours.
    pub(crate) fn of_standard_output() -> Self {
        // It fails only for the leader of a session, who has nothing to leave.
        let _ = rustix::process::setsid();
        Self { out: io::stdout() }
    }
}

impl Audience for Relay {
    fn hear(&mut self, announcement: &Announcement) {
        let Ok(mut line) = serde_json::to_vec(announcement) else {
            return;
        };
        line.push(b'\n');
        // The listener leaves as soon as all is ready.
        let mut out = self.out.lock();
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }
}

/// Starts the process in the background and returns when it is ready or has given up.
pub(crate) fn start(site: &Site, audience: &mut dyn Audience) -> Result<(), UpError> {
    let program = std::env::current_exe().map_err(UpError::NoOwnPath)?;
    let mut child = Command::new(program)
        .args(arguments_in_background(std::env::args_os().skip(1)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(UpError::Runtime)?;
    let out = child.stdout.take().map(BufReader::new);
    listen(out.into_iter().flat_map(BufRead::lines).map_while(Result::ok), audience)
        .unwrap_or_else(|| Err(UpError::LostRelay { log: site.log("up") }))
}

fn arguments_in_background(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let others = arguments.filter(|argument| argument != "--detach");
    others.chain(["--relay".into()]).collect()
}

/// Passes on what is said; `None` if it ends without a result.
fn listen(lines: impl Iterator<Item = String>, audience: &mut dyn Audience) -> Option<Result<(), UpError>> {
    // Anything else on standard output is a stray print, which is no reason to give up.
    for announcement in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
        audience.hear(&announcement);
        match announcement {
            Announcement::Ready { .. } => return Some(Ok(())),
            Announcement::Failed { message, hint } => return Some(Err(UpError::Relayed { message, hint })),
            Announcement::Beginning(_)
            | Announcement::Note(_)
            | Announcement::News(_)
            | Announcement::Stopping => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[derive(Default)]
    struct Heard(Vec<Announcement>);

    impl Audience for Heard {
        fn hear(&mut self, announcement: &Announcement) {
            self.0.push(announcement.clone());
        }
    }

    fn listen_to(announcements: &[Announcement]) -> (Option<Result<(), UpError>>, usize) {
        let lines = announcements.iter().map(|announcement| serde_json::to_string(announcement).unwrap());
        let mut heard = Heard::default();
        let outcome = listen(["stray".to_owned()].into_iter().chain(lines), &mut heard);
        (outcome, heard.0.len())
    }

    #[test]
    fn waiting_ends_with_the_result() {
        let beginning = Announcement::Beginning(vec!["a".to_owned()]);
        let ready = Announcement::Ready { after_ms: 1, edge: String::new() };
        let failed =
            Announcement::Failed { message: "port 1 is in use".to_owned(), hint: Some("h".to_owned()) };
        let (outcome, heard) = listen_to(&[beginning.clone(), ready, Announcement::Stopping]);
        assert!(matches!(outcome, Some(Ok(()))) && heard == 2, "nothing after it is waited for");
        let (outcome, _) = listen_to(&[beginning.clone(), failed]);
        let error = outcome.unwrap().unwrap_err();
        assert_eq!((error.to_string().as_str(), error.hint().as_deref()), ("port 1 is in use", Some("h")));
        assert!(listen_to(&[beginning]).0.is_none());
    }

    #[test]
    fn the_background_process_gets_the_same_wishes() {
        let given = ["up", "--detach", "--port", "1"].map(OsString::from);
        assert_eq!(arguments_in_background(given.into_iter()), ["up", "--port", "1", "--relay"]);
    }
}
