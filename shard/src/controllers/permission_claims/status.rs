//! The status of a binding's claims, in kcp's form.

use std::collections::{BTreeMap, BTreeSet};

use fairlead_api::{
    AcceptedClaim, Condition, PermissionClaim, Severity, condition_type, conditions_of, set_condition,
    write_conditions,
};
use fairlead_process::Status;
use jiff::Timestamp;
use serde_json::Value;

use crate::permission_claims::{BindingClaims, LabelledResource, claim_key, stored_resource};

/// Errors that the conditions of claims list, at most.
const LISTED_ERRORS: usize = 10;
/// Claims with other verbs or selectors that a condition lists, at most.
const LISTED_MISMATCHES: usize = 5;

/// The resources whose objects could not be labelled, and why.
pub(super) type Failures = BTreeMap<LabelledResource, Status>;

/// The binding with the status of its claims after their labels were set, except those of `failures`.
pub(super) fn with_status(
    binding: &Value,
    claims: &BindingClaims,
    failures: &Failures,
    now: Timestamp,
) -> Value {
    let mut new = binding.clone();
    if !claims.has_export() && !claims.is_released() {
        return new;
    }
    let failure = |claim: &PermissionClaim| failures.get(&stored_resource(claim)?);
    let in_force = claims.in_force();
    let applied: Vec<Value> = in_force
        .iter()
        .filter(|(_, accepted)| failure(&accepted.claim).is_none())
        .filter_map(|(key, _)| applied_claim(binding, key))
        .collect();
    if let Some(status) = new["status"].as_object_mut() {
        match applied.is_empty() {
            true => status.remove("appliedPermissionClaims"),
            false => status.insert("appliedPermissionClaims".to_owned(), applied.into()),
        };
    }
    // The conditions of a binding whose claims have ended stay until it is gone.
    if claims.is_released() {
        return new;
    }
    let mut conditions = conditions_of(binding);
    set_condition(&mut conditions, validity(claims, &in_force), now);
    set_condition(&mut conditions, application(failures), now);
    write_conditions(&mut new, &conditions);
    new
}

/// The accepted claim of a key as the status has it: without the decision.
fn applied_claim(binding: &Value, key: &str) -> Option<Value> {
    let all = binding["spec"]["permissionClaims"].as_array()?;
    let mut claim = all
        .iter()
        .rev()
        .find(|claim| {
            let text = |field: &str| claim[field].as_str().unwrap_or_default();
            claim["state"] == "Accepted"
                && format!("{}/{}/{}", text("resource"), text("group"), text("identityHash")) == key
        })?
        .clone();
    claim.as_object_mut()?.remove("state");
    Some(claim)
}

/// Whether the accepted claims are those of the export.
fn validity(claims: &BindingClaims, in_force: &BTreeMap<String, &AcceptedClaim>) -> Condition {
    let kind = condition_type::PERMISSION_CLAIMS_VALID;
    let mismatches = mismatches(claims, in_force);
    if !mismatches.is_empty() {
        let listed = &mismatches[..mismatches.len().min(LISTED_MISMATCHES)];
        let message = format!(
            "{} permission claim(s) have mismatched verbs or selectors (showing first {}): {}",
            mismatches.len(),
            listed.len(),
            listed.join(", ")
        );
        return Condition::unmet(kind, Severity::Warning, "PermissionClaimsMismatch", message);
    }
    let unexpected: BTreeMap<String, &PermissionClaim> = claims
        .accepted
        .iter()
        .map(|accepted| (claim_key(&accepted.claim), &accepted.claim))
        .filter(|(key, _)| !in_force.contains_key(key))
        .collect();
    if unexpected.is_empty() {
        return Condition::met(kind);
    }
    let errors = unexpected.values().map(|claim| {
        let PermissionClaim { group, resource, identity_hash, .. } = claim;
        format!("unexpected/invalid claim for {resource}.{group} (identity {identity_hash:?})")
    });
    let listed: Vec<String> = errors.take(LISTED_ERRORS).collect();
    let message = format!(
        "{} unexpected and/or invalid permission claims (showing first {}): {}",
        unexpected.len(),
        listed.len(),
        joined(&listed)
    );
    Condition::unmet(kind, Severity::Error, "InvalidPermissionClaims", message)
}

