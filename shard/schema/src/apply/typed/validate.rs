//! Whether a value has its type.

use std::collections::BTreeSet;

use serde_json::Value;

use super::error::{Shown, TypeError, TypeErrors};
use super::item::element_of;
use super::{Form, form, is_scalar};
use crate::apply::fields::PathElement;
use crate::apply::types::{ListRelation, ListType, MapType, ObjectType, ScalarType, TypeRef};
use crate::field::MAX_FINDINGS;

/// The treatment of items with equal path elements.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Duplicates {
    /// Stored objects may have them.
    Allowed,
    Refused,
}

/// Checks a value against its type.
///
/// # Errors
/// All deviations, at most about 1,000.
pub(crate) fn validate(
    object_type: ObjectType<'_>,
    value: &Value,
    duplicates: Duplicates,
) -> Result<(), TypeErrors> {
    let mut walk = Walk { object_type, duplicates, errors: Vec::new() };
    walk.value(object_type.root, value, &Position::Root);
    if walk.errors.is_empty() { Ok(()) } else { Err(TypeErrors(walk.errors)) }
}

/// The paths of a valid value that are owned as a whole: atomic lists, maps and objects. One for each path, in order.
pub(crate) fn atomic_fields(object_type: ObjectType<'_>, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    find_atomic(object_type, object_type.root, value, &Position::Root, &mut found);
    found
}

fn find_atomic(
    object_type: ObjectType<'_>,
    place: TypeRef,
    value: &Value,
    position: &Position<'_>,
    found: &mut Vec<String>,
) {
    match (form(object_type.get(place), value), value) {
        (Some(Form::Map(map)), Value::Object(_)) if map.is_atomic => found.push(position.text()),
        (Some(Form::Map(map)), Value::Object(fields)) => {
            for (name, field) in fields {
                let Some(place) = map.value(name) else { continue };
                let element = PathElement::field(name);
                find_atomic(object_type, place, field, &Position::Below(position, &element), found);
            }
        }
        (Some(Form::List(list)), Value::Array(items)) => match &list.relation {
            ListRelation::Atomic => found.push(position.text()),
            ListRelation::Set | ListRelation::Map(_) => {
                for item in items {
                    let Ok(element) = element_of(list, item) else { continue };
                    find_atomic(object_type, list.items, item, &Position::Below(position, &element), found);
                }
            }
        },
        _ => {}
    }
}

/// A place in the value; its path is built only for an error.
enum Position<'p> {
    Root,
    Below(&'p Position<'p>, &'p PathElement),
    Field(&'p Position<'p>, &'p str),
}

impl Position<'_> {
    fn text(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Below(above, element) => format!("{}{element}", above.text()),
            Self::Field(above, name) => format!("{}.{name}", above.text()),
        }
    }

    fn at(&self, error: TypeError) -> TypeError {
        match self {
            Self::Root => error,
            Self::Below(above, element) => above.at(error.below(element)),
            Self::Field(above, name) => above.at(error.below(&PathElement::field(name))),
        }
    }
}

struct Walk<'t> {
    object_type: ObjectType<'t>,
    duplicates: Duplicates,
    errors: Vec<TypeError>,
}

impl Walk<'_> {
    fn report(&mut self, position: &Position<'_>, error: TypeError) {
        if self.errors.len() < MAX_FINDINGS {
            self.errors.push(position.at(error));
        }
    }

    fn value(&mut self, place: TypeRef, value: &Value, position: &Position<'_>) {
        let declared = self.object_type.get(place);
        match form(declared, value) {
            Some(Form::Map(map)) => self.map(map, value, position),
            Some(Form::Scalar(scalar)) if is_scalar(scalar, value) => {}
            Some(Form::Scalar(scalar)) => {
                let (what, shown) = match scalar {
                    ScalarType::Numeric => ("numeric (int or float)", Shown::TypeOnly),
                    ScalarType::Text => ("string", Shown::WrappedWithTypes),
                    ScalarType::Boolean => ("boolean", Shown::Wrapped),
                    ScalarType::Untyped => ("any scalar", Shown::Wrapped),
                };
                self.report(position, TypeError::expected(what, value, shown));
            }
            Some(Form::List(list)) => self.list(list, value, position),
            None => self.report(position, TypeError::new("schema error: invalid atom: inlined")),
        }
    }

    fn map(&mut self, map: &MapType, value: &Value, position: &Position<'_>) {
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Null => return,
            _ => return self.report(position, TypeError::expected("map", value, Shown::Wrapped)),
        };
        for (name, field) in fields {
            match map.value(name) {
                Some(place) => self.value(place, field, &Position::Field(position, name)),
                None => return self.report(position, TypeError::undeclared(name)),
            }
        }
    }

    fn list(&mut self, list: &ListType, value: &Value, position: &Position<'_>) {
        let items = match value {
            Value::Array(items) => items,
            Value::Null => return,
            _ => return self.report(position, TypeError::expected("list", value, Shown::Wrapped)),
        };
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            if matches!(list.relation, ListRelation::Atomic) {
                let element = PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX));
                self.value(list.items, item, &Position::Below(position, &element));
                continue;
            }
            let element = match element_of(list, item) {
                Ok(element) => element,
                Err(error) => {
                    let error = TypeError::new(format!("element {index}: {error}"));
                    return self.report(position, error);
                }
            };
            if self.duplicates == Duplicates::Refused && seen.contains(&element) {
                let error = TypeError::new(format!("duplicate entries for key {element}"));
                self.report(position, error);
            }
            self.value(list.items, item, &Position::Below(position, &element));
            if self.duplicates == Duplicates::Refused {
                seen.insert(element);
            }
        }
    }
}
