//! The decision about a binding that is being deleted.

use std::time::Duration;

use fairlead_api::{
    Condition, Severity, condition_type, conditions_of, finalizer, set_condition, write_conditions,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::deletion::{Sweep, pause};
use super::{Plan, name_of};
use crate::controller_runtime::ReconcileOutcome;
use crate::exports::PublishedExport;
use crate::resource_locks::{ResourceLock, ResourceLocks};

/// Whether objects of a bound resource stay when its binding is deleted, because another binding refers to an export with the same
/// identity and schema.
pub(super) fn adopts(export: &PublishedExport, bound: &Value) -> bool {
    export.identity.as_deref().is_some_and(|identity| bound["schema"]["identityHash"] == identity)
        && export.schemas.iter().any(|schema| {
            bound["resource"] == *schema.resource
                && bound["group"].as_str().unwrap_or_default() == &*schema.group
                && bound["schema"]["UID"] == *schema.uid
        })
}

/// A bound resource whose objects stay. The commit that removes its binding makes another one its owner. Otherwise a CRD could take the
/// name, and nobody would own the objects.
#[derive(Debug, PartialEq)]
pub(super) struct Adoption {
    /// The name of the binding that becomes the owner.
    pub(super) heir: Box<str>,
    /// The resource in the status of the binding that is removed.
    pub(super) bound: Value,
}

/// A binding with the resources that it adopts; `None` if there are none. Whether it is bound to all of its export's resources is decided
/// later.
pub(super) fn inherited(heir: &Value, adoptions: &[Adoption]) -> Option<Value> {
    let name = name_of(heir).unwrap_or_default();
    let mut adopted = adoptions.iter().filter(|adoption| *adoption.heir == *name).peekable();
    adopted.peek()?;
    let mut new = heir.clone();
    let mut resources = new["status"]["boundResources"].as_array().cloned().unwrap_or_default();
    for Adoption { bound, .. } in adopted {
        resources.retain(|own| lock_name(own) != lock_name(bound));
        resources.push(bound.clone());
    }
    if !new["status"].is_object() {
        new["status"] = json!({});
    }
    new["status"]["boundResources"] = resources.into();
    Some(new)
}

/// The name of a bound resource in locks.
fn lock_name(bound: &Value) -> String {
    let resource = bound["resource"].as_str().unwrap_or_default();
    match bound["group"].as_str().unwrap_or_default() {
        "" => resource.to_owned(),
        group => format!("{resource}.{group}"),
    }
}

/// Decides about a binding, given the result of a sweep of its objects.
pub(super) fn unbind(
    old: &Value,
    mut locks: ResourceLocks,
    sweep: &Sweep,
    adoptions: &[Adoption],
    now: Timestamp,
) -> Plan {
    let mut new = old.clone();
    if !sweep.leaves_nothing() {
        let mut conditions = conditions_of(old);
        let problem = match (sweep.finalizers(), sweep.remaining()) {
            (Some(all), _) => Some((
                "SomeFinalizersRemain",
                format!("Some content in the workspace has finalizers remaining: {all}"),
            )),
            (None, Some(all)) => {
                Some(("SomeResourcesRemain", format!("Some resources are remaining: {all}")))
            }
            (None, None) => None,
        };
        if let Some((reason, message)) = problem {
            let kind = condition_type::BINDING_RESOURCE_DELETE_SUCCESS;
            set_condition(&mut conditions, Condition::unmet(kind, Severity::Info, reason, message), now);
        }
        write_conditions(&mut new, &conditions);
        let next = ReconcileOutcome::RequeueAfter(if sweep.is_truncated() {
            Duration::ZERO
        } else {
            pause(old, now)
        });
        return Plan { binding: Some(new), locks, is_released: false, next };
    }
    let mut conditions = conditions_of(old);
    set_condition(&mut conditions, Condition::met(condition_type::BINDING_RESOURCE_DELETE_SUCCESS), now);
    write_conditions(&mut new, &conditions);
    // This condition ends the claims. The binding stays until the controller of claims has removed their labels; the change of the
    // status requeues it.
    if old["status"]["appliedPermissionClaims"].as_array().is_some_and(|all| !all.is_empty()) {
        return Plan { binding: Some(new), locks, is_released: false, next: ReconcileOutcome::Done };
    }
    let name = name_of(old);
    locks.0.retain(|_, lock| lock.binding.as_deref() != name);
    for Adoption { heir, bound } in adoptions {
        let lock = ResourceLock { binding: Some(heir.to_string()), ..ResourceLock::default() };
        locks.0.insert(lock_name(bound), lock);
    }
    let mut is_kept = false;
    if let Some(all) = new["metadata"]["finalizers"].as_array_mut() {
        all.retain(|one| one != finalizer::API_BINDING);
        is_kept = !all.is_empty();
    }
    Plan { binding: is_kept.then_some(new), locks, is_released: true, next: ReconcileOutcome::Done }
}
