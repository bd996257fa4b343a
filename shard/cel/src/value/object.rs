//! Objects that expressions make: `Object.spec{…}` and `JSONPatch{…}`.

use std::sync::Arc;

use super::{Value, equal};
use crate::failure::Failure;

/// An object with a type and fields.
#[derive(Clone, Debug)]
pub struct Object<'a> {
    name: Arc<str>,
    fields: Vec<(Arc<str>, Value<'a>)>,
}

impl<'a> Object<'a> {
    pub(crate) fn new(name: Arc<str>) -> Self {
        Self { name, fields: Vec::new() }
    }

    /// Sets a field; an earlier value of it is replaced.
    pub(crate) fn set(&mut self, field: Arc<str>, value: Value<'a>) {
        match self.fields.iter_mut().find(|(known, _)| *known == field) {
            Some((_, known)) => *known = value,
            None => self.fields.push((field, value)),
        }
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

    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    pub(crate) fn equals(&self, other: &Self) -> Result<bool, Failure> {
        if self.name != other.name || self.fields.len() != other.fields.len() {
            return Ok(false);
        }
        for (name, value) in self.fields() {
            match other.get(name) {
                Some(theirs) if equal(value, theirs)? => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The fault of an object whose parts are not named after the fields that they are in: `Object{spec: Object.spec{…}}`.
    /// Items of lists and values of maps have the name of the list or map.
    ///
    /// # Errors
    /// In the words of Kubernetes.
    pub fn check_names(&self) -> Result<(), String> {
        check_names(&Value::Object(Arc::new(self.clone())), &self.name)
    }
}

fn check_names(value: &Value<'_>, expected: &str) -> Result<(), String> {
    match value {
        Value::Object(object) => {
            if *object.name != *expected {
                return Err(format!(
                    "unexpected type name {:?}, expected {expected:?}, which matches field name path from root Object type",
                    &*object.name
                ));
            }
            object.fields().try_for_each(|(name, value)| check_names(value, &format!("{expected}.{name}")))
        }
        Value::List(list) if list.is_owned() => {
            list.iter().filter_map(Result::ok).try_for_each(|item| check_names(&item, expected))
        }
        Value::Map(map) if map.is_owned() => {
            let values = map.keys().into_iter().filter_map(|key| map.find(&key).ok().flatten());
            values.into_iter().try_for_each(|value| check_names(&value, expected))
        }
        _ => Ok(()),
    }
}
