//! Merges an applied configuration into an object.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::error::TypeError;
use super::item::element_of;
use super::{Form, form};
use crate::apply::fields::PathElement;
use crate::apply::types::{ListRelation, ListType, MapType, ObjectType, TypeRef};

/// Merges `configuration` into `object`. Both must be valid. Nothing is removed: leaves of the configuration replace those
/// of the object, and items of lists get the order of the configuration.
///
/// # Errors
/// A list has an item that cannot be identified.
pub(crate) fn merge(
    object_type: ObjectType<'_>,
    object: &mut Value,
    configuration: &Value,
) -> Result<(), TypeError> {
    Merge { object_type }.value(object_type.root, object, configuration)
}

struct Merge<'t> {
    object_type: ObjectType<'t>,
}

impl Merge<'_> {
    fn value(&self, place: TypeRef, object: &mut Value, applied: &Value) -> Result<(), TypeError> {
        match form(self.object_type.get(place), applied) {
            Some(Form::Map(map)) if !map.is_atomic => self.map(map, object, applied),
            Some(Form::List(list)) if !matches!(list.relation, ListRelation::Atomic) => {
                self.list(list, object, applied)
            }
            _ => {
                object.clone_from(applied);
                Ok(())
            }
        }
    }

    fn map(&self, map: &MapType, object: &mut Value, applied: &Value) -> Result<(), TypeError> {
        let Value::Object(applied_fields) = applied else {
            // Null: a map that has fields keeps them.
            if object.as_object().is_none_or(Map::is_empty) {
                object.clone_from(applied);
            }
            return Ok(());
        };
        let Value::Object(fields) = object else {
            object.clone_from(applied);
            return Ok(());
        };
        for (name, applied) in applied_fields {
            match (fields.get_mut(name), map.value(name)) {
                (Some(field), Some(place)) => {
                    self.value(place, field, applied)
                        .map_err(|error| error.below(&PathElement::field(name)))?;
                }
                _ => drop(fields.insert(name.clone(), applied.clone())),
            }
        }
        Ok(())
    }

    fn list(&self, list: &ListType, object: &mut Value, applied: &Value) -> Result<(), TypeError> {
        let Value::Array(applied_items) = applied else {
            if object.as_array().is_none_or(Vec::is_empty) {
                object.clone_from(applied);
            }
            return Ok(());
        };
        match object {
            Value::Array(items) if !items.is_empty() => {
                let own = core::mem::take(items);
                *items = self.items(list, own, applied_items)?;
            }
            _ => object.clone_from(applied),
        }
        Ok(())
    }

    /// Merges two lists by their items. Items of both have the order of the configuration; an item of the object alone
    /// stays behind the item that it follows.
    fn items(&self, list: &ListType, own: Vec<Value>, applied: &[Value]) -> Result<Vec<Value>, TypeError> {
        let own_elements: Vec<PathElement> =
            own.iter().map(|item| element_of(list, item)).collect::<Result<_, _>>()?;
        let applied_elements: Vec<PathElement> =
            applied.iter().map(|item| element_of(list, item)).collect::<Result<_, _>>()?;
        let is_applied: BTreeSet<&PathElement> = applied_elements.iter().collect();
        let mut own_index: BTreeMap<&PathElement, Option<usize>> = BTreeMap::new();
        for (index, element) in own_elements.iter().enumerate() {
            // Duplicates are not merged with the item of the configuration but replaced by it.
            own_index.entry(element).and_modify(|index| *index = None).or_insert(Some(index));
        }
        let mut own: Vec<Option<Value>> = own.into_iter().map(Some).collect();
        let mut shared: VecDeque<&PathElement> =
            applied_elements.iter().filter(|element| own_index.contains_key(element)).collect();
        let mut merged: BTreeSet<&PathElement> = BTreeSet::new();
        let mut items = Vec::with_capacity(own.len().max(applied.len()));
        let (mut left, mut right) = (0, 0);
        while left < own.len() || right < applied.len() {
            let next = applied_elements.get(right);
            let mut is_in_turn = false;
            if let Some(element) = own_elements.get(left) {
                if !is_applied.contains(element) {
                    items.extend(own[left].take());
                    left += 1;
                    continue;
                }
                is_in_turn = next == Some(element);
                let awaits_another = shared.front().is_some_and(|shared| *shared != element);
                if next.is_some() && !is_in_turn && awaits_another {
                    left += 1;
                    continue;
                }
                left += usize::from(is_in_turn || merged.contains(element));
            }
            let Some(element) = next else { continue };
            let mut item = applied[right].clone();
            if let Some(mut own) =
                own_index.get(element).copied().flatten().and_then(|index| own[index].take())
            {
                self.value(list.items, &mut own, &item).map_err(|error| error.below(element))?;
                item = own;
            }
            items.push(item);
            merged.insert(element);
            right += 1;
            if is_in_turn || shared.front() == Some(&element) {
                shared.pop_front();
            }
        }
        Ok(items)
    }
}
