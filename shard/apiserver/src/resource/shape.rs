//! The shape of a version's objects, and the decoding of a body into it.

use std::sync::Arc;

use fairlead_process::Status;
use fairlead_schema::apply::ObjectType;
use fairlead_schema::builtin::BuiltinKind;
use fairlead_schema::{DefaultingResult, FieldError, FieldPath, Schema, metadata};
use fairlead_store::MAX_COMMIT_BYTES;
use serde_json::Value;

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
    /// 400 for a value of the wrong type; for structural schemas [`validate`](Self::validate) finds it
    /// instead. 413 when defaults make the object too large.
    pub fn admit(&self, object: &mut Value) -> Result<Vec<String>, Status> {
        match self {
            Self::Anything => admit_metadata(object),
            Self::BuiltIn(kind) => {
                let unknown = kind.normalize(object).map_err(|error| {
                    Status::bad_request(format!(
                        "{} in version {:?} cannot be handled as a {}: {error}",
                        kind.kind, kind.version, kind.kind
                    ))
                })?;
                kind.semantics().default(object);
                Ok(unknown)
            }
            Self::Structural(schema) => {
                let mut unknown = schema.prune(object);
                unknown.extend(admit_metadata(object)?);
                match schema.apply_defaults(object) {
                    DefaultingResult::Complete => Ok(unknown),
                    DefaultingResult::LimitReached => {
                        Err(Status::request_entity_too_large(MAX_COMMIT_BYTES as u64))
                    }
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
fn admit_metadata(object: &mut Value) -> Result<Vec<String>, Status> {
    let Some(own) = object.get_mut("metadata") else {
        return Ok(Vec::new());
    };
    metadata::coerce(own, &FieldPath::new("metadata"))
        .map_err(|errors| Status::bad_request(fairlead_schema::aggregate_message(&errors)))
}
