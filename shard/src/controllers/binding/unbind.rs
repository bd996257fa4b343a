//! The decision about a binding that is being deleted.

use std::time::Duration;

use fairlead_api::{
    Condition, Severity, condition_type, conditions_of, finalizer, set_condition, write_conditions,
};
use jiff::Timestamp;
use serde_json::Value;

use super::super::deletion::{Sweep, pause};
use super::{Plan, name_of};
use crate::controller_runtime::ReconcileOutcome;
use crate::exports::PublishedExport;
use crate::resource_locks::ResourceLocks;

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

/// Decides about a binding, given the result of a sweep of its objects.
pub(super) fn unbind(old: &Value, mut locks: ResourceLocks, sweep: &Sweep, now: Timestamp) -> Plan {
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
        return Plan { binding: Some(new), locks, next };
    }
    let mut conditions = conditions_of(old);
    set_condition(&mut conditions, Condition::met(condition_type::BINDING_RESOURCE_DELETE_SUCCESS), now);
    write_conditions(&mut new, &conditions);
    // This condition ends the claims. The binding stays until the controller of claims has removed their labels; the change of the
    // status requeues it.
    if old["status"]["appliedPermissionClaims"].as_array().is_some_and(|all| !all.is_empty()) {
        return Plan { binding: Some(new), locks, next: ReconcileOutcome::Done };
    }
    let name = name_of(old);
    locks.0.retain(|_, lock| lock.binding.as_deref() != name);
    let mut is_kept = false;
    if let Some(all) = new["metadata"]["finalizers"].as_array_mut() {
        all.retain(|one| one != finalizer::API_BINDING);
        is_kept = !all.is_empty();
    }
    Plan { binding: is_kept.then_some(new), locks, next: ReconcileOutcome::Done }
}
