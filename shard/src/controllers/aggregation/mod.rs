//! Sets the rules of ClusterRoles with an aggregation rule: the rules of all other ClusterRoles in the logical cluster that
//! it selects.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::hub::ObjectEvent;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_apiserver::request::{LabelSelector, SelectorError};
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_process::Status;
use serde_json::Value;

use super::deletion::commit;
use crate::controller_runtime::{Controller, ReconcileOutcome};
use crate::index::Definitions;
use crate::names::{BUILT_IN, CLUSTER_ROLES};
use crate::writes::Writes;

/// Logical cluster and name of a ClusterRole.
pub(crate) type RoleKey = (Box<str>, Box<str>);

/// Controller of ClusterRoles with an aggregation rule.
pub(crate) struct RoleAggregation {
    pub(crate) objects: ObjectStore,
    pub(crate) definitions: Arc<Definitions>,
}

impl RoleAggregation {
    /// The aggregated roles that may change after an event of a ClusterRole: all of its logical cluster.
    pub(crate) fn keys_of(&self, event: &ObjectEvent) -> Vec<RoleKey> {
        self.aggregated(&ScopeSelector::One(Scope::new(&event.scope)))
    }

    /// The ClusterRoles with an aggregation rule. Most roles have none, which a search in their bytes shows.
    pub(crate) fn aggregated(&self, scopes: &ScopeSelector) -> Vec<RoleKey> {
        let mut keys = Vec::new();
        let read = self.objects.for_each(&CLUSTER_ROLES, &BUILT_IN, scopes, &mut |listed| {
            let json = listed.object.json();
            if memchr::memmem::find(json, b"\"aggregationRule\"").is_none() {
                return;
            }
            if let Ok(role) = serde_json::from_slice::<Value>(json)
                && role["aggregationRule"].is_object()
                && let Some(name) = role["metadata"]["name"].as_str()
            {
                keys.push((listed.scope.into(), name.into()));
            }
        });
        if let Err(error) = read {
            tracing::error!(%error, "aggregated roles cannot be read");
        }
        keys
    }
}

#[async_trait]
impl Controller for RoleAggregation {
    type Key = RoleKey;

    const NAME: &'static str = "clusterrole-aggregation";
    const WORKERS: usize = 4;

    async fn reconcile(&self, (cluster, name): &RoleKey) -> Result<ReconcileOutcome, Status> {
        let scope = Scope::new(cluster);
        let Some(stored) = self.objects.get(&CLUSTER_ROLES, &BUILT_IN, &scope, None, name)? else {
            return Ok(ReconcileOutcome::Done);
        };
        let role = self.objects.tree(&stored)?;
        if !role["aggregationRule"].is_object() || role["metadata"]["deletionTimestamp"].is_string() {
            return Ok(ReconcileOutcome::Done);
        }
        let mut roles = Vec::new();
        for stored in self.objects.list(&CLUSTER_ROLES, &BUILT_IN, &ScopeSelector::One(scope), None)? {
            roles.push(self.objects.tree(&stored)?);
        }
        // The selectors of a stored role were validated; roles of older versions may have invalid ones.
        let rules = match aggregate(&role, &roles) {
            Ok(rules) => rules,
            Err(error) => {
                tracing::warn!(%cluster, role = %name, %error, "an aggregation rule is invalid");
                return Ok(ReconcileOutcome::Done);
            }
        };
        if role["rules"] == rules {
            return Ok(ReconcileOutcome::Done);
        }
        let mut new = role;
        new["rules"] = rules;
        let mut writes = Writes::new(&self.objects, &self.definitions);
        let resource = writes.resource_of(&new)?;
        writes.replace(&resource, &stored, new)?;
        Ok(if commit(writes).await?.is_some() { ReconcileOutcome::Done } else { ReconcileOutcome::Retry })
    }
}

/// The rules of the roles that an aggregated role selects, each once: by selector, then by name. Null if there are none,
/// as in all roles without rules.
fn aggregate(role: &Value, roles: &[Value]) -> Result<Value, SelectorError> {
    let name = &role["metadata"]["name"];
    let mut others: Vec<&Value> = roles.iter().filter(|other| other["metadata"]["name"] != *name).collect();
    others.sort_by_key(|other| other["metadata"]["name"].as_str());
    let mut rules: Vec<Value> = Vec::new();
    let mut known: HashSet<&Value> = HashSet::new();
    for selector in role["aggregationRule"]["clusterRoleSelectors"].as_array().into_iter().flatten() {
        let selector = LabelSelector::of_object(selector)?;
        for other in &others {
            let labels = &other["metadata"]["labels"];
            if !selector.selects(|key| labels[key].as_str()) {
                continue;
            }
            for rule in other["rules"].as_array().into_iter().flatten() {
                if known.insert(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    Ok(if rules.is_empty() { Value::Null } else { rules.into() })
}

#[cfg(test)]
mod tests;
