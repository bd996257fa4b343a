//! What a server serves: resources, their verbs, and the rules of their kinds.

mod builtin;
mod columns;
mod served;
mod shape;
mod strategy;
mod verb;

pub use builtin::{built_in_resources, is_built_in};
pub use columns::{Column, Columns, PrinterColumns};
pub use served::{Catalog, Conversion, SelectableField, ServedResource, ServedVersion, Subresource};
pub use shape::Shape;
pub use strategy::{CustomStrategy, Deferral, Strategy, WriteTarget};
pub use verb::{Verb, Verbs};
