//! What stays as it is for a while, whatever its files say.

use std::sync::Arc;

use super::{Entry, ReloadTrigger, Reloads};

/// Keeps something as it is. Whoever has asked for a look meanwhile gets it when this goes.
#[must_use = "dropped, it keeps nothing"]
pub struct Held {
    entries: Vec<Arc<Entry>>,
    trigger: ReloadTrigger,
}

impl Drop for Held {
    fn drop(&mut self) {
        for entry in &self.entries {
            let mut state = entry.state.lock();
            state.holders -= 1;
            if state.holders == 0 && std::mem::take(&mut state.is_missed) {
                self.trigger.fire();
            }
        }
    }
}

impl Reloads {
    /// What was registered as `what` stays as it is as long as what is returned is there. Waits, on this thread, for a load
    /// that is under way.
    pub fn hold(&self, what: &str) -> Held {
        let entries: Vec<_> = self.current().into_iter().filter(|entry| entry.what == what).collect();
        entries.iter().for_each(|entry| entry.state.lock().holders += 1);
        Held { entries, trigger: self.trigger() }
    }
}
