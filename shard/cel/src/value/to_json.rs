//! Results as JSON, for patches.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map as JsonMap, Number, Value as Json};

use super::Value;
use crate::failure::{EvaluationError, Failure};
use crate::limits::{JSON_VALUE_SIZE, MAX_JSON_DEPTH, MAX_JSON_SIZE};

impl Value<'_> {
    /// The value as JSON. Byte sequences are in base64, timestamps and durations are texts.
    ///
    /// # Errors
    /// Values that have no form in JSON: types, optionals, numbers that are not finite, maps whose keys are not strings.
    /// [`EvaluationError::CostLimit`] for a value of more than some MiB: parts that a value shares are written each time.
    pub fn to_json(&self) -> Result<Json, EvaluationError> {
        Writer { remaining: MAX_JSON_SIZE }.value(self, 0)
    }
}

/// Stops before the JSON is too large.
struct Writer {
    remaining: usize,
}

impl Writer {
    fn value(&mut self, value: &Value<'_>, depth: u32) -> Result<Json, EvaluationError> {
        self.take(JSON_VALUE_SIZE, depth)?;
        Ok(match value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::from(*value),
            Value::Int(value) => Json::from(*value),
            Value::Uint(value) => Json::from(*value),
            Value::Double(number) => match Number::from_f64(*number) {
                Some(number) => Json::Number(number),
                None => return Err(unsupported(&format!("number {value}"))),
            },
            Value::String(text) => self.text(text.as_str())?,
            Value::Bytes(bytes) => {
                self.take(bytes.len() / 3 * 4, 0)?;
                Json::from(STANDARD.encode(bytes))
            }
            Value::Duration(_) | Value::Timestamp(_) => self.text(&value.to_string())?,
            Value::List(list) => {
                let mut items = Vec::new();
                for item in list.items()? {
                    items.push(self.value(&item, depth + 1)?);
                }
                Json::Array(items)
            }
            Value::Map(map) => {
                let mut object = JsonMap::new();
                for (key, value) in map.entries()? {
                    let Value::String(key) = key else {
                        return Err(unsupported(&format!("map key of type {}", key.type_name())));
                    };
                    self.take(key.as_str().len(), 0)?;
                    object.insert(key.as_str().to_owned(), self.value(&value, depth + 1)?);
                }
                Json::Object(object)
            }
            Value::Object(object) => {
                let mut fields = JsonMap::new();
                for (name, value) in object.fields() {
                    self.take(name.len(), 0)?;
                    fields.insert(name.to_owned(), self.value(value, depth + 1)?);
                }
                Json::Object(fields)
            }
            Value::Preserved(json) => self.copy(json, depth)?,
            Value::Optional(_) | Value::Type(_) | Value::Extension(_) => {
                return Err(unsupported(&format!("value of type {}", value.type_name())));
            }
        })
    }

    fn copy(&mut self, json: &Json, depth: u32) -> Result<Json, EvaluationError> {
        self.take(JSON_VALUE_SIZE, depth)?;
        Ok(match json {
            Json::String(text) => self.text(text)?,
            Json::Array(items) => {
                let items = items.iter().map(|item| self.copy(item, depth + 1));
                Json::Array(items.collect::<Result<_, _>>()?)
            }
            Json::Object(entries) => {
                let mut copied = JsonMap::new();
                for (key, value) in entries {
                    self.take(key.len(), 0)?;
                    copied.insert(key.clone(), self.copy(value, depth + 1)?);
                }
                Json::Object(copied)
            }
            scalar => scalar.clone(),
        })
    }

    fn text(&mut self, text: &str) -> Result<Json, EvaluationError> {
        self.take(text.len(), 0)?;
        Ok(Json::from(text))
    }

    fn take(&mut self, size: usize, depth: u32) -> Result<(), EvaluationError> {
        if depth > MAX_JSON_DEPTH {
            return Err(EvaluationError::CostLimit);
        }
        self.remaining = self.remaining.checked_sub(size).ok_or(EvaluationError::CostLimit)?;
        Ok(())
    }
}

fn unsupported(what: &str) -> EvaluationError {
    Failure::error(format!("a {what} cannot be written as JSON")).into()
}
