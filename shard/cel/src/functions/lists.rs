//! Functions of lists.

use std::cmp::Ordering;

use crate::failure::Failure;
use crate::value::{List, Outcome, Value, add, compare, is_equal};
use crate::work::Work;

/// Largest range.
pub(crate) const MAX_RANGE: i64 = 1_000_000;

/// Whether no item is smaller than the one before. Items that have no order, such as NaN, are not smaller.
pub(crate) fn is_sorted<'a>(list: &List<'a>, work: &Work) -> Outcome<'a> {
    let values = list.values(work)?;
    if !values.iter().all(is_comparable) {
        return Err(Failure::no_such_overload());
    }
    for pair in values.windows(2) {
        if let [first, second] = pair
            && order(first, second, work)?.is_some_and(Ordering::is_gt)
        {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

/// The order of two values; `None` if they have none.
fn order<'a>(left: &Value<'a>, right: &Value<'a>, work: &Work) -> Result<Option<Ordering>, Failure> {
    match compare(left, right, work) {
        Ok(order) => Ok(Some(order)),
        Err(Failure::Error(_)) => Ok(None),
        Err(abort) => Err(abort),
    }
}

/// Whether a value can be compared with another one.
fn is_comparable(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::Duration(_)
            | Value::Timestamp(_)
    )
}

/// The sum. `zero` is the sum of no items.
pub(crate) fn sum<'a>(list: &List<'a>, zero: Value<'a>, work: &Work) -> Outcome<'a> {
    list.iter(work).try_fold(zero, |sum, item| add(sum, &item?, work))
}

/// The smallest or largest item.
pub(crate) fn extreme<'a>(list: &List<'a>, name: &str, preferred: Ordering, work: &Work) -> Outcome<'a> {
    let mut found: Option<Value<'a>> = None;
    for item in list.iter(work) {
        let item = item?;
        if !is_comparable(&item) {
            return Err(Failure::no_such_overload());
        }
        found = Some(match found {
            Some(best) if order(&item, &best, work)? != Some(preferred) => best,
            _ => item,
        });
    }
    found.ok_or_else(|| Failure::error(format!("{name} called on empty list")))
}

/// The place of the first item that equals a value, or -1.
pub(crate) fn index_of<'a>(list: &List<'a>, value: &Value<'a>, work: &Work) -> Outcome<'a> {
    for (index, item) in list.iter(work).enumerate() {
        if is_item(item, value, work)? {
            return Ok(Value::Int(index as i64));
        }
    }
    Ok(Value::Int(-1))
}

/// Whether an item that may be unreadable equals a value.
fn is_item<'a>(item: Outcome<'a>, value: &Value<'a>, work: &Work) -> Result<bool, Failure> {
    match item {
        Ok(item) => is_equal(&item, value, work),
        Err(Failure::Error(_)) => Ok(false),
        Err(abort) => Err(abort),
    }
}

/// The place of the last item that equals a value, or -1.
pub(crate) fn last_index_of<'a>(list: &List<'a>, value: &Value<'a>, work: &Work) -> Outcome<'a> {
    let mut found = -1;
    for (index, item) in list.iter(work).enumerate() {
        if is_item(item, value, work)? {
            found = index as i64;
        }
    }
    Ok(Value::Int(found))
}

/// `[0, 1, …]`.
pub(crate) fn range<'a>(size: i64, work: &Work) -> Outcome<'a> {
    if size < 0 {
        return Err(Failure::error(format!("lists.range: size must be non-negative, got {size}")));
    }
    if size > MAX_RANGE {
        let message = format!("lists.range: size {size} exceeds maximum allowed ({MAX_RANGE})");
        return Err(Failure::error(message));
    }
    work.visits(usize::try_from(size).unwrap_or(0))?;
    Ok(Value::list((0..size).map(Value::Int).collect()))
}

pub(crate) fn reverse<'a>(list: &List<'a>, work: &Work) -> Outcome<'a> {
    let mut values = list.values(work)?;
    values.reverse();
    Ok(Value::list(values))
}

/// The items from `start` on and before `end`.
pub(crate) fn slice<'a>(list: &List<'a>, start: i64, end: i64, work: &Work) -> Outcome<'a> {
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
    work.items(to - from)?;
    let items = (from..to).filter_map(|index| list.get(index, work));
    Ok(Value::list(items.collect::<Result<_, _>>()?))
}

