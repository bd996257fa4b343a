//! The entries of `metadata.managedFields`, parsed and written.

use core::cmp::Ordering;
use std::borrow::Cow;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::fields::FieldSet;

/// The owners of an object's fields.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ManagedFields {
    pub(super) entries: Vec<Entry>,
}

/// One manager and its fields.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    pub(super) identity: ManagerIdentity,
    /// The version to which the paths of the fields refer.
    pub(super) api_version: String,
    /// RFC 3339.
    pub(super) time: Option<String>,
    pub(super) fields: FieldSet,
}

/// What distinguishes entries: updates in several versions have one entry each, applied configurations have one.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct ManagerIdentity {
    pub(super) name: String,
    pub(super) operation: Operation,
    /// The version of an update; empty for an applied configuration.
    pub(super) version: String,
    pub(super) subresource: String,
}

/// The kind of write by which a manager became an owner.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Any other write.
    Update,
}

impl ManagerIdentity {
    pub(super) fn new(name: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let version = if operation == Operation::Update { api_version } else { "" };
        let text = |text: &str| text.to_owned();
        Self { name: text(name), operation, version: text(version), subresource: text(subresource) }
    }

    /// The text by which Kubernetes sorts managers.
    pub(super) fn sort_key(&self) -> String {
        let optional = |name: &str, text: &str| match text {
            "" => String::new(),
            text => format!(",\"{name}\":{}", Value::from(text)),
        };
        format!(
            "{{\"manager\":{},\"operation\":\"{:?}\"{}{}}}",
            Value::from(self.name.as_str()),
            self.operation,
            optional("apiVersion", &self.version),
            optional("subresource", &self.subresource),
        )
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireEntry<'a> {
    #[serde(borrow, default)]
    manager: Cow<'a, str>,
    operation: Operation,
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    time: Option<Cow<'a, str>>,
    #[serde(borrow)]
    fields_type: Cow<'a, str>,
    #[serde(default)]
    fields_v1: Option<FieldSet>,
    #[serde(borrow, default)]
    subresource: Cow<'a, str>,
}

impl WireEntry<'_> {
    /// What distinguishes it from other entries.
    fn identity(&self) -> (&str, Operation, &str, &str) {
        let version = if self.operation == Operation::Update { &*self.api_version } else { "" };
        (&self.manager, self.operation, version, &self.subresource)
    }
}

impl ManagedFields {
    /// Parses the stored form; empty bytes are no entries.
    ///
    /// # Errors
    /// [`InvalidManagedFields`].
    pub fn parse(json: &[u8]) -> Result<Self, InvalidManagedFields> {
        if json.is_empty() {
            return Ok(Self::default());
        }
        let invalid = |error: serde_json::Error| InvalidManagedFields(error.to_string());
        Self::of_wire(serde_json::from_slice(json).map_err(invalid)?)
    }

    /// Parses `metadata.managedFields` of an object.
    ///
    /// # Errors
    /// [`InvalidManagedFields`].
    pub fn of_value(value: &Value) -> Result<Self, InvalidManagedFields> {
        if value.is_null() {
            return Ok(Self::default());
        }
        let invalid = |error: serde_json::Error| InvalidManagedFields(error.to_string());
        Self::of_wire(Vec::<WireEntry<'_>>::deserialize(value).map_err(invalid)?)
    }

    fn of_wire(wire: Vec<WireEntry<'_>>) -> Result<Self, InvalidManagedFields> {
        // Of several entries of a manager, the last one counts.
        let mut known = FxHashSet::default();
        let mut is_last: Vec<bool> = wire.iter().rev().map(|entry| known.insert(entry.identity())).collect();
        is_last.reverse();
        let mut managed = Self::default();
        for (entry, is_last) in wire.into_iter().zip(is_last) {
            if entry.api_version.is_empty() {
                return Err(InvalidManagedFields("apiVersion must not be empty".to_owned()));
            }
            if entry.fields_type != "FieldsV1" {
                return Err(InvalidManagedFields(format!("invalid fieldsType {:?}", entry.fields_type)));
            }
            let identity =
                ManagerIdentity::new(&entry.manager, entry.operation, &entry.api_version, &entry.subresource);
            if !is_last {
                continue;
            }
            let fields = entry.fields_v1.unwrap_or_default();
            managed.entries.push(Entry {
                identity,
                api_version: entry.api_version.into_owned(),
                time: entry.time.map(Cow::into_owned),
                fields,
            });
        }
        Ok(managed)
    }

    /// Whether no field has an owner.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the same managers own the same fields, whatever the times.
    pub fn has_same_owners(&self, other: &Self) -> bool {
        let others: FxHashMap<&ManagerIdentity, &Entry> =
            other.entries.iter().map(|entry| (&entry.identity, entry)).collect();
        self.entries.len() == other.entries.len()
            && self.entries.iter().all(|entry| {
                others
                    .get(&entry.identity)
                    .is_some_and(|same| same.api_version == entry.api_version && same.fields == entry.fields)
            })
    }

    /// The stored form: JSON in the order of Kubernetes; no bytes for no entries.
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.entries.is_empty() {
            return out;
        }
        let mut sorted: Vec<&Entry> = self.entries.iter().collect();
        sorted.sort_by(|one, two| wire_order(one, two));
        for (index, entry) in sorted.into_iter().enumerate() {
            out.push(if index == 0 { b'[' } else { b',' });
            entry.write_json(&mut out);
        }
        out.push(b']');
        out
    }

