//! Computes the write that makes a replica equal to its origin, as a pure function of both.

use fairlead_api::annotation;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// The compared parts of a replica: some 150 bytes, independent of the size of the object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Replica {
    pub(super) uid: Box<str>,
    pub(super) resource_version: u64,
    pub(super) content: ContentHash,
}

/// Hash of an object without the fields that differ between origin and replica: location and resource version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ContentHash([u8; 32]);

/// The next write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Plan {
    /// The replica is up to date.
    Nothing,
    /// The replica is missing.
    Create(Value),
    /// The replica differs.
    Update(Value),
    /// The replica has no origin, or belongs to an earlier object of the same name.
    Delete {
        /// UID of the replica's origin.
        uid: Box<str>,
    },
}

/// Compares an origin with its replica. If the origin is being deleted, the replica stays unchanged until the origin's
/// finalizers are removed.
pub(crate) fn plan(shard: &str, origin: Option<Value>, replica: Option<&Replica>) -> Plan {
    let delete = |replica: &Replica| Plan::Delete { uid: replica.uid.clone() };
    let Some(origin) = origin else {
        return replica.map_or(Plan::Nothing, delete);
    };
    let metadata = &origin["metadata"];
    if metadata["deletionTimestamp"].is_string() {
        let is_held = metadata["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
        return if is_held { Plan::Nothing } else { replica.map_or(Plan::Nothing, delete) };
    }
    let is_same = |replica: &Replica| metadata["uid"].as_str() == Some(&*replica.uid);
    match replica {
        None => Plan::Create(desired_replica(shard, origin)),
        Some(replica) if !is_same(replica) => delete(replica),
        Some(replica) => {
            let mut desired = desired_replica(shard, origin);
            if ContentHash::of(&desired) == replica.content {
                return Plan::Nothing;
            }
            desired["metadata"]["resourceVersion"] = replica.resource_version.to_string().into();
            Plan::Update(desired)
        }
    }
}

/// The desired replica of an object.
fn desired_replica(shard: &str, mut origin: Value) -> Value {
    if let Some(metadata) = origin.get_mut("metadata").and_then(Value::as_object_mut) {
        let version = metadata.remove("resourceVersion").unwrap_or_default();
        let uid = metadata.get("uid").cloned().unwrap_or_default();
        let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.remove(annotation::CLUSTER);
            annotations.insert(annotation::CACHE_SHARD.into(), shard.into());
            annotations.insert(annotation::ORIGINAL_RESOURCE_VERSION.into(), version);
            annotations.insert(annotation::ORIGINAL_UID.into(), uid);
        }
    }
    origin
}

impl Replica {
    /// Parses a replica from the cache server; `None` if it is malformed.
    pub(super) fn of(object: &Value) -> Option<Self> {
        let metadata = &object["metadata"];
        Some(Self {
            uid: metadata["uid"].as_str()?.into(),
            resource_version: metadata["resourceVersion"].as_str()?.parse().ok()?,
            content: ContentHash::of(object),
        })
    }
}

