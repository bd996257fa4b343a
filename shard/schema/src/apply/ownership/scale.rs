//! Ownership of the replicas of an object, as the subresource `scale` sees it: the entries of the object that own the
//! replicas, with paths in the Scale.

use std::collections::BTreeMap;

use super::super::fields::{FieldSet, PathElement};
use super::entries::{Entry, ManagedFields, ManagerIdentity, Operation};

/// The API version of a Scale.
const SCALE_API_VERSION: &str = "autoscaling/v1";

/// The path of the replicas in a Scale.
const SCALE_REPLICAS: &[&[&str]] = &[&["spec", "replicas"]];

/// The path of the replicas in each version (`group/version`) of a kind.
#[derive(Clone, Debug, Default)]
pub struct ReplicasPaths(BTreeMap<String, FieldSet>);

impl ReplicasPaths {
    /// Adds a version. `path` is `.spec.replicas`, or `None` for a version without the subresource.
    pub fn insert(&mut self, api_version: String, path: Option<&str>) {
        let mut fields = FieldSet::default();
        if let Some(path) = path {
            let names = path.strip_prefix('.').unwrap_or(path).split('.');
            fields.insert(&names.map(PathElement::field).collect::<Vec<_>>());
        }
        self.0.insert(api_version, fields);
    }

    /// The replicas, if the entry owns them.
    fn owned_by(&self, entry: &Entry) -> Option<&FieldSet> {
        self.0.get(&entry.api_version).filter(|path| entry.fields.intersects(path))
    }
}

impl ManagedFields {
    /// The entries of a Scale: those of its object that own the replicas.
    #[must_use]
    pub fn of_scale(&self, paths: &ReplicasPaths) -> Self {
        let mut scale = Self::default();
        for entry in self.entries.iter().filter(|entry| paths.owned_by(entry).is_some()) {
            let identity = in_version(&entry.identity, SCALE_API_VERSION);
            // Updates of one manager in several versions are one update of the Scale.
            if scale.get(&identity).is_none() {
                scale.entries.push(Entry {
                    identity,
                    api_version: SCALE_API_VERSION.to_owned(),
                    time: entry.time.clone(),
                    fields: FieldSet::of_fields(SCALE_REPLICAS),
                });
            }
        }
        scale
    }

    /// The entries of an object after a write of its Scale in a version of the object: an entry that `scale` does not have any
    /// more loses the replicas, and one that is new in `scale` gets them. As in Kubernetes, new entries have no time, and
    /// entries of versions that do not exist disappear.
    #[must_use]
    pub fn with_scale(self, mut scale: Self, api_version: &str, paths: &ReplicasPaths) -> Self {
        let replicas = FieldSet::of_fields(SCALE_REPLICAS);
        scale.entries.retain(|entry| entry.fields.intersects(&replicas));
        let mut added: Vec<ManagerIdentity> =
            scale.entries.iter().map(|entry| entry.identity.clone()).collect();
        let mut object = Self::default();
        for mut entry in self.entries.into_iter().filter(|entry| paths.0.contains_key(&entry.api_version)) {
            if let Some(path) = paths.owned_by(&entry) {
                let identity = in_version(&entry.identity, SCALE_API_VERSION);
                if scale.get(&identity).is_some() {
                    added.retain(|added| *added != identity);
                } else {
                    entry.fields = entry.fields.difference(path);
                }
            }
            if !entry.fields.is_empty() {
                object.entries.push(entry);
            }
        }
        let Some(path) = paths.0.get(api_version) else { return object };
        for identity in added {
            let identity = in_version(&identity, api_version);
            let previous = object.remove(&identity);
            let (fields, time) = previous.map(|entry| (entry.fields, entry.time)).unwrap_or_default();
            object.entries.push(Entry {
                identity,
                api_version: api_version.to_owned(),
                time,
                fields: fields.union(path.clone()),
            });
        }
        object
    }
}

