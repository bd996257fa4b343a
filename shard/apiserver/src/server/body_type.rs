//! The type of an object in a request: apiVersion and kind must be those of the URL.
//!
//! Built-in kinds may lack both, as in Kubernetes, whose decoders know them; custom resources may not.

use core::fmt::Write as _;
use std::borrow::Cow;

use fairlead_names::Origin;
use fairlead_process::{Status, StatusCause};
use fairlead_schema::{DecodeError, go_type_of};
use serde_json::Value;

use crate::registry::Target;

/// Bytes of a body in a message. Kubernetes shows it whole.
const MAX_SHOWN: usize = 4096;
/// Bytes in the summary of a body.
const SUMMARY: usize = 30;

/// The apiVersion and the kind that a request is about: those of its subresource, if that has own ones.
pub(super) struct ExpectedType {
    pub(super) api_version: String,
    pub(super) kind: String,
    /// Whether its decoder needs a type in the body.
    needs_type: bool,
}

impl ExpectedType {
    pub(super) fn of(target: &Target) -> Self {
        let resource = &target.resource;
        let subresource = target.subresource.as_deref();
        let subresource = subresource.and_then(|name| resource.subresource(&target.version, name));
        match subresource.and_then(|subresource| subresource.kind) {
            Some((group, version, kind)) => {
                Self { api_version: format!("{group}/{version}"), kind: kind.to_owned(), needs_type: false }
            }
            None => Self {
                api_version: resource.api_version(&target.version),
                kind: resource.kind.to_string(),
                needs_type: resource.origin != Origin::BuiltIn,
            },
        }
    }

    /// The refusal of a body that is not JSON or YAML.
    pub(super) fn undecodable(&self, error: &DecodeError, body: &[u8]) -> Status {
        match error {
            DecodeError::Json { message, .. } if message.starts_with("EOF") => {
                self.unrecognized(&format!("{NO_TYPE}json parse error: unexpected end of JSON input"), body)
            }
            DecodeError::Json { .. } => self.unrecognized(&format!("{NO_TYPE}{error}"), body),
            DecodeError::Yaml { .. } => self.unrecognized(&error.to_string(), body),
            DecodeError::TooLarge { .. } | DecodeError::TooComplex { .. } => {
                Status::bad_request(error.to_string())
            }
        }
    }

    /// Checks the type of a decoded body, and fills in what a built-in kind lacks.
    ///
    /// # Errors
    /// 400 for no type, or another one; 422 for another kind of a custom resource.
    pub(super) fn check(&self, object: &mut Value, body: &[u8], target: &Target) -> Result<(), Status> {
        if object.is_null() && self.needs_type {
            return Err(self.unrecognized("Object 'Kind' is missing in 'null'", body));
        }
        let given = GivenType::of(object).map_err(|reason| self.unrecognized(&reason, body))?;
        if !self.needs_type {
            self.check_built_in(&given)?;
            return self.fill(object);
        }
        if given.kind.is_empty() {
            let shown = beginning(body);
            return Err(self.unrecognized(&format!("Object 'Kind' is missing in '{shown}'"), body));
        }
        if given.api_version != self.api_version {
            return Err(Status::bad_request(format!(
                "the API version in the data ({}) does not match the expected API version ({})",
                given.api_version, self.api_version
            )));
        }
        self.check_custom(&given, object, target)
    }

    /// Checks the type of a patched object.
    ///
    /// # Errors
    /// 400 or 422 for no type or another one.
    pub(super) fn check_patched(&self, object: &mut Value, target: &Target) -> Result<(), Status> {
        let given = GivenType::of(object).map_err(Status::bad_request)?;
        if !self.needs_type {
            self.check_built_in(&given)?;
            return self.fill(object);
        }
        if given.kind.is_empty() {
            let text = object.to_string();
            let shown = beginning(text.as_bytes());
            let message = format!("Invalid value: {shown:?}: Object 'Kind' is missing in '{shown}'");
            return Err(Status::invalid(
                "",
                "",
                "",
                vec![StatusCause::field("FieldValueInvalid", "patch", message)],
            ));
        }
        self.check_custom(&given, object, target)
    }