impl ContentHash {
    /// Hashes an object. Costs one serialization; the keys of maps are sorted.
    pub(super) fn of(object: &Value) -> Self {
        let mut hasher = Sha256::new();
        // Writing to a hasher cannot fail, and neither can serializing a tree that was parsed.
        let mut write = |value: &Value| drop(serde_json::to_writer(&mut hasher, value));
        for (name, value) in object.as_object().into_iter().flatten() {
            write(&Value::from(name.as_str()));
            if name != "metadata" {
                write(value);
                continue;
            }
            for (name, value) in value.as_object().into_iter().flatten() {
                match name.as_str() {
                    "resourceVersion" | "managedFields" | "selfLink" => {}
                    "annotations" => {
                        for (key, value) in value.as_object().into_iter().flatten() {
                            if key != annotation::CLUSTER && key != annotation::CACHE_SHARD {
                                write(&Value::from_iter([name.as_str(), key.as_str()]));
                                write(value);
                            }
                        }
                    }
                    _ => {
                        write(&Value::from(name.as_str()));
                        write(value);
                    }
                }
            }
        }
        Self(hasher.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn origin(changes: Value) -> Value {
        let mut object = json!({
            "apiVersion": "apis.kcp.io/v1alpha2",
            "kind": "APIExport",
            "metadata": {
                "name": "a", "uid": "u1", "generation": 2, "resourceVersion": "7",
                "annotations": {"kcp.io/cluster": "root", "own": "x"},
            },
            "spec": {"n": 1},
        });
        merge(&mut object, changes);
        object
    }

    fn merge(object: &mut Value, changes: Value) {
        match (object, changes) {
            (Value::Object(object), Value::Object(changes)) => {
                for (key, value) in changes {
                    merge(object.entry(key).or_insert(Value::Null), value);
                }
            }
            (object, value) => *object = value,
        }
    }

    /// The replica that a cache server would hold after the replication of an origin.
    fn replica(of: Value) -> Replica {
        let Plan::Create(mut stored) = plan("s1", Some(of), None) else { panic!("no creation") };
        merge(
            &mut stored,
            json!({"metadata": {"resourceVersion": "99", "annotations": {"kcp.io/cluster": "root", "kcp.io/shard": "s1"}}}),
        );
        Replica::of(&stored).unwrap()
    }

    #[test]
    fn each_difference_has_its_plan() {
        let same = replica(origin(json!({})));
        let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let held = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"]}});
        for (case, origin, replica, expected) in [
            ("no origin and no replica", None, None, "nothing"),
            ("a new origin", Some(json!({})), None, "create"),
            ("a replica without origin", None, Some(&same), "delete u1"),
            ("an equal replica", Some(json!({})), Some(&same), "nothing"),
            ("a changed spec", Some(json!({"spec": {"n": 2}})), Some(&same), "update 99"),
            ("a new status", Some(json!({"status": {"phase": "Ready"}})), Some(&same), "update 99"),
            ("a new label", Some(json!({"metadata": {"labels": {"a": "b"}}})), Some(&same), "update 99"),
            (
                "a new annotation",
                Some(json!({"metadata": {"annotations": {"own": "y"}}})),
                Some(&same),
                "update 99",
            ),
            (
                "a new version alone",
                Some(json!({"metadata": {"resourceVersion": "8"}})),
                Some(&same),
                "update 99",
            ),
            (
                "another object of that name",
                Some(json!({"metadata": {"uid": "u2"}})),
                Some(&same),
                "delete u1",
            ),
            ("a deleted origin", Some(deleting.clone()), Some(&same), "delete u1"),
            ("a deleted origin, without replica", Some(deleting), None, "nothing"),
            ("a deleted origin with finalizers", Some(held.clone()), Some(&same), "nothing"),
            ("a deleted origin with finalizers, without replica", Some(held), None, "nothing"),
        ] {
            let found = match plan("s1", origin.map(self::origin), replica) {
                Plan::Nothing => "nothing".to_owned(),
                Plan::Create(_) => "create".to_owned(),
                Plan::Update(body) => {
                    format!("update {}", body["metadata"]["resourceVersion"].as_str().unwrap())
                }
                Plan::Delete { uid } => format!("delete {uid}"),
            };
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn a_replica_carries_shard_uid_and_version_of_its_origin() {
        let Plan::Create(body) = plan("s1", Some(origin(json!({}))), None) else { panic!("no creation") };
        assert_eq!(
            body["metadata"],
            json!({
                "name": "a", "uid": "u1", "generation": 2,
                "annotations": {
                    "own": "x",
                    "kcp.io/shard": "s1",
                    "cache.kcp.io/original-resource-version": "7",
                    "cache.kcp.io/original-resource-UID": "u1",
                },
            })
        );
        assert_eq!(body["spec"], json!({"n": 1}));
    }
}
