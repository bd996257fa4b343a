//! Maps and objects: JSON objects of the input and results of operations.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde_json::{Map as JsonMap, Value as Json};

use super::{Outcome, Text, Value, equal, from_json};
use crate::failure::{EvaluationError, Failure};
use crate::types::{DeclType, FieldType, ObjectType, escape, unescape};

/// A map or an object. Of an object of the input, fields are read when they are used.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// `additionalProperties`.
    Json(&'a JsonMap<String, Json>, &'a DeclType),
    /// Named properties.
    Object(&'a JsonMap<String, Json>, &'a ObjectType),
    /// A result of an operation.
    Owned(Arc<OwnedMap<'a>>),
}

/// A map that an operation has made. Entries are in the order of their creation, so results are the same each time.
#[derive(Clone, Debug, Default)]
pub struct OwnedMap<'a> {
    entries: Vec<(Value<'a>, Value<'a>)>,
    places: FxHashMap<MapKey, usize>,
}

/// A key in the form in which it is looked up: equal numbers of different types are one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum MapKey {
    Bool(bool),
    Number(i128),
    Text(Box<str>),
}

impl<'a> Map<'a> {
    pub(super) fn json_map(entries: &'a JsonMap<String, Json>, values: &'a DeclType) -> Self {
        Self::Json(entries, values)
    }

    pub(super) fn json_object(entries: &'a JsonMap<String, Json>, object: &'a ObjectType) -> Self {
        Self::Object(entries, object)
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Json(entries, _) | Self::Object(entries, _) => entries.len(),
            Self::Owned(map) => map.entries.len(),
        }
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn is_owned(&self) -> bool {
        matches!(self, Self::Owned(_))
    }

    /// The value of a key. Only strings are keys of maps of the input.
    pub(crate) fn find(&self, key: &Value<'a>) -> Result<Option<Value<'a>>, Failure> {
        match self {
            Self::Owned(map) => map.find(key),
            _ => match key {
                Value::String(text) => self.find_text(text.as_str()),
                _ => Err(Failure::no_such_overload()),
            },
        }
    }

    /// The value of a key or field, by its name in expressions.
    pub(crate) fn find_text(&self, name: &str) -> Result<Option<Value<'a>>, Failure> {
        match self {
            Self::Json(entries, values) => entries.get(name).map(|json| from_json(json, values)).transpose(),
            Self::Object(entries, object) => {
                if !object.has_properties() {
                    return Ok(None);
                }
                let (property, type_) = match object.field(name) {
                    Some(field) => (&*field.property, &field.type_),
                    None => match unescape(name).and_then(|property| object.property(&property)) {
                        Some(field) => (&*field.property, &field.type_),
                        None => return Ok(None),
                    },
                };
                // An absent field and a field with null are the same.
                match entries.get(property) {
                    None | Some(Json::Null) => Ok(None),
                    Some(json) => field_value(json, type_).map(Some),
                }
            }
            Self::Owned(map) => Ok(map.find_key(&MapKey::Text(name.into()))),
        }
    }

