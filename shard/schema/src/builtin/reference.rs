//! References between OpenAPI components.

use serde_json::{Map, Value};

/// Prefix of a `$ref` to a component of an OpenAPI v3 document.
pub(crate) const REFERENCE_PREFIX: &str = "#/components/schemas/";

/// The definition that a schema refers to by `$ref`, directly or wrapped in `allOf` beside a description.
pub(super) fn referenced(schema: &Map<String, Value>) -> Option<String> {
    let direct = schema.get("$ref");
    let wrapped = || schema.get("allOf")?.as_array()?.first()?.get("$ref");
    let reference = direct.or_else(wrapped)?.as_str()?;
    Some(reference.strip_prefix(REFERENCE_PREFIX)?.to_owned())
}
