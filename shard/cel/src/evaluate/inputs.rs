//! Values of the variables of an environment.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::check::{Declared, Variable};
use crate::failure::Failure;
use crate::value::{Outcome, Value, from_json};

/// Values of the variables of an environment. One set serves all programs of the environment.
#[derive(Debug)]
pub struct Inputs<'a> {
    declared: &'a Arc<Vec<Declared>>,
    values: Vec<Option<Outcome<'a>>>,
}

impl<'a> Inputs<'a> {
    /// A set without values.
    pub(crate) fn of(declared: &'a Arc<Vec<Declared>>) -> Self {
        Self { declared, values: declared.iter().map(|_| None).collect() }
    }

    /// Sets a variable that is declared as JSON. Nothing is converted: the JSON is read when it is used.
    #[must_use]
    pub fn with_json(mut self, name: &str, json: &'a Json) -> Self {
        if let Some((place, declared)) = self.place(name) {
            let value = match &declared.variable {
                Variable::Json(declared) => Some(from_json(json, declared)),
                Variable::OptionalJson(declared) => Some(from_json(json, declared).map(Value::optional)),
                Variable::Typed(_) => None,
            };
            self.set(place, value);
        }
        self
    }

    /// Sets a variable that is declared as optional JSON to `optional.none()`.
    #[must_use]
    pub fn with_none(mut self, name: &str) -> Self {
        if let Some((place, _)) = self.place(name) {
            self.set(place, Some(Ok(Value::NONE)));
        }
        self
    }

    /// Sets a variable to a value of its type.
    #[must_use]
    pub fn with_value(mut self, name: &str, value: Value<'a>) -> Self {
        if let Some((place, _)) = self.place(name) {
            self.set(place, Some(Ok(value)));
        }
        self
    }

    fn place(&self, name: &str) -> Option<(usize, &'a Declared)> {
        self.declared.iter().enumerate().find(|(_, declared)| *declared.name == *name)
    }

    fn set(&mut self, place: usize, value: Option<Outcome<'a>>) {
        if let Some(known) = self.values.get_mut(place) {
            *known = value;
        }
    }

    pub(super) fn get(&self, place: usize) -> Outcome<'a> {
        match self.values.get(place) {
            Some(Some(value)) => value.clone(),
            _ => {
                let name = self.declared.get(place).map_or("", |declared| &declared.name);
                Err(Failure::error(format!("no such attribute(s): {name}")))
            }
        }
    }
}
