//! Strategic merge of lists: by the strategy of the list, by the keys of its items, and in the order of the patch.

use core::mem::discriminant;

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Map, Value};

use super::element_order::{check_order, server_order, sorted};
use super::strategic_error::{
    OBJECT, PATCH, StrategicPatchError, missing_key, unknown_directive, wrong_type,
};
use crate::builtin::{ListMerge, Shape};

/// The merge of two items of a list.
pub(super) trait ItemMerge<'a> {
    /// Merges an item of a patch into the object's item with the same key. `shape` is that of the items.
    fn item(
        &self,
        shape: &'a Shape,
        fields: &mut Map<String, Value>,
        patch: &Map<String, Value>,
    ) -> Result<(), StrategicPatchError>;
}

/// The merge behaviour of a list and the shape of its items.
#[derive(Clone, Copy)]
pub(super) struct MergedList<'a> {
    pub(super) items: &'a Shape,
    pub(super) merge: &'a ListMerge,
}

impl<'a> MergedList<'a> {
    fn key(&self) -> Option<&'a str> {
        match self.merge {
            ListMerge::ByKey(key) => Some(key),
            ListMerge::Replace | ListMerge::Set => None,
        }
    }

    /// The list of the object, `own`, merged with that of a patch. One pass over both.
    pub(super) fn merge(
        &self,
        merge: &dyn ItemMerge<'a>,
        own: Vec<Value>,
        patch: &[Value],
    ) -> Result<Vec<Value>, StrategicPatchError> {
        if *self.merge == ListMerge::Replace {
            return Ok(patch.to_vec());
        }
        if own.is_empty() && patch.is_empty() {
            return Ok(own);
        }
        match item_type(&own, patch)? {
            ItemType::Object => self.by_key(merge, own, patch),
            ItemType::Scalar => self.united(own, patch),
        }
    }

    /// The list of the object without the values of a patch.
    pub(super) fn without(
        &self,
        merge: &dyn ItemMerge<'a>,
        own: Vec<Value>,
        deleted: &[Value],
    ) -> Result<Vec<Value>, StrategicPatchError> {
        if own.is_empty() && deleted.is_empty() {
            return Ok(own);
        }
        match item_type(&own, deleted)? {
            // Only values can be deleted so; Kubernetes merges objects instead.
            ItemType::Object => self.by_key(merge, own, deleted),
            ItemType::Scalar => {
                let deleted: FxHashSet<&Value> = deleted.iter().collect();
                Ok(own.into_iter().filter(|item| !deleted.contains(item)).collect())
            }
        }
    }

    /// The lists of object and patch, merged and sorted by a `$setElementOrder`. `None`: there is no list.
    pub(super) fn merge_ordered(
        &self,
        merge: &dyn ItemMerge<'a>,
        own: Option<&[Value]>,
        patch: Option<&[Value]>,
        order: &[Value],
    ) -> Result<Option<Vec<Value>>, StrategicPatchError> {
        let key = self.key();
        check_order(patch.unwrap_or_default(), order, key)?;
        let merged = match (own, patch) {
            (None, None) => return Ok(None),
            (Some(own), None) => own.to_vec(),
            (None, Some(patch)) => patch.iter().filter_map(without_directives).collect(),
            (Some(own), Some(patch)) => self.merge(merge, own.to_vec(), patch)?,
        };
        let (own, patch) = (own.unwrap_or_default(), patch.unwrap_or_default());
        // The items of such a list have no identity.
        if item_type(own, patch)? == ItemType::Object
            && key.is_none()
            && let Some(item) = merged.first().or(order.first()).or(own.first())
        {
            return Err(if item.is_object() { missing_key(item, "") } else { wrong_type(OBJECT, item) });
        }
        sorted(merged, order, &server_order(own, patch, key), key).map(Some)
    }

    /// The values of both lists, each once, in the order of the patch.
    fn united(&self, own: Vec<Value>, patch: &[Value]) -> Result<Vec<Value>, StrategicPatchError> {
        let mut known: FxHashSet<&Value> = FxHashSet::default();
        let united = own.iter().chain(patch).filter(|item| known.insert(item)).cloned().collect();
        sorted(united, patch, &own, self.key())
    }

    /// The items of both lists; those with the same key are merged.
    fn by_key(
        &self,
        merge: &dyn ItemMerge<'a>,
        own: Vec<Value>,
        patch: &[Value],
    ) -> Result<Vec<Value>, StrategicPatchError> {
        let Some(key) = self.key() else { return Err(StrategicPatchError::NoMergeKey) };
        let changes = ItemChanges::of(patch, key)?;
        if changes.replaces_list {
            let own: Vec<Value> = changes.merged.into_iter().cloned().collect();
            return sorted(own.clone(), &[], &own, Some(key));
        }
        let mut own = own;
        own.retain(|item| item.get(key).is_none_or(|value| !changes.deleted.contains(value)));
        let mut merged = own.clone();
        let mut places: FxHashMap<Value, usize> = FxHashMap::default();
        for (place, item) in own.iter().enumerate() {
            if let Some(value) = item.get(key) {
                places.entry(value.clone()).or_insert(place);
            }
        }
        for item in &changes.merged {
            let value = item.get(key).ok_or_else(|| missing_key(item, key))?;
            let place = places.get(value).copied();
            match (place.and_then(|place| merged.get_mut(place)), item) {
                (Some(Value::Object(fields)), Value::Object(item)) => merge.item(self.items, fields, item)?,
                _ => {
                    places.insert(value.clone(), merged.len());
                    merged.push((*item).clone());
                }
            }
        }
        let order: Vec<Value> = changes.merged.into_iter().cloned().collect();
        sorted(merged, &order, &own, Some(key))
    }
}

