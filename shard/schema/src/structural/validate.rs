//! Validates an object against its schema, with the texts of Kubernetes' validator (`kube-openapi/pkg/validation`).

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::HashMap;

use serde_json::{Map, Number, Value};

use super::equality::{compare, identity};
use super::list_type::{by_key, key_of};
use super::{Additional, Bound, Checks, Inner, ListType, Node, NodeId, Property, TypeSet, formats};
use crate::field::{FieldError, FieldPath, Location, MAX_FINDINGS, go_float, go_quote};

/// Validates `value`; parts that equal the corresponding part of `old` count as valid.
pub(super) fn validate(
    schema: &Inner,
    node: NodeId,
    value: &Value,
    old: Option<&Value>,
    base: &FieldPath,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let start = FieldPath::root();
    let validator = Validator { schema, base, steps_left: Cell::new(Some(MAX_STEPS)) };
    validator.value(node, value, old, Location::Base(&start), &mut errors);
    if validator.steps_left.get().is_none() {
        let detail = "the object and its schema are too complex together to be validated";
        errors.push(FieldError::forbidden(base.clone(), detail));
    }
    errors
}

/// Maximum number of steps (comparisons of a value with a schema) for one object. Nested alternatives multiply:
/// without a limit, a schema of a few megabytes could occupy a processor for hours.
const MAX_STEPS: u64 = 10_000_000;

struct Validator<'s> {
    schema: &'s Inner,
    /// The path of the value in a larger object. Error texts have paths relative to it.
    base: &'s FieldPath,
    /// `None` once the limit is exceeded; the errors found so far are then incomplete.
    steps_left: Cell<Option<u64>>,
}

impl<'s> Validator<'s> {
    fn value(
        &self,
        id: NodeId,
        value: &Value,
        old: Option<&Value>,
        location: Location<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        if old != Some(value) {
            self.changed_value(id, value, old, location, errors);
        }
    }

    /// Validates a value that differs from the old one.
    fn changed_value(
        &self,
        id: NodeId,
        value: &Value,
        old: Option<&Value>,
        location: Location<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        if errors.len() >= MAX_FINDINGS || !self.spend_step(value) {
            return;
        }
        let node = self.schema.node(id);
        self.types(node, value, location, errors);
        let checks = node.checks.as_deref();
        if value.is_null() {
            if let Some(checks) = checks {
                self.enumeration(checks, value, location, errors);
            }
            return;
        }
        if let Some(checks) = checks {
            self.combinations(checks, value, old, location, errors);
            match value {
                Value::String(text) => self.text(checks, text, location, errors),
                Value::Number(number) => self.number(node, checks, number, location, errors),
                _ => {}
            }
        }
        if let Value::Array(items) = value {
            self.items(node, items, old, location, errors);
            if let Some(checks) = checks {
                self.item_count(checks, items, location, errors);
            }
        }
        if let Some(checks) = checks {
            self.enumeration(checks, value, location, errors);
        }
        if let Value::Object(fields) = value {
            self.fields(node, fields, old, location, errors);
        }
    }

    fn property(
        &self,
        property: &Property,
        value: &Value,
        old: Option<&Value>,
        location: Location<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        let is_nullable_here_only = property.nullable && !self.schema.node(property.node).nullable;
        if !(value.is_null() && is_nullable_here_only) {
            self.value(property.node, value, old, location, errors);
        }
    }

    /// Counts the cost of a value. Returns false once the limit is exceeded.
    fn spend_step(&self, value: &Value) -> bool {
        let cost = match value {
            Value::String(text) => 1 + text.len() as u64 / 256,
            Value::Array(items) => 1 + items.len() as u64,
            Value::Object(fields) => 1 + fields.len() as u64,
            Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        };
        match self.steps_left.get().and_then(|remaining| remaining.checked_sub(cost)) {
            Some(remaining) => {
                self.steps_left.set(Some(remaining));
                true
            }
            None => {
                self.steps_left.set(None);
                false
            }
        }
    }

    fn types(&self, node: &Node, value: &Value, location: Location<'_>, errors: &mut Vec<FieldError>) {
        if node.types.is_empty() {
            return;
        }
        let fits = match value {
            Value::Null => node.nullable,
            Value::Bool(_) => node.types.contains(TypeSet::BOOLEAN),
            Value::Number(number) => {
                // A number that Go holds as a float is an integer if the float represents exactly one integer.
                let exact = |float: f64| float.fract() == 0.0 && float.abs() < 2f64.powi(53);
                let integral = number.is_i64() || number.as_f64().is_some_and(exact);
                node.types.contains(TypeSet::NUMBER) || (integral && node.types.contains(TypeSet::INTEGER))
            }
            Value::String(_) => node.types.contains(TypeSet::STRING),
            Value::Array(_) => node.types.contains(TypeSet::ARRAY),
            Value::Object(_) => node.types.contains(TypeSet::OBJECT),
        };
        if !fits {
            let actual = type_name(value);
            let expected = node.types.names();
            let detail = format!("{} in body must be of type {expected}: \"{actual}\"", name_of(location));
            errors.push(FieldError::type_invalid_str(self.path_of(location), actual, &detail));
        }
    }

