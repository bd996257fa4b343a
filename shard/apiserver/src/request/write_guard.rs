//! Restrictions of the writes that a view of a resource permits.

use core::fmt;
use std::sync::Arc;

use fairlead_process::Status;
use serde_json::Value;

/// Restricts the writes of a view. A registry calls it in each attempt of a write, with the state on which the attempt is
/// based, so that no change by another client comes between the check and the commit.
pub trait WriteGuard: Send + Sync {
    /// Refuses a write or delete of an object that the view does not have.
    ///
    /// # Errors
    /// 404.
    fn admit(&self, name: &str, current: &Value) -> Result<(), Status>;

    /// Checks the new state of an object, and may amend it, before admission sees it. `old` is `None` for a create.
    ///
    /// # Errors
    /// The refusal.
    fn change(&self, name: &str, old: Option<&Value>, new: &mut Value) -> Result<(), Status>;

    /// Checks the delete of an object that the view has.
    ///
    /// # Errors
    /// The refusal.
    fn delete(&self, _name: &str, _old: &Value) -> Result<(), Status> {
        Ok(())
    }
}

/// The guard of a write; there is none without a view.
#[derive(Clone, Default)]
pub struct Guard(Option<Arc<dyn WriteGuard>>);

impl Guard {
    /// A guard.
    pub fn new(guard: Arc<dyn WriteGuard>) -> Self {
        Self(Some(guard))
    }

    /// The guard, if there is one.
    pub fn get(&self) -> Option<&dyn WriteGuard> {
        self.0.as_deref()
    }

    pub(crate) fn admit(&self, name: &str, current: &Value) -> Result<(), Status> {
        self.get().map_or(Ok(()), |guard| guard.admit(name, current))
    }

    pub(crate) fn change(&self, name: &str, old: Option<&Value>, new: &mut Value) -> Result<(), Status> {
        self.get().map_or(Ok(()), |guard| guard.change(name, old, new))
    }

    pub(crate) fn delete(&self, name: &str, old: &Value) -> Result<(), Status> {
        self.get().map_or(Ok(()), |guard| {
            guard.admit(name, old)?;
            guard.delete(name, old)
        })
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_some() { "Guard(..)" } else { "Guard(none)" })
    }
}
