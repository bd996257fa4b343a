//! Functions of lists.

use std::cmp::Ordering;

use crate::failure::Failure;
use crate::value::{List, Outcome, Value, add, compare, equal};

/// Largest range.
pub(crate) const MAX_RANGE: i64 = 1_000_000;

/// Whether no item is smaller than the one before. Items that have no order, such as NaN, are not smaller.
pub(crate) fn is_sorted<'a>(list: &List<'a>) -> Outcome<'a> {
    let values = list.values()?;
    if !values.iter().all(is_comparable) {
        return Err(Failure::no_such_overload());
    }
    let is_descent = |pair: &[Value<'a>]| match pair {
        [first, second] => compare(first, second).is_ok_and(Ordering::is_gt),
        _ => false,
    };
    Ok(Value::Bool(!values.windows(2).any(is_descent)))
}

/// Whether a value can be compared with another one.
fn is_comparable(value: &Value<'_>) -> bool {
    matches!(value, Value::Double(_)) || compare(value, value).is_ok()
}

/// The sum. `zero` is the sum of no items.
pub(crate) fn sum<'a>(list: &List<'a>, zero: Value<'a>) -> Outcome<'a> {
    list.iter().try_fold(zero, |sum, item| add(sum, &item?))
}

/// The smallest or largest item.
pub(crate) fn extreme<'a>(list: &List<'a>, name: &str, preferred: Ordering) -> Outcome<'a> {
    let mut found: Option<Value<'a>> = None;
    for item in list.iter() {
        let item = item?;
        if !is_comparable(&item) {
            return Err(Failure::no_such_overload());
        }
        found = Some(match found {
            Some(best) if compare(&item, &best).map_or(true, |order| order != preferred) => best,
            _ => item,
        });
    }
    found.ok_or_else(|| Failure::error(format!("{name} called on empty list")))
}

/// The place of the first item that equals a value, or -1.
pub(crate) fn index_of<'a>(list: &List<'a>, value: &Value<'a>) -> i64 {
    let is_equal = |item: Outcome<'a>| item.and_then(|item| equal(&item, value)).unwrap_or(false);
    list.iter().position(is_equal).map_or(-1, |index| index as i64)
}

/// The place of the last item that equals a value, or -1.
pub(crate) fn last_index_of<'a>(list: &List<'a>, value: &Value<'a>) -> i64 {
    let mut found = -1;
    for (index, item) in list.iter().enumerate() {
        if item.and_then(|item| equal(&item, value)).unwrap_or(false) {
            found = index as i64;
        }
    }
    found
}

/// `[0, 1, …]`.
pub(crate) fn range<'a>(size: i64) -> Outcome<'a> {
    if size < 0 {
        return Err(Failure::error(format!("lists.range: size must be non-negative, got {size}")));
    }
    if size > MAX_RANGE {
        let message = format!("lists.range: size {size} exceeds maximum allowed ({MAX_RANGE})");
        return Err(Failure::error(message));
    }
    Ok(Value::list((0..size).map(Value::Int).collect()))
}

pub(crate) fn reverse<'a>(list: &List<'a>) -> Outcome<'a> {
    let mut values = list.values()?;
    values.reverse();
    Ok(Value::list(values))
}

/// The items from `start` on and before `end`.
pub(crate) fn slice<'a>(list: &List<'a>, start: i64, end: i64) -> Outcome<'a> {
    let fault = |fault: String| Err(Failure::error(format!("cannot slice({start}, {end}), {fault}")));
    let (Ok(from), Ok(to)) = (usize::try_from(start), usize::try_from(end)) else {
        return fault("negative indexes not supported".to_owned());
    };
    if from > to {
        return fault("start index must be less than or equal to end index".to_owned());
    }
    if to > list.len() {
        return fault(format!("list is length {}", list.len()));
    }
    let items = (from..to).filter_map(|index| list.get(index));
    Ok(Value::list(items.collect::<Result<_, _>>()?))
}

/// Replaces lists within the list by their items, down to a depth.
pub(crate) fn flatten<'a>(list: &List<'a>, depth: i64) -> Outcome<'a> {
    if depth < 0 {
        return Err(Failure::error("level must be non-negative"));
    }
    let mut output = Vec::new();
    // Lists that are being flattened, with the place of their next item and the remaining depth. Values are finite
    // trees, so this ends.
    let mut stack = vec![(list.clone(), 0, depth)];
    while let Some((list, index, depth)) = stack.pop() {
        let Some(item) = list.get(index) else {
            continue;
        };
        stack.push((list, index + 1, depth));
        match item? {
            Value::List(inner) if depth > 0 => stack.push((inner, 0, depth - 1)),
            other => output.push(other),
        }
    }
    Ok(Value::list(output))
}

/// The list without items that equal an earlier one.
pub(crate) fn distinct<'a>(list: &List<'a>) -> Outcome<'a> {
    // An empty list is itself, so that `optional.ofNonZeroValue` sees where it comes from.
    if list.is_empty() {
        return Ok(Value::List(list.clone()));
    }
    let mut unique: Vec<Value<'a>> = Vec::new();
    for item in list.iter() {
        let item = item?;
        if !unique.iter().any(|other| equal(&item, other).unwrap_or(false)) {
            unique.push(item);
        }
    }
    Ok(Value::list(unique))
}

/// Sorts a list by the keys of another list of the same length. Items of equal keys stay in their order.
pub(crate) fn sort_by_keys<'a>(list: &List<'a>, keys: &List<'a>) -> Outcome<'a> {
    let (values, keys) = (list.values()?, keys.values()?);
    if values.len() != keys.len() {
        return Err(Failure::error(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} elements respectively",
            values.len(),
            keys.len()
        )));
    }
    let Some(first) = keys.first() else {
        return Ok(Value::List(list.clone()));
    };
    if !is_comparable(first) {
        return Err(Failure::error("list elements must be comparable"));
    }
    if keys.iter().any(|key| key.type_name() != first.type_name()) && keys.len() > 1 {
        return Err(Failure::error("list elements must have the same type"));
    }
    let mut pairs: Vec<(Value<'a>, Value<'a>)> = keys.into_iter().zip(values).collect();
    // Numbers that are no numbers stay in their place.
    pairs.sort_by(|(left, _), (right, _)| compare(left, right).unwrap_or(Ordering::Equal));
    Ok(Value::list(pairs.into_iter().map(|(_, value)| value).collect()))
}
