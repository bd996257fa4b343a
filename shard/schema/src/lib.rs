//! Semantics of a resource's schema: structural schemas, defaulting, pruning, validation, patches, OpenAPI.
//!
//! This crate has no notion of HTTP or storage. Objects are trees of [`serde_json::Value`]. Errors are [`FieldError`]s
//! with the texts of Kubernetes, which the API server puts into a `Status`.

mod api_conversion;
pub mod apply;
pub mod builtin;
mod certificate_request;
pub mod crd;
mod decode;
mod field;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod go_time;
mod jsonpath;
pub mod metadata;
pub mod names;
mod object_type;
pub mod openapi;
pub mod patch;
mod policy_types;
mod printer_column;
mod protobuf;
mod structural;
mod version_order;
mod webhook_client;

pub use api_conversion::ApiConversionRules;
pub use certificate_request::{CertificateDataError, CertificateRequest};
pub use fairlead_cel::Quantity;

pub use decode::{
    DecodeError, DecodedBody, MAX_DEPTH, decode_json, decode_yaml, depth_of, go_type_of, looks_like_json,
    strict_error, strict_findings, whole_numbers_to_integers,
};
pub use field::{FieldError, FieldErrorKind, FieldPath, aggregate_message};
pub use jsonpath::{JsonPath, JsonPathError};
pub use object_type::{definition_merge_type, schema_merge_type, untyped_merge_type};
pub use policy_types::{TypedKind, check_policy_types};
pub use printer_column::{ColumnType, PrinterColumn, age, human_duration};
pub use protobuf::{MAX_PROTOBUF_BODY, PROTOBUF_MAGIC, ProtobufError, decode_protobuf, has_protobuf_form};
pub use structural::{
    CompileOptions, DefaultingResult, Definitions, Dialect, FieldInfo, RuleFindings, Schema, SchemaHash,
    check_structural,
};
pub use version_order::version_priority;
