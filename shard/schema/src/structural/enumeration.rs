//! `enum`: a fixed set of values.

use std::collections::HashSet;

use serde_json::Value;

use super::equality::{identity, json_equal};

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

    pub(super) fn contains(&self, value: &Value) -> bool {
        match &self.index {
            Some(index) => index.contains(&identity(value)),
            None => self.values.iter().any(|allowed| json_equal(allowed, value)),
        }
    }

    /// The values as an error lists them.
    pub(super) fn texts(&self) -> Vec<String> {
        self.values
            .iter()
            .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            .collect()
    }
}
