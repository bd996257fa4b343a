//! The state machine of a reflector, without I/O, clock or objects.

use std::time::Duration;

use crate::backoff::{Backoff, random_fraction};
use crate::error::ClientError;
use crate::reflector::ReflectorOptions;

/// The state of a reflector.
pub(super) struct ReflectorState {
    state: State,
    page_size: u32,
    /// Delays while the server cannot be reached or rejects requests; reset when it delivers.
    unavailable_backoff: Backoff,
    /// Delays between lists that do not help, because the history is always too short.
    relist_backoff: Option<Backoff>,
    initial_delay: Duration,
    longest_delay: Duration,
}

enum State {
    Listing { continue_token: String, paging: Paging },
    Watching(Position),
}

/// Lists come in pages until tokens expired twice: then the server is too slow, or its history too short, for pages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Paging {
    Pages { expired: u8 },
    Whole,
}

/// Position in the history. Several objects may change in one revision, and a watch may be interrupted between them, so a
/// revision is complete only when a newer one was received.
struct Position {
    complete: String,
    newest: String,
    /// Whether something was delivered since the watch was opened.
    has_delivered: bool,
}

/// An event of the collection.
pub(super) enum Input {
    /// A page of the list; the last one if the token is empty.
    Page { resource_version: String, continue_token: String },
    /// A page could not be read.
    ListFailed(Failure),
    /// The watch was accepted.
    WatchOpened,
    /// An object was added, changed or deleted.
    Change { resource_version: String },
    /// Everything up to here was sent.
    Bookmark { resource_version: String },
    /// The watch was rejected, broke, or reported an error.
    WatchFailed(Failure),
    /// The server ended the watch.
    WatchEnded,
}

/// Class of a failure, as far as it matters for the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The history or the token is too old.
    Gone,
    /// Waiting does not help, a new list may: an unknown resource, a revision from the future.
    Refused,
    /// Waiting may help; at least this long.
    Unavailable(Duration),
}

/// The next step: deliver, then wait, then run the command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) delivery: Delivery,
    pub(super) delay: Duration,
    pub(super) command: Command,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    Nothing,
    /// The object of the change.
    Item,
    /// All pages, read at this revision.
    Replaced(String),
    Progress(String),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// An empty token starts a new list.
    List {
        continue_token: String,
        page_size: Option<u32>,
    },
    Watch {
        resource_version: String,
    },
    /// Continues to read the open watch.
    KeepReading,
}

impl ReflectorState {
    /// Starts with a list.
    pub(super) fn listing(options: &ReflectorOptions) -> Self {
        Self::new(options, State::new_list())
    }

    /// Starts with a watch from a revision whose state the caller has.
    pub(super) fn watching(options: &ReflectorOptions, resource_version: String) -> Self {
        Self::new(options, State::Watching(Position::at(resource_version)))
    }

    fn new(options: &ReflectorOptions, state: State) -> Self {
        Self {
            state,
            page_size: options.page_size,
            unavailable_backoff: Backoff::new(options.initial_backoff, options.longest_backoff),
            relist_backoff: None,
            initial_delay: options.initial_backoff,
            longest_delay: options.longest_backoff,
        }
    }

    /// The first command.
    pub(super) fn first(&self) -> Command {
        self.request()
    }

    /// Revision from which a watch would resume; `None` before the first list is complete.
    pub(super) fn resume_at(&self) -> Option<&str> {
        match &self.state {
            State::Watching(position) => Some(&position.complete),
            State::Listing { .. } => None,
        }
    }

    /// Records that the ending watch was open long enough for the server to count as healthy.
    pub(super) fn record_healthy(&mut self) {
        if let State::Watching(position) = &mut self.state {
            position.has_delivered = true;
        }
    }

    pub(super) fn step(&mut self, input: Input) -> Step {
        match input {
            Input::Page { resource_version, continue_token } => {
                self.on_page(resource_version, continue_token)
            }
            Input::ListFailed(failure) => self.on_list_failure(failure),
            Input::WatchOpened => Step::keep_reading(Delivery::Nothing),
            Input::Change { resource_version } => self.on_change(resource_version),
            Input::Bookmark { resource_version } => self.on_bookmark(resource_version),
            Input::WatchFailed(failure) => self.on_watch_failure(failure),
            Input::WatchEnded => {
                let delay = self.delay_after_interruption(Duration::ZERO);
                self.next_request(delay)
            }
        }
    }

