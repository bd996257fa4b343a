//! Maps and objects: JSON objects of the input and results of operations.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map as JsonMap, Value as Json};

use super::equality::json_equal;
use super::{Outcome, Text, Value, equal, read_json};
use crate::failure::{EvaluationError, Failure};
use crate::types::{DeclType, FieldType, ObjectType, escape, unescape};
use crate::work::Work;

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
    /// Hashed with a secret, because keys may be chosen to collide.
    places: HashMap<MapKey, usize>,
    /// The nesting of its values.
    depth: u32,
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
    pub(crate) fn find(&self, key: &Value<'a>, work: &Work) -> Result<Option<Value<'a>>, Failure> {
        match self {
            Self::Owned(map) => map.find(key, work),
            _ => match key {
                Value::String(text) => self.find_text(text.as_str(), work),
                _ => Err(Failure::no_such_overload()),
            },
        }
    }

    /// The value of a key or field, by its name in expressions.
    pub(crate) fn find_text(&self, name: &str, work: &Work) -> Result<Option<Value<'a>>, Failure> {
        work.read(name.len())?;
        match self {
            Self::Json(entries, values) => {
                entries.get(name).map(|json| read_json(json, values, work)).transpose()
            }
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
                    Some(json) => field_value(json, type_, work).map(Some),
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
                declared.map(|field| field_name(&field.property)).collect()
            }
            Self::Owned(map) => map.entries.iter().map(|(key, _)| key.clone()).collect(),
        }
    }

    /// The first of the keys.
    pub(crate) fn first_key(&self) -> Option<Value<'a>> {
        match self {
            Self::Json(entries, _) => entries.keys().next().map(|key| Value::borrowed(key)),
            Self::Object(entries, object) => {
                let first = entries.keys().find_map(|key| object.property(key));
                first.map(|field| field_name(&field.property))
            }
            Self::Owned(map) => map.entries.first().map(|(key, _)| key.clone()),
        }
    }

    /// The entries, with keys as expressions see them.
    ///
    /// # Errors
    /// If a value does not have its declared type.
    pub fn entries(&self) -> Result<Vec<(Value<'a>, Value<'a>)>, EvaluationError> {
        let work = Work::unlimited();
        let mut entries = Vec::with_capacity(self.len());
        for key in self.keys() {
            if let Some(value) = self.find(&key, &work)? {
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

    pub(super) fn equals(&self, other: &Value<'a>, work: &Work) -> Result<bool, Failure> {
        let Value::Map(theirs) = other else {
            return if self.is_owned() { Ok(false) } else { Err(Failure::no_such_overload()) };
        };
        if self.len() != theirs.len() {
            return Ok(false);
        }
        if let Self::Object(entries, object) = self {
            return object_equals(entries, object, theirs, work);
        }
        // Each key is copied and looked up twice.
        work.items(self.len().saturating_mul(4))?;
        for key in self.keys() {
            let (mine, theirs) = (self.find(&key, work)?, theirs.find(&key, work)?);
            match (mine, theirs) {
                (Some(mine), Some(theirs)) if equal(&mine, &theirs, work)? => {}
                (None, None) => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// The name of a property in expressions.
fn field_name(property: &str) -> Value<'_> {
    match escape(property) {
        Some(identifier) if *identifier == *property => Value::borrowed(property),
        Some(identifier) => Value::text(identifier),
        None => Value::borrowed(property),
    }
}

fn field_value<'a>(json: &'a Json, type_: &'a FieldType, work: &Work) -> Outcome<'a> {
    match type_ {
        FieldType::Declared(declared) => read_json(json, declared, work),
        FieldType::Preserved => Ok(Value::Preserved(json)),
    }
}

fn object_equals<'a>(
    entries: &'a JsonMap<String, Json>,
    object: &'a ObjectType,
    theirs: &Map<'a>,
    work: &Work,
) -> Result<bool, Failure> {
    for (property, json) in entries {
        work.visit()?;
        work.read(property.len())?;
        match object.property(property) {
            Some(field) => {
                let mine = match json {
                    Json::Null => None,
                    json => Some(field_value(json, &field.type_, work)?),
                };
                let theirs = match theirs {
                    Map::Object(others, _) => match others.get(property.as_str()) {
                        None | Some(Json::Null) => None,
                        Some(json) => Some(field_value(json, &field.type_, work)?),
                    },
                    other => other.find_text(property, work)?,
                };
                match (mine, theirs) {
                    (Some(mine), Some(theirs)) if equal(&mine, &theirs, work)? => {}
                    (None, None) => {}
                    _ => return Ok(false),
                }
            }
            None => {
                let (Map::Object(others, _) | Map::Json(others, _)) = theirs else {
                    return Err(Failure::no_such_overload());
                };
                if let Some(other) = others.get(property)
                    && !json_equal(other, json, work)?
                {
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
        self.depth = self.depth.max(value.depth()).max(key.depth());
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

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    pub(super) fn made_values(&self) -> impl Iterator<Item = &Value<'a>> {
        self.entries.iter().map(|(_, value)| value)
    }

    pub(crate) fn contains(&self, key: &Value<'a>) -> bool {
        MapKey::of(key).is_some_and(|key| self.places.contains_key(&key))
    }

    fn find_key(&self, key: &MapKey) -> Option<Value<'a>> {
        self.entries.get(*self.places.get(key)?).map(|(_, value)| value.clone())
    }

    fn find(&self, key: &Value<'a>, work: &Work) -> Result<Option<Value<'a>>, Failure> {
        if let Value::String(text) = key {
            // It is copied and hashed.
            work.charge(text.as_str().len() as u64)?;
        }
        if let Some(key) = MapKey::of(key) {
            return Ok(self.find_key(&key));
        }
        for (mine, value) in &self.entries {
            if equal(mine, key, work)? {
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
