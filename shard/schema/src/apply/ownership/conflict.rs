//! Conflicts: fields that an applied configuration changes and another manager owns.

use core::fmt;

use super::super::fields::{FieldSet, PathElement, path_text};
use crate::field::go_quote;

use super::entries::{Entry, ManagedFields, ManagerIdentity, Operation};

/// A field that another manager owns.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Conflict {
    pub(super) manager: ManagerIdentity,
    pub(super) path: Vec<PathElement>,
}

impl Conflict {
    /// The field, as `.spec.replicas`.
    pub fn field(&self) -> String {
        path_text(&self.path)
    }

    /// The message of the cause: `conflict with "kubectl" using v1`.
    pub fn message(&self) -> String {
        format!("conflict with {}", manager_text(&self.manager))
    }
}

/// `"name" with subresource "status" using v1`.
fn manager_text(manager: &ManagerIdentity) -> String {
    let mut text = go_quote(&manager.name);
    if !manager.subresource.is_empty() {
        text.push_str(&format!(" with subresource {}", go_quote(&manager.subresource)));
    }
    if manager.operation == Operation::Update {
        text.push_str(&format!(" using {}", manager.version));
    }
    text
}

/// All conflicts of an applied configuration, by manager. The client may force it, or give up the fields.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Conflicts(pub(super) Vec<Conflict>);

impl Conflicts {
    /// The fields of these entries that are in the sets of changed fields of their versions.
    pub(super) fn of(managed: &ManagedFields, changed: impl Fn(&Entry) -> FieldSet) -> Self {
        let mut entries: Vec<(String, &Entry)> =
            managed.entries.iter().map(|entry| (entry.identity.sort_key(), entry)).collect();
        entries.sort_by(|one, two| one.0.cmp(&two.0));
        let mut conflicts = Vec::new();
        for (_, entry) in entries {
            changed(entry).for_each_path(&mut |path| {
                conflicts.push(Conflict { manager: entry.identity.clone(), path: path.to_vec() });
            });
        }
        Self(conflicts)
    }

    /// The conflicts in the order of the message.
    pub fn iter(&self) -> impl Iterator<Item = &Conflict> {
        self.0.iter()
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0.as_slice() {
            return write!(
                formatter,
                "Apply failed with 1 conflict: conflict with {}: {}",
                manager_text(&only.manager),
                only.field()
            );
        }
        write!(formatter, "Apply failed with {} conflicts: ", self.0.len())?;
        let mut last = None;
        for conflict in &self.0 {
            if last != Some(&conflict.manager) {
                let separator = if last.is_some() { "\n" } else { "" };
                write!(formatter, "{separator}conflicts with {}:", manager_text(&conflict.manager))?;
                last = Some(&conflict.manager);
            }
            write!(formatter, "\n- {}", conflict.field())?;
        }
        Ok(())
    }
}
