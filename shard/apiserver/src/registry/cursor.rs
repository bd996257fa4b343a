//! A list at one revision, read in steps: a list of any size neither blocks a worker thread nor is held in memory.

use core::task::{Context, Poll};
use std::ops::ControlFlow;

use fairlead_process::Status;
use fairlead_store::{Range, ReadError, Revision};

use super::continuation::Continuation;
use super::objects::read_status;
use super::{ListEnd, ObjectStore, Selection, Target, Visitor};
use crate::request::ListOptions;

/// Rows that a step reads at most. A row that is not selected costs a parse of its metadata, about 1 µs.
const ROWS_PER_STEP: usize = 1024;
/// Objects behind a page that are counted at most; before more of them, the list has no remainingItemCount. A counted object
/// costs the read of a leaf of the store, up to 2.5 µs, so counting costs about as much as a page of 500 objects, not more.
const MAX_COUNTED: u64 = 3_000;

/// A list at one revision.
pub trait ListCursor: Send {
    /// The revision of the list.
    fn revision(&self) -> Revision;

    /// Visits the next objects in key order, until the visitor breaks or the step has read enough; the next step continues
    /// behind the last visited object. Returns the end of the list, or `None` if it continues. Pending, without a visit,
    /// while a webhook converts the objects.
    ///
    /// # Errors
    /// 410 when the revision is compacted meanwhile, 500 when the store cannot be read or the objects cannot be converted.
    fn poll_step(
        &mut self,
        context: &mut Context<'_>,
        visit: &mut Visitor<'_>,
    ) -> Poll<Result<Option<ListEnd>, Status>>;
}

/// A list of a store's range.
pub(super) struct StoreCursor {
    objects: ObjectStore,
    target: Target,
    options: ListOptions,
    /// All keys of the list, on any page.
    prefix: String,
    /// The keys that have not been read.
    range: Range,
    revision: Revision,
    page: Option<Continuation>,
    visited: usize,
    state: State,
}

#[derive(Clone)]
enum State {
    /// Visits objects.
    Visiting,
    /// The page is full at this key: looks for more objects, or counts them.
    Full {
        last_key: Vec<u8>,
        counted: u64,
    },
    Ended,
}

impl StoreCursor {
    /// A list of `range` at a revision. `page` is the position of a page after the first.
    pub(super) fn new(
        objects: ObjectStore,
        target: Target,
        options: ListOptions,
        (prefix, range): (String, Range),
        revision: Revision,
        page: Option<Continuation>,
    ) -> Self {
        let state = State::Visiting;
        Self { objects, target, options, prefix, range, revision, page, visited: 0, state }
    }

    /// The revision of the list.
    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    /// Visits the next objects; see [`ListCursor::poll_step`]. It never waits.
    pub(super) fn step(&mut self, visit: &mut Visitor<'_>) -> Result<Option<ListEnd>, Status> {
        match core::mem::replace(&mut self.state, State::Visiting) {
            State::Visiting => self.visit_objects(visit),
            State::Full { last_key, counted } => self.count_rest(last_key, counted),
            State::Ended => Ok(Some(self.end(None))),
        }
    }

    fn visit_objects(&mut self, visit: &mut Visitor<'_>) -> Result<Option<ListEnd>, Status> {
        let selection = Selection::of(&self.target, &self.options)?;
        let limit = self.options.limit.unwrap_or(usize::MAX);
        let (mut rows, mut visited) = (0, self.visited);
        let mut position: Option<Vec<u8>> = None;
        let read =
            self.objects.visit(&self.range, &self.target.scopes, Some(self.revision), &mut |key, listed| {
                rows += 1;
                let mut flow = ControlFlow::Continue(());
                if selection.selects(listed.object) {
                    visited += 1;
                    flow = visit(listed);
                }
                if visited == limit || rows == ROWS_PER_STEP || flow.is_break() {
                    position = Some(key.to_vec());
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            });
        read.map_err(|error| self.failure(&error))?;
        self.visited = visited;
        let Some(position) = position else { return Ok(Some(self.end(None))) };
        self.range = self.range.after(&position);
        if visited == limit {
            self.state = State::Full { last_key: position, counted: 0 };
        }
        Ok(None)
    }

    /// The remaining objects are counted on the first page only. The continue token carries the number, if there are not too
    /// many, so that paging through a large list does not count them again for each page.
    fn count_rest(&mut self, last_key: Vec<u8>, mut counted: u64) -> Result<Option<ListEnd>, Status> {
        let known = self.page.as_ref().and_then(Continuation::remaining);
        let selection = Selection::of(&self.target, &self.options)?;
        let counts = self.page.is_none() && selection.is_everything();
        let mut rows = 0;
        let mut position: Option<Vec<u8>> = None;
        let mut has_enough = false;
        let read =
            self.objects.visit(&self.range, &self.target.scopes, Some(self.revision), &mut |key, listed| {
                rows += 1;
                counted += u64::from(selection.selects(listed.object));
                has_enough = counted > 0 && (!counts || counted > MAX_COUNTED);
                if has_enough || rows == ROWS_PER_STEP {
                    position = Some(key.to_vec());
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            });
        read.map_err(|error| self.failure(&error))?;
        if let Some(position) = position.filter(|_| !has_enough) {
            self.range = self.range.after(&position);
            self.state = State::Full { last_key, counted };
            return Ok(None);
        }
        if counted == 0 {
            return Ok(Some(self.end(None)));
        }
        let remaining = match known {
            Some(known) => Some(known.saturating_sub(self.visited as u64).max(1)),
            None => (counts && !has_enough).then_some(counted),
        };
        Ok(Some(self.end(Some((last_key, remaining)))))
    }

    fn end(&mut self, next_page: Option<(Vec<u8>, Option<u64>)>) -> ListEnd {
        self.state = State::Ended;
        let revision = self.revision;
        let Some((last_key, remaining)) = next_page else {
            return ListEnd { revision, continue_token: None, remaining: None };
        };
        let token = Continuation::after(&last_key, &self.prefix, Some(revision), remaining).token();
        ListEnd { revision, continue_token: Some(token), remaining }
    }

    fn failure(&self, error: &ReadError) -> Status {
        match (error, &self.page) {
            (ReadError::Compacted { .. }, Some(page)) => {
                Status::expired(EXPIRED_CONTINUE).with_continue(page.inconsistent().token())
            }
            (ReadError::Compacted { .. }, None) => {
                Status::expired("The resourceVersion for the provided list is too old.")
            }
            // The token is from another server or forged: tokens of this server name past revisions.
            (ReadError::Future { .. }, Some(_)) => {
                Status::bad_request("continue key is not valid: it names a revision that has not been yet")
            }
            _ => read_status(error),
        }
    }
}

impl ListCursor for StoreCursor {
    fn revision(&self) -> Revision {
        Self::revision(self)
    }

    fn poll_step(
        &mut self,
        _context: &mut Context<'_>,
        visit: &mut Visitor<'_>,
    ) -> Poll<Result<Option<ListEnd>, Status>> {
        Poll::Ready(self.step(visit))
    }
}

const EXPIRED_CONTINUE: &str = "The provided continue parameter is too old to display a consistent list result. You can \
    start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder \
    of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, \
    or deleted between the time the first chunk was returned and now may show up in the list.";
