//! The worker thread that a task runs on. Connections to servers are kept per worker, so that a request wakes no other thread.

use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<Option<WorkerId>> = const { Cell::new(None) };
}

/// The number of a worker thread.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct WorkerId(usize);

impl WorkerId {
    /// The worker with this number.
    pub(crate) fn new(number: usize) -> Self {
        Self(number)
    }

    /// The worker that this code runs on; `None` on other threads.
    pub(crate) fn current() -> Option<Self> {
        CURRENT.get()
    }

    /// Marks this thread as the worker's.
    pub(crate) fn enter(self) {
        CURRENT.set(Some(self));
    }
}