    fn check_built_in(&self, given: &GivenType<'_>) -> Result<(), Status> {
        let is_expected = |given: &str, expected: &str| given.is_empty() || given == expected;
        if is_expected(given.api_version, &self.api_version) && is_expected(given.kind, &self.kind) {
            return Ok(());
        }
        let (kind, api_version) = (&self.kind, &self.api_version);
        Err(Status::bad_request(format!(
            "{} in version {:?} cannot be handled as a {kind}: the request is about {kind} in version {api_version:?}",
            given.kind, given.api_version
        )))
    }

    fn check_custom(&self, given: &GivenType<'_>, object: &Value, target: &Target) -> Result<(), Status> {
        let mismatch = |field: &str, given: &str, expected: &str| {
            let message = format!("Invalid value: {given:?}: must be {expected}");
            (given != expected).then(|| StatusCause::field("FieldValueInvalid", field, message))
        };
        let causes: Vec<_> = [
            mismatch("kind", given.kind, &self.kind),
            mismatch("apiVersion", given.api_version, &self.api_version),
        ]
        .into_iter()
        .flatten()
        .collect();
        if causes.is_empty() {
            return Ok(());
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        Err(Status::invalid(&target.resource.storage_name().group, given.kind, name, causes))
    }

    fn fill(&self, object: &mut Value) -> Result<(), Status> {
        let Some(fields) = object.as_object_mut() else {
            return Err(Status::bad_request("the object provided is not a JSON object"));
        };
        for (field, expected) in [("apiVersion", &self.api_version), ("kind", &self.kind)] {
            if fields.get(field).and_then(Value::as_str).is_none_or(str::is_empty) {
                fields.insert(field.into(), expected.clone().into());
            }
        }
        Ok(())
    }

    fn unrecognized(&self, reason: &str, body: &[u8]) -> Status {
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {reason} ({})",
            self.kind,
            summary(body)
        ))
    }
}

const NO_TYPE: &str = "couldn't get version/kind; ";

/// The type that an object has, as Go reads it.
struct GivenType<'o> {
    api_version: &'o str,
    kind: &'o str,
}

impl<'o> GivenType<'o> {
    /// An absent field is empty.
    fn of(object: &'o Value) -> Result<Self, String> {
        let fields = match object {
            Value::Object(fields) => fields,
            Value::Null => return Ok(Self { api_version: "", kind: "" }),
            other => {
                return Err(format!(
                    "{NO_TYPE}json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
                     \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                    go_type_of(other)
                ));
            }
        };
        let text = |field: &str| match fields.get(field) {
            None | Some(Value::Null) => Ok(""),
            Some(Value::String(text)) => Ok(&**text),
            Some(other) => Err(format!(
                "{NO_TYPE}json parse error: json: cannot unmarshal {} into Go struct field .{field} of type string",
                go_type_of(other)
            )),
        };
        let (api_version, kind) = (text("apiVersion")?, text("kind")?);
        if api_version.matches('/').count() > 1 {
            return Err(format!("unexpected GroupVersion string: {api_version}"));
        }
        Ok(Self { api_version, kind })
    }
}

/// The beginning of a text.
fn beginning(text: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&text[..text.len().min(MAX_SHOWN)])
}

/// The first bytes of a body: as text if it looks like JSON, otherwise in hexadecimal digits.
fn summary(body: &[u8]) -> String {
    let shown = &body[..body.len().min(SUMMARY)];
    let mut text = match shown {
        [] => return "<empty>".to_owned(),
        [b'{', ..] => String::from_utf8_lossy(shown).into_owned(),
        _ => shown.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        }),
    };
    if body.len() > SUMMARY {
        text.push_str(" ...");
    }
    text
}