    fn combinations(
        &self,
        checks: &Checks,
        value: &Value,
        old: Option<&Value>,
        location: Location<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        let try_one = |id: NodeId| {
            let mut failures = Vec::new();
            self.changed_value(id, value, old, location, &mut failures);
            failures
        };
        if !checks.any_of.is_empty() {
            let mut best: Option<Vec<FieldError>> = None;
            for id in &checks.any_of {
                let failures = try_one(*id);
                let has_fewer_errors = best.as_ref().is_none_or(|best| failures.len() < best.len());
                if has_fewer_errors {
                    best = Some(failures);
                }
                if best.as_ref().is_some_and(Vec::is_empty) {
                    break;
                }
            }
            if let Some(failures) = best.filter(|failures| !failures.is_empty()) {
                errors.push(self.composite(location, "must validate at least one schema (anyOf)"));
                errors.extend(failures);
            }
        }
        if !checks.one_of.is_empty() {
            let mut valid = 0;
            let mut best: Option<Vec<FieldError>> = None;
            for id in &checks.one_of {
                let failures = try_one(*id);
                if failures.is_empty() {
                    valid += 1;
                } else if best.as_ref().is_none_or(|best| failures.len() < best.len()) {
                    best = Some(failures);
                }
            }
            if valid == 0 {
                let text = "must validate one and only one schema (oneOf). Found none valid";
                errors.push(self.composite(location, text));
                errors.extend(best.unwrap_or_default());
            } else if valid > 1 {
                let text = format!(
                    "must validate one and only one schema (oneOf). Found {valid} valid alternatives"
                );
                errors.push(self.composite(location, &text));
            }
        }
        if !checks.all_of.is_empty() {
            let mut valid = 0;
            for id in &checks.all_of {
                let failures = try_one(*id);
                if failures.is_empty() {
                    valid += 1;
                }
                errors.extend(failures);
            }
            if valid == 0 {
                errors
                    .push(self.composite(location, "must validate all the schemas (allOf). None validated"));
            } else if valid < checks.all_of.len() {
                errors.push(self.composite(location, "must validate all the schemas (allOf)"));
            }
        }
        if checks.not.is_some_and(|id| try_one(id).is_empty()) {
            errors.push(self.composite(location, "must not validate the schema (not)"));
        }
    }

    fn text(&self, checks: &Checks, text: &str, location: Location<'_>, errors: &mut Vec<FieldError>) {
        self.text_shape(checks, text, location, errors);
        if let Some(format) = &checks.format
            && !formats::has_format(format, text, self.schema.dialect)
        {
            let detail =
                format!("{} in body must be of type {format}: {}", name_of(location), go_quote(text));
            errors.push(FieldError::type_invalid_str(self.path_of(location), text, &detail));
        }
    }

    fn text_shape(&self, checks: &Checks, text: &str, location: Location<'_>, errors: &mut Vec<FieldError>) {
        if checks.max_length.is_some() || checks.min_length.is_some() {
            let length = text.chars().count();
            if let Some(max) = checks.max_length.filter(|max| length > *max) {
                errors.push(FieldError::too_long(self.path_of(location), max));
                return;
            }
            if let Some(min) = checks.min_length.filter(|min| length < *min) {
                let detail = format!("{} in body should be at least {min} chars long", name_of(location));
                errors.push(FieldError::invalid_str(self.path_of(location), text, &detail));
                return;
            }
        }
        if let Some(pattern) = &checks.pattern
            && !pattern.is_match(text)
        {
            let detail = format!("{} in body should match '{}'", name_of(location), pattern.source);
            errors.push(FieldError::invalid_str(self.path_of(location), text, &detail));
        }
    }

    fn number(
        &self,
        node: &Node,
        checks: &Checks,
        number: &Number,
        location: Location<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        let mut refuse = |detail: String| {
            let detail = format!("{} in body {detail}", name_of(location));
            errors.push(FieldError::invalid(self.path_of(location), &Value::Number(number.clone()), &detail));
        };
        if let Some(factor) = checks.multiple_of
            && !is_multiple(number, factor)
        {
            refuse(format!("should be a multiple of {}", go_float(factor)));
        }
        if let Some(Bound { value, exclusive }) = &checks.maximum {
            match (compare(number, value), exclusive) {
                (Ordering::Greater, false) => {
                    refuse(format!("should be less than or equal to {}", go_number(value)))
                }
                (Ordering::Greater | Ordering::Equal, true) => {
                    refuse(format!("should be less than {}", go_number(value)));
                }
                _ => {}
            }
        }
        if let Some(Bound { value, exclusive }) = &checks.minimum {
            match (compare(number, value), exclusive) {
                (Ordering::Less, false) => {
                    refuse(format!("should be greater than or equal to {}", go_number(value)))
                }
                (Ordering::Less | Ordering::Equal, true) => {
                    refuse(format!("should be greater than {}", go_number(value)));
                }
                _ => {}
            }
        }
        if let Some(format) = checks.format.as_deref()
            && !formats::number_has_format(format, number)
        {
            let types = node.types.names();
            let name = name_of(location);
            let detail = format!("Checked value must be of type {types} with format {format} in {name}");
            let value = Value::Number(number.clone());
            errors.push(FieldError::invalid(self.path_of(location), &value, &detail));
        }
    }

