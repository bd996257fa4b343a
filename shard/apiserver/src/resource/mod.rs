//! The parts of a served resource: verbs, columns, and the rules of its kind.

mod columns;
mod shape;
mod strategy;
mod verb;

pub use columns::{Column, Columns, PrinterColumns};
pub use shape::Shape;
pub use strategy::{CustomStrategy, Deferral, Strategy, WriteTarget};
pub use verb::{Verb, Verbs};
