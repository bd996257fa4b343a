//! What a request asks for, parsed once into types.

mod negotiation;
mod options;
mod path;
mod selector;

pub use negotiation::{BodyFormat, Form, NegotiationError, PatchKind, ResponseFormat};
pub use options::{
    DeleteOptions, DryRun, FieldValidation, InitialEvents, ListOptions, OptionsError, Propagation, Query,
    VersionMatch, WriteOptions,
};
pub use path::{PathError, RequestKind, RequestPath, ResourcePath};
pub use selector::{FieldSelector, FieldTerm, LabelSelector, LabelTerm, Operator, SelectorError};
