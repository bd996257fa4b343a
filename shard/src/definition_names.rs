//! The names of CRDs: decides which names a CRD gets, with the expectations under which the decision holds.
//!
//! Two CRDs of a group, or a CRD and a binding, may want the same name at the same time. The decision reads the other
//! CRDs of the group and the resource locks of the LogicalCluster. It returns mutations that fail the commit if one of
//! them has changed meanwhile: an established CRD writes its lock, which every other create of a CRD and every binding
//! sees.

use std::sync::Arc;

use fairlead_api::LOGICAL_CLUSTER_NAME;
use fairlead_apiserver::registry::{ObjectStore, ServedResource, StoredObject};
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_process::Status;
use fairlead_schema::crd::{CrdCondition, CrdNames, NamesStatus, accepted_names, has_condition};
use fairlead_store::{Expect, Mutation};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::index::Definitions;
use crate::names::{API_BINDINGS, BUILT_IN, CUSTOM, CUSTOM_RESOURCE_DEFINITIONS, LOGICAL_CLUSTERS};
use crate::resource_locks::ResourceLocks;

/// The names of a CRD and the mutations that must be in the commit that writes them.
pub(crate) struct NamesDecision {
    pub(crate) names: NamesStatus,
    pub(crate) mutations: Vec<Mutation>,
}

/// The CRD whose names are decided.
pub(crate) struct NamedDefinition<'d> {
    pub(crate) scope: &'d Scope,
    /// The object's name, `<plural>.<group>`.
    pub(crate) name: &'d str,
    pub(crate) group: &'d str,
    /// The names in its `spec`.
    pub(crate) requested: &'d CrdNames,
    /// Its stored state; `None` if it is created.
    pub(crate) old: Option<&'d Value>,
}

/// Decides the names. A CRD that has all requested names keeps them without a read; otherwise the cost is a read of
/// the status of each CRD of the same group in the logical cluster.
///
/// # Errors
/// 500 if the store cannot be read.
pub(crate) fn decide_names(
    objects: &ObjectStore,
    definitions: &Definitions,
    definition: &NamedDefinition<'_>,
) -> Result<NamesDecision, Status> {
    let &NamedDefinition { scope, name, group, requested, old } = definition;
    let accepted = old.map_or_else(CrdNames::default, |old| CrdNames::read(&old["status"]["acceptedNames"]));
    let is_established = old.is_some_and(|old| has_condition(old, "Established"));
    if is_established && accepted == *requested && old.is_some_and(has_accepted_names) {
        let names = accepted_names(requested, &accepted, true, []);
        return Ok(NamesDecision { names, mutations: Vec::new() });
    }
    let holder = objects.get(&LOGICAL_CLUSTERS, &CUSTOM, scope, None, LOGICAL_CLUSTER_NAME)?;
    let holder = holder.map(|stored| objects.tree(&stored).map(|tree| (stored, tree))).transpose()?;
    let mut locks = holder.as_ref().map_or_else(ResourceLocks::default, |(_, tree)| ResourceLocks::of(tree));
    let siblings = siblings(objects, scope, name)?;
    let bound = bound_names(objects, definitions, scope, group, &locks)?;
    let others = siblings.iter().map(|sibling| &sibling.accepted).chain(bound.iter().map(|names| &**names));
    let names = accepted_names(requested, &accepted, is_established, others);
    let mut mutations: Vec<Mutation> = siblings.into_iter().map(|sibling| sibling.fence).collect();
    // System logical clusters have no LogicalCluster and no bindings.
    if let Some((stored, mut tree)) = holder {
        let is_owner = locks.0.get(name).is_some_and(|lock| lock.is_crd);
        mutations.push(if names.is_established() && !is_owner {
            locks.lock_for_crd(name);
            locks.set(&mut tree);
            update_of(objects, &stored, tree)?
        } else {
            let key = objects.key(&LOGICAL_CLUSTERS, &CUSTOM, scope.as_str(), None, LOGICAL_CLUSTER_NAME);
            Mutation::fence(key, Expect::At(stored.revision))
        });
    }
    Ok(NamesDecision { names, mutations })
}

/// Writes the decided names to the status of a CRD.
pub(crate) fn write_names(status: &mut Value, names: &NamesStatus, now: Timestamp) {
    write_conditions(status, &names.conditions, now);
    status["acceptedNames"] = names.accepted.to_json();
}

/// Writes conditions to the status of a CRD. Conditions that do not change keep their time.
pub(crate) fn write_conditions(status: &mut Value, decided: &[CrdCondition], now: Timestamp) {
    let now = fairlead_api::format_time(now);
    let mut conditions: Vec<Value> = status["conditions"].as_array().cloned().unwrap_or_default();
    for decided in decided {
        let text = if decided.is_true { "True" } else { "False" };
        let known = conditions.iter_mut().find(|one| one["type"] == decided.condition_type);
        let since =
            known.as_ref().filter(|one| one["status"] == text).map(|one| one["lastTransitionTime"].clone());
        let value = json!({
            "type": decided.condition_type,
            "status": text,
            "lastTransitionTime": since.unwrap_or_else(|| now.clone().into()),
            "reason": decided.reason,
            "message": decided.message,
        });
        match known {
            Some(known) => *known = value,
            None => conditions.push(value),
        }
    }
    status["conditions"] = conditions.into();
}

