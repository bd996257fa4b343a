//! Reads a tree field by field and collects all errors with their paths.

use std::{cell::RefCell, fmt, sync::LazyLock};

use serde_json::{Map, Value};

/// An invalid field of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field, e.g. `jwt[0].issuer.url`.
    pub path: String,
    /// The problem.
    pub problem: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => write!(f, "the file {}", self.problem),
            path => write!(f, "{path} {}", self.problem),
        }
    }
}

/// Handling of unknown fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnknownFields {
    /// Unknown fields are errors: an operator has written the file.
    Refuse,
    /// Unknown fields are ignored: an API server has validated the object, and may be newer.
    Ignore,
}

/// A mapping in the tree. Errors are collected, and reading continues.
#[derive(Clone)]
pub(crate) struct Fields<'a> {
    path: String,
    fields: &'a Map<String, Value>,
    errors: &'a FieldErrors,
}

/// Collects errors.
pub(crate) struct FieldErrors {
    unknown: UnknownFields,
    errors: RefCell<Vec<FieldError>>,
}

static NO_FIELDS: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

impl FieldErrors {
    pub(crate) fn new(unknown: UnknownFields) -> Self {
        Self { unknown, errors: RefCell::default() }
    }

    /// The root of a tree; empty, with an error, if it is not a mapping.
    pub(crate) fn root<'a>(&'a self, value: &'a Value) -> Fields<'a> {
        self.fields(String::new(), value)
    }

    pub(crate) fn into_vec(self) -> Vec<FieldError> {
        self.errors.into_inner()
    }

    fn add(&self, path: String, problem: String) {
        self.errors.borrow_mut().push(FieldError { path, problem });
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
        Fields { path, fields, errors: self }
    }
}

impl<'a> Fields<'a> {
    /// Adds an error for each unknown field, with the most similar known one.
    pub(crate) fn allow_only(&self, known: &[&str]) {
        if self.errors.unknown == UnknownFields::Ignore {
            return;
        }
        for name in self.fields.keys().filter(|name| !known.contains(&name.as_str())) {
            let problem = match nearest(name, known) {
                Some(meant) => format!("is not a known field; did you mean {meant}?"),
                None => format!("is not a known field, expected one of {}", known.join(", ")),
            };
            self.errors.add(self.join(name), problem);
        }
    }

    /// Adds an error for a field.
    pub(crate) fn add(&self, name: &str, problem: impl Into<String>) {
        self.errors.add(self.join(name), problem.into());
    }

    /// Adds an error for the mapping itself.
    pub(crate) fn add_here(&self, problem: impl Into<String>) {
        self.errors.add(self.path.clone(), problem.into());
    }

    /// Whether a field is present, possibly empty.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(|value| !value.is_null())
    }

    /// A string; as in Go, an empty one counts as absent.
    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        self.any_text(name).filter(|text| !text.is_empty())
    }

    /// A string that may be empty.
    pub(crate) fn any_text(&self, name: &str) -> Option<&'a str> {
        match self.fields.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text),
            Some(_) => {
                self.add(name, "is not a string");
                None
            }
        }
    }

    /// A required string.
    pub(crate) fn required(&self, name: &str) -> &'a str {
        let text = self.text(name);
        if text.is_none()
            && !self.fields.get(name).is_some_and(|value| !value.is_null() && !value.is_string())
        {
            self.add(name, "is required");
        }
        text.unwrap_or_default()
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        match self.fields.get(name) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                self.add(name, "is neither true nor false");
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
                    self.add(&format!("{name}[{index}]"), "is not a string");
                }
                text
            })
            .collect()
    }

    /// A mapping; empty if absent.
    pub(crate) fn child(&self, name: &str) -> Fields<'a> {
        self.errors.fields(self.join(name), self.fields.get(name).unwrap_or(&Value::Null))
    }

    /// A list of mappings.
    pub(crate) fn children(&self, name: &str) -> Vec<Fields<'a>> {
        let path = self.join(name);
        self.list(name)
            .iter()
            .enumerate()
            .map(|(index, value)| self.errors.fields(format!("{path}[{index}]"), value))
            .collect()
    }

    fn list(&self, name: &str) -> &'a [Value] {
        match self.fields.get(name) {
            None | Some(Value::Null) => &[],
            Some(Value::Array(list)) => list,
            Some(_) => {
                self.add(name, "is not a list");
                &[]
            }
        }
    }

    fn join(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

/// The known name at an edit distance of at most two.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let (distance, nearest) = known.iter().map(|known| (distance(name, known), *known)).min()?;
    (distance <= 2 && distance < name.len()).then_some(nearest)
}

/// The edit distance (Levenshtein), ignoring case.
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
