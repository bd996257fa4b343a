//! Objects that expressions make: `Object.spec{…}` and `JSONPatch{…}`.

use std::sync::Arc;

use super::{Map, Value, equal};
use crate::failure::Failure;
use crate::limits::{JSON_VALUE_SIZE, MAX_JSON_SIZE};
use crate::work::Work;

/// An object with a type and fields.
#[derive(Clone, Debug)]
pub struct Object<'a> {
    name: Arc<str>,
    fields: Vec<(Arc<str>, Value<'a>)>,
    /// The nesting of its fields.
    depth: u32,
}

impl<'a> Object<'a> {
    pub(crate) fn new(name: Arc<str>) -> Self {
        Self { name, fields: Vec::new(), depth: 0 }
    }

    /// Sets a field; an earlier value of it is replaced. The fields before it are searched.
    pub(crate) fn set(&mut self, field: Arc<str>, value: Value<'a>, work: &Work) -> Result<(), Failure> {
        work.charge(self.fields.len() as u64 * 2)?;
        work.items(1)?;
        self.depth = self.depth.max(value.depth());
        match self.fields.iter_mut().find(|(known, _)| *known == field) {
            Some((_, known)) => *known = value,
            None => self.fields.push((field, value)),
        }
        Ok(())
    }

    /// The name of its type, such as `Object.spec`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The fields that were set, in the order of the expression.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &Value<'a>)> {
        self.fields.iter().map(|(name, value)| (&**name, value))
    }

    /// The value of a field, if it was set.
    #[must_use]
    pub fn get(&self, field: &str) -> Option<&Value<'a>> {
        self.fields().find(|(name, _)| *name == field).map(|(_, value)| value)
    }

    /// The value of a field in an expression. One that was not set has the default of its type.
    pub(crate) fn select(&self, field: &str) -> Value<'a> {
        match (self.get(field), &*self.name, field) {
            (Some(value), ..) => value.clone(),
            (None, "JSONPatch", "op" | "path" | "from") => Value::text(""),
            (None, ..) => Value::Null,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    pub(crate) fn equals(&self, other: &Self, work: &Work) -> Result<bool, Failure> {
        if self.name != other.name || self.fields.len() != other.fields.len() {
            return Ok(false);
        }
        for (name, value) in self.fields() {
            work.charge(self.fields.len() as u64 * 2)?;
            match other.get(name) {
                Some(theirs) if equal(value, theirs, work)? => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The fault of an object whose parts are not named after the fields that they are in: `Object{spec: Object.spec{…}}`.
    /// Items of lists and values of maps have the name of the list or map. An object that is too large for
    /// [`Value::to_json`] may have any names.
    ///
    /// # Errors
    /// In the words of Kubernetes.
    pub fn check_names(&self) -> Result<(), String> {
        let mut visits = 0;
        check_object(self, &self.name, &mut visits)
    }
}

fn check_object(object: &Object<'_>, expected: &str, visits: &mut usize) -> Result<(), String> {
    if *object.name != *expected {
        return Err(format!(
            "unexpected type name {:?}, expected {expected:?}, which matches field name path from root Object type",
            &*object.name
        ));
    }
    for (name, value) in object.fields() {
        check_names(value, &format!("{expected}.{name}"), visits)?;
    }
    Ok(())
}

fn check_names(value: &Value<'_>, expected: &str, visits: &mut usize) -> Result<(), String> {
    *visits += 1;
    if *visits > MAX_JSON_SIZE / JSON_VALUE_SIZE {
        return Ok(());
    }
    match value {
        Value::Object(object) => check_object(object, expected, visits),
        Value::List(list) => {
            let mut items = list.made_items().iter();
            items.try_for_each(|item| check_names(item, expected, visits))
        }
        Value::Map(Map::Owned(map)) => {
            map.made_values().try_for_each(|value| check_names(value, expected, visits))
        }
        _ => Ok(()),
    }
}
