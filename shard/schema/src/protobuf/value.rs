//! Decodes the bytes of one message into a JSON value, according to its table.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

use super::ProtobufError;
use super::table::{Cardinality, Field, Kind, Message};
use super::wire::{Payload, Reader};

/// Maximum depth of the JSON, as for JSON bodies. Only CRD schemas are nested deeply.
const MAX_DEPTH: usize = crate::decode::MAX_DEPTH;
/// Maximum number of values: two bytes of a body can become a value of 32 bytes or more.
const MAX_VALUES: u32 = 400_000;

/// The remaining limits of one body.
pub(super) struct Budget {
    depth: usize,
    values: u32,
}

impl Default for Budget {
    fn default() -> Self {
        Self { depth: MAX_DEPTH, values: MAX_VALUES }
    }
}

impl Budget {
    fn spend_value(&mut self) -> Result<(), ProtobufError> {
        self.values = self.values.checked_sub(1).ok_or(ProtobufError::TooLarge("400000 values"))?;
        Ok(())
    }

    fn nested<T>(
        &mut self,
        decode: impl FnOnce(&mut Self) -> Result<T, ProtobufError>,
    ) -> Result<T, ProtobufError> {
        self.depth = self.depth.checked_sub(1).ok_or(ProtobufError::TooLarge("120 levels"))?;
        let result = decode(self);
        self.depth += 1;
        result
    }
}

pub(super) fn decode_message(
    message: &Message,
    bytes: &[u8],
    budget: &mut Budget,
) -> Result<Value, ProtobufError> {
    budget.nested(|budget| {
        let mut object = Map::new();
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.next_field()? {
            if let Some(field) = message.fields.iter().find(|field| field.number == number) {
                add_field(field, payload, &mut object, budget)?;
            }
        }
        Ok(Value::Object(object))
    })
}

fn add_field(
    field: &Field,
    payload: Payload<'_>,
    object: &mut Map<String, Value>,
    budget: &mut Budget,
) -> Result<(), ProtobufError> {
    budget.spend_value()?;
    if let Kind::Inline(message) = field.kind {
        if let Value::Object(embedded) = decode_message(message, payload.bytes()?, budget)? {
            object.extend(embedded);
        }
        return Ok(());
    }
    match field.cardinality {
        Cardinality::Plain | Cardinality::KeepZero => {
            let value = decode_value(field.kind, payload, budget)?;
            let absent = value.is_null() || (field.cardinality == Cardinality::Plain && is_zero(&value));
            // The last occurrence wins, so a later zero removes an earlier value.
            if absent {
                object.remove(field.name);
            } else {
                object.insert(field.name.to_owned(), value);
            }
        }
        Cardinality::List => {
            let value = budget.nested(|budget| decode_value(field.kind, payload, budget))?;
            if let Value::Array(items) = object.entry(field.name).or_insert_with(|| Value::Array(Vec::new()))
            {
                items.push(value);
            }
        }
        Cardinality::Map => {
            let entry = payload.bytes()?;
            let (key, value) = budget.nested(|budget| decode_entry(field.kind, entry, budget))?;
            if let Value::Object(entries) =
                object.entry(field.name).or_insert_with(|| Value::Object(Map::new()))
            {
                entries.insert(key, value);
            }
        }
    }
    Ok(())
}

/// Whether a value is zero. Structs never are: JSON has `{}` for an empty one.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(_) => false,
    }
}

fn decode_value(kind: Kind, payload: Payload<'_>, budget: &mut Budget) -> Result<Value, ProtobufError> {
    Ok(match kind {
        Kind::Text => Value::from(payload.text()?),
        Kind::Bool => Value::Bool(payload.integer()? != 0),
        Kind::Int32 => {
            // An int32 is the low half of the number, as the wire format specifies.
            #[allow(clippy::cast_possible_truncation, reason = "the wire format truncates")]
            let number = payload.integer()? as i32;
            Value::from(number)
        }
        Kind::Int64 => Value::from(payload.integer()?),
        Kind::Double => double(payload.double()?)?,
        Kind::Bytes => Value::String(STANDARD.encode(payload.bytes()?)),
        Kind::Message(message) | Kind::Inline(message) => decode_message(message, payload.bytes()?, budget)?,
        Kind::Time => time(payload.bytes()?, 0)?,
        Kind::MicroTime => time(payload.bytes()?, 6)?,
        Kind::WrappedText => match first_payload(payload.bytes()?)? {
            Some(text) => Value::from(text.text()?),
            None => Value::from(""),
        },
        Kind::WrappedTexts => texts(payload.bytes()?, 1, budget)?,
        Kind::Json => json(payload.bytes()?, budget)?,
        Kind::SchemaOrList(schema) => schema_or(schema, payload.bytes()?, budget, |bytes, budget| {
            let mut items = Vec::new();
            let mut reader = Reader::new(bytes);
            while let Some((number, payload)) = reader.next_field()? {
                if number == 2 {
                    items.push(decode_message(schema, payload.bytes()?, budget)?);
                }
            }
            Ok(Value::Array(items))
        })?,
        Kind::SchemaOrTexts(schema) => {
            schema_or(schema, payload.bytes()?, budget, |bytes, budget| texts(bytes, 2, budget))?
        }
        Kind::SchemaOrBool(schema) => {
            let mut result = Value::Bool(false);
            let mut reader = Reader::new(payload.bytes()?);
            while let Some((number, payload)) = reader.next_field()? {
                match (number, &result) {
                    (1, Value::Bool(_)) => result = Value::Bool(payload.integer()? != 0),
                    (2, _) => result = decode_message(schema, payload.bytes()?, budget)?,
                    _ => {}
                }
            }
            result
        }
    })
}

