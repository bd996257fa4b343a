//! Requests, parsed once into types: path, query, options, selectors, content negotiation.

mod audit_annotations;
mod delete_options;
mod duration;
mod label_syntax;
mod negotiation;
mod options;
mod path;
mod selector;
mod warnings;
mod write_guard;

pub use audit_annotations::AuditAnnotations;
pub use delete_options::{DeleteOptions, Propagation};
pub use duration::{DurationError, parse_duration};
pub use label_syntax::{LabelTerm, Operator};
pub use negotiation::{BodyFormat, Form, NegotiationError, PatchKind, ResponseFormat};
pub use options::{
    DryRun, FieldValidation, InitialEvents, ListOptions, OptionsError, Query, VersionMatch, WriteOptions,
};
pub use path::{PathError, RequestKind, RequestPath, ResourcePath};
pub use selector::{FieldSelector, FieldTerm, LabelSelector, SelectorError};
pub use warnings::Warnings;
pub use write_guard::{Guard, WriteGuard};

/// Flags of a request that only the host sets and reads. The API server passes them to the host's own registries.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RequestFlags(pub u8);
