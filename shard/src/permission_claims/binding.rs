//! The claims of one APIBinding.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairlead_api::{
    APIBindingSpec, AcceptedClaim, ClaimSelector, ClaimState, PermissionClaim, claim_label, claimed_group,
    condition_type, has_stored_objects,
};
use fairlead_apiserver::registry::is_built_in;
use fairlead_names::{Origin, ResourceName};
use serde::Deserialize;

/// A resource and the origin of its definition: where claimed objects are stored.
pub(crate) type LabelledResource = (ResourceName, Origin);

/// The label of the objects that one claim covers.
#[derive(Debug, Eq, Hash, PartialEq)]
pub(crate) struct LabelRule {
    pub(super) resource: LabelledResource,
    pub(super) key: Box<str>,
    pub(super) value: Box<str>,
    /// `None` covers all objects.
    pub(super) selector: Option<ClaimSelector>,
}

/// What the labels and the status of an APIBinding depend on.
#[derive(Debug, Default)]
pub(crate) struct BindingClaims {
    export_cluster: String,
    export: String,
    /// The claims that the consumer accepts.
    pub(crate) accepted: Vec<AcceptedClaim>,
    /// The claims of the export.
    pub(crate) exported: Vec<PermissionClaim>,
    /// The claims whose labels are set.
    applied: Vec<AcceptedClaim>,
    is_released: bool,
    /// Whether both conditions of claims hold.
    is_reported: bool,
}

impl BindingClaims {
    /// Reads an APIBinding in the stored version.
    ///
    /// # Errors
    /// If it is malformed.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        let WireBinding { metadata, spec, status } = serde_json::from_slice(json)?;
        let is_true =
            |kind: &str| status.conditions.iter().any(|one| one.kind == kind && one.status == "True");
        let is_released = is_true(condition_type::BINDING_RESOURCE_DELETE_SUCCESS);
        let reported = [condition_type::PERMISSION_CLAIMS_APPLIED, condition_type::PERMISSION_CLAIMS_VALID];
        let is_reported = reported.into_iter().all(is_true);
        let mut accepted = spec.permission_claims;
        accepted.retain(|claim| claim.state == Some(ClaimState::Accepted));
        Ok(Self {
            export_cluster: status.api_export_cluster_name,
            export: spec.reference.export.map(|export| export.name).unwrap_or_default(),
            accepted,
            exported: status.export_permission_claims,
            applied: status.applied_permission_claims,
            is_released: metadata.deletion_timestamp.is_some() && is_released,
            is_reported,
        })
    }

    /// Whether the export is known: before that, nothing can be said about claims.
    pub(crate) fn has_export(&self) -> bool {
        !self.export.is_empty() && !self.export_cluster.is_empty()
    }

    /// Whether the binding is being deleted and its objects are gone, so that its claims end. Until then a provider may need the
    /// claimed objects to clean up.
    pub(crate) fn is_released(&self) -> bool {
        self.is_released
    }

    /// The claims that are in force, by [`claim_key`]: accepted and exported.
    pub(crate) fn in_force(&self) -> BTreeMap<String, &AcceptedClaim> {
        if !self.has_export() || self.is_released {
            return BTreeMap::new();
        }
        let exported: BTreeSet<String> = self.exported.iter().map(claim_key).collect();
        let accepted = self.accepted.iter().map(|accepted| (claim_key(&accepted.claim), accepted));
        accepted.filter(|(key, _)| exported.contains(key)).collect()
    }

    /// The labels of the claims in force. A claim with an invalid selector covers no objects.
    pub(crate) fn rules(&self) -> Vec<LabelRule> {
        let rules = self.in_force().into_values().filter_map(|accepted| {
            let resource = stored_resource(&accepted.claim)?;
            let (key, value) = claim_label(&self.export_cluster, &self.export, &accepted.claim);
            let selector = accepted.selector.clone().filter(|selector| !selector.match_all);
            if let Some(Err(error)) = selector.as_ref().map(ClaimSelector::check) {
                tracing::debug!(export = %self.export, %error, "a claim has an invalid selector");
                return None;
            }
            Some(LabelRule { resource, key: key.into(), value: value.into(), selector })
        });
        rules.collect()
    }

    /// The resources whose labels may differ from those of the claims in force, by the claims that the status has as applied.
    pub(crate) fn outdated_resources(&self) -> BTreeSet<LabelledResource> {
        let in_force = self.in_force();
        let applied: BTreeMap<String, &AcceptedClaim> =
            self.applied.iter().map(|applied| (claim_key(&applied.claim), applied)).collect();
        let is_same = |key: &String, claim: &AcceptedClaim, others: &BTreeMap<String, &AcceptedClaim>| {
            others.get(key).is_some_and(|other| {
                other.selector.clone().unwrap_or_default() == claim.selector.clone().unwrap_or_default()
            })
        };
        let begun = in_force.iter().filter(|(key, claim)| !is_same(key, claim, &applied));
        let ended = applied.iter().filter(|(key, claim)| !is_same(key, claim, &in_force));
        begun.chain(ended).filter_map(|(_, claim)| stored_resource(&claim.claim)).collect()
    }

    /// All resources that have labels, or had them.
    pub(crate) fn resources(&self) -> BTreeSet<LabelledResource> {
        let claims = self.applied.iter().chain(&self.accepted);
        claims.filter_map(|claim| stored_resource(&claim.claim)).collect()
    }

    /// Whether the binding has no claims, and its status says so.
    pub(crate) fn is_without_claims(&self) -> bool {
        self.accepted.is_empty() && self.applied.is_empty() && self.is_reported
    }
}

