//! The fields of a value: what a manager owns that applies it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::error::TypeError;
use super::item::element_of;
use super::{Form, form};
use crate::apply::fields::{FieldSet, PathElement};
use crate::apply::types::{ListRelation, ListType, MapType, ObjectType, TypeRef};

/// All leaves of a value, and all items of its lists.
///
/// # Errors
/// The type allows no value at some place, or an item of a list cannot be identified.
pub(crate) fn fields_of(object_type: ObjectType<'_>, value: &Value) -> Result<FieldSet, TypeError> {
    let walk = Walk { object_type, unidentified: Unidentified::Refused };
    walk.value(object_type.root, value).map(|(below, _)| below)
}

/// As [`fields_of`], where items that have lost their keys are items without keys.
///
/// # Errors
/// The type allows no value at some place.
pub(crate) fn fields_of_pruned(object_type: ObjectType<'_>, value: &Value) -> Result<FieldSet, TypeError> {
    let walk = Walk { object_type, unidentified: Unidentified::Nameless };
    walk.value(object_type.root, value).map(|(below, _)| below)
}

/// The treatment of list items that cannot be identified.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Unidentified {
    Refused,
    /// They have a path element that no other item has.
    Nameless,
}

struct Walk<'t> {
    object_type: ObjectType<'t>,
    unidentified: Unidentified,
}

impl Walk<'_> {
    /// The fields below a value, and whether the value itself is a field.
    fn value(&self, place: TypeRef, value: &Value) -> Result<(FieldSet, bool), TypeError> {
        let declared = self.object_type.get(place);
        match form(declared, value).ok_or_else(|| TypeError::new("schema error: invalid atom: inlined"))? {
            Form::Scalar(_) => Ok((FieldSet::default(), true)),
            Form::Map(map) if map.is_atomic => Ok((FieldSet::default(), true)),
            Form::Map(map) => Ok((self.fields(map, value)?, false)),
            Form::List(ListType { relation: ListRelation::Atomic, .. }) => Ok((FieldSet::default(), true)),
            Form::List(list) => Ok((self.items(list, value)?, false)),
        }
    }

    fn fields(&self, map: &MapType, value: &Value) -> Result<FieldSet, TypeError> {
        let mut fields = FieldSet::default();
        for (name, value) in value.as_object().into_iter().flatten() {
            let element = PathElement::field(name);
            let declared = map.field(name);
            let place = declared.map(|field| field.value).or(map.others);
            let place = place.ok_or_else(|| TypeError::undeclared(name))?;
            let (below, is_field) = self.value(place, value).map_err(|error| error.below(&element))?;
            let is_empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
            fields.push(element, is_field || is_empty || declared.is_none(), below);
        }
        Ok(fields)
    }

    fn items(&self, list: &ListType, value: &Value) -> Result<FieldSet, TypeError> {
        let mut items: BTreeMap<PathElement, Option<&Value>> = BTreeMap::new();
        for item in value.as_array().into_iter().flatten() {
            let element = match element_of(list, item) {
                Err(_) if self.unidentified == Unidentified::Nameless => PathElement::Key(Box::default()),
                element => element?,
            };
            // Duplicates are owned as one.
            items.entry(element).and_modify(|item| *item = None).or_insert(Some(item));
        }
        let mut fields = FieldSet::default();
        for (element, item) in items {
            let below = match item {
                Some(item) => self.value(list.items, item).map_err(|error| error.below(&element))?.0,
                None => FieldSet::default(),
            };
            fields.push(element, true, below);
        }
        Ok(fields)
    }
}
