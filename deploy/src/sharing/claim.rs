//! Permission claims: their text form, and the decision on claims of an APIBinding. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A decision on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Decision {
    Accepted,
    Rejected,
}

/// A resource and its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupResource {
    pub group: String,
    pub resource: String,
}

/// The claims of an APIBinding to decide on.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub resource: Option<GroupResource>,
    pub identity_hash: Option<String>,
}

/// A selection without effect. The user has to correct it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SelectionError {
    /// The APIBinding has no such claim, and its APIExport neither.
    NoClaim,
    /// Several claims have the identity.
    Ambiguous(usize),
}

impl GroupResource {
    /// Parses `secrets`, `secrets.core` or `things.example.com`.
    pub(crate) fn parse(text: &str) -> Self {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        let group = if group == "core" { "" } else { group };
        Self { group: group.to_owned(), resource: resource.to_owned() }
    }

    /// Parses like [`Self::parse`], and requires a group, as `bind` does.
    pub(crate) fn parse_with_group(text: &str) -> Option<Self> {
        text.contains('.').then(|| Self::parse(text))
    }

    pub(crate) fn of(claim: &Value) -> Self {
        Self { group: text(claim, "group").to_owned(), resource: text(claim, "resource").to_owned() }
    }

    /// A claim on all objects with all verbs.
    pub(crate) fn claim(&self, decision: Decision) -> Value {
        decided(json!({ "group": self.group, "resource": self.resource, "verbs": ["*"] }), decision)
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.as_str() {
            "" => formatter.write_str(&self.resource),
            group => write!(formatter, "{}.{group}", self.resource),
        }
    }
}

impl Selection {
    fn contains(&self, claim: &Value) -> bool {
        let is_resource = self.resource.as_ref().is_none_or(|resource| *resource == GroupResource::of(claim));
        let is_identity =
            self.identity_hash.as_deref().is_none_or(|hash| hash == text(claim, "identityHash"));
        is_resource && is_identity
    }
}

/// The objects that a claim of an APIExport asks for: those of its `defaultSelector`, or all.
pub(crate) fn selector_of(exported: &Value) -> Value {
    exported.get("defaultSelector").cloned().unwrap_or_else(|| json!({ "matchAll": true }))
}

/// A claim of an APIExport as a claim of an APIBinding, for the objects that it asks for.
pub(crate) fn decided(exported: Value, decision: Decision) -> Value {
    let mut claim = exported;
    claim["selector"] = selector_of(&claim);
    claim["state"] = json!(decision);
    claim
}

/// Sets the state of the selected claims of an APIBinding. A claim of the APIExport that the APIBinding does not have is
/// added.
pub(crate) fn decide(
    binding: &mut Value,
    selection: &Selection,
    decision: Decision,
) -> Result<(), SelectionError> {
    let is_selected = |claim: &&Value| selection.contains(claim);
    let specified = specified_claims(binding).iter().filter(is_selected).count();
    let exported: Vec<Value> = if specified == 0 {
        exported_claims(binding).iter().filter(is_selected).cloned().collect()
    } else {
        Vec::new()
    };
    let count = specified + exported.len();
    if count == 0 {
        return Err(SelectionError::NoClaim);
    }
    // All APIs of an export have one identity, so the identity alone may name more than the user means.
    if count > 1 && selection.resource.is_none() {
        return Err(SelectionError::Ambiguous(count));
    }
    let mut claims = specified_claims(binding).to_vec();
    for claim in claims.iter_mut().filter(|claim| selection.contains(claim)) {
        claim["state"] = json!(decision);
    }
    claims.extend(exported.into_iter().map(|claim| decided(claim, decision)));
    binding["spec"]["permissionClaims"] = Value::Array(claims);
    Ok(())
}

/// The claims of the APIBinding's spec.
pub(crate) fn specified_claims(binding: &Value) -> &[Value] {
    list(binding, "/spec/permissionClaims")
}

/// The claims of the APIExport, as the APIBinding's status has them.
pub(crate) fn exported_claims(binding: &Value) -> &[Value] {
    list(binding, "/status/exportPermissionClaims")
}

fn list<'a>(binding: &'a Value, pointer: &str) -> &'a [Value] {
    binding.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A field of a claim; empty if it is absent.
pub(crate) fn text<'a>(claim: &'a Value, field: &str) -> &'a str {
    claim.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(specified: Value, exported: Value) -> Value {
        json!({ "spec": { "permissionClaims": specified }, "status": { "exportPermissionClaims": exported } })
    }

    fn selection(resource: Option<&str>, identity: Option<&str>) -> Selection {
        Selection { resource: resource.map(GroupResource::parse), identity_hash: identity.map(str::to_owned) }
    }

    #[test]
    fn resources_have_a_group_or_none() {
        for (text, group, resource, printed) in [
            ("secrets", "", "secrets", "secrets"),
            ("secrets.core", "", "secrets", "secrets"),
            ("things.example.com", "example.com", "things", "things.example.com"),
        ] {
            let parsed = GroupResource::parse(text);
            assert_eq!((parsed.group.as_str(), parsed.resource.as_str()), (group, resource));
            assert_eq!(parsed.to_string(), printed);
        }
        assert_eq!(GroupResource::parse_with_group("secrets"), None);
    }

    #[test]
    fn the_selected_claims_get_a_state() {
        let thing = json!({ "group": "x.io", "resource": "things", "identityHash": "one", "state": "Rejected", "verbs": ["get"] });
        let part =
            json!({ "group": "x.io", "resource": "parts", "identityHash": "one", "state": "Rejected" });
        let secret = json!({ "resource": "secrets", "verbs": ["list"] });
        for (resource, identity, expected) in [
            (Some("things.x.io"), None, Ok("Accepted Rejected")),
            (Some("things.x.io"), Some("one"), Ok("Accepted Rejected")),
            (Some("things.x.io"), Some("two"), Err(SelectionError::NoClaim)),
            (None, Some("one"), Err(SelectionError::Ambiguous(2))),
            (Some("secrets.core"), None, Ok("Rejected Rejected Accepted")),
            (Some("configmaps"), None, Err(SelectionError::NoClaim)),
        ] {
            let mut binding = binding(json!([thing, part]), json!([thing, secret]));
            let outcome = decide(&mut binding, &selection(resource, identity), Decision::Accepted);
            let states =
                || specified_claims(&binding).iter().map(|claim| text(claim, "state")).collect::<Vec<_>>();
            assert_eq!(
                outcome.map(|()| states().join(" ")),
                expected.map(str::to_owned),
                "{resource:?} {identity:?}"
            );
        }
    }

    #[test]
    fn a_claim_of_the_export_is_added_with_its_verbs() {
        let mut binding =
            binding(Value::Null, json!([{ "resource": "secrets", "verbs": ["list"], "identityHash": "h" }]));
        decide(&mut binding, &selection(Some("secrets"), None), Decision::Rejected).unwrap();
        let expected = json!([{
            "resource": "secrets", "verbs": ["list"], "identityHash": "h", "selector": { "matchAll": true }, "state": "Rejected",
        }]);
        assert_eq!(binding["spec"]["permissionClaims"], expected);
    }
}