/// The claims that the consumer accepts with other verbs or another selector than the export claims. `*` equals all verbs.
fn mismatches(claims: &BindingClaims, in_force: &BTreeMap<String, &AcceptedClaim>) -> Vec<String> {
    let exported: BTreeMap<String, &PermissionClaim> =
        claims.exported.iter().map(|claim| (claim_key(claim), claim)).collect();
    let mut mismatches = Vec::new();
    for (key, accepted) in in_force {
        let Some(exported) = exported.get(key) else { continue };
        let verbs = |claim: &PermissionClaim| -> BTreeSet<String> { claim.verbs.iter().cloned().collect() };
        let (own, others) = (verbs(&accepted.claim), verbs(exported));
        let mut parts = Vec::new();
        if !own.contains("*") && !others.contains("*") && own != others {
            parts.push(format!(
                "verbs: accepted [{}], exported [{}]",
                accepted.claim.verbs.join(" "),
                exported.verbs.join(" ")
            ));
        }
        let selector = accepted.selector.clone().unwrap_or_default();
        if exported.default_selector.as_ref().is_some_and(|default| *default != selector) {
            parts.push("selector differs from defaultSelector".to_owned());
        }
        if !parts.is_empty() {
            let PermissionClaim { group, resource, .. } = &accepted.claim;
            mismatches.push(format!("{resource}.{group} ({})", parts.join("; ")));
        }
    }
    mismatches
}

/// Whether all labels are set.
fn application(failures: &Failures) -> Condition {
    let kind = condition_type::PERMISSION_CLAIMS_APPLIED;
    if failures.is_empty() {
        return Condition::met(kind);
    }
    let errors = failures.iter().map(|((resource, _), status)| {
        format!(
            "error listing or labelling group={:?}, resource={:?}: {status}",
            resource.group, resource.resource
        )
    });
    let listed: Vec<String> = errors.take(LISTED_ERRORS).collect();
    let message = format!("Permission claims have not been fully applied: {}", joined(&listed));
    Condition::unmet(kind, Severity::Error, "InternalError", message)
}

