//! Operations on values by their types: validation, comparison, merge, removal, and the fields of a value.

mod compare;
mod error;
mod fields_of;
mod item;
mod merge;
mod named;
mod reconcile;
mod remove;
mod validate;

pub(crate) use compare::{Changes, compare};
pub use error::{TypeError, TypeErrors};
pub(crate) use fields_of::{fields_of, fields_of_pruned};
pub(crate) use merge::merge;
pub(crate) use named::with_named_fields;
pub(crate) use reconcile::reconcile;
pub(crate) use remove::remove;
pub(crate) use validate::{Duplicates, atomic_fields, validate};

use serde_json::Value;

use super::types::{ListType, MapType, ScalarType, Type};

/// The form in which a value is handled, of the forms that its type allows.
pub(super) enum Form<'t> {
    Map(&'t MapType),
    Scalar(ScalarType),
    List(&'t ListType),
}

/// The forms of a type that a value may have; all of them for null, which any form accepts.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) struct Forms {
    map: bool,
    scalar: bool,
    list: bool,
}

impl Forms {
    pub(super) fn of(declared: &Type, value: Option<&Value>) -> Self {
        let none = Self { map: false, scalar: false, list: false };
        match value {
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) if declared.scalar.is_some() => {
                Self { scalar: true, ..none }
            }
            Some(Value::Array(_)) if declared.list.is_some() => Self { list: true, ..none },
            Some(Value::Object(_)) if declared.map.is_some() => Self { map: true, ..none },
            _ => Self {
                map: declared.map.is_some(),
                scalar: declared.scalar.is_some(),
                list: declared.list.is_some(),
            },
        }
    }

    /// The form in which the value is handled; `None` if the type allows no value.
    pub(super) fn first(self, declared: &Type) -> Option<Form<'_>> {
        if self.map {
            declared.map.as_ref().map(Form::Map)
        } else if self.scalar {
            declared.scalar.map(Form::Scalar)
        } else {
            declared.list.as_ref().filter(|_| self.list).map(Form::List)
        }
    }
}

/// The form of one value.
pub(super) fn form<'t>(declared: &'t Type, value: &Value) -> Option<Form<'t>> {
    Forms::of(declared, Some(value)).first(declared)
}

/// Whether a value has a scalar type. Null has any.
pub(super) fn is_scalar(scalar: ScalarType, value: &Value) -> bool {
    match scalar {
        _ if value.is_null() => true,
        ScalarType::Numeric => value.is_number(),
        ScalarType::Text => value.is_string(),
        ScalarType::Boolean => value.is_boolean(),
        ScalarType::Untyped => value.is_number() || value.is_string() || value.is_boolean(),
    }
}