    fn on_page(&mut self, resource_version: String, next_token: String) -> Step {
        let State::Listing { continue_token, .. } = &mut self.state else {
            // A page that was not requested is ignored.
            return Step::keep_reading(Delivery::Nothing);
        };
        self.unavailable_backoff.reset();
        if !next_token.is_empty() {
            *continue_token = next_token;
            return self.next_request(Duration::ZERO);
        }
        if resource_version.is_empty() {
            // Without a revision there is nothing to watch from: the server is broken or not ready.
            self.state = State::new_list();
            let delay = self.unavailable_backoff.next_delay();
            return self.next_request(delay);
        }
        self.state = State::Watching(Position::at(resource_version.clone()));
        Step {
            delivery: Delivery::Replaced(resource_version),
            delay: Duration::ZERO,
            command: self.request(),
        }
    }

    fn on_list_failure(&mut self, failure: Failure) -> Step {
        let delay = match failure {
            Failure::Gone => {
                self.state = self.state.restarted_list();
                self.unavailable_backoff.next_delay()
            }
            Failure::Refused => {
                self.state = State::new_list();
                self.unavailable_backoff.next_delay()
            }
            // The same page again: the pages read so far are still valid.
            Failure::Unavailable(at_least) => self.unavailable_backoff.next_delay().max(at_least),
        };
        self.next_request(delay)
    }

    fn on_change(&mut self, resource_version: String) -> Step {
        let State::Watching(position) = &mut self.state else {
            return Step::keep_reading(Delivery::Nothing);
        };
        if position.is_before_complete(&resource_version) {
            return self.history_was_replaced();
        }
        if resource_version != position.newest {
            position.complete = std::mem::replace(&mut position.newest, resource_version);
        }
        position.has_delivered = true;
        Step::keep_reading(Delivery::Item)
    }

    fn on_bookmark(&mut self, resource_version: String) -> Step {
        let State::Watching(position) = &mut self.state else {
            return Step::keep_reading(Delivery::Nothing);
        };
        if position.is_before_complete(&resource_version) {
            return self.history_was_replaced();
        }
        position.complete.clone_from(&resource_version);
        position.newest.clone_from(&resource_version);
        position.has_delivered = true;
        Step::keep_reading(Delivery::Progress(resource_version))
    }

    /// Revisions only grow, unless the server lost its store or is another one.
    fn history_was_replaced(&mut self) -> Step {
        self.on_watch_failure(Failure::Gone)
    }

    fn on_watch_failure(&mut self, failure: Failure) -> Step {
        let delay = match failure {
            Failure::Unavailable(at_least) => self.delay_after_interruption(at_least),
            Failure::Gone => {
                let delay = self.delay_before_relist();
                self.state = State::new_list();
                delay
            }
            Failure::Refused => {
                self.state = State::new_list();
                self.unavailable_backoff.next_delay()
            }
        };
        self.next_request(delay)
    }

    /// Delay after an interruption: short and jittered after a watch that delivered something, growing otherwise.
    fn delay_after_interruption(&mut self, at_least: Duration) -> Duration {
        let delay = if self.take_has_delivered() {
            self.unavailable_backoff.reset();
            self.relist_backoff = None;
            (self.initial_delay / 8).mul_f64(random_fraction())
        } else {
            self.unavailable_backoff.next_delay()
        };
        delay.max(at_least)
    }

    /// Delay before a new list: none the first time, because a list replaces the lost history; growing while lists do not help.
    fn delay_before_relist(&mut self) -> Duration {
        if self.take_has_delivered() {
            self.relist_backoff = None;
        }
        match &mut self.relist_backoff {
            Some(backoff) => backoff.next_delay(),
            None => {
                self.relist_backoff = Some(Backoff::new(self.initial_delay, self.longest_delay));
                Duration::ZERO
            }
        }
    }

    fn take_has_delivered(&mut self) -> bool {
        match &mut self.state {
            State::Watching(position) => std::mem::take(&mut position.has_delivered),
            State::Listing { .. } => false,
        }
    }

    fn next_request(&self, delay: Duration) -> Step {
        Step { delivery: Delivery::Nothing, delay, command: self.request() }
    }

    fn request(&self) -> Command {
        match &self.state {
            State::Listing { continue_token, paging } => {
                let page_size = (*paging != Paging::Whole).then_some(self.page_size);
                Command::List { continue_token: continue_token.clone(), page_size }
            }
            State::Watching(position) => Command::Watch { resource_version: position.complete.clone() },
        }
    }
}

