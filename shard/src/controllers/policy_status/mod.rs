//! Sets the status of ValidatingAdmissionPolicies: the result of the type check, and the generation that was checked.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::Scope;
use fairlead_apiserver::registry::{Catalog, ObjectStore, ServedResource};
use fairlead_process::Status;
use fairlead_schema::builtin::{builtin_by_kind, structural_schema};
use fairlead_schema::{TypedKind, check_policy_types};
use serde_json::{Value, json};

use super::deletion::commit;
use crate::controller_runtime::{Controller, ReconcileOutcome};
use crate::index::Definitions;
use crate::names::{BUILT_IN, VALIDATING_ADMISSION_POLICIES};
use crate::writes::Writes;

/// Number of kinds that one policy is checked against, as in Kubernetes.
const MAX_KINDS: usize = 10;

/// Logical cluster and name of a policy.
pub(crate) type PolicyKey = (Box<str>, Box<str>);

/// Controller of ValidatingAdmissionPolicies.
pub(crate) struct PolicyStatus {
    pub(crate) objects: ObjectStore,
    pub(crate) definitions: Arc<Definitions>,
}

#[async_trait]
impl Controller for PolicyStatus {
    type Key = PolicyKey;

    const NAME: &'static str = "validatingadmissionpolicy-status";
    const WORKERS: usize = 2;

    async fn reconcile(&self, (cluster, name): &PolicyKey) -> Result<ReconcileOutcome, Status> {
        let scope = Scope::new(cluster);
        let Some(stored) = self.objects.get(&VALIDATING_ADMISSION_POLICIES, &BUILT_IN, &scope, None, name)?
        else {
            return Ok(ReconcileOutcome::Done);
        };
        let policy = self.objects.tree(&stored)?;
        let generation = policy["metadata"]["generation"].as_i64().unwrap_or_default();
        let observed = policy["status"]["observedGeneration"].as_i64().unwrap_or_default();
        if generation <= observed {
            return Ok(ReconcileOutcome::Done);
        }
        let catalog = self.definitions.catalog(&scope)?;
        let params = &policy["spec"]["paramKind"];
        let (group, version) = split_api_version(params["apiVersion"].as_str().unwrap_or_default());
        let params = catalog.resources.iter().find_map(|resource| {
            let is_kind = *resource.name.group == *group && params["kind"] == *resource.kind;
            is_kind.then(|| typed_kind(resource, version)).flatten()
        });
        let warnings = check_policy_types(&policy, &reviewed_kinds(&policy, &catalog), params.as_ref());
        let mut new = policy;
        new["status"]["observedGeneration"] = generation.into();
        new["status"]["typeChecking"] =
            if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
        let mut writes = Writes::new(&self.objects, &self.definitions);
        let resource = writes.resource_of(&new)?;
        writes.replace(&resource, &stored, new)?;
        Ok(if commit(writes).await?.is_some() { ReconcileOutcome::Done } else { ReconcileOutcome::Retry })
    }
}

/// The kinds that the rules of a policy name, without wildcards, in the order of their names.
fn reviewed_kinds(policy: &Value, catalog: &Catalog) -> Vec<TypedKind> {
    let mut kinds = BTreeMap::new();
    for rule in policy["spec"]["matchConstraints"]["resourceRules"].as_array().into_iter().flatten() {
        let names = |field: &str| -> Vec<&str> {
            rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
        };
        let (groups, versions, resources) = (names("apiGroups"), names("apiVersions"), names("resources"));
        if groups.contains(&"*") || versions.contains(&"*") {
            continue;
        }
        for resource in &catalog.resources {
            if !groups.contains(&&*resource.name.group) || !resources.contains(&&*resource.name.resource) {
                continue;
            }
            for version in &versions {
                if kinds.len() < MAX_KINDS
                    && let Some(kind) = typed_kind(resource, version)
                {
                    kinds.insert((kind.group.clone(), kind.version.clone(), kind.kind.clone()), kind);
                }
            }
        }
    }
    kinds.into_values().collect()
}

/// A served version of a resource with its schema; `None` if it is not served.
fn typed_kind(resource: &ServedResource, version: &str) -> Option<TypedKind> {
    let served = resource.version(version)?;
    let (group, kind) = (resource.name.group.to_string(), resource.kind.to_string());
    let schema = match &served.open_api {
        Some(schema) => (**schema).clone(),
        None => structural_schema(builtin_by_kind(&group, version, &kind)?.definition)?,
    };
    Some(TypedKind { group, version: version.to_owned(), kind, schema })
}

fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

#[cfg(test)]
mod tests;
