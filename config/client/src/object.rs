//! The few fields that all objects share, for users of the reflector that decode only what they need.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// An object of which only its metadata matters.
///
/// `A` is the type of the kept annotations; see [`ObjectMeta`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(bound(deserialize = "A: Deserialize<'de> + Default"))]
pub struct ObjectHead<A = BTreeMap<String, String>> {
    /// The metadata.
    #[serde(default)]
    pub metadata: ObjectMeta<A>,
}

/// The fields of `metadata` that identify an object and its version.
///
/// `A` is the type of the annotations. It selects which are kept: all of them (the default), none ([`Ignored`]), or a struct
/// with one field per required key:
///
/// ```
/// #[derive(Default, serde::Deserialize)]
/// struct ClusterOf {
///     #[serde(rename = "kcp.io/cluster")]
///     cluster: Option<String>,
/// }
/// type Head = fairlead_client::ObjectHead<ClusterOf>;
/// let head: Head = serde_json::from_str(r#"{"metadata":{"name":"a","annotations":{"kcp.io/cluster":"root"}}}"#)?;
/// assert_eq!(head.metadata.annotations.cluster.as_deref(), Some("root"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "A: Deserialize<'de> + Default"))]
pub struct ObjectMeta<A = BTreeMap<String, String>> {
    /// Name of the object.
    pub name: String,
    /// Namespace; empty for objects without one.
    pub namespace: String,
    /// UID of the object.
    pub uid: String,
    /// The version of this object, comparable as a number with others of the same server.
    pub resource_version: String,
    /// Generation of the desired state; 0 if the kind has none.
    pub generation: i64,
    /// RFC 3339.
    pub creation_timestamp: Option<String>,
    /// RFC 3339; set while finalizers hold the object.
    pub deletion_timestamp: Option<String>,
    /// Finalizers that block the deletion.
    #[serde(deserialize_with = "null_as_default")]
    pub finalizers: Vec<String>,
    /// Labels of the object.
    #[serde(deserialize_with = "null_as_default")]
    pub labels: BTreeMap<String, String>,
    /// Annotations, decoded into `A`.
    #[serde(deserialize_with = "null_as_default")]
    pub annotations: A,
}

/// Decodes from any JSON object and keeps nothing of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct Ignored {}

/// A list of objects as a server returns it.
#[derive(Debug, Clone, Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
pub struct List<T> {
    /// Version and continuation of the list.
    #[serde(default)]
    pub metadata: ListMeta,
    /// The objects. `null` is read as no objects.
    #[serde(default = "Vec::new", deserialize_with = "null_as_default")]
    pub items: Vec<T>,
}

/// The metadata of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListMeta {
    /// The revision at which the list was read.
    pub resource_version: String,
    /// Token for the next page; empty on the last one.
    #[serde(rename = "continue")]
    pub continue_token: String,
    /// Number of objects on further pages, if the server counts them.
    pub remaining_item_count: Option<i64>,
}

/// Go servers write `null` for empty maps and lists.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nulls_and_absent_fields_are_empty() {
        let json = r#"{"metadata":{"name":"a","creationTimestamp":null,"labels":null,"annotations":null}}"#;
        let head: ObjectHead = serde_json::from_str(json).unwrap();
        assert_eq!(head.metadata, ObjectMeta { name: "a".into(), ..ObjectMeta::default() });
        let list: List<ObjectHead> = serde_json::from_str(r#"{"metadata":{},"items":null}"#).unwrap();
        assert!(list.items.is_empty() && list.metadata.continue_token.is_empty());
    }

    #[test]
    fn annotations_can_be_ignored() {
        let json = r#"{"metadata":{"name":"a","annotations":{"x":"y"}},"spec":{"big":[1,2]}}"#;
        let head: ObjectHead<Ignored> = serde_json::from_str(json).unwrap();
        assert_eq!(head.metadata.name, "a");
    }
}
