//! Paths of fields in APIConversions: `.spec.name.first`.

use serde_json::{Map, Value};

/// The names of the fields from the root to one field. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldNames(Vec<Box<str>>);

impl FieldNames {
    /// Parses a path with or without a dot at its beginning, as kcp does: dots are separators, whatever is around them.
    pub(super) fn parse(path: &str) -> Self {
        let path = path.strip_prefix('.').unwrap_or(path);
        Self(path.split('.').map(Box::from).collect())
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }

    /// The path without the dot at its beginning.
    pub(super) fn text(&self) -> String {
        self.0.join(".")
    }

    /// Whether the field is in the part of an object that the API server determines.
    pub(super) fn is_reserved(&self) -> bool {
        self.0.first().is_none_or(|root| matches!(&**root, "apiVersion" | "kind" | "metadata"))
    }

    /// The value of the field; `None` if it is absent or below a value that is no object.
    pub(super) fn find<'v>(&self, object: &'v Value) -> Option<&'v Value> {
        self.names().try_fold(object, |value, name| value.as_object()?.get(name))
    }

    /// Sets the field, and replaces a value above it that is no object: the field may have been a text in another version.
    pub(super) fn set(&self, object: &mut Value, value: Value) {
        let mut place = object;
        for name in self.names() {
            if !place.is_object() {
                *place = Value::Object(Map::new());
            }
            place = &mut place[name];
        }
        *place = value;
    }

    /// Removes the field.
    pub(super) fn remove(&self, object: &mut Value) {
        let Some((last, parents)) = self.0.split_last() else { return };
        let parent = parents.iter().try_fold(object, |value, name| value.get_mut(&**name));
        if let Some(fields) = parent.and_then(Value::as_object_mut) {
            fields.remove(&**last);
        }
    }
}
