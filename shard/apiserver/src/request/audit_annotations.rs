//! Annotations of the audit event of a write.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The audit annotations of one write. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct AuditAnnotations(Arc<Mutex<BTreeMap<String, String>>>);

impl AuditAnnotations {
    /// Adds an annotation, unless there is one with this key.
    pub fn add(&self, key: String, value: String) {
        self.0.lock().entry(key).or_insert(value);
    }

    /// Removes all annotations: those of an attempt that is repeated, or those of the event.
    pub fn take(&self) -> BTreeMap<String, String> {
        std::mem::take(&mut *self.0.lock())
    }
}