/// Identifies a claim, in kcp's notation and order.
pub(crate) fn claim_key(claim: &PermissionClaim) -> String {
    format!("{}/{}/{}", claim.resource, claim.group, claim.identity_hash)
}

/// Where the objects of a claim are stored. `None` if it claims something that is not stored, or that nobody can claim: a resource
/// that is neither built in nor kcp's needs the identity of its export.
pub(crate) fn stored_resource(claim: &PermissionClaim) -> Option<LabelledResource> {
    let group = claimed_group(&claim.group, &claim.resource);
    if !has_stored_objects(group, &claim.resource) {
        return None;
    }
    let origin = if !claim.identity_hash.is_empty() {
        Origin::Identity(Arc::from(claim.identity_hash.as_str()))
    } else if is_built_in(group, &claim.resource) {
        Origin::BuiltIn
    } else if fairlead_api::system_resources().any(|own| own.group == group && own.plural == claim.resource) {
        Origin::Custom
    } else {
        return None;
    };
    Some((ResourceName::new(group, &claim.resource), origin))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireBinding<'a> {
    metadata: WireMetadata,
    spec: APIBindingSpec,
    #[serde(borrow)]
    status: WireStatus<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireMetadata {
    deletion_timestamp: Option<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus<'a> {
    api_export_cluster_name: String,
    export_permission_claims: Vec<PermissionClaim>,
    applied_permission_claims: Vec<AcceptedClaim>,
    #[serde(borrow)]
    conditions: Vec<WireCondition<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireCondition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const IDENTITY: &str = "e9cee71ab932fde863338d08be4de9dfe39ea049bdafb342ce659ec5450b69ae";

    fn claim(group: &str, resource: &str, identity: &str) -> Value {
        json!({"group": group, "resource": resource, "verbs": ["*"], "identityHash": identity})
    }

    fn accepted(group: &str, resource: &str, identity: &str, selector: Value) -> Value {
        let mut claim = claim(group, resource, identity);
        claim["selector"] = selector;
        claim["state"] = "Accepted".into();
        claim
    }

    fn parse(binding: &Value) -> BindingClaims {
        BindingClaims::parse(binding.to_string().as_bytes()).unwrap()
    }

    fn binding(accepted: Value, exported: Value, applied: Value) -> Value {
        json!({
            "metadata": {"name": "a"},
            "spec": {
                "reference": {"export": {"path": "root:p", "name": "my-export"}}, "permissionClaims": accepted,
            },
            "status": {
                "apiExportClusterName": "abcd1234", "exportPermissionClaims": exported,
                "appliedPermissionClaims": applied,
            },
        })
    }

    fn names(resources: impl IntoIterator<Item = LabelledResource>) -> Vec<String> {
        resources.into_iter().map(|(name, origin)| format!("{name} {origin:?}")).collect()
    }

    #[test]
    fn claims_are_stored_by_their_identity() {
        let custom = format!("sheriffs.wild.west Identity({IDENTITY:?})");
        for (group, resource, identity, expected) in [
            ("", "configmaps", "", Some("configmaps BuiltIn")),
            ("", "events", "", Some("events BuiltIn")),
            ("events.k8s.io", "events", "", Some("events BuiltIn")),
            ("apis.kcp.io", "apibindings", "", Some("apibindings.apis.kcp.io Custom")),
            ("core.kcp.io", "logicalclusters", "", Some("logicalclusters.core.kcp.io Custom")),
            ("wild.west", "sheriffs", IDENTITY, Some(&*custom)),
            ("wild.west", "sheriffs", "", None),
            ("authorization.k8s.io", "subjectaccessreviews", "", None),
        ] {
            let claim: PermissionClaim = serde_json::from_value(claim(group, resource, identity)).unwrap();
            let found = names(stored_resource(&claim)).pop();
            assert_eq!(found.as_deref(), expected, "{group} {resource} {identity}");
        }
    }

    #[test]
    fn claims_are_in_force_if_they_are_accepted_and_exported() {
        let all = json!({"matchAll": true});
        let maps = accepted("", "configmaps", "", all.clone());
        let mut rejected = maps.clone();
        rejected["state"] = "Rejected".into();
        let sheriffs = accepted("wild.west", "sheriffs", IDENTITY, all);
        let other = claim("wild.west", "sheriffs", "xxxxxxx");
        let exported = json!([claim("", "configmaps", ""), claim("wild.west", "sheriffs", IDENTITY)]);
        let none = json!([]);
        for (accepted, exported, expected) in [
            (
                json!([maps, sheriffs]),
                &exported,
                &["configmaps//", &format!("sheriffs/wild.west/{IDENTITY}")][..],
            ),
            (json!([rejected, sheriffs]), &exported, &[&format!("sheriffs/wild.west/{IDENTITY}")]),
            (json!([maps]), &none, &[]),
            (json!([maps, sheriffs]), &json!([other]), &[]),
            (json!([]), &exported, &[]),
        ] {
            let binding = parse(&binding(accepted, exported.clone(), json!([])));
            assert_eq!(binding.in_force().into_keys().collect::<Vec<_>>(), expected);
        }
        let mut unbound = binding(json!([maps]), exported.clone(), json!([]));
        unbound["status"]["apiExportClusterName"] = "".into();
        assert!(parse(&unbound).in_force().is_empty(), "the export is not known");
        let mut deleted = binding(json!([maps]), exported, json!([]));
        deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(parse(&deleted).in_force().len(), 1, "its objects are not gone");
        deleted["status"]["conditions"] = json!([{"type": "BindingResourceDeleteSuccess", "status": "True"}]);
        assert!(parse(&deleted).in_force().is_empty(), "its objects are gone");
    }

    #[test]
    fn rules_have_the_labels_of_kcp() {
        let labels = json!({"matchLabels": {"a": "b"}});
        let invalid = json!({"matchExpressions": [{"key": "a", "operator": "Like"}]});
        let exported =
            json!([claim("", "configmaps", ""), claim("", "secrets", ""), claim("", "events", "")]);
        let accepted = json!([
            accepted("", "configmaps", "", json!({"matchAll": true})),
            accepted("", "secrets", "", labels.clone()),
            accepted("", "events", "", invalid),
        ]);
        let rules = parse(&binding(accepted, exported, json!([]))).rules();
        let selectors: Vec<_> = rules.iter().map(|rule| rule.selector.clone()).collect();
        assert_eq!(selectors, [None, Some(serde_json::from_value(labels).unwrap())]);
        let key = "claimed.internal.apis.kcp.io/phGj1BkmdNY3LKTrtFc1KGLYTBs8Nt50p8PIU";
        assert_eq!((&*rules[0].key, &*rules[0].value), (key, "3QVjs6pfBjMpLEVYYhysJnroYGsQGlWm05E4qe"));
    }

    #[test]
    fn resources_are_outdated_if_claims_or_selectors_differ_from_the_applied_ones() {
        let all = json!({"matchAll": true});
        let some = json!({"matchLabels": {"a": "b"}});
        let maps = |selector: &Value| accepted("", "configmaps", "", selector.clone());
        let secrets = accepted("", "secrets", "", all.clone());
        let exported = json!([claim("", "configmaps", ""), claim("", "secrets", "")]);
        let expected = ["configmaps BuiltIn", "secrets BuiltIn"];
        for (accepted, exported, applied, expected) in [
            (json!([maps(&all), secrets]), &exported, json!([]), &expected[..]),
            (json!([maps(&all), secrets]), &exported, json!([maps(&all), secrets]), &[]),
            (json!([maps(&some), secrets]), &exported, json!([maps(&all), secrets]), &expected[..1]),
            (json!([maps(&all)]), &exported, json!([maps(&all), secrets]), &expected[1..]),
            (json!([]), &exported, json!([maps(&all), secrets]), &expected),
            (
                json!([maps(&all), secrets]),
                &json!([claim("", "secrets", "")]),
                json!([maps(&all), secrets]),
                &expected[..1],
            ),
        ] {
            let binding = parse(&binding(accepted.clone(), exported.clone(), applied.clone()));
            assert_eq!(names(binding.outdated_resources()), expected, "{accepted} {applied}");
        }
    }
}
