//! The fields in which two values of a type differ.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::error::TypeError;
use super::item::element_of;
use super::{Form, Forms, is_scalar};
use crate::apply::fields::{FieldSet, PathElement, equal_values};
use crate::apply::types::{ListRelation, ListType, MapType, ObjectType, TypeRef};

/// The fields in which a value differs from an earlier one. A field is in at most one of the sets.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Changes {
    pub(crate) added: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) removed: FieldSet,
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// The changes without some fields and all below them.
    pub(crate) fn without(self, ignored: &FieldSet) -> Self {
        Self {
            added: self.added.difference_with_children(ignored),
            modified: self.modified.difference_with_children(ignored),
            removed: self.removed.difference_with_children(ignored),
        }
    }
}

/// Compares two objects. One pass over both; equal parts cost no allocation, except lists that are owned by item.
///
/// # Errors
/// A list has an item that cannot be identified, or a value has another type.
pub(crate) fn compare(object_type: ObjectType<'_>, old: &Value, new: &Value) -> Result<Changes, TypeError> {
    Comparison { object_type }.value(object_type.root, Some(old), Some(new)).map(|found| found.below)
}

struct Comparison<'t> {
    object_type: ObjectType<'t>,
}

/// The changes at a place: of the value itself, and below it.
#[derive(Default)]
struct Found {
    is_added: bool,
    is_modified: bool,
    is_removed: bool,
    below: Changes,
}

impl Found {
    /// The change of a value that is owned as a whole.
    fn leaf(old: Option<&Value>, new: Option<&Value>) -> Self {
        let mut found = Self::default();
        match (old, new) {
            (None, _) => found.is_added = true,
            (_, None) => found.is_removed = true,
            (Some(old), Some(new)) => found.is_modified = !equal_values(old, new),
        }
        found
    }

    fn join(&mut self, other: Self) {
        self.is_added |= other.is_added;
        self.is_modified |= other.is_modified;
        self.is_removed |= other.is_removed;
        let below = core::mem::take(&mut self.below);
        self.below = Changes {
            added: below.added.union(other.below.added),
            modified: below.modified.union(other.below.modified),
            removed: below.removed.union(other.below.removed),
        };
    }
}

impl Changes {
    fn push(&mut self, element: PathElement, found: Found) {
        let Found { is_added, is_modified, is_removed, below } = found;
        for (set, is_member, children) in [
            (&mut self.added, is_added, below.added),
            (&mut self.modified, is_modified, below.modified),
            (&mut self.removed, is_removed, below.removed),
        ] {
            if is_member || !children.is_empty() {
                set.push(element.clone(), is_member, children);
            }
        }
    }
}

