//! Warnings for the client about a write that is accepted.

use std::sync::Arc;

use parking_lot::Mutex;

/// The warnings of one write, sent as `Warning` headers. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Adds a warning, unless it is there already.
    pub fn add(&self, warning: String) {
        let mut warnings = self.0.lock();
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    /// Removes all warnings: those of an attempt that is repeated, or those that are sent.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}