/// The items of a patch by their directives.
struct ItemChanges<'p> {
    /// The items without a directive.
    merged: Vec<&'p Value>,
    /// The keys of the items with `$patch: delete`.
    deleted: FxHashSet<&'p Value>,
    /// Whether an item has `$patch: replace`: the items without a directive replace the list.
    replaces_list: bool,
}

impl<'p> ItemChanges<'p> {
    fn of(patch: &'p [Value], key: &str) -> Result<Self, StrategicPatchError> {
        let mut changes = Self {
            merged: Vec::with_capacity(patch.len()),
            deleted: FxHashSet::default(),
            replaces_list: false,
        };
        for item in patch {
            let Some(directive) = item.get(PATCH) else {
                changes.merged.push(item);
                continue;
            };
            match directive.as_str() {
                Some("delete") => {
                    changes.deleted.insert(item.get(key).ok_or_else(|| missing_key(item, key))?);
                }
                Some("replace") => changes.replaces_list = true,
                Some("merge") => return Err(StrategicPatchError::MergedItem),
                _ => return Err(unknown_directive(directive, item.as_object().unwrap_or(&Map::new()))),
            }
        }
        Ok(changes)
    }
}

/// A new value without the objects that have a `$patch`.
pub(super) fn without_directives(value: &Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(PATCH) => None,
        Value::Object(fields) => {
            let kept =
                fields.iter().filter_map(|(name, value)| Some((name.clone(), without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(items.iter().filter_map(without_directives).collect()),
        scalar => Some(scalar.clone()),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum ItemType {
    Object,
    Scalar,
}

/// The type of the items of merged lists, which must have one.
fn item_type(own: &[Value], patch: &[Value]) -> Result<ItemType, StrategicPatchError> {
    let mut items = own.iter().chain(patch);
    let Some(first) = items.next() else { return Err(StrategicPatchError::NoElements) };
    match first {
        Value::Array(_) => return Err(StrategicPatchError::ListOfLists),
        // Kubernetes crashes.
        Value::Null => return Err(wrong_type(OBJECT, first)),
        _ => {}
    }
    if !items.all(|item| discriminant(item) == discriminant(first)) {
        return Err(StrategicPatchError::MixedItems(Value::from([own, patch].concat()).to_string()));
    }
    Ok(if first.is_object() { ItemType::Object } else { ItemType::Scalar })
}
