//! Warnings for the client about a write that is accepted.

use std::sync::Arc;

use parking_lot::Mutex;

/// The warnings of one write, sent as `Warning` headers. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Adds a warning.
    pub fn add(&self, warning: String) {
        self.0.lock().push(warning);
    }

    /// Removes all warnings: those of an attempt that is repeated, or those that are sent.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}
