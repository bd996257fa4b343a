//! The rules of a kind: fields that a write may set, validation, and deletion.

use fairlead_schema::FieldError;
use fairlead_schema::crd::ScalePaths;
use serde_json::{Map, Value};

/// The resource, version and subresource of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WriteTarget<'a> {
    /// The object itself.
    Main,
    /// One of its subresources.
    Subresource(&'a str),
}

/// The subresource of the Scale of an object.
pub const SCALE: &str = "scale";

impl<'a> WriteTarget<'a> {
    /// The target of a write to a subresource, or to the object. A Scale is a view of the object itself, so its writes follow
    /// the rules of the object.
    pub fn of(subresource: Option<&'a str>) -> Self {
        match subresource {
            None | Some(SCALE) => Self::Main,
            Some(subresource) => Self::Subresource(subresource),
        }
    }
}

/// The rules of a kind, as pure functions on trees. Generic rules (metadata, schemas) are applied by
/// the registry around them.
pub trait Strategy: Send + Sync {
    /// Fills and clears fields of a new object before it is validated.
    fn prepare_create(&self, object: &mut Value);

    /// Restores the fields of `new` that this write may not change, from the stored `old`.
    fn prepare_update(&self, write: WriteTarget<'_>, old: &Value, new: &mut Value);

    /// The fields that such a write does not change, as their names from the root: its manager does not own them.
    fn reset_fields(&self, write: WriteTarget<'_>) -> &'static [&'static [&'static str]] {
        let _ = write;
        &[]
    }

    /// The errors of a new object.
    fn validate_create(&self, object: &Value) -> Vec<FieldError>;

    /// The errors of a changed object.
    fn validate_update(&self, write: WriteTarget<'_>, old: &Value, new: &Value) -> Vec<FieldError>;

    /// Marks an object whose deletion was requested but has to wait for other work. Returns whether it has
    /// to wait; the registry applies the generic rule (finalizers) in addition.
    fn begin_deletion(&self, object: &mut Value) -> Deferral {
        let _ = object;
        Deferral::None
    }

    /// Whether an object that is marked for deletion still waits for something besides finalizers.
    fn holds_deletion(&self, object: &Value) -> bool {
        let _ = object;
        false
    }

    /// Whether a PUT without a resourceVersion overwrites the object.
    fn allows_unconditional_update(&self) -> bool {
        true
    }

    /// Whether a PUT of an absent object creates it (leases).
    fn allows_create_on_update(&self) -> bool {
        false
    }

    /// Whether the response to a delete is the object, instead of a Status.
    fn returns_deleted(&self) -> bool {
        false
    }

    /// The paths of the `scale` subresource.
    fn scale(&self) -> Option<&ScalePaths> {
        None
    }

    /// Whether changes outside of metadata and status increment `metadata.generation`.
    fn counts_generations(&self) -> bool {
        true
    }
}

/// Whether deletion has to wait for more than finalizers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Deferral {
    /// Only finalizers count.
    None,
    /// The object was marked and waits for other work.
    Marked,
}

/// The rules of custom resources. They depend on the subresources of the version.
#[derive(Clone, Debug, Default)]
pub struct CustomStrategy {
    /// Whether `status` is a subresource of its own.
    pub has_status_subresource: bool,
    /// The paths of the `scale` subresource.
    pub scale: Option<ScalePaths>,
}

impl Strategy for CustomStrategy {
    fn prepare_create(&self, object: &mut Value) {
        if self.has_status_subresource
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
    }

    fn prepare_update(&self, write: WriteTarget<'_>, old: &Value, new: &mut Value) {
        let (Some(old), Some(new)) = (old.as_object(), new.as_object_mut()) else {
            return;
        };
        match write {
            WriteTarget::Main if self.has_status_subresource => copy_field("status", old, new),
            WriteTarget::Main => {}
            WriteTarget::Subresource(_) => restore_all_but_status(old, new),
        }
    }

    fn reset_fields(&self, write: WriteTarget<'_>) -> &'static [&'static [&'static str]] {
        match write {
            WriteTarget::Main if self.has_status_subresource => &[&["status"]],
            WriteTarget::Main => &[],
            WriteTarget::Subresource(_) => &[&["metadata"], &["spec"]],
        }
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let Some(scale) = &self.scale else { return Vec::new() };
        let mut errors = scale.validate_spec(object);
        errors.extend(scale.validate_status(object));
        errors
    }

    fn validate_update(&self, write: WriteTarget<'_>, _old: &Value, new: &Value) -> Vec<FieldError> {
        match (write, &self.scale) {
            (WriteTarget::Main, _) => self.validate_create(new),
            (WriteTarget::Subresource(_), Some(scale)) => scale.validate_status(new),
            (WriteTarget::Subresource(_), None) => Vec::new(),
        }
    }

    fn scale(&self) -> Option<&ScalePaths> {
        self.scale.as_ref()
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }
}

/// A write to `status` changes nothing but the status.
fn restore_all_but_status(old: &Map<String, Value>, new: &mut Map<String, Value>) {
    let status = new.remove("status");
    let resource_version = new.get("metadata").and_then(|metadata| metadata.get("resourceVersion")).cloned();
    *new = old.clone();
    match status {
        Some(status) => new.insert("status".into(), status),
        None => new.remove("status"),
    };
    if let (Some(version), Some(metadata)) =
        (resource_version, new.get_mut("metadata").and_then(Value::as_object_mut))
    {
        metadata.insert("resourceVersion".into(), version);
    }
}

fn copy_field(name: &str, from: &Map<String, Value>, to: &mut Map<String, Value>) {
    match from.get(name) {
        Some(value) => to.insert(name.into(), value.clone()),
        None => to.remove(name),
    };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn status_and_the_rest_do_not_touch_each_other() {
        let with = CustomStrategy { has_status_subresource: true, scale: None };
        let without = CustomStrategy::default();
        let old = json!({"metadata": {"name": "a", "labels": {"x": "1"}}, "spec": 1, "status": 1});
        let new = json!({"metadata": {"name": "a"}, "spec": 2, "status": 2});
        for (strategy, write, expected) in [
            (&with, WriteTarget::Main, json!({"metadata": {"name": "a"}, "spec": 2, "status": 1})),
            (&without, WriteTarget::Main, new.clone()),
            (
                &with,
                WriteTarget::Subresource("status"),
                json!({"metadata": {"name": "a", "labels": {"x": "1"}}, "spec": 1, "status": 2}),
            ),
        ] {
            let mut changed = new.clone();
            strategy.prepare_update(write, &old, &mut changed);
            assert_eq!(changed, expected, "{strategy:?} {write:?}");
        }
        let mut created = new;
        with.prepare_create(&mut created);
        assert_eq!(created.get("status"), None);
    }
}
