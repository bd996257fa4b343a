//! Reinvocation: mutating webhooks and policies that run again, once, because a later one has changed the object.

use std::collections::BTreeSet;

use serde_json::Value;

/// The state of one write.
#[derive(Debug, Default)]
pub(super) struct MutationRun {
    /// Whether this is the second pass.
    pub(super) is_reinvocation: bool,
    /// Whether anything has changed the object, so that there is a second pass.
    pub(super) is_changed: bool,
}

/// The webhooks or policies that were called for one write, by a key.
#[derive(Debug)]
pub(super) struct Reinvocations<K> {
    /// Those that were called and may be called again.
    invoked: BTreeSet<K>,
    /// Those that must be called again.
    due: BTreeSet<K>,
    /// The object after the last pass.
    output: Option<Value>,
}

impl<K> Default for Reinvocations<K> {
    fn default() -> Self {
        Self { invoked: BTreeSet::new(), due: BTreeSet::new(), output: None }
    }
}

impl<K: Ord> Reinvocations<K> {
    /// Begins a pass over the object. In the second one, all that may run again has to, if others have changed the object
    /// since the first one.
    pub(super) fn begin(&mut self, run: &MutationRun, object: &Value) {
        if run.is_reinvocation && self.output.as_ref().is_some_and(|output| output != object) {
            self.require_invoked();
        }
    }

    /// Whether one of them runs in this pass.
    pub(super) fn runs(&self, run: &MutationRun, key: &K) -> bool {
        !run.is_reinvocation || self.due.contains(key)
    }

    /// Notes a change of the object by one of them.
    pub(super) fn changed(&mut self, run: &mut MutationRun) {
        self.require_invoked();
        run.is_changed = true;
    }

    /// Notes that one has run that may run again.
    pub(super) fn invoked(&mut self, key: K) {
        self.invoked.insert(key);
    }

    /// Ends a pass.
    pub(super) fn end(&mut self, object: &Value) {
        self.output = Some(object.clone());
    }

    fn require_invoked(&mut self) {
        self.due.append(&mut self.invoked);
    }
}