/// Whether a CRD has all names of its `spec`.
pub(crate) fn has_accepted_names(definition: &Value) -> bool {
    has_condition(definition, "NamesAccepted")
}

/// The group part of a CRD's name.
pub(crate) fn group_of(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, group)| group)
}

/// Another CRD of the group.
struct Sibling {
    accepted: CrdNames,
    fence: Mutation,
}

fn siblings(objects: &ObjectStore, scope: &Scope, name: &str) -> Result<Vec<Sibling>, Status> {
    #[derive(Deserialize)]
    struct Wire<'w> {
        #[serde(borrow)]
        metadata: WireMetadata<'w>,
        #[serde(default)]
        status: WireStatus,
    }
    #[derive(Deserialize)]
    struct WireMetadata<'w> {
        #[serde(borrow)]
        name: std::borrow::Cow<'w, str>,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct WireStatus {
        accepted_names: Value,
    }
    let group = group_of(name);
    let mut siblings = Vec::new();
    let one = ScopeSelector::One(scope.clone());
    objects.for_each(&CUSTOM_RESOURCE_DEFINITIONS, &BUILT_IN, &one, &mut |listed| {
        let Ok(other) = serde_json::from_slice::<Wire<'_>>(listed.object.json()) else { return };
        if other.metadata.name == name || group_of(&other.metadata.name) != group {
            return;
        }
        let other_name = &*other.metadata.name;
        let key = objects.key(&CUSTOM_RESOURCE_DEFINITIONS, &BUILT_IN, scope.as_str(), None, other_name);
        siblings.push(Sibling {
            accepted: CrdNames::read(&other.status.accepted_names),
            fence: Mutation::fence(key, Expect::At(listed.revision)),
        });
    })?;
    Ok(siblings)
}

/// The names of the resources of a group that bindings own. The locks are read together with the fence on them, so the bindings are
/// read from the store, and not from an index, which may be behind.
fn bound_names(
    objects: &ObjectStore,
    definitions: &Definitions,
    scope: &Scope,
    group: &str,
    locks: &ResourceLocks,
) -> Result<Vec<Arc<CrdNames>>, Status> {
    let mut names = Vec::new();
    for (resource, binding) in locks.bound_in(group) {
        if let Some(exported) = definitions.exported(&resource) {
            names.push(Arc::new(names_of(&exported)));
            continue;
        }
        let Some(stored) = objects.get(&API_BINDINGS, &CUSTOM, scope, None, binding)? else { continue };
        let binding = objects.tree(&stored)?;
        let bound = binding["status"]["boundResources"].as_array().into_iter().flatten();
        let own = bound.filter(|bound| bound["resource"] == *resource.resource);
        let schemas = own.filter(|bound| bound["group"].as_str().unwrap_or_default() == group);
        for schema in schemas.filter_map(|bound| bound["schema"]["UID"].as_str()) {
            names.extend(definitions.bound_names(schema)?);
        }
    }
    Ok(names)
}

fn names_of(resource: &Arc<ServedResource>) -> CrdNames {
    CrdNames {
        plural: resource.name.resource.to_string(),
        singular: resource.singular.to_string(),
        kind: resource.kind.to_string(),
        list_kind: resource.list_kind.to_string(),
        short_names: resource.short_names.iter().map(ToString::to_string).collect(),
        categories: Vec::new(),
    }
}

/// Removes the lock of a CRD that is removed.
///
/// # Errors
/// 500 if the store cannot be read.
pub(crate) fn unlock(objects: &ObjectStore, scope: &Scope, name: &str) -> Result<Option<Mutation>, Status> {
    let stored = objects.get(&LOGICAL_CLUSTERS, &CUSTOM, scope, None, LOGICAL_CLUSTER_NAME)?;
    let Some(stored) = stored else { return Ok(None) };
    let mut tree = objects.tree(&stored)?;
    let mut locks = ResourceLocks::of(&tree);
    if !locks.unlock_crd(name) {
        return Ok(None);
    }
    locks.set(&mut tree);
    Ok(Some(update_of(objects, &stored, tree)?))
}

fn update_of(objects: &ObjectStore, stored: &StoredObject, tree: Value) -> Result<Mutation, Status> {
    let key = objects.key(&LOGICAL_CLUSTERS, &CUSTOM, stored.scope.as_str(), None, LOGICAL_CLUSTER_NAME);
    let before = stored.object.as_object();
    let encoded = objects.encode_managed(tree, before.schema_hash(), before.managed_fields())?;
    Ok(Mutation::update(key, stored.revision, encoded.stored().clone()))
}