/// Several errors in the notation of Go.
fn joined(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use fairlead_api::find_condition;
    use serde_json::json;

    use super::*;
    use crate::names::{BUILT_IN, CONFIG_MAPS};

    fn claim(resource: &str, verbs: Value) -> Value {
        json!({"group": "", "resource": resource, "verbs": verbs})
    }

    fn accepted(resource: &str, verbs: Value) -> Value {
        let mut claim = claim(resource, verbs);
        claim["selector"] = json!({"matchAll": true});
        claim["state"] = "Accepted".into();
        claim
    }

    fn binding(accepted: Value, exported: Value) -> Value {
        json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "a"},
            "spec": {"reference": {"export": {"name": "e"}}, "permissionClaims": accepted},
            "status": {"apiExportClusterName": "c", "exportPermissionClaims": exported},
        })
    }

    fn reported(binding: &Value, failures: &Failures) -> Value {
        let claims = BindingClaims::parse(binding.to_string().as_bytes()).unwrap();
        with_status(binding, &claims, failures, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn conditions_say_which_claims_are_unexpected_or_differ() {
        let valid = condition_type::PERMISSION_CLAIMS_VALID;
        let maps = |verbs| accepted("configmaps", verbs);
        let mut selected = claim("configmaps", json!(["*"]));
        selected["defaultSelector"] = json!({"matchLabels": {"a": "b"}});
        let mut foreign = accepted("secrets", json!(["*"]));
        foreign["identityHash"] = "xxx".into();
        let any = json!(["*"]);
        let differ =
            "1 permission claim(s) have mismatched verbs or selectors (showing first 1): configmaps. ";
        for (accepted, exported, expected) in [
            (json!([maps(any.clone())]), json!([claim("configmaps", any.clone())]), None),
            (json!([maps(any.clone())]), json!([claim("configmaps", json!(["get"]))]), None),
            (
                json!([maps(json!(["list", "get"]))]),
                json!([claim("configmaps", json!(["get", "list"]))]),
                None,
            ),
            (
                json!([maps(any.clone()), foreign]),
                json!([]),
                Some((
                    "InvalidPermissionClaims",
                    "2 unexpected and/or invalid permission claims (showing first 2): [unexpected/invalid claim for \
                     configmaps. (identity \"\"), unexpected/invalid claim for secrets. (identity \"xxx\")]"
                        .to_owned(),
                )),
            ),
            (
                json!([foreign]),
                json!([claim("secrets", any.clone())]),
                Some((
                    "InvalidPermissionClaims",
                    "1 unexpected and/or invalid permission claims (showing first 1): unexpected/invalid claim for \
                     secrets. (identity \"xxx\")"
                        .to_owned(),
                )),
            ),
            (
                json!([maps(json!(["get"]))]),
                json!([claim("configmaps", json!(["get", "list"]))]),
                Some((
                    "PermissionClaimsMismatch",
                    format!("{differ}(verbs: accepted [get], exported [get list])"),
                )),
            ),
            (
                json!([maps(any)]),
                json!([selected]),
                Some((
                    "PermissionClaimsMismatch",
                    format!("{differ}(selector differs from defaultSelector)"),
                )),
            ),
        ] {
            let new = reported(&binding(accepted.clone(), exported.clone()), &Failures::new());
            let conditions = conditions_of(&new);
            let found = find_condition(&conditions, valid).unwrap();
            let problem = found.reason.clone().zip(found.message.clone());
            assert_eq!(
                problem,
                expected.map(|(reason, message)| (reason.to_owned(), message)),
                "{accepted} {exported}"
            );
            assert_eq!(
                find_condition(&conditions, condition_type::PERMISSION_CLAIMS_APPLIED),
                Some(&Condition {
                    last_transition_time: "1970-01-01T00:00:00Z".to_owned(),
                    ..Condition::met(condition_type::PERMISSION_CLAIMS_APPLIED)
                })
            );
        }
    }

    #[test]
    fn applied_claims_are_those_in_force_without_failures() {
        let any = json!(["*"]);
        let accepted = json!([
            accepted("secrets", any.clone()),
            accepted("configmaps", any.clone()),
            accepted("leases", any.clone())
        ]);
        let exported = json!([claim("configmaps", any.clone()), claim("secrets", any)]);
        let binding = binding(accepted, exported);
        let names = |new: &Value| -> Vec<String> {
            let applied = new["status"]["appliedPermissionClaims"].as_array().into_iter().flatten();
            applied
                .map(|claim| {
                    assert!(claim.get("state").is_none());
                    claim["resource"].as_str().unwrap().to_owned()
                })
                .collect()
        };
        assert_eq!(names(&reported(&binding, &Failures::new())), ["configmaps", "secrets"]);
        let failure = ((CONFIG_MAPS.clone(), BUILT_IN), Status::internal("disk full"));
        let failed = reported(&binding, &Failures::from([failure]));
        assert_eq!(names(&failed), ["secrets"]);
        let conditions = conditions_of(&failed);
        let applied = find_condition(&conditions, condition_type::PERMISSION_CLAIMS_APPLIED).unwrap();
        assert_eq!(applied.reason.as_deref(), Some("InternalError"));
        let message = applied.message.as_deref().unwrap();
        assert!(message.starts_with("Permission claims have not been fully applied: "), "{message}");
        let mut none = failed;
        none["spec"]["permissionClaims"] = json!([]);
        assert!(reported(&none, &Failures::new())["status"].get("appliedPermissionClaims").is_none());
    }

    #[test]
    fn the_status_stays_while_the_export_is_unknown_and_is_stable_afterwards() {
        let any = json!(["*"]);
        let known = binding(json!([accepted("configmaps", any.clone())]), json!([claim("configmaps", any)]));
        let mut unknown = known.clone();
        unknown["status"]["apiExportClusterName"] = "".into();
        assert_eq!(reported(&unknown, &Failures::new()), unknown);
        let once = reported(&known, &Failures::new());
        assert_eq!(reported(&once, &Failures::new()), once);
    }

    #[test]
    fn a_binding_whose_objects_are_gone_has_no_applied_claims() {
        let any = json!(["*"]);
        let bound = binding(json!([accepted("configmaps", any.clone())]), json!([claim("configmaps", any)]));
        let mut released = reported(&bound, &Failures::new());
        released["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        let mut conditions = conditions_of(&released);
        let gone = Condition::met(condition_type::BINDING_RESOURCE_DELETE_SUCCESS);
        set_condition(&mut conditions, gone, Timestamp::UNIX_EPOCH);
        write_conditions(&mut released, &conditions);
        let new = reported(&released, &Failures::new());
        assert!(new["status"].get("appliedPermissionClaims").is_none());
        assert_eq!(new["status"]["conditions"], released["status"]["conditions"]);
    }
}
