//! The parts of a served resource: verbs, columns, and the rules of its kind.

mod columns;
mod shape;
mod strategy;
mod verb;

pub(crate) use columns::scale_columns;
pub use columns::{Column, Columns, PrinterColumns};
pub use shape::{Shape, ShapeError, Undecodable};
pub use strategy::{CustomStrategy, Deferral, SCALE, Strategy, WriteTarget};
pub use verb::{Verb, Verbs};