    pub(super) fn get(&self, identity: &ManagerIdentity) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.identity == *identity)
    }

    /// Those of the fields that the manager does not own by application, except for fields that nobody owns.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn unowned(&self, manager: &super::update::Manager<'_>, fields: FieldSet) -> FieldSet {
        let fields = super::update::without_server_fields(fields);
        match self.get(&manager.identity(Operation::Apply)) {
            Some(own) => fields.difference(&own.fields),
            None => fields,
        }
    }

    pub(super) fn remove(&mut self, identity: &ManagerIdentity) -> Option<Entry> {
        let index = self.entries.iter().position(|entry| entry.identity == *identity)?;
        Some(self.entries.swap_remove(index))
    }
}

impl Entry {
    pub(super) fn is_applied(&self) -> bool {
        self.identity.operation == Operation::Apply
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        let mut field = |name: &str, text: &str| {
            out.push(if name == "manager" { b'{' } else { b',' });
            out.extend_from_slice(format!("\"{name}\":{}", Value::from(text)).as_bytes());
        };
        field("manager", &self.identity.name);
        field("operation", if self.is_applied() { "Apply" } else { "Update" });
        field("apiVersion", &self.api_version);
        if let Some(time) = &self.time {
            field("time", time);
        }
        field("fieldsType", "FieldsV1");
        out.extend_from_slice(b",\"fieldsV1\":");
        self.fields.write_json(out);
        if !self.identity.subresource.is_empty() {
            out.extend_from_slice(
                format!(",\"subresource\":{}", Value::from(self.identity.subresource.as_str())).as_bytes(),
            );
        }
        out.push(b'}');
    }

    /// Seconds since the epoch; 0 without a time.
    pub(super) fn seconds(&self) -> i64 {
        let time = self.time.as_deref().and_then(|time| time.parse::<jiff::Timestamp>().ok());
        time.map_or(0, jiff::Timestamp::as_second)
    }
}

fn wire_order(one: &Entry, two: &Entry) -> Ordering {
    let by_time = || match (&one.time, &two.time) {
        (one_time, two_time) if one_time == two_time => Ordering::Equal,
        _ => one.seconds().cmp(&two.seconds()),
    };
    let (a, b) = (&one.identity, &two.identity);
    a.operation
        .cmp(&b.operation)
        .then_with(by_time)
        .then_with(|| a.name.cmp(&b.name))
        .then_with(|| one.api_version.cmp(&two.api_version))
        .then_with(|| a.subresource.cmp(&b.subresource))
}

/// Whether a client asks to forget all owners: by an empty list, or a list of one empty entry.
pub fn is_reset(managed_fields: &Value) -> bool {
    match managed_fields.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(only)]) => only.is_empty(),
        _ => false,
    }
}

/// `managedFields` that cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("invalid managedFields: {0}")]
pub struct InvalidManagedFields(pub String);
