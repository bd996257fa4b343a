//! The shape of a version's objects, and the decoding of a body into it.

use std::sync::Arc;

use fairlead_process::{Status, StatusCause};
use fairlead_schema::apply::ObjectType;
use fairlead_schema::builtin::BuiltinKind;
use fairlead_schema::{DefaultingResult, FieldError, FieldPath, Schema, metadata, whole_numbers_to_integers};
use fairlead_store::MAX_COMMIT_BYTES;
use serde_json::Value;

/// An object that does not have the shape of its version; the client is at fault.
#[derive(Debug, thiserror::Error)]
pub enum ShapeError {
    /// An object of a built-in kind: 400.
    #[error(transparent)]
    Kind(Undecodable),
    /// The metadata of another object: 400.
    #[error("{0}")]
    Metadata(String),
    /// Defaults make the object too large: 413.
    #[error("the object with its defaults is too large")]
    TooLarge,
}

/// A body that is no object of a kind.
#[derive(Debug, thiserror::Error)]
#[error("{kind} in version {version:?} cannot be handled as a {kind}: {message}")]
pub struct Undecodable {
    kind: String,
    version: String,
    /// The error of the decoder alone.
    pub message: String,
}

impl Undecodable {
    /// The error of the decoder of a kind.
    pub fn new(kind: &str, version: &str, message: String) -> Self {
        Self { kind: kind.to_owned(), version: version.to_owned(), message }
    }
}

impl ShapeError {
    /// The response to a patch whose result does not have the shape: 422, which quotes the result.
    pub fn of_patch(&self, patched: &Value) -> Status {
        let message = match self {
            Self::Kind(undecodable) => &undecodable.message,
            Self::Metadata(message) => message,
            Self::TooLarge => return Status::request_entity_too_large(MAX_COMMIT_BYTES as u64),
        };
        let error = FieldError::invalid_str(FieldPath::new("patch"), &patched.to_string(), message);
        let cause = StatusCause::field(error.reason(), error.path.to_string(), error.message);
        Status::invalid("", "", "", vec![cause])
    }
}

impl From<ShapeError> for Status {
    fn from(error: ShapeError) -> Self {
        match error {
            ShapeError::Kind(_) | ShapeError::Metadata(_) => Self::bad_request(error.to_string()),
            ShapeError::TooLarge => Self::request_entity_too_large(MAX_COMMIT_BYTES as u64),
        }
    }
}

/// The shape of a version's objects.
#[derive(Clone)]
pub enum Shape {
    /// Any object with the metadata that all objects have (the cache server).
    Anything,
    /// A built-in kind.
    BuiltIn(&'static BuiltinKind),
    /// A structural schema.
    Structural(Arc<Schema>),
}

impl Shape {
    /// Drops unknown fields of a decoded object, applies defaults, and returns the paths of the dropped fields.
    ///
    /// # Errors
    /// A value has the wrong type; for structural schemas [`validate`](Self::validate) finds it instead. Defaults may
    /// make the object too large.
    pub fn admit(&self, object: &mut Value) -> Result<Vec<String>, ShapeError> {
        match self {
            Self::Anything => {
                whole_numbers_to_integers(object);
                admit_metadata(object)
            }
            Self::BuiltIn(kind) => {
                let unknown = kind.normalize(object).map_err(|error| {
                    ShapeError::Kind(Undecodable::new(kind.kind, kind.version, error.to_string()))
                })?;
                kind.semantics().default(object);
                Ok(unknown)
            }
            Self::Structural(schema) => {
                whole_numbers_to_integers(object);
                let mut unknown = schema.prune(object);
                unknown.extend(admit_metadata(object)?);
                match schema.apply_defaults(object) {
                    DefaultingResult::Complete => Ok(unknown),
                    DefaultingResult::LimitReached => Err(ShapeError::TooLarge),
                }
            }
        }
    }

    /// The type by which server-side apply merges the objects.
    pub fn merge_type(&self) -> ObjectType<'_> {
        match self {
            Self::Anything => fairlead_schema::untyped_merge_type(),
            Self::BuiltIn(kind) => kind.merge_type(),
            Self::Structural(schema) => fairlead_schema::schema_merge_type(schema),
        }
    }

    /// Removes the fields that the version does not have.
    pub fn prune(&self, object: &mut Value) {
        if let Self::Structural(schema) = self {
            schema.prune(object);
        }
    }

    /// Prunes and defaults a stored object by the current schema, which may be newer than the object.
    pub fn refresh(&self, object: &mut Value) {
        if let Self::Structural(schema) = self {
            schema.prune(object);
            schema.apply_defaults(object);
        }
    }

    /// The errors of a new object.
    pub fn validate(&self, object: &Value) -> Vec<FieldError> {
        match self {
            Self::Anything | Self::BuiltIn(_) => Vec::new(),
            Self::Structural(schema) => schema.validate(object),
        }
    }

    /// The errors of a changed object.
    pub fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        match self {
            Self::Anything | Self::BuiltIn(_) => Vec::new(),
            Self::Structural(schema) => schema.validate_update(object, old),
        }
    }

    /// Adds the violations of the schema's rules (`x-kubernetes-validations`) to the other errors of the object. `old` is
    /// the object before an update. Returns the violations by values that the update does not change, which are only
    /// worth a warning.
    pub fn validate_rules(
        &self,
        object: &Value,
        old: Option<&Value>,
        errors: &mut Vec<FieldError>,
    ) -> Vec<FieldError> {
        match self {
            Self::Anything | Self::BuiltIn(_) => Vec::new(),
            Self::Structural(schema) => {
                let findings = schema.validate_rules(object, old, errors);
                errors.extend(findings.errors);
                findings.warnings
            }
        }
    }
}

/// Checks the metadata, whose fields do not depend on the schema.
fn admit_metadata(object: &mut Value) -> Result<Vec<String>, ShapeError> {
    let Some(own) = object.get_mut("metadata") else {
        return Ok(Vec::new());
    };
    metadata::coerce(own, &FieldPath::new("metadata"))
        .map_err(|errors| ShapeError::Metadata(fairlead_schema::aggregate_message(&errors)))
}
