//! The entry points of the fuzz targets of field sets and of server-side apply.

use std::borrow::Cow;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::fields::{FieldSet, path_text};
use super::ownership::{
    ApplyError, ConversionFailure, ManagedFields, Manager, ObjectVersions, apply, track_create, track_update,
};
use super::typed::{Duplicates, fields_of, merge, validate};
use super::types::ObjectType;
use crate::builtin::builtin_kinds;
use crate::decode::{MAX_DEPTH, depth_of};
use crate::{CompileOptions, Schema, schema_merge_type, untyped_merge_type};

/// A schema with all types of lists and objects.
static SCHEMA: LazyLock<Result<Schema, String>> = LazyLock::new(|| {
    let item = json!({"type": "object", "required": ["k"], "properties": {
        "k": {"type": "string"}, "p": {"type": "string", "default": "TCP"}, "v": {"type": "integer"},
        "s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    }});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "text": {"type": "string"},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "numbers": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "number"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item},
        "pairs": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"],
            "items": item},
        "list": {"type": "array", "items": {"type": "integer"}},
        "atomic": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "string"}}},
        "values": {"type": "object", "additionalProperties": {"type": "object", "properties": {
            "a": {"type": "string"}}}},
        "any": {"x-kubernetes-int-or-string": true},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "null": {"type": "object", "nullable": true, "properties": {"a": {"type": "string"}}},
    }}}});
    Schema::compile(&schema, &CompileOptions::structural()).map_err(|errors| format!("{errors:?}"))
});

/// `metadata.managedFields`, or a set of fields. What parses is the same when it is written and parsed again, and the
/// operations on sets hold.
pub(crate) fn field_sets(text: &str) {
    if let Ok(managed) = ManagedFields::parse(text.as_bytes()) {
        check_round_trip(&managed);
    }
    let Ok(set) = serde_json::from_str::<FieldSet>(text) else { return };
    let written = set.to_json();
    let again: Result<FieldSet, _> = serde_json::from_str(&written);
    assert!(again.is_ok_and(|again| again == set && again.to_json() == written), "{written}");
    set.for_each_path(&mut |path| {
        assert!(set.contains(path), "{}", path_text(path));
    });
    assert!(set.clone().union(set.clone()) == set && set.intersection(&set) == set && set.is_subset(&set));
    assert!(set.intersects(&set) != set.is_empty());
    assert!(set.clone().difference(&set).is_empty() && set.clone().difference_with_children(&set).is_empty());
}

/// An object, a configuration and another one, each in a line, of the built-in kind that they name or of a custom
/// resource. A second application of a configuration changes nothing; its manager owns what it applies.
pub(crate) fn apply_configurations(documents: &[Value]) {
    let [live, one, two, ..] = documents else { return };
    let schema = SCHEMA.as_ref();
    assert!(schema.is_ok(), "{schema:?}");
    let kind = builtin_kinds().iter().find(|known| one["kind"] == known.kind);
    let object_type = match (kind, schema) {
        (Some(kind), _) => kind.merge_type(),
        (None, Ok(schema)) if one["kind"] != "Any" => schema_merge_type(schema),
        _ => untyped_merge_type(),
    };
    let versions = OneVersion { object_type, reset: FieldSet::of_fields(&[&["status"]]) };
    let mut live = live.clone();
    let managed = live.get_mut("metadata").and_then(Value::as_object_mut);
    let managed = managed.and_then(|metadata| metadata.remove("managedFields")).unwrap_or_default();
    let managed = ManagedFields::of_value(&managed).unwrap_or_default();
    check_round_trip(&managed);
    let live = Some(&live).filter(|live| live.is_object());
    let Some((object, managed)) = versions.applied(managed, live, one, "one") else { return };
    if let Some((object, managed)) = versions.applied(managed.clone(), Some(&object), two, "two") {
        // The first configuration may conflict now.
        let again = apply(managed, Some(&object), one, &manager("one"), false, &versions);
        assert!(matches!(again, Ok(_) | Err(ApplyError::Conflicts(_))), "{again:?}");
    }
    for tracked in [
        track_update(managed.clone(), &object, two, &manager("three"), &versions),
        track_update(managed, two, &object, &manager("three"), &versions),
        track_create(ManagedFields::default(), two, &manager("three"), &versions),
    ] {
        check_round_trip(&tracked.unwrap_or_default());
    }
}

fn check_round_trip(managed: &ManagedFields) {
    let written = managed.to_json();
    let again = ManagedFields::parse(&written);
    assert!(
        again.is_ok_and(|again| again.has_same_owners(managed) && again.to_json() == written),
        "{}",
        String::from_utf8_lossy(&written)
    );
}

const fn manager(name: &str) -> Manager<'_> {
    Manager { name, api_version: "g/v1", subresource: "", now: "2026-01-01T00:00:00Z" }
}

struct OneVersion<'t> {
    object_type: ObjectType<'t>,
    reset: FieldSet,
}

impl ObjectVersions for OneVersion<'_> {
    fn object_type(&self, api_version: &str) -> Option<ObjectType<'_>> {
        (api_version == "g/v1").then_some(self.object_type)
    }

    fn convert<'v>(&self, object: &'v Value, _: &str) -> Result<Cow<'v, Value>, ConversionFailure> {
        Ok(Cow::Borrowed(object))
    }

    fn reset_fields(&self, _: &str) -> Option<&FieldSet> {
        Some(&self.reset)
    }
}

impl OneVersion<'_> {
    /// The object and its owners after a forced application; `None` if types are wrong.
    fn applied(
        &self,
        managed: ManagedFields,
        live: Option<&Value>,
        configuration: &Value,
        name: &str,
    ) -> Option<(Value, ManagedFields)> {
        let manager = manager(name);
        let is_right = |value: &Value, duplicates| validate(self.object_type, value, duplicates).is_ok();
        let are_right = live.is_none_or(|live| is_right(live, Duplicates::Allowed))
            && is_right(configuration, Duplicates::Refused);
        let applied = apply(managed, live, configuration, &manager, true, self);
        assert!(applied.is_ok() || !are_right, "{applied:?}");
        let applied = applied.ok()?;
        check_round_trip(&applied.managed);
        assert!(depth_of(&applied.object) <= MAX_DEPTH);
        let again =
            apply(applied.managed.clone(), Some(&applied.object), configuration, &manager, false, self);
        assert!(again.is_ok(), "{again:?}");
        let again = again.ok()?;
        assert!(again.object == applied.object, "{} {}", applied.object, again.object);
        assert!(again.managed.has_same_owners(&applied.managed));
        let fields = fields_of(self.object_type, configuration).unwrap_or_default();
        let fields = applied.managed.unowned(&manager, fields.difference_with_children(&self.reset));
        assert!(fields.is_empty(), "{}", fields.to_json());
        let mut merged = applied.object.clone();
        assert!(merge(self.object_type, &mut merged, configuration).is_ok() && merged == applied.object);
        Some((applied.object, applied.managed))
    }
}
