//! Validates an object against its schema, with the texts of Kubernetes' validator (`kube-openapi/pkg/validation`).

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use serde_json::{Map, Number, Value};

use super::equality::compare;
use super::list_type::{by_key, complete_key};
use super::{Additional, Bound, Checks, Dialect, Inner, ListType, Node, NodeId, Property, TypeSet, formats};
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
    remove_duplicates(&mut errors);
    if validator.steps_left.get().is_none() {
        let detail = "the object and its schema are too complex together to be validated";
        errors.push(FieldError::forbidden(base.clone(), detail));
    }
    errors
}

/// Maximum number of steps (comparisons of a value with a schema) for one object. Nested alternatives multiply:
/// without a limit, a schema of a few megabytes could occupy a processor for hours.
const MAX_STEPS: u64 = 10_000_000;

/// The number of checks that a value has passed, as Kubernetes counts them: of several alternatives that fail, the errors
/// of the one with the most passed checks are reported.
type Passed = u64;

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
    ) -> Passed {
        let is_unchanged = old.is_some_and(|old| self.is_unchanged(id, value, old));
        if is_unchanged { 0 } else { self.changed_value(id, value, old, location, errors) }
    }

    /// Whether a value equals the old one and all its parts can be found again. As in Kubernetes, fields that the schema
    /// does not specify, and items of a map list without their keys, count as changed.
    fn is_unchanged(&self, id: NodeId, value: &Value, old: &Value) -> bool {
        let node = self.schema.node(id);
        match (value, old) {
            (Value::Object(fields), Value::Object(old)) => {
                let is_same = |(name, field): (&String, &Value)| {
                    let additional = match &node.additional {
                        Additional::Schema(property) => Some(property),
                        _ => None,
                    };
                    let property = node.property(name).or(additional);
                    property
                        .zip(old.get(name))
                        .is_some_and(|(property, old)| self.is_unchanged(property.node, field, old))
                };
                fields.len() == old.len() && fields.iter().all(is_same)
            }
            (Value::Array(items), Value::Array(old)) => match (&node.list_type, &node.items) {
                (ListType::Map { keys }, Some(property)) => {
                    let old_items = by_key(keys, old);
                    let is_same = |item: &Value| {
                        let key = item.as_object().and_then(|fields| complete_key(keys, fields));
                        let old = key.and_then(|key| old_items.get(&key));
                        old.is_some_and(|old| self.is_unchanged(property.node, item, old))
                    };
                    items.len() == old.len() && items.iter().all(is_same)
                }
                _ => items == old,
            },
            _ => value == old,
        }
    }

    /// Validates a value that differs from the old one. Each check that applies to the value counts as passed once, some
    /// twice.
    fn changed_value(
        &self,
        id: NodeId,
        value: &Value,
        old: Option<&Value>,
        location: Location<'_>,
        errors: &mut Vec<FieldError>,
    ) -> Passed {
        if errors.len() >= MAX_FINDINGS || !self.spend_step(value) {
            return 0;
        }
        let node = self.schema.node(id);
        let checks = node.checks.as_deref();
        let format = checks.and_then(|checks| checks.format.as_deref());
        let has_type = !node.types.is_empty() || format.is_some();
        let has_fitting_type = self.types(node, format, value, location, errors);
        if value.is_null() {
            if let Some(checks) = checks {
                self.enumeration(checks, value, location, errors);
            }
            return has_fitting_type.into();
        }
        // The type, alternatives (2), the enumeration, and the schema itself.
        let mut passed = if has_type { Passed::from(has_fitting_type) + 5 } else { 4 };
        if let Some(checks) = checks {
            passed += self.combinations(checks, value, location, errors);
        }
        match value {
            Value::String(text) => {
                let has_text_format = checks.is_some_and(|checks| checks.has_text_format);
                passed += 1 + Passed::from(has_text_format);
                if let Some(checks) = checks {
                    self.text(checks, text, location, errors);
                }
            }
            Value::Number(number) => {
                passed += 2;
                self.number(node, checks, number, location, errors);
            }
            Value::Array(items) => {
                passed += 2 + self.items(node, items, old, location, errors);
                if let Some(checks) = checks {
                    self.item_count(checks, items, location, errors);
                }
            }
            _ => {}
        }
        if let Some(checks) = checks {
            self.enumeration(checks, value, location, errors);
        }
        if let Value::Object(fields) = value {
            passed += 1 + self.fields(node, fields, old, location, errors);
        }
        passed
    }

    fn property(
        &self,
        property: &Property,
        value: &Value,
        old: Option<&Value>,
        location: Location<'_>,
        errors: &mut Vec<FieldError>,
    ) -> Passed {
        let is_nullable_here_only = property.nullable && !self.schema.node(property.node).nullable;
        if value.is_null() && is_nullable_here_only {
            return 0;
        }
        self.value(property.node, value, old, location, errors)
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

    /// Returns whether the value has the type of the schema.
    fn types(
        &self,
        node: &Node,
        format: Option<&str>,
        value: &Value,
        location: Location<'_>,
        errors: &mut Vec<FieldError>,
    ) -> bool {
        // Built-in types have formats of other systems, which say nothing about the type.
        let format = format.filter(|_| self.schema.dialect != Dialect::OpenApi);
        let is_typed = !node.types.is_empty();
        if !is_typed && (format.is_none() || value.is_null()) {
            return true;
        }
        let fits = match value {
            Value::Null => node.nullable,
            Value::Bool(_) => node.types.contains(TypeSet::BOOLEAN),
            Value::Number(number) => {
                // A number that Go holds as a float is an integer if the float represents exactly one integer.
                let integral = number.is_i64() || number.as_f64().is_some_and(is_json_integer);
                node.types.contains(TypeSet::NUMBER) || (integral && node.types.contains(TypeSet::INTEGER))
            }
            Value::String(_) => node.types.contains(TypeSet::STRING),
            Value::Array(_) => node.types.contains(TypeSet::ARRAY),
            Value::Object(_) => node.types.contains(TypeSet::OBJECT),
        };
        if let Some(format) = format.filter(|_| !value.is_null()) {
            let is_numeric = node.types.contains(TypeSet::INTEGER) || node.types.contains(TypeSet::NUMBER);
            let is_text_or_list = value.is_string() || value.is_array();
            if is_text_or_list && !is_numeric {
                return true;
            }
            let actual = go_format(value);
            if !is_text_or_list && !fits && actual != format {
                self.type_error(format, actual, location, errors);
                return false;
            }
        }
        if !fits {
            self.type_error(&node.types.names(), type_name(value), location, errors);
        }
        fits
    }

    fn type_error(&self, expected: &str, actual: &str, location: Location<'_>, errors: &mut Vec<FieldError>) {
        let detail = format!("{} in body must be of type {expected}: \"{actual}\"", name_of(location));
        errors.push(FieldError::type_invalid_str(self.path_of(location), actual, &detail));
    }

    fn combinations(
        &self,
        checks: &Checks,
        value: &Value,
        location: Location<'_>,
        errors: &mut Vec<FieldError>,
    ) -> Passed {
        // As in Kubernetes, alternatives are not compared with the old value.
        let try_one = |id: NodeId| {
            let mut failures = Vec::new();
            let passed = self.changed_value(id, value, None, location, &mut failures);
            (passed, failures)
        };
        let mut passed = 0;
        if !checks.any_of.is_empty() {
            let mut best: Option<(Passed, Vec<FieldError>)> = None;
            for id in &checks.any_of {
                let attempt = try_one(*id);
                let is_valid = attempt.1.is_empty();
                if is_valid || best.as_ref().is_none_or(|best| attempt.0 > best.0) {
                    best = Some(attempt);
                }
                if is_valid {
                    break;
                }
            }
            if let Some((count, failures)) = best {
                passed += count;
                if !failures.is_empty() {
                    errors.push(self.composite(location, "must validate at least one schema (anyOf)"));
                    errors.extend(failures);
                }
            }
        }
        if !checks.one_of.is_empty() {
            let (mut valid, mut first_valid) = (0, 0);
            let mut best: Option<(Passed, Vec<FieldError>)> = None;
            for id in &checks.one_of {
                let attempt = try_one(*id);
                if attempt.1.is_empty() {
                    valid += 1;
                    first_valid = if valid == 1 { attempt.0 } else { first_valid };
                } else if best.as_ref().is_none_or(|best| attempt.0 > best.0) {
                    best = Some(attempt);
                }
            }
            match valid {
                0 => {
                    let text = "must validate one and only one schema (oneOf). Found none valid";
                    errors.push(self.composite(location, text));
                    let (count, failures) = best.unwrap_or_default();
                    passed += count;
                    errors.extend(failures);
                }
                1 => passed += first_valid,
                _ => {
                    let text = format!(
                        "must validate one and only one schema (oneOf). Found {valid} valid alternatives"
                    );
                    errors.push(self.composite(location, &text));
                }
            }
        }
        if !checks.all_of.is_empty() {
            let mut valid = 0;
            for id in &checks.all_of {
                let (count, failures) = try_one(*id);
                passed += count;
                valid += usize::from(failures.is_empty());
                errors.extend(failures);
            }
            if valid == 0 {
                errors
                    .push(self.composite(location, "must validate all the schemas (allOf). None validated"));
            } else if valid < checks.all_of.len() {
                errors.push(self.composite(location, "must validate all the schemas (allOf)"));
            }
        }
        if checks.not.is_some_and(|id| try_one(id).1.is_empty()) {
            errors.push(self.composite(location, "must not validate the schema (not)"));
        }
        passed
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
        checks: Option<&Checks>,
        number: &Number,
        location: Location<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        let format = checks.and_then(|checks| checks.format.as_deref());
        self.range("Checked", node, format, number, location, errors);
        let Some(checks) = checks else { return };
        // A number that was not compared as an integer is shown as a float.
        let refuse = |is_native: bool, detail: String| {
            let detail = format!("{} in body {detail}", name_of(location));
            let shown = if is_native { None } else { number.as_f64().and_then(Number::from_f64) };
            let shown = Value::Number(shown.unwrap_or_else(|| number.clone()));
            FieldError::invalid(self.path_of(location), &shown, &detail)
        };
        // As in Kubernetes, an integer is compared with the whole part of a bound that its type can have.
        let native = |is_in_range: bool, bound: f64| {
            let integer = number.as_i64().filter(|_| is_in_range)?;
            let is_representable = bound >= -(2f64.powi(63)) && bound < 2f64.powi(63);
            Some((integer, if is_representable { bound as i64 } else { i64::MIN }))
        };
        if let Some(factor) = checks.multiple_of {
            let is_in_range = Number::from_f64(factor)
                .is_none_or(|factor| self.range("MultipleOf", node, format, &factor, location, errors));
            let native = native(is_in_range, factor);
            let (text, is_positive, is_multiple) = match native {
                Some((integer, factor)) => {
                    (factor.to_string(), factor > 0, factor != 0 && integer % factor == 0)
                }
                None => (go_float(factor), factor > 0.0, is_multiple(number, factor)),
            };
            if !is_positive {
                let detail =
                    format!("factor MultipleOf declared for {} must be positive: {text}", name_of(location));
                errors.push(FieldError::invalid_number(self.path_of(location), &text, &detail));
            } else if !is_multiple {
                errors.push(refuse(native.is_some(), format!("should be a multiple of {text}")));
            }
        }
        if let Some(Bound { value, exclusive }) = &checks.minimum {
            let is_in_range = self.range("Minimum boundary", node, format, value, location, errors);
            let (order, bound, is_native) = compare_bound(number, value, &native, is_in_range);
            match (order, exclusive) {
                (Ordering::Less, false) => {
                    errors.push(refuse(is_native, format!("should be greater than or equal to {bound}")));
                }
                (Ordering::Less | Ordering::Equal, true) => {
                    errors.push(refuse(is_native, format!("should be greater than {bound}")));
                }
                _ => {}
            }
        }
        if let Some(Bound { value, exclusive }) = &checks.maximum {
            let is_in_range = self.range("Maximum boundary", node, format, value, location, errors);
            let (order, bound, is_native) = compare_bound(number, value, &native, is_in_range);
            match (order, exclusive) {
                (Ordering::Greater, false) => {
                    errors.push(refuse(is_native, format!("should be less than or equal to {bound}")));
                }
                (Ordering::Greater | Ordering::Equal, true) => {
                    errors.push(refuse(is_native, format!("should be less than {bound}")));
                }
                _ => {}
            }
        }
    }

    /// Reports a number that Go cannot convert to the type and the format. Returns whether it can.
    fn range(
        &self,
        subject: &str,
        node: &Node,
        format: Option<&str>,
        number: &Number,
        location: Location<'_>,
        errors: &mut Vec<FieldError>,
    ) -> bool {
        let format = format.filter(|format| match node.types {
            TypeSet::INTEGER => matches!(*format, "int32" | "int64"),
            TypeSet::NUMBER => matches!(*format, "float" | "double"),
            _ => false,
        });
        if formats::number_has_format(node.types, format, number) {
            return true;
        }
        let (types, name) = (node.types.names(), name_of(location));
        let detail = match format {
            Some(format) => format!("{subject} value must be of type {types} with format {format} in {name}"),
            None => format!("{subject} value must be of type {types} (default format) in {name}"),
        };
        errors.push(FieldError::invalid_str(self.base.clone(), "", &detail));
        false
    }

    fn items(
        &self,
        node: &Node,
        items: &[Value],
        old: Option<&Value>,
        location: Location<'_>,
        errors: &mut Vec<FieldError>,
    ) -> Passed {
        let Some(property) = &node.items else { return 0 };
        let mut passed = 0;
        // Only the items of a map list have an identity; the items of other lists are new whenever the list changes.
        let old_items = match (&node.list_type, old.and_then(Value::as_array)) {
            (ListType::Map { keys }, Some(old_items)) => by_key(keys, old_items),
            _ => HashMap::new(),
        };
        for (index, item) in items.iter().enumerate() {
            let old_item = match (&node.list_type, item) {
                (ListType::Map { keys }, Value::Object(fields)) if !old_items.is_empty() => {
                    complete_key(keys, fields).and_then(|key| old_items.get(&key).copied())
                }
                _ => None,
            };
            passed += self.property(property, item, old_item, Location::Index(&location, index), errors);
        }
        passed
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
    ) -> Passed {
        let checks = node.checks.as_deref();
        let mut passed = 0;
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
            // As in Kubernetes, the type of an object is validated though it has not changed.
            let is_type = matches!(location, Location::Base(_)) && matches!(&**name, "apiVersion" | "kind");
            let old_field = old.filter(|_| !is_type).and_then(|old| old.get(name));
            if let Some(property) = node.property(name) {
                passed += self.property(property, field, old_field, Location::Child(&location, name), errors);
                continue;
            }
            match &node.additional {
                Additional::Schema(property) => {
                    // Kubernetes writes a dot before an entry of a map, even if the map has no path.
                    let dotted = matches!(location, Location::Base(_)).then(|| format!(".{name}"));
                    let location = Location::Child(&location, dotted.as_deref().unwrap_or(name));
                    passed += self.property(property, field, old_field, location, errors);
                }
                Additional::Refused => {
                    let detail = format!("{}.{name} in body is a forbidden property", name_of(location));
                    errors.push(FieldError::invalid_str(self.path_of(location), name, &detail));
                }
                Additional::Any | Additional::Unspecified => {}
            }
        }
        for name in checks.map(|checks| &checks.required).into_iter().flatten() {
            if !fields.contains_key(&**name) {
                errors.push(FieldError::required(self.path_of(Location::Child(&location, name)), ""));
            }
        }
        passed
    }

    /// The error of a combination of schemas. Kubernetes reports it at the object and names the field in the text.
    fn composite(&self, location: Location<'_>, text: &str) -> FieldError {
        let detail = format!("\"{}\" {text}", name_of(location));
        FieldError::invalid_str(self.base.clone(), "", &detail)
    }

    fn path_of(&self, location: Location<'_>) -> FieldPath {
        let below = location.path();
        let below = below.as_str().strip_prefix('.').map_or_else(|| below.clone(), FieldPath::new);
        if self.base.is_root() || below.is_root() {
            return if below.is_root() { self.base.clone() } else { below };
        }
        self.base.child(below.as_str())
    }
}

