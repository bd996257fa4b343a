//! Lists: arrays of the input and results of operations.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value as Json;

use super::members::Members;
use super::{Outcome, Value, equal, read_json};
use crate::failure::{EvaluationError, Failure};
use crate::types::{DeclType, ListKind};
use crate::work::Work;

static ATOMIC: ListKind = ListKind::Atomic;

/// A list. Of an array of the input, items are read when they are used.
#[derive(Clone, Debug)]
pub struct List<'a> {
    items: Items<'a>,
    /// Decides `==` and `+`.
    kind: &'a ListKind,
    /// Whether the list comes from the input, perhaps with additions.
    is_from_json: bool,
    /// The nesting of items that operations have made.
    depth: u32,
}

#[derive(Clone, Debug)]
enum Items<'a> {
    Json(&'a [Json], &'a DeclType),
    Owned(Arc<Vec<Value<'a>>>),
}

impl<'a> List<'a> {
    pub(crate) fn owned(items: Vec<Value<'a>>) -> Self {
        Self::made(items, &ATOMIC, false)
    }

    fn made(items: Vec<Value<'a>>, kind: &'a ListKind, is_from_json: bool) -> Self {
        let depth = items.iter().map(Value::depth).max().unwrap_or(0);
        Self { items: Items::Owned(Arc::new(items)), kind, is_from_json, depth }
    }

    pub(super) fn json(values: &'a [Json], items: &'a DeclType, kind: &'a ListKind) -> Self {
        Self { items: Items::Json(values, items), kind, is_from_json: true, depth: 0 }
    }

    /// An array whose items are declared like itself.
    pub(super) fn json_any(values: &'a [Json], declared: &'a DeclType) -> Self {
        Self { items: Items::Json(values, declared), kind: &ATOMIC, is_from_json: true, depth: 0 }
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

    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    /// The items of a list of an expression.
    pub(super) fn made_items(&self) -> &[Value<'a>] {
        match &self.items {
            Items::Owned(values) if self.is_owned() => values,
            _ => &[],
        }
    }

    /// An item. Reading fails if the JSON does not have the declared type.
    pub(crate) fn get(&self, index: usize, work: &Work) -> Option<Outcome<'a>> {
        match &self.items {
            Items::Json(values, declared) => Some(read_json(values.get(index)?, declared, work)),
            Items::Owned(values) => {
                let value = values.get(index)?.clone();
                Some(work.visit().map(|()| value))
            }
        }
    }

    pub(crate) fn iter<'b>(&'b self, work: &'b Work) -> impl Iterator<Item = Outcome<'a>> + 'b {
        (0..self.len()).filter_map(move |index| self.get(index, work))
    }

    /// The items.
    ///
    /// # Errors
    /// If one of them does not have its declared type.
    pub fn items(&self) -> Result<Vec<Value<'a>>, EvaluationError> {
        self.values(&Work::unlimited()).map_err(EvaluationError::from)
    }

    /// All items, read.
    pub(crate) fn values(&self, work: &Work) -> Result<Vec<Value<'a>>, Failure> {
        work.items(self.len())?;
        self.iter(work).collect()
    }

    /// Whether an item equals a value. Errors of comparisons count only if no item is equal.
    pub(crate) fn contains(&self, value: &Value<'a>, work: &Work) -> Result<bool, Failure> {
        let mut failure = None;
        for item in self.iter(work) {
            match item.and_then(|item| equal(&item, value, work)) {
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
    pub(crate) fn concat(&self, other: &Self, work: &Work) -> Result<Self, Failure> {
        // An empty list of the expression adds nothing, and the other list stays what it is.
        if !self.is_from_json && self.is_empty() {
            return Ok(other.clone());
        }
        if !self.is_from_json && other.is_empty() {
            return Ok(self.clone());
        }
        let mut values = self.values(work)?;
        match self.kind {
            ListKind::Atomic => values.extend(other.values(work)?),
            ListKind::Set => {
                let mut members = Members::of(values, work)?;
                for value in other.iter(work) {
                    let value = value?;
                    if !members.contains(&value, work)? {
                        work.items(1)?;
                        members.add(value, work)?;
                    }
                }
                values = members.into_values();
            }
            ListKind::Map(keys) => {
                let places = values.iter().enumerate();
                let mut places: HashMap<String, usize> = places
                    .map(|(index, value)| Ok((key_of(value, keys, work)?, index)))
                    .collect::<Result<_, Failure>>()?;
                for value in other.iter(work) {
                    let value = value?;
                    let key = key_of(&value, keys, work)?;
                    match places.get(&key).and_then(|place| values.get_mut(*place)) {
                        Some(place) => *place = value,
                        None => {
                            work.items(1)?;
                            places.insert(key, values.len());
                            values.push(value);
                        }
                    }
                }
            }
        }
        Ok(Self::made(values, self.kind, self.is_from_json))
    }

    pub(super) fn equals(&self, other: &Value<'a>, work: &Work) -> Result<bool, Failure> {
        let Value::List(other) = other else {
            return if self.is_from_json { Err(Failure::no_such_overload()) } else { Ok(false) };
        };
        if self.len() != other.len() {
            return Ok(false);
        }
        match self.kind {
            ListKind::Atomic => {
                for (mine, theirs) in self.iter(work).zip(other.iter(work)) {
                    if !equal(&mine?, &theirs?, work)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            ListKind::Set => {
                let mine = Members::of(self.values(work)?, work)?;
                for theirs in other.iter(work) {
                    if !mine.contains(&theirs?, work)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            ListKind::Map(keys) => {
                let mine = self.values(work)?;
                let places: HashMap<String, &Value<'a>> = mine
                    .iter()
                    .map(|value| Ok((key_of(value, keys, work)?, value)))
                    .collect::<Result<_, Failure>>()?;
                for theirs in other.iter(work) {
                    let theirs = theirs?;
                    match places.get(&key_of(&theirs, keys, work)?) {
                        Some(mine) if equal(mine, &theirs, work)? => {}
                        _ => return Ok(false),
                    }
                }
                Ok(true)
            }
        }
    }
}

/// The key of an item of a list with `x-kubernetes-list-type: map`, as a text.
fn key_of(value: &Value<'_>, keys: &[Box<str>], work: &Work) -> Result<String, Failure> {
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
    work.visits(keys.len())?;
    work.produce(text.len())?;
    Ok(text)
}