    fn items(
        &self,
        node: &Node,
        items: &[Value],
        old: Option<&Value>,
        location: Location<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        let Some(property) = &node.items else { return };
        // Only the items of a map list have an identity; the items of other lists are new whenever the list changes.
        let old_items = match (&node.list_type, old.and_then(Value::as_array)) {
            (ListType::Map { keys }, Some(old_items)) => by_key(keys, old_items),
            _ => HashMap::new(),
        };
        for (index, item) in items.iter().enumerate() {
            let old_item = match (&node.list_type, item) {
                (ListType::Map { keys }, Value::Object(fields)) if !old_items.is_empty() => {
                    old_items.get(&identity(&key_of(keys, fields))).copied()
                }
                _ => None,
            };
            self.property(property, item, old_item, Location::Index(&location, index), errors);
        }
    }

    fn item_count(
        &self,
        checks: &Checks,
        items: &[Value],
        location: Location<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        if let Some(min) = checks.min_items.filter(|min| items.len() < *min) {
            let detail = format!("{} in body should have at least {min} items", name_of(location));
            errors.push(FieldError::invalid(self.path_of(location), &Value::from(items.len()), &detail));
        }
        if let Some(max) = checks.max_items.filter(|max| items.len() > *max) {
            errors.push(FieldError::too_many(self.path_of(location), items.len(), max));
        }
    }

    fn enumeration(
        &self,
        checks: &Checks,
        value: &Value,
        location: Location<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        let Some(allowed) = &checks.enumeration else { return };
        if !allowed.contains(value) {
            errors.push(FieldError::not_supported(self.path_of(location), value, &allowed.texts()));
        }
    }

    fn fields(
        &self,
        node: &'s Node,
        fields: &Map<String, Value>,
        old: Option<&Value>,
        location: Location<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        let checks = node.checks.as_deref();
        if let Some(checks) = checks {
            if let Some(min) = checks.min_properties.filter(|min| fields.len() < *min) {
                let detail = format!("{} in body should have at least {min} properties", name_of(location));
                errors.push(FieldError::invalid(self.path_of(location), &Value::from(fields.len()), &detail));
            }
            if let Some(max) = checks.max_properties.filter(|max| fields.len() > *max) {
                errors.push(FieldError::too_many(self.path_of(location), fields.len(), max));
            }
        }
        for (name, field) in fields {
            let old_field = old.and_then(|old| old.get(name));
            let property = match (node.property(name), &node.additional) {
                (Some(property), _) | (None, Additional::Schema(property)) => property,
                (None, Additional::Refused) => {
                    let detail = format!("{}.{name} in body is a forbidden property", name_of(location));
                    errors.push(FieldError::invalid_str(self.path_of(location), "", &detail));
                    continue;
                }
                (None, Additional::Any | Additional::Unspecified) => continue,
            };
            self.property(property, field, old_field, Location::Child(&location, name), errors);
        }
        for name in checks.map(|checks| &checks.required).into_iter().flatten() {
            if !fields.contains_key(&**name) {
                errors.push(FieldError::required(self.path_of(Location::Child(&location, name)), ""));
            }
        }
    }

    /// The error of a combination of schemas. Kubernetes reports it at the object and names the field in the text.
    fn composite(&self, location: Location<'_>, text: &str) -> FieldError {
        let detail = format!("\"{}\" {text}", name_of(location));
        FieldError::invalid_str(self.base.clone(), "", &detail)
    }

    fn path_of(&self, location: Location<'_>) -> FieldPath {
        let below = location.path();
        if self.base.is_root() || below.is_root() {
            return if below.is_root() { self.base.clone() } else { below };
        }
        self.base.child(below.as_str())
    }
}

fn name_of(location: Location<'_>) -> String {
    location.path().as_str().to_owned()
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_multiple(number: &Number, factor: f64) -> bool {
    let integral_factor = factor.fract() == 0.0 && factor.abs() < 2f64.powi(53) && factor != 0.0;
    if let (true, Some(integer)) = (integral_factor, number.as_i128()) {
        return integer % (factor as i128) == 0;
    }
    let number = number.as_f64().unwrap_or(f64::NAN);
    // 0.3 / 0.1 is not 3. Like kube-openapi, multiply by the inverse, which is closer, and tolerate the remaining
    // difference.
    let quotient = if factor.abs() < 1.0 { 1.0 / factor * number } else { number / factor };
    let distance = (quotient - quotient.round()).abs();
    quotient.is_finite() && distance <= 1e-9 * quotient.abs().max(1.0)
}

/// A bound as Go prints it: a whole number without a fraction, even if the schema has one.
fn go_number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => go_float(float),
        _ => number.to_string(),
    }
}
