//! Requests, parsed once into types: path, query, options, selectors, content negotiation.

mod audit_annotations;
mod negotiation;
mod options;
mod path;
mod selector;
mod warnings;

pub use audit_annotations::AuditAnnotations;
pub use negotiation::{BodyFormat, Form, NegotiationError, PatchKind, ResponseFormat};
pub use options::{
    DeleteOptions, DryRun, FieldValidation, InitialEvents, ListOptions, OptionsError, Propagation, Query,
    VersionMatch, WriteOptions,
};
pub use path::{PathError, RequestKind, RequestPath, ResourcePath};
pub use selector::{FieldSelector, FieldTerm, LabelSelector, LabelTerm, Operator, SelectorError};
pub use warnings::Warnings;
