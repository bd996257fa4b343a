//! The path elements of list items.

use serde_json::Value;

use super::error::TypeError;
use crate::apply::fields::PathElement;
use crate::apply::types::{ListKey, ListRelation, ListType};

/// The path element of an item of a set or of a list with keys.
pub(super) fn element_of(list: &ListType, item: &Value) -> Result<PathElement, TypeError> {
    match &list.relation {
        ListRelation::Atomic => Err(TypeError::new("invalid indexing of non-associative list")),
        ListRelation::Set => set_element(item),
        ListRelation::Map(keys) => keyed_element(keys, item),
    }
}

fn set_element(item: &Value) -> Result<PathElement, TypeError> {
    Err(TypeError::new(match item {
        Value::Object(_) => "associative list without keys has an element that's a map type",
        Value::Array(_) => "not supported: associative list with lists as elements",
        Value::Null => "associative list without keys has an element that's an explicit null",
        Value::Bool(_) | Value::Number(_) | Value::String(_) => return Ok(PathElement::Value(item.clone())),
    }))
}

fn keyed_element(keys: &[ListKey], item: &Value) -> Result<PathElement, TypeError> {
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => {
            return Err(TypeError::new("associative list with keys may not have a null element"));
        }
        _ => return Err(TypeError::new("associative list with keys may not have non-map elements")),
    };
    // An item without a key differs from one with the key, whatever its value.
    let present = keys.iter().filter_map(|key| {
        let value = fields.get(&*key.name).or(key.default.as_ref())?;
        Some((key.name.clone(), value.clone()))
    });
    let mut present: Box<[_]> = present.collect();
    present.sort_by(|(one, _): &(Box<str>, Value), (two, _)| one.cmp(two));
    if present.is_empty() && !keys.is_empty() {
        let names: Vec<String> = keys.iter().map(|key| format!("{:?}", key.name)).collect();
        return Err(TypeError::new(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
             values for any key fields)",
            names.join(" ")
        )));
    }
    Ok(PathElement::Key(present))
}
