//! The garbage collector's decision about one object with owners, without I/O.

use fairlead_apiserver::registry::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER};
use fairlead_apiserver::request::Propagation;

/// The object of an owner reference.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum OwnerState {
    /// An existing object.
    Exists,
    /// No object, or another one of the same name.
    Absent,
    /// An object that is deleted in the foreground: it waits for its dependents.
    WaitsForDependents,
    /// Not known: its kind is not served, or a cluster-scoped object refers to a namespaced kind.
    Unknown,
}

/// The treatment of an object.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Decision {
    Keep,
    /// Removes the references to these owners.
    RemoveReferences(Vec<String>),
    Delete(Propagation),
}

/// An object with owners.
pub(super) struct Dependent<'d> {
    /// UID and state of each owner.
    pub(super) owners: &'d [(String, OwnerState)],
    pub(super) finalizers: &'d [&'d str],
    /// Whether it has dependents of its own.
    pub(super) has_dependents: bool,
}

/// Decides as Kubernetes' garbage collector does: an object lives while one of its owners does.
pub(super) fn decide(dependent: &Dependent<'_>) -> Decision {
    let of = |state: OwnerState| dependent.owners.iter().filter(move |(_, own)| *own == state);
    let has = |state: OwnerState| of(state).next().is_some();
    if dependent.owners.is_empty() || has(OwnerState::Unknown) {
        return Decision::Keep;
    }
    if has(OwnerState::Exists) {
        let gone = of(OwnerState::Absent).chain(of(OwnerState::WaitsForDependents));
        let gone: Vec<String> = gone.map(|(uid, _)| uid.clone()).collect();
        return if gone.is_empty() { Decision::Keep } else { Decision::RemoveReferences(gone) };
    }
    if has(OwnerState::WaitsForDependents) && dependent.has_dependents {
        return Decision::Delete(Propagation::Foreground);
    }
    let has_finalizer = |name: &str| dependent.finalizers.contains(&name);
    Decision::Delete(if has_finalizer(ORPHAN_FINALIZER) {
        Propagation::Orphan
    } else if has_finalizer(FOREGROUND_FINALIZER) {
        Propagation::Foreground
    } else {
        Propagation::Background
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_lives_while_one_of_its_owners_does() {
        use OwnerState::{Absent, Exists, Unknown, WaitsForDependents as Waits};
        for (owners, finalizers, has_dependents, expected) in [
            (&[][..], &[][..], false, Decision::Keep),
            (&[Exists], &[], false, Decision::Keep),
            (&[Absent], &[], false, Decision::Delete(Propagation::Background)),
            (&[Absent], &["orphan"], false, Decision::Delete(Propagation::Orphan)),
            (&[Absent], &["foregroundDeletion"], false, Decision::Delete(Propagation::Foreground)),
            (&[Exists, Absent], &[], false, Decision::RemoveReferences(vec!["1".to_owned()])),
            (&[Waits, Exists], &[], true, Decision::RemoveReferences(vec!["0".to_owned()])),
            (&[Waits], &[], true, Decision::Delete(Propagation::Foreground)),
            (&[Waits], &[], false, Decision::Delete(Propagation::Background)),
            (&[Absent, Unknown], &[], false, Decision::Keep),
        ] {
            let owners: Vec<_> =
                owners.iter().enumerate().map(|(uid, state)| (uid.to_string(), *state)).collect();
            let dependent = Dependent { owners: &owners, finalizers, has_dependents };
            assert_eq!(decide(&dependent), expected, "{owners:?} {finalizers:?}");
        }
    }
}
