//! Lists: arrays of the input and results of operations.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde_json::Value as Json;

use super::{Outcome, Value, equal, from_json};
use crate::failure::{EvaluationError, Failure};
use crate::types::{DeclType, ListKind};

static ATOMIC: ListKind = ListKind::Atomic;

/// A list. Of an array of the input, items are read when they are used.
#[derive(Clone, Debug)]
pub struct List<'a> {
    items: Items<'a>,
    /// Decides `==` and `+`.
    kind: &'a ListKind,
    /// Whether the list comes from the input, perhaps with additions.
    is_from_json: bool,
}

#[derive(Clone, Debug)]
enum Items<'a> {
    Json(&'a [Json], &'a DeclType),
    Owned(Arc<Vec<Value<'a>>>),
}

impl<'a> List<'a> {
    pub(crate) fn owned(items: Vec<Value<'a>>) -> Self {
        Self { items: Items::Owned(Arc::new(items)), kind: &ATOMIC, is_from_json: false }
    }

    pub(super) fn json(values: &'a [Json], items: &'a DeclType, kind: &'a ListKind) -> Self {
        Self { items: Items::Json(values, items), kind, is_from_json: true }
    }

    /// An array whose items are declared like itself.
    pub(super) fn json_any(values: &'a [Json], declared: &'a DeclType) -> Self {
        Self { items: Items::Json(values, declared), kind: &ATOMIC, is_from_json: true }
    }

    /// The number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.items {
            Items::Json(values, _) => values.len(),
            Items::Owned(values) => values.len(),
        }
    }

    /// Whether there are no items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn is_owned(&self) -> bool {
        !self.is_from_json
    }

    /// An item. Reading fails if the JSON does not have the declared type.
    pub(crate) fn get(&self, index: usize) -> Option<Outcome<'a>> {
        match &self.items {
            Items::Json(values, declared) => Some(from_json(values.get(index)?, declared)),
            Items::Owned(values) => Some(Ok(values.get(index)?.clone())),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Outcome<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// The items.
    ///
    /// # Errors
    /// If one of them does not have its declared type.
    pub fn items(&self) -> Result<Vec<Value<'a>>, EvaluationError> {
        self.values().map_err(EvaluationError::from)
    }

    /// All items, read.
    pub(crate) fn values(&self) -> Result<Vec<Value<'a>>, Failure> {
        self.iter().collect()
    }

    /// Whether an item equals a value. Errors of comparisons count only if no item is equal.
    pub(crate) fn contains(&self, value: &Value<'a>) -> Result<bool, Failure> {
        let mut failure = None;
        for item in self.iter() {
            match item.and_then(|item| equal(&item, value)) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error @ Failure::Abort(_)) => return Err(error),
                Err(error) => {
                    // Lists of operations ignore items that cannot be compared.
                    if self.is_from_json {
                        failure.get_or_insert(error);
                    }
                }
            }
        }
        failure.map_or(Ok(false), Err)
    }

    /// `+`: concatenation, or the union of sets and of lists with keys.
    pub(crate) fn concat(&self, other: &Self) -> Result<Self, Failure> {
        // An empty list of the expression adds nothing, and the other list stays what it is.
        if !self.is_from_json && self.is_empty() {
            return Ok(other.clone());
        }
        if !self.is_from_json && other.is_empty() {
            return Ok(self.clone());
        }
        let mut values = self.values()?;
        match self.kind {
            ListKind::Atomic => values.extend(other.values()?),
            ListKind::Set => {
                for value in other.iter() {
                    let value = value?;
                    if !contains(&values, &value)? {
                        values.push(value);
                    }
                }
            }
            ListKind::Map(keys) => {
                let places = values.iter().enumerate();
                let mut places: FxHashMap<String, usize> =
                    places.map(|(index, value)| (key_of(value, keys), index)).collect();
                for value in other.iter() {
                    let value = value?;
                    let key = key_of(&value, keys);
                    match places.get(&key).and_then(|place| values.get_mut(*place)) {
                        Some(place) => *place = value,
                        None => {
                            places.insert(key, values.len());
                            values.push(value);
                        }
                    }
                }
            }
        }
        let items = Items::Owned(Arc::new(values));
        Ok(Self { items, kind: self.kind, is_from_json: self.is_from_json })
    }

    pub(super) fn equals(&self, other: &Value<'a>) -> Result<bool, Failure> {
        let Value::List(other) = other else {
            return if self.is_from_json { Err(Failure::no_such_overload()) } else { Ok(false) };
        };
        if self.len() != other.len() {
            return Ok(false);
        }
        match self.kind {
            ListKind::Atomic => {
                for (mine, theirs) in self.iter().zip(other.iter()) {
                    if !equal(&mine?, &theirs?)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            ListKind::Set => {
                let mine = self.values()?;
                for theirs in other.iter() {
                    if !contains(&mine, &theirs?)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            ListKind::Map(keys) => {
                let mine = self.values()?;
                let places: FxHashMap<String, &Value<'a>> =
                    mine.iter().map(|value| (key_of(value, keys), value)).collect();
                for theirs in other.iter() {
                    let theirs = theirs?;
                    match places.get(&key_of(&theirs, keys)) {
                        Some(mine) if equal(mine, &theirs)? => {}
                        _ => return Ok(false),
                    }
                }
                Ok(true)
            }
        }
    }
}

/// Membership in a set. Sets of the input have scalars; long sets of strings are looked up by the caller's budget.
fn contains<'a>(values: &[Value<'a>], value: &Value<'a>) -> Result<bool, Failure> {
    for mine in values {
        if equal(mine, value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The key of an item of a list with `x-kubernetes-list-type: map`, as a text.
fn key_of(value: &Value<'_>, keys: &[Box<str>]) -> String {
    let mut text = String::new();
    for key in keys {
        let part = match value {
            Value::Map(map) => map.raw(key),
            _ => None,
        };
        match part {
            Some(part) => text.push_str(&part),
            None => text.push('-'),
        }
        text.push(',');
    }
    text
}
