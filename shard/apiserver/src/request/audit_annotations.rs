//! Annotations that admission adds to the audit events of a write.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The audit annotations of one write. Clones share them. Without an audit event they are not kept, which costs one branch.
#[derive(Clone, Debug, Default)]
pub struct AuditAnnotations(Option<Arc<Mutex<BTreeMap<String, String>>>>);

impl AuditAnnotations {
    /// Annotations that are kept for an audit event.
    pub fn kept() -> Self {
        Self(Some(Arc::default()))
    }

    /// Whether annotations are kept. Callers need not build them otherwise.
    pub fn are_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Adds an annotation. The first value of a key stays, as in Kubernetes.
    pub fn add(&self, key: &str, value: impl Into<String>) {
        if let Some(annotations) = &self.0 {
            annotations.lock().entry(key.to_owned()).or_insert_with(|| value.into());
        }
    }

    /// Removes all annotations: those of an attempt that is repeated, or those that are recorded.
    pub fn take(&self) -> BTreeMap<String, String> {
        self.0.as_ref().map(|annotations| std::mem::take(&mut *annotations.lock())).unwrap_or_default()
    }
}
