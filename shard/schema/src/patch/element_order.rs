//! The order of lists that a strategic merge patch merges.

use serde_json::Value;

use super::strategic_error::{PATCH, StrategicPatchError, missing_key};

/// `$setElementOrder` must have the items of the patch, in the same order.
pub(super) fn check_order(
    patch: &[Value],
    order: &[Value],
    key: Option<&str>,
) -> Result<(), StrategicPatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut wanted = order.iter();
    for item in patch.iter().filter(|item| key.is_none() || item.get(PATCH).is_none()) {
        let identity = identity(item, key)?;
        let is_listed = wanted.any(|other| self::identity(other, key).is_ok_and(|other| other == identity));
        if !is_listed {
            return Err(StrategicPatchError::OrderMismatch {
                patch: Value::from(patch).to_string(),
                order: Value::from(order).to_string(),
            });
        }
    }
    Ok(())
}

/// The order of the server's list beside a `$setElementOrder`. As in Kubernetes, new items take the places at its end that
/// deleted items have left.
pub(super) fn server_order(own: Vec<Value>, patch: &[Value], key: Option<&str>) -> Vec<Value> {
    let Some(key) = key else { return own };
    let has = |list: &[Value], item: &Value| list.iter().any(|other| other.get(key) == item.get(key));
    let with = |directive: &str| {
        let items = patch.iter().filter(|item| item.get(PATCH).and_then(Value::as_str) == Some(directive));
        items.cloned().collect::<Vec<Value>>()
    };
    let deleted = with("delete");
    let length = own.len();
    let mut order: Vec<Value> = own.into_iter().filter(|item| !has(&deleted, item)).collect();
    if with("replace").is_empty() {
        let left = length - order.len();
        let added = patch.iter().filter(|item| item.get(PATCH).is_none() && !has(&order, item));
        let added: Vec<Value> = added.take(left).cloned().collect();
        order.extend(added);
    }
    order
}

/// The part of an item by which it is found again.
fn identity<'v>(item: &'v Value, key: Option<&str>) -> Result<&'v Value, StrategicPatchError> {
    match key {
        Some(key) => item.get(key).ok_or_else(|| missing_key(item, key)),
        None => Ok(item),
    }
}

/// Sorts the items that `order` has into its order. Other items keep the order of the server's list and come before those
/// that they preceded in it.
pub(super) fn sorted(
    items: Vec<Value>,
    order: &[Value],
    server: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, StrategicPatchError> {
    for item in items.iter().chain(order) {
        identity(item, key)?;
    }
    let position = |list: &[Value], item: &Value| {
        let identity = self::identity(item, key).ok()?;
        list.iter().position(|other| self::identity(other, key).is_ok_and(|other| other == identity))
    };
    let (mut ordered, mut others): (Vec<Value>, Vec<Value>) =
        items.into_iter().partition(|item| position(order, item).is_some());
    ordered.sort_by_key(|item| position(order, item));
    others.sort_by_key(|item| position(server, item).unwrap_or(usize::MAX));
    let mut sorted = Vec::with_capacity(ordered.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in ordered {
        let place = position(server, &item);
        while let Some(other) = others.next_if(|other| {
            place.is_some_and(|place| position(server, other).is_some_and(|one| one < place))
        }) {
            sorted.push(other);
        }
        sorted.push(item);
    }
    sorted.extend(others);
    Ok(sorted)
}