/// Decodes the schema in field 1. If it is absent, calls `alternative` on the message.
fn schema_or(
    schema: &Message,
    bytes: &[u8],
    budget: &mut Budget,
    alternative: impl FnOnce(&[u8], &mut Budget) -> Result<Value, ProtobufError>,
) -> Result<Value, ProtobufError> {
    match first_payload(bytes)? {
        Some(payload) => decode_message(schema, payload.bytes()?, budget),
        None => alternative(bytes, budget),
    }
}

/// The payload of field 1; of several, the last.
fn first_payload(bytes: &[u8]) -> Result<Option<Payload<'_>>, ProtobufError> {
    let mut found = None;
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next_field()? {
        if number == 1 {
            found = Some(payload);
        }
    }
    Ok(found)
}

fn texts(bytes: &[u8], wanted: u32, budget: &mut Budget) -> Result<Value, ProtobufError> {
    let mut items = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next_field()? {
        if number == wanted {
            budget.spend_value()?;
            items.push(Value::from(payload.text()?));
        }
    }
    Ok(Value::Array(items))
}

fn decode_entry(kind: Kind, bytes: &[u8], budget: &mut Budget) -> Result<(String, Value), ProtobufError> {
    let mut key = String::new();
    let mut value = None;
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next_field()? {
        match number {
            1 => key = payload.text()?.to_owned(),
            2 => value = Some(decode_value(kind, payload, budget)?),
            _ => {}
        }
    }
    let value = match value {
        Some(value) => value,
        // Encoders may omit an empty value, which equals an empty payload.
        None => decode_value(kind, Payload::Bytes(&[]), budget)?,
    };
    Ok((key, value))
}

fn json(bytes: &[u8], budget: &mut Budget) -> Result<Value, ProtobufError> {
    let Some(payload) = first_payload(bytes)? else {
        return Ok(Value::Null);
    };
    let text = payload.bytes()?;
    if text.is_empty() {
        return Ok(Value::Null);
    }
    let value = serde_json::from_slice(text)
        .map_err(|_| ProtobufError::Malformed("embedded JSON cannot be parsed"))?;
    spend_json(&value, budget)?;
    Ok(value)
}

/// Counts embedded JSON against the same limits. The recursion limit of serde_json bounds the depth of this function.
fn spend_json(value: &Value, budget: &mut Budget) -> Result<(), ProtobufError> {
    budget.spend_value()?;
    match value {
        Value::Array(items) => {
            budget.nested(|budget| items.iter().try_for_each(|item| spend_json(item, budget)))
        }
        Value::Object(fields) => {
            budget.nested(|budget| fields.values().try_for_each(|field| spend_json(field, budget)))
        }
        _ => Ok(()),
    }
}

/// Whole numbers become JSON integers, as the Go client prints them.
fn double(number: f64) -> Result<Value, ProtobufError> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() < EXACT {
        #[allow(clippy::cast_possible_truncation, reason = "whole and within 2^53")]
        let whole = number as i64;
        return Ok(Value::from(whole));
    }
    let number = Number::from_f64(number).ok_or(ProtobufError::Malformed("a number is not finite"))?;
    Ok(Value::Number(number))
}

/// Decodes a time. An empty message is Go's zero time, which is null in JSON and therefore absent.
fn time(bytes: &[u8], precision: u8) -> Result<Value, ProtobufError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next_field()? {
        match number {
            1 => seconds = payload.integer()?,
            2 => nanos = payload.integer()?,
            _ => {}
        }
    }
    let nanos = i32::try_from(nanos).ok().filter(|nanos| (0..1_000_000_000).contains(nanos));
    let nanos = nanos.ok_or(ProtobufError::Malformed("a time has impossible nanoseconds"))?;
    // Smaller units are truncated, not rounded, so that a time never moves into the future.
    let nanos = if precision == 0 { 0 } else { nanos - nanos % 1_000 };
    let instant = jiff::Timestamp::new(seconds, nanos)
        .map_err(|_| ProtobufError::Malformed("a time is out of range"))?;
    Ok(Value::String(format!("{instant:.*}", usize::from(precision))))
}
