//! Generates cases: schemas with and without bounds, objects with absent fields, and expressions of every library.
//! Most expressions are well typed; some are not, and some fail when they are evaluated.

mod expression;
mod input;
mod template;

use super::answer::Case;
use super::random::Random;
use expression::rule;
use input::{object as object_of, schema as schema_of};

/// The type that an expression should have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Box<Kind>),
    /// A map with strings as keys.
    Map(Box<Kind>),
    Optional(Box<Kind>),
    Dyn,
    Item,
    Object,
    Ip,
    Cidr,
    Quantity,
    Semver,
    Url,
    Format,
}

pub(super) use Kind as K;

pub(super) fn list(kind: K) -> K {
    K::List(Box::new(kind))
}

pub(super) fn map(kind: K) -> K {
    K::Map(Box::new(kind))
}

pub(super) fn optional(kind: K) -> K {
    K::Optional(Box::new(kind))
}

pub(crate) fn case(seed: u64, rules: usize) -> Case {
    let mut random = Random::new(seed);
    let schema = schema_of(&mut random);
    let object = object_of(&mut random);
    let old_object = if random.percent(40) { object.clone() } else { object_of(&mut random) };
    let rules = (0..rules).map(|_| rule(&mut random)).collect();
    Case { seed, schema, object, old_object, rules }
}