    /// The keys, as expressions see them.
    pub(crate) fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Self::Json(entries, _) => entries.keys().map(|key| Value::borrowed(key)).collect(),
            Self::Object(entries, object) => {
                let declared = entries.keys().filter_map(|key| object.property(key));
                let name = |property: &'a str| match escape(property) {
                    Some(identifier) if *identifier == *property => Value::borrowed(property),
                    Some(identifier) => Value::text(identifier),
                    None => Value::borrowed(property),
                };
                declared.map(|field| name(&field.property)).collect()
            }
            Self::Owned(map) => map.entries.iter().map(|(key, _)| key.clone()).collect(),
        }
    }

    /// The entries, with keys as expressions see them.
    ///
    /// # Errors
    /// If a value does not have its declared type.
    pub fn entries(&self) -> Result<Vec<(Value<'a>, Value<'a>)>, EvaluationError> {
        let mut entries = Vec::with_capacity(self.len());
        for key in self.keys() {
            if let Some(value) = self.find(&key)? {
                entries.push((key, value));
            }
        }
        Ok(entries)
    }

    /// The text of a property, if this is JSON or a map with strings as keys; for the keys of list items.
    pub(super) fn raw(&self, property: &str) -> Option<String> {
        match self {
            Self::Json(entries, _) | Self::Object(entries, _) => entries.get(property).map(Json::to_string),
            Self::Owned(map) => match map.find_key(&MapKey::Text(property.into()))? {
                Value::String(text) => Some(Json::from(text.as_str()).to_string()),
                Value::Int(value) => Some(value.to_string()),
                Value::Bool(value) => Some(value.to_string()),
                _ => None,
            },
        }
    }

    pub(super) fn equals(&self, other: &Value<'a>) -> Result<bool, Failure> {
        let Value::Map(theirs) = other else {
            return if self.is_owned() { Ok(false) } else { Err(Failure::no_such_overload()) };
        };
        if self.len() != theirs.len() {
            return Ok(false);
        }
        if let Self::Object(entries, object) = self {
            return object_equals(entries, object, theirs);
        }
        for key in self.keys() {
            let (mine, theirs) = (self.find(&key)?, theirs.find(&key)?);
            match (mine, theirs) {
                (Some(mine), Some(theirs)) if equal(&mine, &theirs)? => {}
                (None, None) => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

fn field_value<'a>(json: &'a Json, type_: &'a FieldType) -> Outcome<'a> {
    match type_ {
        FieldType::Declared(declared) => from_json(json, declared),
        FieldType::Preserved => Ok(Value::Preserved(json)),
    }
}

fn object_equals<'a>(
    entries: &'a JsonMap<String, Json>,
    object: &'a ObjectType,
    theirs: &Map<'a>,
) -> Result<bool, Failure> {
    for (property, json) in entries {
        match object.property(property) {
            Some(field) => {
                let mine = match json {
                    Json::Null => None,
                    json => Some(field_value(json, &field.type_)?),
                };
                let theirs = match theirs {
                    Map::Object(others, _) => match others.get(property.as_str()) {
                        None | Some(Json::Null) => None,
                        Some(json) => Some(field_value(json, &field.type_)?),
                    },
                    other => other.find_text(property)?,
                };
                match (mine, theirs) {
                    (Some(mine), Some(theirs)) if equal(&mine, &theirs)? => {}
                    (None, None) => {}
                    _ => return Ok(false),
                }
            }
            None => {
                let (Map::Object(others, _) | Map::Json(others, _)) = theirs else {
                    return Err(Failure::no_such_overload());
                };
                if others.get(property).is_some_and(|other| other != json) {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

impl<'a> OwnedMap<'a> {
    /// Sets an entry; an earlier one of the same key is replaced.
    pub(crate) fn insert(&mut self, key: Value<'a>, value: Value<'a>) {
        let looked_up = MapKey::of(&key);
        if let Some(place) = looked_up.as_ref().and_then(|key| self.places.get(key)) {
            if let Some(entry) = self.entries.get_mut(*place) {
                entry.1 = value;
            }
            return;
        }
        if let Some(looked_up) = looked_up {
            self.places.insert(looked_up, self.entries.len());
        }
        self.entries.push((key, value));
    }

    pub(crate) fn remove(&mut self, key: &Value<'a>) {
        let Some(place) = MapKey::of(key).and_then(|key| self.places.remove(&key)) else {
            return;
        };
        self.entries.remove(place);
        for other in self.places.values_mut().filter(|other| **other > place) {
            *other -= 1;
        }
    }

    pub(crate) fn contains(&self, key: &Value<'a>) -> bool {
        MapKey::of(key).is_some_and(|key| self.places.contains_key(&key))
    }

    fn find_key(&self, key: &MapKey) -> Option<Value<'a>> {
        self.entries.get(*self.places.get(key)?).map(|(_, value)| value.clone())
    }

    fn find(&self, key: &Value<'a>) -> Result<Option<Value<'a>>, Failure> {
        if let Some(key) = MapKey::of(key) {
            return Ok(self.find_key(&key));
        }
        for (mine, value) in &self.entries {
            if equal(mine, key)? {
                return Ok(Some(value.clone()));
            }
        }
        Ok(None)
    }
}

impl MapKey {
    fn of(value: &Value<'_>) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(Self::Bool(*value)),
            Value::Int(value) => Some(Self::Number(i128::from(*value))),
            Value::Uint(value) => Some(Self::Number(i128::from(*value))),
            Value::Double(value) if value.fract() == 0.0 && value.abs() < 1e30 => {
                Some(Self::Number(*value as i128))
            }
            Value::String(Text::Borrowed(text)) => Some(Self::Text((*text).into())),
            Value::String(Text::Shared(text)) => Some(Self::Text((&**text).into())),
            _ => None,
        }
    }
}
