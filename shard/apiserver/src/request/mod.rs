//! What a request asks for, parsed once into types.

mod negotiation;
mod options;
mod path;
mod selector;

pub use negotiation::{Accepted, BodyFormat, Form, NegotiationError, PatchKind};
pub use options::{
    DeleteOptions, DryRun, FieldValidation, InitialEvents, ListOptions, OptionsError, Propagation, Query,
    VersionMatch, WriteOptions,
};
pub use path::{PathError, RequestKind, RequestPath, ResourcePath};
pub use selector::{FieldSelector, FieldTerm, LabelSelector, LabelTerm, Operator, SelectorError};
