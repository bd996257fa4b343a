//! The conditions of an APIExportEndpointSlice and the selector of its shards, as a pure function of the slice, its export
//! and its Partition.

use fairlead_api::{Condition, Severity, condition_type, conditions_of, set_condition, write_conditions};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::shard_selector::ShardSelector;

/// The result of the look-up of a slice's export.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ExportState {
    Found,
    NotFound,
    /// The look-up failed, and is repeated.
    Unknown,
}

/// The Partition of a slice.
#[derive(Clone, Copy, Debug)]
pub(super) enum PartitionState<'p> {
    /// The slice names none.
    Unset,
    NotFound,
    Found(&'p Value),
}

/// The slice with its conditions and `status.shardSelector`. Without export or Partition it has no endpoints.
pub(super) fn plan(
    slice: &Value,
    cluster: &str,
    export: ExportState,
    partition: PartitionState<'_>,
    now: Timestamp,
) -> Value {
    let mut new = slice.clone();
    let mut conditions = conditions_of(slice);
    let valid_export = export_condition(slice, cluster, export);
    set_condition(&mut conditions, valid_export, now);
    match export {
        ExportState::Found => {}
        ExportState::NotFound => {
            set_status(&mut new, "endpoints", None);
            write_conditions(&mut new, &conditions);
            return new;
        }
        ExportState::Unknown => {
            write_conditions(&mut new, &conditions);
            return new;
        }
    }
    set_partition(slice, &mut new, &mut conditions, partition, now);
    write_conditions(&mut new, &conditions);
    new
}

/// Sets the condition of the Partition, and `status.shardSelector`.
pub(super) fn set_partition(
    slice: &Value,
    new: &mut Value,
    conditions: &mut Vec<Condition>,
    partition: PartitionState<'_>,
    now: Timestamp,
) {
    let invalid = |message: String| {
        let kind = condition_type::PARTITION_VALID;
        Condition::unmet(kind, Severity::Error, "PartitionInvalidReference", message)
    };
    let selector = match partition {
        PartitionState::Unset => Ok(ShardSelector::of_object(&Value::Null)),
        PartitionState::Found(partition) => Ok(ShardSelector::of_object(&partition["spec"]["selector"])),
        PartitionState::NotFound => {
            let name = slice["spec"]["partition"].as_str().unwrap_or_default();
            Err(format!("partition.topology.kcp.io {name:?} not found"))
        }
    };
    let condition = match selector {
        Ok(Ok(selector)) => {
            let text = Some(selector.text()).filter(|text| !text.is_empty());
            set_status(new, "shardSelector", text);
            Condition::met(condition_type::PARTITION_VALID)
        }
        // The endpoints stay: the shards are the same until the selector is corrected.
        Ok(Err(message)) => invalid(message),
        Err(message) => {
            set_status(new, "endpoints", None);
            invalid(message)
        }
    };
    set_condition(conditions, condition, now);
}

fn export_condition(slice: &Value, cluster: &str, export: ExportState) -> Condition {
    let reason = match export {
        ExportState::Found => return Condition::met(condition_type::API_EXPORT_VALID),
        ExportState::NotFound => "APIExportNotFound",
        ExportState::Unknown => "InternalError",
    };
    let (path, name) = export_reference(slice, cluster);
    let message = format!("Error getting APIExport {path}|{name}");
    Condition::unmet(condition_type::API_EXPORT_VALID, Severity::Error, reason, message)
}

/// Path or logical cluster, and name of the export of a slice. An absent path means the slice's logical cluster.
pub(super) fn export_reference<'s>(slice: &'s Value, cluster: &'s str) -> (&'s str, &'s str) {
    let reference = &slice["spec"]["export"];
    let path = reference["path"].as_str().filter(|path| !path.is_empty()).unwrap_or(cluster);
    (path, reference["name"].as_str().unwrap_or_default())
}

/// Sets a field of the status, or removes it.
pub(super) fn set_status(slice: &mut Value, field: &str, text: Option<&str>) {
    if !slice["status"].is_object() {
        slice["status"] = json!({});
    }
    if let Some(status) = slice["status"].as_object_mut() {
        match text {
            Some(text) => status.insert(field.to_owned(), text.into()),
            None => status.remove(field),
        };
    }
}
