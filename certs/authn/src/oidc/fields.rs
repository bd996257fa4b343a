//! Reading a tree field by field, so that every fault is found at once and with its path.

use std::{cell::RefCell, sync::LazyLock};

use serde_json::{Map, Value};

/// Something that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The field, e.g. `jwt[0].issuer.url`.
    pub path: String,
    /// What is wrong with it.
    pub problem: String,
}

/// What to do with fields that nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnknownFields {
    /// They are faults: somebody has written the file.
    Refuse,
    /// They are ignored: an API server has had its say already, and may be newer.
    Ignore,
}

/// A mapping somewhere in the tree. Whatever is wrong with it is noted, and reading goes on.
#[derive(Clone)]
pub(crate) struct Fields<'a> {
    path: String,
    fields: &'a Map<String, Value>,
    notes: &'a Notes,
}

/// Where faults are noted.
pub(crate) struct Notes {
    unknown: UnknownFields,
    faults: RefCell<Vec<Fault>>,
}

static NO_FIELDS: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

impl Notes {
    pub(crate) fn new(unknown: UnknownFields) -> Self {
        Self { unknown, faults: RefCell::default() }
    }

    /// The root of a tree; empty, and a fault, if it is no mapping.
    pub(crate) fn root<'a>(&'a self, value: &'a Value) -> Fields<'a> {
        self.fields(String::new(), value)
    }

    pub(crate) fn into_faults(self) -> Vec<Fault> {
        self.faults.into_inner()
    }

    fn add(&self, path: String, problem: String) {
        self.faults.borrow_mut().push(Fault { path, problem });
    }

    fn fields<'a>(&'a self, path: String, value: &'a Value) -> Fields<'a> {
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Null => &NO_FIELDS,
            _ => {
                self.add(path.clone(), "is not a mapping".to_owned());
                &NO_FIELDS
            }
        };
        Fields { path, fields, notes: self }
    }
}

impl<'a> Fields<'a> {
    /// Notes the fields that are none of these, with the one that may have been meant.
    pub(crate) fn only(&self, known: &[&str]) {
        if self.notes.unknown == UnknownFields::Ignore {
            return;
        }
        for name in self.fields.keys().filter(|name| !known.contains(&name.as_str())) {
            let problem = match nearest(name, known) {
                Some(meant) => format!("is not a known field; did you mean {meant}?"),
                None => format!("is not a known field, expected one of {}", known.join(", ")),
            };
            self.notes.add(self.join(name), problem);
        }
    }

    /// Notes that a field is wrong.
    pub(crate) fn fault(&self, name: &str, problem: impl Into<String>) {
        self.notes.add(self.join(name), problem.into());
    }

    /// Notes that the whole is wrong.
    pub(crate) fn wrong(&self, problem: impl Into<String>) {
        self.notes.add(self.path.clone(), problem.into());
    }

    /// Whether a field is there, were it empty.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(|value| !value.is_null())
    }

    /// A text; as in Go, an empty one is none.
    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        self.any_text(name).filter(|text| !text.is_empty())
    }

    /// A text that may be empty.
    pub(crate) fn any_text(&self, name: &str) -> Option<&'a str> {
        match self.fields.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text),
            Some(_) => {
                self.fault(name, "is not a string");
                None
            }
        }
    }

    /// A text that must be there.
    pub(crate) fn required(&self, name: &str) -> &'a str {
        let text = self.text(name);
        if text.is_none()
            && !self.fields.get(name).is_some_and(|value| !value.is_null() && !value.is_string())
        {
            self.fault(name, "is required");
        }
        text.unwrap_or_default()
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        match self.fields.get(name) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                self.fault(name, "is neither true nor false");
                false
            }
        }
    }

    pub(crate) fn texts(&self, name: &str) -> Vec<&'a str> {
        self.list(name)
            .iter()
            .enumerate()
            .filter_map(|(index, value)| {
                let text = value.as_str();
                if text.is_none() {
                    self.fault(&format!("{name}[{index}]"), "is not a string");
                }
                text
            })
            .collect()
    }

    /// A mapping; empty if it is not there.
    pub(crate) fn child(&self, name: &str) -> Fields<'a> {
        self.notes.fields(self.join(name), self.fields.get(name).unwrap_or(&Value::Null))
    }

    /// A list of mappings.
    pub(crate) fn children(&self, name: &str) -> Vec<Fields<'a>> {
        let path = self.join(name);
        self.list(name)
            .iter()
            .enumerate()
            .map(|(index, value)| self.notes.fields(format!("{path}[{index}]"), value))
            .collect()
    }

    fn list(&self, name: &str) -> &'a [Value] {
        match self.fields.get(name) {
            None | Some(Value::Null) => &[],
            Some(Value::Array(list)) => list,
            Some(_) => {
                self.fault(name, "is not a list");
                &[]
            }
        }
    }

    fn join(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

/// The known name that is only one or two slips away.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let (distance, nearest) = known.iter().map(|known| (distance(name, known), *known)).min()?;
    (distance <= 2 && distance < name.len()).then_some(nearest)
}

/// How many letters have to be put in, taken out or changed, whatever their case.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.to_lowercase().chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (column, theirs) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *theirs);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}
