//! The Partitions of a PartitionSet, as a pure function of the set, its Partitions and the shards.

use std::collections::{BTreeMap, BTreeSet};

use fairlead_api::{Condition, Severity, condition_type, conditions_of, set_condition, write_conditions};
use fairlead_process::Status;
use fairlead_schema::names::dns1123_subdomain;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::placement::ShardInfo;
use crate::shard_selector::ShardSelector;

/// Reason of `PartitionsReady` if some Partitions cannot be created.
const GENERATION_FAILED: &str = "ErrorGeneratingPartitions";
/// The longest part of a Partition's name that is derived from the set and the values of its dimensions.
const MAX_NAME_BASE: usize = 252;

/// The labels that the shards of a Partition have in common.
type Group = BTreeMap<String, String>;

/// The next state of a PartitionSet and its Partitions.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    /// The set with its new status.
    pub(super) set: Value,
    /// Indexes of the Partitions to delete.
    pub(super) obsolete: Vec<usize>,
    /// The Partitions to create.
    pub(super) missing: Vec<Value>,
}

/// Divides shards into one Partition per combination of values of the dimensions. `partitions` are those that the set owns;
/// `generate_name` returns a name with a prefix.
///
/// # Errors
/// Those of `generate_name`.
pub(super) fn plan(
    set: &Value,
    shards: &[ShardInfo],
    partitions: &[Value],
    now: Timestamp,
    generate_name: impl Fn(&str) -> Result<String, Status>,
) -> Result<Plan, Status> {
    let mut plan = Plan { set: set.clone(), obsolete: Vec::new(), missing: Vec::new() };
    let mut conditions = conditions_of(set);
    let not_ready = |message: &str| {
        Condition::unmet(condition_type::PARTITIONS_READY, Severity::Error, GENERATION_FAILED, message)
    };
    let selector = match ShardSelector::of_object(&set["spec"]["shardSelector"]) {
        Ok(selector) => selector,
        Err(message) => {
            let kind = condition_type::PARTITION_SET_VALID;
            let invalid = Condition::unmet(kind, Severity::Error, "InvalidSelector", message);
            set_condition(&mut conditions, invalid, now);
            set_condition(&mut conditions, not_ready(""), now);
            write_conditions(&mut plan.set, &conditions);
            return Ok(plan);
        }
    };
    set_condition(&mut conditions, Condition::met(condition_type::PARTITION_SET_VALID), now);

    let dimensions = dimensions(set);
    let mut groups = groups(set, &dimensions, shards.iter().filter(|shard| selector.selects(&shard.labels)));
    set_count(&mut plan.set, groups.len());
    let expressions = expressions(&set["spec"]["shardSelector"]);
    let mut existing = BTreeSet::new();
    for (index, partition) in partitions.iter().enumerate() {
        let own = &partition["spec"]["selector"];
        let group = group_of(own);
        if self::expressions(own) == expressions && groups.contains(&group) {
            existing.insert(group);
        } else {
            plan.obsolete.push(index);
        }
    }
    groups.retain(|group| !existing.contains(group));
    let mut ready = Condition::met(condition_type::PARTITIONS_READY);
    for group in groups {
        let prefix = name_prefix(set, &group, &dimensions);
        let name = generate_name(&prefix)?;
        // A label value may have characters that a name may not have.
        if !dns1123_subdomain(&name).is_empty() {
            ready = not_ready("partition could not get created");
            continue;
        }
        plan.missing.push(partition(set, &name, &prefix, &group, &expressions));
    }
    set_condition(&mut conditions, ready, now);
    write_conditions(&mut plan.set, &conditions);
    Ok(plan)
}

fn dimensions(set: &Value) -> BTreeSet<&str> {
    set["spec"]["dimensions"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The different values of the labels that divide the shards: the dimensions, and the labels in the selector. A shard
/// without one of the labels is in no group.
fn groups<'s>(
    set: &Value,
    dimensions: &BTreeSet<&str>,
    shards: impl Iterator<Item = &'s ShardInfo>,
) -> BTreeSet<Group> {
    let mut keys = dimensions.clone();
    let selected = set["spec"]["shardSelector"]["matchLabels"].as_object();
    keys.extend(selected.into_iter().flat_map(Map::keys).map(String::as_str));
    if keys.is_empty() {
        return BTreeSet::new();
    }
    let group = |shard: &ShardInfo| -> Option<Group> {
        let value = |key: &&str| Some(((*key).to_owned(), shard.labels.get(*key)?.clone()));
        keys.iter().map(value).collect()
    };
    shards.filter_map(group).collect()
}

fn group_of(selector: &Value) -> Group {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    labels.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

/// The expressions of a selector. An empty list of values equals an absent one.
fn expressions(selector: &Value) -> Vec<Value> {
    let mut all = selector["matchExpressions"].as_array().cloned().unwrap_or_default();
    for expression in all.iter_mut().filter_map(Value::as_object_mut) {
        if expression.get("values").is_some_and(|values| values.as_array().is_none_or(Vec::is_empty)) {
            expression.remove("values");
        }
    }
    all
}

fn set_count(set: &mut Value, count: usize) {
    if !set["status"].is_object() {
        set["status"] = json!({});
    }
    if let Some(status) = set["status"].as_object_mut() {
        match count {
            0 => status.remove("count"),
            _ => status.insert("count".into(), count.into()),
        };
    }
}

/// `generateName` of a Partition: the name of the set and the values of its dimensions.
fn name_prefix(set: &Value, group: &Group, dimensions: &BTreeSet<&str>) -> String {
    let mut base = set["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    for dimension in dimensions {
        base.push('-');
        base.push_str(&group.get(*dimension).map(|value| value.to_lowercase()).unwrap_or_default());
    }
    let mut end = base.len().min(MAX_NAME_BASE);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    base.truncate(end);
    base.push('-');
    base
}

fn partition(set: &Value, name: &str, prefix: &str, group: &Group, expressions: &[Value]) -> Value {
    let mut selector = json!({"matchLabels": group});
    if !expressions.is_empty() {
        selector["matchExpressions"] = expressions.into();
    }
    json!({
        "apiVersion": "topology.kcp.io/v1alpha1",
        "kind": "Partition",
        "metadata": {
            "name": name,
            "generateName": prefix,
            "ownerReferences": [{
                "apiVersion": "topology.kcp.io/v1alpha1",
                "kind": "PartitionSet",
                "name": set["metadata"]["name"],
                "uid": set["metadata"]["uid"],
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {"selector": selector},
    })
}
