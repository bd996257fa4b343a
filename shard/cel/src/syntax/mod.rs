//! Source text to syntax tree: lexer, parser and macros. Knows neither types nor values.

mod lexer;
mod literal;
mod macros;
mod parser;
mod source;
mod tree;

pub(crate) use macros::MacroSet;
pub(crate) use parser::parse;
pub(crate) use source::{Issues, Source};
pub(crate) use tree::{ACCUMULATOR, Comprehension, Expr, ExprId, Literal, StructField, Tree};