/// Removes errors that several alternatives report.
fn remove_duplicates(errors: &mut Vec<FieldError>) {
    if errors.len() > 1 {
        let mut seen = HashSet::with_capacity(errors.len());
        errors.retain(|error| seen.insert(error.to_string()));
    }
}

fn name_of(location: Location<'_>) -> String {
    location.path().as_str().to_owned()
}

/// The format of a value in Go.
fn go_format(value: &Value) -> &'static str {
    match value {
        Value::Number(number) if !number.is_i64() => "float64",
        Value::Number(_) => "int64",
        _ => "",
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        // Go holds larger integers as floats.
        Value::Number(number) if !number.is_i64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Whether a number is a multiple of a positive factor. Small factors are inverted first: 0.3 / 0.1 is not 3.
fn is_multiple(number: &Number, factor: f64) -> bool {
    let number = number.as_f64().unwrap_or(f64::NAN);
    is_json_integer(if factor < 1.0 { 1.0 / factor * number } else { number / factor })
}

/// Whether a number counts as whole. As in Kubernetes, a large positive one may have a small fraction, and none may exceed
/// the integers that a float represents exactly.
fn is_json_integer(float: f64) -> bool {
    let whole = float.trunc();
    if !float.is_finite() || float.abs() >= 2f64.powi(53) {
        return false;
    }
    float == whole || (float > 0.0 && whole > 0.0 && (float - whole) / (float + whole) < 1e-9)
}

/// How a number compares with a bound, the bound in an error, and whether both were compared as integers.
fn compare_bound(
    number: &Number,
    bound: &Number,
    native: &dyn Fn(bool, f64) -> Option<(i64, i64)>,
    is_in_range: bool,
) -> (Ordering, String, bool) {
    match bound.as_f64().and_then(|bound| native(is_in_range, bound)) {
        Some((integer, bound)) => (integer.cmp(&bound), bound.to_string(), true),
        None => (compare(number, bound), go_number(bound), false),
    }
}

/// A bound as Go prints it: a whole number without a fraction, even if the schema has one.
fn go_number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) => go_float(float),
        _ => number.to_string(),
    }
}
