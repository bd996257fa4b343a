//! The order of lists that a strategic merge patch merges.

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;

use super::strategic_error::{OBJECT, PATCH, StrategicPatchError, missing_key, wrong_type};

/// The longest list for which the order of items that no list mentions is that of Kubernetes, which sorts longer ones in
/// another way.
const MAX_UNORDERED: usize = 20;

/// `$setElementOrder` must have the items of the patch, in the same order.
pub(super) fn check_order(
    patch: &[Value],
    order: &[Value],
    key: Option<&str>,
) -> Result<(), StrategicPatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    if key.is_some()
        && let Some(item) = patch.iter().find(|item| !item.is_object())
    {
        return Err(wrong_type(OBJECT, item));
    }
    let is_deleted = |item: &Value| key.is_some() && item.get(PATCH).is_some_and(|patch| patch == "delete");
    let mut items = patch.iter().filter(|item| !is_deleted(item)).peekable();
    let mut wanted = order.iter();
    while let Some(item) = items.peek() {
        // An item with another directive is skipped, but not behind the last item of the order.
        if item.get(PATCH).is_some() && !wanted.as_slice().is_empty() {
            items.next();
            continue;
        }
        let Some(other) = wanted.next() else {
            return Err(StrategicPatchError::OrderMismatch {
                patch: Value::from(patch).to_string(),
                order: Value::from(order).to_string(),
            });
        };
        if identity(item, key)? == identity(other, key)? {
            items.next();
        }
    }
    Ok(())
}

/// The order of the server's list beside a `$setElementOrder`. As in Kubernetes, new items take the places at its end that
/// deleted items have left.
pub(super) fn server_order(own: &[Value], patch: &[Value], key: Option<&str>) -> Vec<Value> {
    let Some(key) = key else { return own.to_vec() };
    let has_directive =
        |item: &&Value, directive: &str| item.get(PATCH).is_some_and(|patch| patch == directive);
    let deleted = patch.iter().filter(|item| has_directive(item, "delete"));
    let deleted: FxHashSet<&Value> = deleted.filter_map(|item| item.get(key)).collect();
    let is_kept = |item: &&Value| item.get(key).is_none_or(|value| !deleted.contains(value));
    let mut order: Vec<Value> = own.iter().filter(is_kept).cloned().collect();
    if !patch.iter().any(|item| has_directive(&item, "replace")) {
        let left = own.len() - order.len();
        let known: FxHashSet<Value> = order.iter().filter_map(|item| item.get(key)).cloned().collect();
        let is_added = |item: &&Value| {
            item.get(PATCH).is_none() && item.get(key).is_none_or(|value| !known.contains(value))
        };
        order.extend(patch.iter().filter(is_added).take(left).cloned());
    }
    order
}

/// The part of an item by which it is found again.
fn identity<'v>(item: &'v Value, key: Option<&str>) -> Result<&'v Value, StrategicPatchError> {
    let Some(key) = key else { return Ok(item) };
    if !item.is_object() {
        return Err(wrong_type(OBJECT, item));
    }
    item.get(key).ok_or_else(|| missing_key(item, key))
}

/// Sorts the items that `order` has into its order. Other items keep the order of the server's list and come before those
/// that they preceded in it.
pub(super) fn sorted(
    items: Vec<Value>,
    order: &[Value],
    server: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, StrategicPatchError> {
    if let Some(index) = key.and_then(|key| unreadable(&items, order, key)) {
        return Err(StrategicPatchError::UnreadableOrder(index));
    }
    let (order, server) = (Positions::of(order, key)?, Positions::of(server, key)?);
    let mut ordered: Vec<Positioned> = Vec::with_capacity(items.len());
    let mut others: Vec<Positioned> = Vec::new();
    for item in items {
        let identity = identity(&item, key)?;
        let (place, own) = (order.find(identity), server.find(identity));
        match place {
            Some(_) => ordered.push(Positioned { place, own, item }),
            None => others.push(Positioned { place: own, own, item }),
        }
    }
    sort(&mut ordered);
    sort(&mut others);
    let mut sorted = Vec::with_capacity(ordered.len() + others.len());
    let mut others = others.into_iter().peekable();
    for Positioned { own, item, .. } in ordered {
        while let Some(other) =
            others.next_if(|other| own.is_some_and(|own| other.own.is_some_and(|one| one < own)))
        {
            sorted.push(other.item);
        }
        sorted.push(item);
    }
    sorted.extend(others.map(|other| other.item));
    Ok(sorted)
}

/// The index of an item of the order that is no object, if an item of the list is not found before it.
fn unreadable(items: &[Value], order: &[Value], key: &str) -> Option<usize> {
    let index = order.iter().position(|item| !item.is_object())?;
    let before: FxHashSet<&Value> = order.iter().take(index).filter_map(|item| item.get(key)).collect();
    let is_missing = |item: &Value| item.get(key).is_some_and(|value| !before.contains(value));
    items.iter().any(is_missing).then_some(index)
}

/// An item with its position in the list that sorts it, and in the server's list.
struct Positioned {
    place: Option<usize>,
    own: Option<usize>,
    item: Value,
}

/// Sorts items by their places. Kubernetes compares items without a place inconsistently, so their result depends on its
/// algorithm, an insertion sort.
fn sort(items: &mut [Positioned]) {
    if items.len() > MAX_UNORDERED || items.iter().all(|item| item.place.is_some()) {
        items.sort_by_key(|item| item.place.unwrap_or(usize::MAX));
        return;
    }
    for last in 1..items.len() {
        for index in (1..=last).rev() {
            let (one, two) = (items[index].place, items[index - 1].place);
            if one.zip(two).is_some_and(|(one, two)| one >= two) {
                break;
            }
            items.swap(index, index - 1);
        }
    }
}

/// The positions of the items of a list.
struct Positions<'v>(FxHashMap<&'v Value, usize>);

impl<'v> Positions<'v> {
    fn of(list: &'v [Value], key: Option<&str>) -> Result<Self, StrategicPatchError> {
        let mut positions = FxHashMap::default();
        for (index, item) in list.iter().enumerate() {
            positions.entry(identity(item, key)?).or_insert(index);
        }
        Ok(Self(positions))
    }

    fn find(&self, identity: &Value) -> Option<usize> {
        self.0.get(identity).copied()
    }
}
