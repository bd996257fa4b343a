//! Suspension of reloads of a value.

use std::sync::Arc;

use super::{Entry, ReloadTrigger, Reloads};

/// Guard that suspends reloads of a value. A check that was triggered meanwhile happens when the guard is dropped.
#[must_use = "reloads resume when it is dropped"]
pub struct ReloadHold {
    entries: Vec<Arc<Entry>>,
    trigger: ReloadTrigger,
}

impl Drop for ReloadHold {
    fn drop(&mut self) {
        for entry in &self.entries {
            let mut state = entry.state.lock();
            state.holders -= 1;
            if state.holders == 0 && std::mem::take(&mut state.has_missed_check) {
                self.trigger.fire();
            }
        }
    }
}

impl Reloads {
    /// Suspends reloads of the value registered as `object` until the guard is dropped. Blocks this thread until a running load
    /// has ended.
    pub fn hold(&self, object: &str) -> ReloadHold {
        let entries: Vec<_> = self.current().into_iter().filter(|entry| entry.object == object).collect();
        entries.iter().for_each(|entry| entry.state.lock().holders += 1);
        ReloadHold { entries, trigger: self.trigger() }
    }
}