impl State {
    fn new_list() -> Self {
        Self::Listing { continue_token: String::new(), paging: Paging::Pages { expired: 0 } }
    }

    /// From the first page, after a token expired.
    fn restarted_list(&self) -> Self {
        let paging = match self {
            Self::Listing { paging: Paging::Pages { expired: 0 }, .. } => Paging::Pages { expired: 1 },
            Self::Listing { .. } => Paging::Whole,
            Self::Watching(_) => Paging::Pages { expired: 0 },
        };
        Self::Listing { continue_token: String::new(), paging }
    }
}

impl Position {
    fn at(resource_version: String) -> Self {
        Self { complete: resource_version.clone(), newest: resource_version, has_delivered: false }
    }

    /// Versions of one server compare as numbers (KEP-5504); others are not compared.
    fn is_before_complete(&self, resource_version: &str) -> bool {
        match (resource_version.parse::<u64>(), self.complete.parse::<u64>()) {
            (Ok(new), Ok(complete)) => new < complete,
            _ => false,
        }
    }
}

impl Failure {
    pub(super) fn of(error: &ClientError) -> Self {
        let Some(status) = error.status() else {
            return Self::Unavailable(Duration::ZERO);
        };
        if status.is_gone() {
            return Self::Gone;
        }
        if status.is_resource_version_too_large() || matches!(status.code, 400 | 404 | 405 | 422) {
            return Self::Refused;
        }
        // Longest Retry-After that is obeyed.
        const LONGEST: Duration = Duration::from_secs(60);
        Self::Unavailable(status.retry_after.unwrap_or_default().min(LONGEST))
    }
}

