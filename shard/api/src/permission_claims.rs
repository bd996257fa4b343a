//! Rules of permission claims: which objects a claim covers, which verbs it permits, and which writes its selector permits.
//!
//! Pure functions, used by the labels on claimed objects and by the virtual workspace of an export.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{AcceptedClaim, ClaimSelector, ClaimState, SelectorRequirement};

/// The group under which a resource is claimed. The events of both groups are the same objects, which are claimed as those of
/// core.
pub fn claimed_group<'g>(group: &'g str, resource: &str) -> &'g str {
    if group == "events.k8s.io" && resource == "events" { "" } else { group }
}

/// Whether objects of a resource are stored. Reviews are not: a claim permits to create them, but there is nothing to label.
pub fn has_stored_objects(group: &str, resource: &str) -> bool {
    !matches!(
        (group, resource),
        (
            "authorization.k8s.io",
            "localsubjectaccessreviews"
                | "selfsubjectaccessreviews"
                | "selfsubjectrulesreviews"
                | "subjectaccessreviews"
        ) | ("authentication.k8s.io", "selfsubjectreviews" | "tokenreviews")
    )
}

/// The accepted claim on a resource. There is at most one for each group, resource and identity.
pub fn accepted_claim<'c>(
    claims: &'c [AcceptedClaim],
    group: &str,
    resource: &str,
) -> Option<&'c AcceptedClaim> {
    let group = claimed_group(group, resource);
    claims.iter().find(|accepted| {
        let claim = &accepted.claim;
        accepted.state == Some(ClaimState::Accepted)
            && claim.resource == resource
            && claimed_group(&claim.group, &claim.resource) == group
    })
}

/// Whether a claim permits a verb: the consumer accepts it and the export claims it. `*` on either side stands for all verbs.
///
/// kcp intersects the texts, so that an accepted `*` gives nothing if the export lists its verbs.
pub fn permits_verb(accepted: &[String], exported: &[String], verb: &str) -> bool {
    let contains = |verbs: &[String]| verbs.iter().any(|one| one == "*" || one == verb);
    contains(accepted) && contains(exported)
}

/// The verbs that a claim permits, in the order of the consumer; `*` for all.
pub fn permitted_verbs(accepted: &[String], exported: &[String]) -> Vec<String> {
    let is_any = |verbs: &[String]| verbs.iter().any(|one| one == "*");
    match (is_any(accepted), is_any(exported)) {
        (true, true) => vec!["*".to_owned()],
        (true, false) => exported.to_vec(),
        (false, true) => accepted.to_vec(),
        (false, false) => accepted.iter().filter(|verb| exported.contains(verb)).cloned().collect(),
    }
}

impl ClaimSelector {
    /// Whether it covers an object whose labels `label` looks up. An invalid selector covers nothing; one without requirements
    /// covers all, as in Kubernetes.
    pub fn selects<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        if self.match_all {
            return true;
        }
        let expected = self.match_labels.iter().all(|(key, value)| label(key) == Some(value.as_str()));
        expected && self.match_expressions.iter().all(|one| one.holds(label(&one.key)) == Ok(true))
    }

    /// Checks the requirements, of which Kubernetes ignores a selector as a whole if one is invalid.
    ///
    /// # Errors
    /// The first invalid one.
    pub fn check(&self) -> Result<(), InvalidRequirement> {
        self.match_expressions.iter().try_for_each(|one| one.holds(None).map(drop))
    }
}

/// A requirement of a selector that has no meaning.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidRequirement {
    /// The operator is unknown.
    #[error("{0:?} is not a valid label selector operator")]
    Operator(String),
    /// `In` and `NotIn` need values.
    #[error("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty")]
    NoValues,
    /// `Exists` and `DoesNotExist` have no values.
    #[error("values: Invalid value: {0:?}: values set must be empty for exists and does not exist")]
    Values(Vec<String>),
}

impl SelectorRequirement {
    fn holds(&self, value: Option<&str>) -> Result<bool, InvalidRequirement> {
        let has_value = || value.is_some_and(|value| self.values.iter().any(|one| one == value));
        match (self.operator.as_str(), self.values.is_empty()) {
            ("In", false) => Ok(has_value()),
            ("NotIn", false) => Ok(!has_value()),
            ("Exists", true) => Ok(value.is_some()),
            ("DoesNotExist", true) => Ok(value.is_none()),
            ("In" | "NotIn", true) => Err(InvalidRequirement::NoValues),
            ("Exists" | "DoesNotExist", false) => Err(InvalidRequirement::Values(self.values.clone())),
            (operator, _) => Err(InvalidRequirement::Operator(operator.to_owned())),
        }
    }
}

