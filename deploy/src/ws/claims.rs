//! Warnings about permission claims of the API bindings in a workspace. Pure.

use std::collections::BTreeSet;

use fairlead_client::{Ignored, ObjectMeta};
use serde::Deserialize;

/// The permission claims of an APIBinding.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Binding {
    metadata: ObjectMeta<Ignored>,
    spec: BindingSpec,
    status: BindingStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BindingSpec {
    permission_claims: Vec<Claim>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BindingStatus {
    export_permission_claims: Vec<Claim>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Claim {
    group: String,
    resource: String,
    identity_hash: String,
    verbs: Vec<String>,
    /// `Accepted`, `Rejected`, or empty.
    state: String,
}

impl Binding {
    /// Warnings about claims of the export that the binding does not accept as exported.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let binding = &self.metadata.name;
        let mut warnings = Vec::new();
        for exported in &self.status.export_permission_claims {
            let resource = exported.group_resource();
            let Some(specified) = self.spec.permission_claims.iter().find(|claim| claim.is_about(exported))
            else {
                warnings.push(format!(
                    "Warning: claim for {resource} exported but not specified on APIBinding {binding}\n\
                     Add this claim to the APIBinding's Spec.\n"
                ));
                continue;
            };
            if specified.state.is_empty() {
                warnings.push(format!(
                    "Warning: claim for {resource} specified on APIBinding {binding} but not accepted or rejected.\n"
                ));
            }
            if specified.verb_set() != exported.verb_set() {
                warnings.push(format!(
                    "Warning: allowed verbs ({}) on claim for {resource} on APIBinding {binding} \
                     do not match expected verbs ({}).\n",
                    specified.verbs.join(","),
                    exported.verbs.join(",")
                ));
            }
        }
        warnings
    }
}

impl Claim {
    fn is_about(&self, other: &Self) -> bool {
        (&self.group, &self.resource, &self.identity_hash)
            == (&other.group, &other.resource, &other.identity_hash)
    }

    fn group_resource(&self) -> String {
        if self.group.is_empty() {
            self.resource.clone()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    fn verb_set(&self) -> BTreeSet<&str> {
        self.verbs.iter().map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn warnings(specified: serde_json::Value, exported: serde_json::Value) -> String {
        let binding: Binding = serde_json::from_value(json!({
            "metadata": { "name": "b" },
            "spec": { "permissionClaims": specified },
            "status": { "exportPermissionClaims": exported },
        }))
        .unwrap();
        binding.warnings().concat()
    }

    #[test]
    fn claims_without_a_decision_are_reported() {
        let claim = |resource: &str, group: &str, verbs: &[&str]| json!({ "resource": resource, "group": group, "verbs": verbs });
        let accepted = |resource: &str, group: &str, verbs: &[&str]| {
            let mut claim = claim(resource, group, verbs);
            claim["state"] = json!("Accepted");
            claim
        };
        for (specified, exported, expected) in [
            (json!([]), json!([]), ""),
            (
                json!([accepted("secrets", "", &["list", "get"])]),
                json!([claim("secrets", "", &["get", "list"])]),
                "",
            ),
            (
                json!([accepted("secrets", "", &["*"])]),
                json!([claim("secrets", "", &["get", "list"])]),
                "Warning: allowed verbs (*) on claim for secrets on APIBinding b do not match expected verbs (get,list).\n",
            ),
            (
                json!([]),
                json!([claim("things", "x.io", &["get"])]),
                "Warning: claim for things.x.io exported but not specified on APIBinding b\n\
                 Add this claim to the APIBinding's Spec.\n",
            ),
            (
                json!([claim("secrets", "", &["*"])]),
                json!([claim("secrets", "", &["*"])]),
                "Warning: claim for secrets specified on APIBinding b but not accepted or rejected.\n",
            ),
        ] {
            assert_eq!(warnings(specified, exported), expected);
        }
    }
}