impl Step {
    fn keep_reading(delivery: Delivery) -> Self {
        Self { delivery, delay: Duration::ZERO, command: Command::KeepReading }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::KubeStatus;

    fn options() -> ReflectorOptions {
        ReflectorOptions::default()
    }

    fn page(resource_version: &str, continue_token: &str) -> Input {
        Input::Page { resource_version: resource_version.into(), continue_token: continue_token.into() }
    }

    fn change(resource_version: &str) -> Input {
        Input::Change { resource_version: resource_version.into() }
    }

    fn bookmark(resource_version: &str) -> Input {
        Input::Bookmark { resource_version: resource_version.into() }
    }

    fn list(continue_token: &str, page_size: Option<u32>) -> Command {
        Command::List { continue_token: continue_token.into(), page_size }
    }

    fn watch(resource_version: &str) -> Command {
        Command::Watch { resource_version: resource_version.into() }
    }

    const CUT: Input = Input::WatchFailed(Failure::Unavailable(Duration::ZERO));
    const GONE: Input = Input::WatchFailed(Failure::Gone);

    /// Feeds inputs and returns the last step.
    fn after(machine: &mut ReflectorState, inputs: impl IntoIterator<Item = Input>) -> Step {
        inputs.into_iter().map(|input| machine.step(input)).last().unwrap()
    }

    #[test]
    fn pages_are_read_to_the_end_and_then_watched_from_their_revision() {
        let mut machine = ReflectorState::listing(&options());
        assert_eq!(machine.first(), list("", Some(500)));
        assert_eq!(machine.step(page("7", "next")).command, list("next", Some(500)));
        let done = machine.step(page("7", ""));
        assert_eq!((done.delivery, done.command), (Delivery::Replaced("7".into()), watch("7")));
    }

    #[test]
    fn a_failed_page_is_requested_again() {
        let mut machine = ReflectorState::listing(&options());
        machine.step(page("7", "next"));
        let step = machine.step(Input::ListFailed(Failure::Unavailable(Duration::from_secs(40))));
        assert_eq!(step.command, list("next", Some(500)));
        assert!(step.delay >= Duration::from_secs(40), "Retry-After is obeyed");
    }

    #[test]
    fn after_repeated_page_expiry_the_whole_list_is_requested() {
        let mut machine = ReflectorState::listing(&options());
        machine.step(page("7", "next"));
        assert_eq!(machine.step(Input::ListFailed(Failure::Gone)).command, list("", Some(500)));
        machine.step(page("9", "next"));
        assert_eq!(machine.step(Input::ListFailed(Failure::Gone)).command, list("", None));
    }

    #[test]
    fn a_list_without_a_revision_is_not_delivered() {
        let mut machine = ReflectorState::listing(&options());
        let step = machine.step(page("", ""));
        assert_eq!((step.delivery, step.command), (Delivery::Nothing, list("", Some(500))));
        assert!(step.delay > Duration::ZERO);
    }

    #[test]
    fn a_broken_watch_resumes_after_the_last_complete_revision() {
        for (inputs, resumes_at) in [
            (vec![], "7"),
            // Revision 8 may have more events than the received one.
            (vec![change("8")], "7"),
            (vec![change("8"), change("8")], "7"),
            (vec![change("8"), change("9")], "8"),
            (vec![change("8"), bookmark("8")], "8"),
            (vec![bookmark("12")], "12"),
            (vec![bookmark("12"), change("14")], "12"),
        ] {
            let mut machine = ReflectorState::listing(&options());
            after(&mut machine, [page("7", ""), Input::WatchOpened]);
            for input in inputs {
                assert_eq!(machine.step(input).command, Command::KeepReading);
            }
            let step = machine.step(CUT);
            assert_eq!((step.delivery, step.command), (Delivery::Nothing, watch(resumes_at)));
        }
    }

    #[test]
    fn events_and_bookmarks_are_delivered() {
        let mut machine = ReflectorState::watching(&options(), "7".into());
        assert_eq!(machine.first(), watch("7"));
        assert_eq!(machine.step(change("8")).delivery, Delivery::Item);
        assert_eq!(machine.step(bookmark("9")).delivery, Delivery::Progress("9".into()));
    }

    #[test]
    fn after_410_a_list_follows_at_once_but_not_in_a_loop() {
        let mut machine = ReflectorState::watching(&options(), "7".into());
        let first = machine.step(GONE);
        assert_eq!((first.command, first.delay), (list("", Some(500)), Duration::ZERO));
        let second = after(&mut machine, [page("9", ""), Input::WatchOpened, GONE]);
        assert!(second.delay >= options().initial_backoff / 2);
        // A watch that delivers something ends the series.
        let third = after(&mut machine, [page("9", ""), Input::WatchOpened, change("10"), GONE]);
        assert_eq!(third.delay, Duration::ZERO);
    }

    #[test]
    fn a_lower_revision_starts_a_new_list() {
        for input in [change("5"), bookmark("5")] {
            let mut machine = ReflectorState::watching(&options(), "7".into());
            let step = machine.step(input);
            assert_eq!((step.delivery, step.command), (Delivery::Nothing, list("", Some(500))));
        }
        let mut machine = ReflectorState::watching(&options(), "7".into());
        assert_eq!(machine.step(change("not-a-number")).command, Command::KeepReading);
    }

    #[test]
    fn delays_grow_without_data_and_restart_after_data() {
        let mut machine = ReflectorState::watching(&options(), "7".into());
        let delays: Vec<Duration> = (0..8).map(|_| machine.step(CUT).delay).collect();
        assert!(delays[7] >= Duration::from_secs(15) && delays[7] <= Duration::from_secs(30), "{delays:?}");
        let healed = after(&mut machine, [Input::WatchOpened, change("8"), CUT]);
        assert!(healed.delay <= options().initial_backoff / 8);
        assert!(machine.step(CUT).delay <= options().initial_backoff);
    }

    #[test]
    fn a_long_watch_without_events_is_healthy() {
        let mut machine = ReflectorState::watching(&options(), "7".into());
        after(&mut machine, [CUT, CUT, CUT, CUT]);
        machine.record_healthy();
        assert!(machine.step(Input::WatchEnded).delay <= options().initial_backoff / 8);
    }

    #[test]
    fn failures_are_classified() {
        let status = |code, message: &str| {
            let message = message.to_owned();
            ClientError::Status(Box::new(KubeStatus { code, message, ..KubeStatus::default() }))
        };
        let unavailable = Failure::Unavailable(Duration::ZERO);
        for (error, expected) in [
            (status(410, ""), Failure::Gone),
            (status(404, ""), Failure::Refused),
            (status(504, "Too large resource version: 9, current: 3"), Failure::Refused),
            (status(504, "slow"), unavailable),
            (status(403, ""), unavailable),
            (status(429, "storage is (re)initializing"), unavailable),
            (status(0, ""), unavailable),
        ] {
            assert_eq!(Failure::of(&error), expected, "{error}");
        }
    }
}
