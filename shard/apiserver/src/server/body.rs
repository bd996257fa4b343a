//! Request bodies: read up to a limit, decoded, checked against the schema.

use bytes::Bytes;
use fairlead_process::Status;
use fairlead_schema::{
    DecodeError, decode_json, decode_protobuf, decode_yaml, has_protobuf_form, looks_like_json, strict_error,
    strict_findings, whole_numbers_to_integers,
};
use http::HeaderMap;
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde_json::Value;

use super::negotiation_status;
use crate::registry::Target;
use crate::request::{BodyFormat, FieldValidation};
use crate::resource::{ShapeError, Undecodable};

/// The largest request body.
pub(super) const MAX_BODY: usize = 3 * 1024 * 1024;

/// The body of a request: bytes in pieces, and an error if the client aborts it.
pub trait ByteBody:
    Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Send + 'static
{
}

impl<B> ByteBody for B where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Send + 'static
{
}

/// Reads a body.
///
/// # Errors
/// 413 when it is larger than [`MAX_BODY`], 400 when the client aborts it.
pub(super) async fn read<B: ByteBody>(body: B) -> Result<Bytes, Status> {
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Status::request_entity_too_large(MAX_BODY as u64))
        }
        Err(error) => Err(Status::bad_request(format!("the body could not be read: {error}"))),
    }
}

/// A decoded body with its duplicate fields.
pub(super) struct Document {
    pub(super) value: Value,
    pub(super) duplicates: Vec<String>,
}

/// Decodes a body by its Content-Type, in which protobuf has the given type. `refuse` makes the error of JSON and YAML that cannot be
/// read.
///
/// # Errors
/// That of `refuse`, 400 for protobuf that cannot be read, 415 for a media type that is not supported.
pub(super) fn decode(
    headers: &HeaderMap,
    bytes: &[u8],
    (api_version, kind): (&str, &str),
    refuse: impl Fn(&DecodeError) -> Status,
) -> Result<Document, Status> {
    let decoded = match BodyFormat::of(headers).map_err(|error| negotiation_status(&error))? {
        BodyFormat::Json => decode_json(bytes, MAX_BODY).map_err(|error| refuse(&error))?,
        BodyFormat::Yaml => decode_yaml(bytes, MAX_BODY).map_err(|error| refuse(&error))?,
        BodyFormat::Protobuf if !has_protobuf_form(api_version, kind) => {
            return Err(Status::unsupported_media_type(&["application/json", "application/yaml"]));
        }
        BodyFormat::Protobuf => {
            let value = decode_protobuf(bytes, api_version, kind)
                .map_err(|error| Status::bad_request(error.to_string()))?;
            return Ok(Document { value, duplicates: Vec::new() });
        }
    };
    Ok(Document { value: decoded.value, duplicates: decoded.duplicate_fields })
}

/// Decodes a configuration of server-side apply: YAML, or JSON. Duplicate fields are refused, warned of or ignored by
/// `validation`.
///
/// # Errors
/// 400.
pub(super) fn decode_configuration(
    bytes: &[u8],
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<Value, Status> {
    let decoded =
        if looks_like_json(bytes) { decode_json(bytes, MAX_BODY) } else { decode_yaml(bytes, MAX_BODY) };
    let mut decoded =
        decoded.map_err(|error| Status::bad_request(format!("error decoding YAML: {error}")))?;
    whole_numbers_to_integers(&mut decoded.value);
    match validation {
        FieldValidation::Ignore => {}
        FieldValidation::Strict => {
            if let Some(message) = strict_error(&decoded.duplicate_fields, &[]) {
                return Err(Status::bad_request(format!("error strict decoding YAML: {message}")));
            }
        }
        FieldValidation::Warn => warnings.extend(strict_findings(&decoded.duplicate_fields, &[])),
    }
    Ok(decoded.value)
}

/// Drops unknown fields and applies defaults. Unknown and duplicate fields are refused, warned of or
/// ignored by `validation`.
///
/// # Errors
/// Among others, `strict decoding error: …`.
pub(super) fn apply_schema(
    target: &Target,
    document: &mut Document,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<(), ShapeError> {
    let Some(version) = target.resource.version(&target.version) else {
        return Ok(());
    };
    let subresource = target.subresource.as_deref();
    let subresource = subresource.and_then(|name| target.resource.subresource(&target.version, name));
    let own_kind = subresource.and_then(|subresource| subresource.kind);
    let unknown = match subresource.and_then(|subresource| subresource.admit(&mut document.value)) {
        None => version.shape.admit(&mut document.value)?,
        Some(unknown) => unknown?,
    };
    match validation {
        FieldValidation::Ignore => {}
        FieldValidation::Strict => {
            if let Some(message) = strict_error(&document.duplicates, &unknown) {
                let own = (&*target.version, &*target.resource.kind);
                let (version, kind) = own_kind.map_or(own, |(_, version, kind)| (version, kind));
                return Err(ShapeError::Kind(Undecodable::new(kind, version, message)));
            }
        }
        FieldValidation::Warn => warnings.extend(strict_findings(&document.duplicates, &unknown)),
    }
    Ok(())
}