/// Replaces lists within the list by their items, down to a depth.
pub(crate) fn flatten<'a>(list: &List<'a>, depth: i64, work: &Work) -> Outcome<'a> {
    if depth < 0 {
        return Err(Failure::error("level must be non-negative"));
    }
    let mut output = Vec::new();
    // Lists that are being flattened, with the place of their next item and the remaining depth. Values are finite
    // trees, so this ends.
    let mut stack = vec![(list.clone(), 0, depth)];
    while let Some((list, index, depth)) = stack.pop() {
        let Some(item) = list.get(index, work) else {
            continue;
        };
        stack.push((list, index + 1, depth));
        match item? {
            Value::List(inner) if depth > 0 => stack.push((inner, 0, depth - 1)),
            other => {
                work.items(1)?;
                output.push(other);
            }
        }
    }
    Ok(Value::list(output))
}

/// The list without items that equal an earlier one.
pub(crate) fn distinct<'a>(list: &List<'a>, work: &Work) -> Outcome<'a> {
    // An empty list is itself, so that `optional.ofNonZeroValue` sees where it comes from.
    if list.is_empty() {
        return Ok(Value::List(list.clone()));
    }
    let mut unique: Vec<Value<'a>> = Vec::new();
    for item in list.iter(work) {
        let item = item?;
        let mut is_new = true;
        for other in &unique {
            if is_equal(&item, other, work)? {
                is_new = false;
                break;
            }
        }
        if is_new {
            work.items(1)?;
            unique.push(item);
        }
    }
    Ok(Value::list(unique))
}

/// Sorts a list by the keys of another list of the same length. Items of equal keys stay in their order.
pub(crate) fn sort_by_keys<'a>(list: &List<'a>, keys: &List<'a>, work: &Work) -> Outcome<'a> {
    let (values, keys) = (list.values(work)?, keys.values(work)?);
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
    let places = sorted_places(&keys, work)?;
    Ok(Value::list(places.into_iter().filter_map(|place| values.get(place).cloned()).collect()))
}

/// Places in the order of their keys: a merge sort that can end early. Keys without an order, such as NaN, stay in their
/// place; the sort of the standard library may panic for them.
fn sorted_places(keys: &[Value<'_>], work: &Work) -> Result<Vec<usize>, Failure> {
    const RUN: usize = 20;
    let is_less = |left: usize, right: usize| match (keys.get(left), keys.get(right)) {
        (Some(left), Some(right)) => {
            work.visit()?;
            Ok(order(left, right, work)?.is_some_and(Ordering::is_lt))
        }
        _ => Ok(false),
    };
    let mut places: Vec<usize> = (0..keys.len()).collect();
    for run in places.chunks_mut(RUN) {
        for end in 1..run.len() {
            let mut place = end;
            while place > 0 && is_less(run[place], run[place - 1])? {
                run.swap(place, place - 1);
                place -= 1;
            }
        }
    }
    let mut merged = Vec::with_capacity(places.len());
    let mut width = RUN;
    while width < places.len() {
        merged.clear();
        for pair in places.chunks(2 * width) {
            let (mut left, mut right) = pair.split_at(width.min(pair.len()));
            while let ([first, left_rest @ ..], [second, right_rest @ ..]) = (left, right) {
                if is_less(*second, *first)? {
                    merged.push(*second);
                    right = right_rest;
                } else {
                    merged.push(*first);
                    left = left_rest;
                }
            }
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
        }
        std::mem::swap(&mut places, &mut merged);
        width *= 2;
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn sorting_is_stable_and_accepts_what_is_no_number() {
        let keys: Vec<Value<'_>> = (0..1_000).map(|place| Value::Int(place * 37 % 101)).collect();
        let mut expected: Vec<usize> = (0..keys.len()).collect();
        expected.sort_by_key(|place| (place * 37 % 101, *place));
        assert_eq!(sorted_places(&keys, &Work::default()).unwrap(), expected);

        let mixed = |place: i64| if place % 3 == 0 { f64::NAN } else { (place * 37 % 101) as f64 };
        let keys: Vec<Value<'_>> = (0..1_000).map(|place| Value::Double(mixed(place))).collect();
        let mut places = sorted_places(&keys, &Work::default()).unwrap();
        places.sort_unstable();
        assert!(places.into_iter().eq(0..1_000));
    }
}
