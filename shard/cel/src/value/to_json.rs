//! Results as JSON, for patches.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map as JsonMap, Number, Value as Json};

use super::Value;
use crate::failure::{EvaluationError, Failure};

impl Value<'_> {
    /// The value as JSON. Byte sequences are in base64, timestamps and durations are texts.
    ///
    /// # Errors
    /// Values that have no form in JSON: types, optionals, numbers that are not finite, maps whose keys are not strings.
    pub fn to_json(&self) -> Result<Json, EvaluationError> {
        Ok(match self {
            Self::Null => Json::Null,
            Self::Bool(value) => Json::from(*value),
            Self::Int(value) => Json::from(*value),
            Self::Uint(value) => Json::from(*value),
            Self::Double(value) => match Number::from_f64(*value) {
                Some(number) => Json::Number(number),
                None => return Err(unsupported(&format!("number {self}"))),
            },
            Self::String(text) => Json::from(text.as_str()),
            Self::Bytes(bytes) => Json::from(STANDARD.encode(bytes)),
            Self::Duration(_) | Self::Timestamp(_) => Json::from(self.to_string()),
            Self::List(list) => {
                let items: Result<Vec<Json>, EvaluationError> =
                    list.items()?.iter().map(Value::to_json).collect();
                Json::Array(items?)
            }
            Self::Map(map) => {
                let mut object = JsonMap::new();
                for (key, value) in map.entries()? {
                    let Self::String(key) = key else {
                        return Err(unsupported(&format!("map key of type {}", key.type_name())));
                    };
                    object.insert(key.as_str().to_owned(), value.to_json()?);
                }
                Json::Object(object)
            }
            Self::Object(object) => {
                let mut fields = JsonMap::new();
                for (name, value) in object.fields() {
                    fields.insert(name.to_owned(), value.to_json()?);
                }
                Json::Object(fields)
            }
            Self::Preserved(json) => (*json).clone(),
            Self::Optional(_) | Self::Type(_) | Self::Extension(_) => {
                return Err(unsupported(&format!("value of type {}", self.type_name())));
            }
        })
    }
}

fn unsupported(what: &str) -> EvaluationError {
    Failure::error(format!("a {what} cannot be written as JSON")).into()
}