/// The reason why a provider may not write an object that it claims; the client gets it in a 403.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SelectorRefusal {
    /// The object has another value of a label that the selector fixes.
    #[error("protected label {key} must have value {value}")]
    ProtectedLabel {
        /// The label.
        key: String,
        /// The value that the selector fixes.
        value: String,
    },
    /// The selector does not cover the object.
    #[error("object does not match required labels")]
    NotSelected,
    /// The consumer's selector is invalid.
    #[error("error building selector from provided label selector: {0}")]
    InvalidSelector(#[from] InvalidRequirement),
}

/// Admits a write of a provider by the selector of the accepted claim. Returns the labels that the object lacks and gets: those
/// of `matchLabels`. `matchExpressions` determine no label, so they are only checked.
///
/// `object` is the new state of a create, an update or a patch, and `None` for a delete, whose old state `old` is checked. The
/// deletion of a collection is not admitted by this function: it deletes only what the claim covers.
///
/// # Errors
/// The refusal.
pub fn admit_by_selector<'s>(
    selector: &'s ClaimSelector,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<BTreeMap<&'s str, &'s str>, SelectorRefusal> {
    let mut injected = BTreeMap::new();
    if selector.match_all {
        return Ok(injected);
    }
    let labels = object.or(old).map(|object| &object["metadata"]["labels"]);
    let label = |key: &str| labels.and_then(|labels| labels[key].as_str());
    if object.is_some() {
        for (key, value) in &selector.match_labels {
            match label(key) {
                None => {
                    injected.insert(key.as_str(), value.as_str());
                }
                Some(present) if present == value => {}
                Some(_) => {
                    let (key, value) = (key.clone(), value.clone());
                    return Err(SelectorRefusal::ProtectedLabel { key, value });
                }
            }
        }
    }
    selector.check()?;
    let is_selected = selector.selects(|key| injected.get(key).copied().or_else(|| label(key)));
    if is_selected { Ok(injected) } else { Err(SelectorRefusal::NotSelected) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selector(object: Value) -> ClaimSelector {
        serde_json::from_value(object).unwrap()
    }

    fn verbs(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_selector_covers_objects_by_their_labels() {
        let covered = |object: Value, labels: &[(&str, &str)]| {
            let find = |key: &str| labels.iter().find(|(own, _)| *own == key).map(|(_, value)| *value);
            selector(object).selects(find)
        };
        let requirement = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
        for (object, labels, expected) in [
            (json!({"matchAll": true}), &[][..], true),
            (json!({}), &[], true),
            (json!({"matchLabels": {"a": "1"}}), &[("a", "1"), ("b", "2")], true),
            (json!({"matchLabels": {"a": "1"}}), &[("a", "2")], false),
            (json!({"matchLabels": {"a": "1"}}), &[], false),
            (json!({"matchLabels": {"a": ""}}), &[], false),
            (requirement("In", json!(["1", "2"])), &[("a", "2")], true),
            (requirement("In", json!(["1", "2"])), &[("a", "3")], false),
            (requirement("In", json!([])), &[("a", "3")], false),
            (requirement("NotIn", json!(["1"])), &[], true),
            (requirement("NotIn", json!(["1"])), &[("a", "1")], false),
            (requirement("NotIn", json!([])), &[], false),
            (requirement("Exists", json!([])), &[("a", "1")], true),
            (requirement("Exists", json!([])), &[], false),
            (requirement("DoesNotExist", json!([])), &[], true),
            (requirement("DoesNotExist", json!(["1"])), &[], false),
            (requirement("Like", json!(["1"])), &[("a", "1")], false),
            (
                json!({"matchLabels": {"b": "2"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}),
                &[("b", "2")],
                false,
            ),
        ] {
            assert_eq!(covered(object.clone(), labels), expected, "{object} {labels:?}");
        }
    }

    #[test]
    fn both_sides_must_permit_a_verb() {
        for (accepted, exported, verb, expected) in [
            ("get list", "get list", "get", true),
            ("get", "get list", "list", false),
            ("get list", "get", "list", false),
            ("*", "get list", "get", true),
            ("*", "get list", "delete", false),
            ("get", "*", "get", true),
            ("get", "*", "list", false),
            ("*", "*", "deletecollection", true),
            ("", "*", "get", false),
            ("*", "", "get", false),
        ] {
            let permitted = permits_verb(&verbs(accepted), &verbs(exported), verb);
            assert_eq!(permitted, expected, "{accepted:?} {exported:?} {verb}");
        }
        for (accepted, exported, expected) in [
            ("get list", "list watch", "list"),
            ("*", "get list", "get list"),
            ("get", "*", "get"),
            ("* get", "*", "*"),
            ("get", "list", ""),
        ] {
            assert_eq!(permitted_verbs(&verbs(accepted), &verbs(exported)), verbs(expected));
        }
    }

    #[test]
    fn the_accepted_claim_of_a_resource_is_found_in_both_groups_of_events() {
        let claims: Vec<AcceptedClaim> = serde_json::from_value(json!([
            {"group": "", "resource": "configmaps", "verbs": ["get"], "state": "Rejected"},
            {"group": "", "resource": "secrets", "verbs": ["get"], "state": "Accepted"},
            {"group": "events.k8s.io", "resource": "events", "verbs": ["get"], "state": "Accepted"},
            {"group": "", "resource": "leases", "verbs": ["get"]},
        ]))
        .unwrap();
        for (group, resource, expected) in [
            ("", "configmaps", None),
            ("", "secrets", Some("secrets")),
            ("a.b", "secrets", None),
            ("", "events", Some("events")),
            ("events.k8s.io", "events", Some("events")),
            ("", "leases", None),
        ] {
            let found = accepted_claim(&claims, group, resource).map(|one| one.claim.resource.as_str());
            assert_eq!(found, expected, "{group} {resource}");
        }
    }

    #[test]
    fn writes_are_admitted_by_the_selector() {
        let labels = |labels: Value| json!({"metadata": {"name": "a", "labels": labels}});
        let by_labels = json!({"matchLabels": {"env": "test"}});
        let by_expressions =
            json!({"matchExpressions": [{"key": "env", "operator": "In", "values": ["test1", "test2"]}]});
        let both = json!({
            "matchLabels": {"team": "a"}, "matchExpressions": [{"key": "env", "operator": "Exists"}],
        });
        let invalid = json!({"matchExpressions": [{"key": "env", "operator": "In", "values": []}]});
        let protected = "protected label env must have value test";
        let unselected = "object does not match required labels";
        let none = Value::Null;
        let no_values = "error building selector from provided label selector: values: Invalid value: []: for 'in', \
                         'notin' operators, values set can't be empty";
        for (selector_object, object, old, expected) in [
            (&json!({"matchAll": true}), Some(labels(none.clone())), None, Ok(json!({}))),
            (&json!({"matchAll": true}), None, Some(labels(none.clone())), Ok(json!({}))),
            (&by_labels, Some(labels(none.clone())), None, Ok(json!({"env": "test"}))),
            (&by_labels, Some(labels(json!({"a": "b"}))), None, Ok(json!({"env": "test"}))),
            (&by_labels, Some(labels(json!({"env": "test"}))), None, Ok(json!({}))),
            (&by_labels, Some(labels(json!({"env": "prod"}))), None, Err(protected)),
            // An update that drops the label gets it again, whatever the old object has.
            (
                &by_labels,
                Some(labels(none.clone())),
                Some(labels(json!({"env": "test"}))),
                Ok(json!({"env": "test"})),
            ),
            (
                &by_labels,
                Some(labels(json!({"env": "prod"}))),
                Some(labels(json!({"env": "test"}))),
                Err(protected),
            ),
            (&by_labels, None, Some(labels(json!({"env": "test"}))), Ok(json!({}))),
            (&by_labels, None, Some(labels(json!({"env": "prod"}))), Err(unselected)),
            (&by_labels, None, Some(labels(none.clone())), Err(unselected)),
            (&by_labels, None, None, Err(unselected)),
            (&by_expressions, Some(labels(json!({"env": "test2"}))), None, Ok(json!({}))),
            (&by_expressions, Some(labels(json!({"env": "test3"}))), None, Err(unselected)),
            (&by_expressions, Some(labels(none.clone())), None, Err(unselected)),
            (&by_expressions, None, Some(labels(json!({"env": "test1"}))), Ok(json!({}))),
            (&by_expressions, None, Some(labels(none.clone())), Err(unselected)),
            (&both, Some(labels(json!({"env": "x"}))), None, Ok(json!({"team": "a"}))),
            (&both, Some(labels(none.clone())), None, Err(unselected)),
            (&invalid, Some(labels(none)), None, Err(no_values)),
        ] {
            let selector = selector(selector_object.clone());
            let admitted = admit_by_selector(&selector, object.as_ref(), old.as_ref());
            let admitted = admitted.map(|labels| json!(labels)).map_err(|refusal| refusal.to_string());
            assert_eq!(admitted, expected.map_err(str::to_owned), "{selector_object} {object:?} {old:?}");
        }
    }

    #[test]
    fn reviews_have_no_stored_objects() {
        for (group, resource, expected) in [
            ("authorization.k8s.io", "subjectaccessreviews", false),
            ("authorization.k8s.io", "localsubjectaccessreviews", false),
            ("authentication.k8s.io", "tokenreviews", false),
            ("authentication.k8s.io", "subjectaccessreviews", true),
            ("", "configmaps", true),
        ] {
            assert_eq!(has_stored_objects(group, resource), expected, "{group} {resource}");
        }
    }
}