impl Comparison<'_> {
    /// Compares two values of which at least one is present.
    fn value(&self, place: TypeRef, old: Option<&Value>, new: Option<&Value>) -> Result<Found, TypeError> {
        let declared = self.object_type.get(place);
        let (old_forms, new_forms) = (Forms::of(declared, old), Forms::of(declared, new));
        let invalid = || TypeError::new("schema error: invalid atom: inlined");
        let compared = |forms: Forms| self.form(forms.first(declared).ok_or_else(invalid)?, old, new);
        let (mut found, is_leaf) = if new.is_none() {
            compared(old_forms)?
        } else if old.is_none() || old_forms == new_forms {
            compared(new_forms)?
        } else {
            let (as_old, _) = compared(old_forms)?;
            let (mut as_new, is_leaf) = compared(new_forms)?;
            as_new.join(as_old);
            (as_new, is_leaf)
        };
        if !is_leaf {
            found.is_added |= old.is_none();
            found.is_removed |= new.is_none();
        }
        Ok(found)
    }

    /// The changes of a form, and whether the value is owned as a whole.
    fn form(
        &self,
        form: Form<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Result<(Found, bool), TypeError> {
        match form {
            Form::Scalar(scalar) => {
                let is_valid = |value: Option<&Value>| value.is_none_or(|value| is_scalar(scalar, value));
                if is_valid(old) || is_valid(new) {
                    return Ok((Found::leaf(old, new), true));
                }
                Err(TypeError::new("expected a scalar"))
            }
            Form::Map(map) => {
                let (old_fields, new_fields) =
                    (old.and_then(Value::as_object), new.and_then(Value::as_object));
                let is_empty = |fields: Option<&Map<_, _>>| fields.is_none_or(Map::is_empty);
                if map.is_atomic || (is_empty(old_fields) && is_empty(new_fields)) {
                    return Ok((Found::leaf(old, new), true));
                }
                let below = self.fields(map, old_fields, new_fields)?;
                Ok((Found { below, ..Found::default() }, false))
            }
            Form::List(list) => {
                let (old_items, new_items) = (old.and_then(Value::as_array), new.and_then(Value::as_array));
                let is_empty = |items: Option<&Vec<_>>| items.is_none_or(Vec::is_empty);
                let is_atomic = matches!(list.relation, ListRelation::Atomic);
                if is_atomic || (is_empty(old_items) && is_empty(new_items)) {
                    return Ok((Found::leaf(old, new), true));
                }
                let below = if old_items == new_items {
                    Changes::default()
                } else {
                    self.items(list, slice(old_items), slice(new_items))?
                };
                Ok((Found { below, ..Found::default() }, false))
            }
        }
    }

    fn fields(
        &self,
        map: &MapType,
        old: Option<&Map<String, Value>>,
        new: Option<&Map<String, Value>>,
    ) -> Result<Changes, TypeError> {
        let mut changes = Changes::default();
        let mut compared = |name: &str, old: Option<&Value>, new: Option<&Value>| {
            if let (Some(old), Some(new)) = (old, new)
                && is_same_scalar(old, new)
            {
                return Ok(());
            }
            let field = map.field(name);
            let Some(place) = field.map(|field| field.value).or(map.others) else {
                return Err(TypeError::undeclared(name));
            };
            let (mut old, mut new) = (old, new);
            if field.is_some_and(|field| field.is_always_present) {
                old = Some(old.unwrap_or(&EMPTY_OBJECT));
                new = Some(new.unwrap_or(&EMPTY_OBJECT));
            }
            let found =
                self.value(place, old, new).map_err(|error| error.below(&PathElement::field(name)))?;
            let Found { is_added, is_modified, is_removed, below } = &found;
            if *is_added || *is_modified || *is_removed || !below.is_empty() {
                changes.push(PathElement::field(name), found);
            }
            Ok(())
        };
        let mut later = new.into_iter().flatten().peekable();
        for (name, value) in old.into_iter().flatten() {
            while let Some((own, value)) = later.next_if(|(own, _)| *own < name) {
                compared(own, None, Some(value))?;
            }
            let same = later.next_if(|(own, _)| *own == name).map(|(_, value)| value);
            compared(name, Some(value), same)?;
        }
        for (name, value) in later {
            compared(name, None, Some(value))?;
        }
        Ok(changes)
    }

    fn items(&self, list: &ListType, old: &[Value], new: &[Value]) -> Result<Changes, TypeError> {
        let mut items: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in old {
            items.entry(element_of(list, item)?).or_default().0.push(item);
        }
        for item in new {
            items.entry(element_of(list, item)?).or_default().1.push(item);
        }
        let mut changes = Changes::default();
        for (element, (old, new)) in items {
            let found = self.same_items(list, &old, &new).map_err(|error| error.below(&element))?;
            changes.push(element, found);
        }
        Ok(changes)
    }

    /// Compares the items with the same path element: one each, unless there are duplicates, which are owned as one.
    fn same_items(&self, list: &ListType, old: &[&Value], new: &[&Value]) -> Result<Found, TypeError> {
        let mut found = Found::default();
        match (old, new) {
            ([], []) => {}
            ([] | [_], [] | [_]) => {
                return self.value(list.items, old.first().copied(), new.first().copied());
            }
            ([_, _, ..], [_, _, ..]) => {
                found.is_modified =
                    old.len() != new.len() || !old.iter().zip(new).all(|(old, new)| equal_values(old, new));
            }
            ([_, _, ..], _) => {
                if let Some(item) = new.first() {
                    found = self.value(list.items, None, Some(item))?;
                }
                found.is_removed = true;
            }
            (_, [_, _, ..]) => {
                if let Some(item) = old.first() {
                    found = self.value(list.items, Some(item), None)?;
                }
                found.is_added = true;
            }
        }
        Ok(found)
    }
}

fn slice(items: Option<&Vec<Value>>) -> &[Value] {
    items.map_or(&[], |items| items)
}

static EMPTY_OBJECT: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));

/// Whether two scalars are equal, without a look at their type.
fn is_same_scalar(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::String(old), Value::String(new)) => old == new,
        (Value::Number(old), Value::Number(new)) => old == new,
        (Value::Bool(old), Value::Bool(new)) => old == new,
        _ => false,
    }
}