/// The manager as it is named in entries of another version.
fn in_version(identity: &ManagerIdentity, api_version: &str) -> ManagerIdentity {
    let version = if identity.operation == Operation::Update { api_version } else { "" };
    ManagerIdentity { version: version.to_owned(), ..identity.clone() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::{Value, json};

    use super::*;

    fn paths() -> ReplicasPaths {
        let mut paths = ReplicasPaths::default();
        paths.insert("a.io/v1".to_owned(), Some(".spec.size"));
        paths.insert("a.io/v2".to_owned(), Some(".spec.ships.count"));
        paths.insert("a.io/v3".to_owned(), None);
        paths
    }

    fn entry(manager: &str, operation: &str, version: &str, fields: Value, subresource: &str) -> Value {
        let mut entry = json!({
            "manager": manager, "operation": operation, "apiVersion": version, "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        });
        if !subresource.is_empty() {
            entry["subresource"] = subresource.into();
        }
        entry
    }

    fn timed(mut entry: Value) -> Value {
        entry["time"] = json!("2024-01-01T00:00:00Z");
        entry
    }

    fn json_of(managed: &ManagedFields) -> Value {
        let json = managed.to_json();
        if json.is_empty() { json!([]) } else { serde_json::from_slice(&json).unwrap() }
    }

    fn replicas() -> Value {
        json!({"f:spec": {"f:replicas": {}}})
    }

    #[test]
    fn a_scale_has_the_owners_of_the_replicas() {
        let size = json!({"f:spec": {"f:size": {}, "f:color": {}}});
        for (object, expected) in [
            (json!([]), json!([])),
            (
                json!([timed(entry("a", "Apply", "a.io/v1", size.clone(), ""))]),
                json!([timed(entry("a", "Apply", "autoscaling/v1", replicas(), ""))]),
            ),
            (
                json!([entry(
                    "a",
                    "Update",
                    "a.io/v2",
                    json!({"f:spec": {"f:ships": {"f:count": {}}}}),
                    "scale"
                )]),
                json!([entry("a", "Update", "autoscaling/v1", replicas(), "scale")]),
            ),
            // Another version has another path, or none, or does not exist.
            (json!([entry("a", "Apply", "a.io/v2", size.clone(), "")]), json!([])),
            (json!([entry("a", "Apply", "a.io/v3", size.clone(), "")]), json!([])),
            (json!([entry("a", "Apply", "a.io/v4", size, "")]), json!([])),
        ] {
            let scale = ManagedFields::of_value(&object).unwrap().of_scale(&paths());
            assert_eq!(json_of(&scale), expected, "{object}");
        }
    }

    #[test]
    fn a_written_scale_moves_the_replicas_between_the_owners_of_the_object() {
        let size = || json!({"f:spec": {"f:size": {}}});
        let both = || json!({"f:spec": {"f:color": {}, "f:size": {}}});
        let color = || json!({"f:spec": {"f:color": {}}});
        let a = |fields| timed(entry("a", "Apply", "a.io/v1", fields, ""));
        for (object, scale, expected) in [
            // Another manager takes the replicas; the rest stays.
            (
                json!([a(both())]),
                json!([timed(entry("b", "Update", "autoscaling/v1", replicas(), "scale"))]),
                json!([a(color()), entry("b", "Update", "a.io/v1", size(), "scale")]),
            ),
            // An entry without other fields disappears.
            (
                json!([a(size())]),
                json!([entry("b", "Apply", "autoscaling/v1", replicas(), "scale")]),
                json!([entry("b", "Apply", "a.io/v1", size(), "scale")]),
            ),
            // Nothing was taken.
            (json!([a(both())]), json!([a(replicas())]), json!([a(both())])),
            (
                json!([timed(entry("a", "Update", "a.io/v1", both(), ""))]),
                json!([
                    entry("a", "Update", "autoscaling/v1", replicas(), ""),
                    entry("b", "Apply", "autoscaling/v1", replicas(), "scale")
                ]),
                json!([
                    entry("b", "Apply", "a.io/v1", size(), "scale"),
                    timed(entry("a", "Update", "a.io/v1", both(), ""))
                ]),
            ),
            // Fields of a Scale that its object does not have.
            (
                json!([a(both())]),
                json!([
                    a(replicas()),
                    entry("b", "Update", "autoscaling/v1", json!({"f:status": {"f:replicas": {}}}), "scale")
                ]),
                json!([a(both())]),
            ),
            // A version that does not exist.
            (json!([entry("a", "Apply", "a.io/v4", both(), "")]), json!([]), json!([])),
            // A version without `scale` keeps its fields.
            (
                json!([entry("a", "Apply", "a.io/v3", both(), "")]),
                json!([entry("b", "Apply", "autoscaling/v1", replicas(), "scale")]),
                json!([
                    entry("a", "Apply", "a.io/v3", both(), ""),
                    entry("b", "Apply", "a.io/v1", size(), "scale")
                ]),
            ),
        ] {
            let parse = |json: &Value| ManagedFields::of_value(json).unwrap();
            let after = parse(&object).with_scale(parse(&scale), "a.io/v1", &paths());
            assert_eq!(json_of(&after), expected, "{object} {scale}");
        }
    }
}
