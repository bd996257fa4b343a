//! `enum`: a fixed set of values.

use std::collections::HashSet;

use serde_json::Value;

use super::equality::{identity, json_equal};
use crate::field::go_json;

/// Number of values from which an index is built. With it, validation stays linear in the size of the object.
const INDEXED_FROM: usize = 16;

#[derive(Debug)]
pub(super) struct Enumeration {
    values: Box<[Value]>,
    index: Option<HashSet<String>>,
}

impl Enumeration {
    pub(super) fn new(values: Vec<Value>) -> Self {
        let index = (values.len() >= INDEXED_FROM).then(|| values.iter().map(identity).collect());
        Self { values: values.into(), index }
    }

    /// Whether a value is allowed. As in Kubernetes, `null` never is, and a number may be converted to the type of an
    /// allowed one, by which it loses its fraction.
    pub(super) fn contains(&self, value: &Value) -> bool {
        match &self.index {
            Some(index) if !is_fraction(value) => !value.is_null() && index.contains(&identity(value)),
            _ => self.values.iter().any(|allowed| allows(allowed, value)),
        }
    }

    /// The values as an error lists them.
    pub(super) fn texts(&self) -> Vec<String> {
        self.values.iter().map(|value| value.as_str().map_or_else(|| go_json(value), str::to_owned)).collect()
    }
}

fn allows(allowed: &Value, value: &Value) -> bool {
    match (allowed, value) {
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Number(integer), Value::Number(number)) if !integer.is_f64() && number.is_f64() => {
            number.as_f64().is_some_and(|float| integer.as_f64() == Some(float.trunc()))
        }
        _ => json_equal(allowed, value),
    }
}

fn is_fraction(value: &Value) -> bool {
    value.as_f64().is_some_and(|float| float.fract() != 0.0)
}
