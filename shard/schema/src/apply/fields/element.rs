//! One step of a field path: a field, an item of a list, or a value of a set.

use core::cmp::Ordering;
use core::fmt;

use serde_json::{Map, Value};

use super::order::{compare_values, quote};

/// One step of a field path.
///
/// Steps are ordered as in stored `managedFields`: fields, keys, values, indexes.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// A field of an object, or an entry of a map.
    Field(Box<str>),
    /// An item of a list, by the values of its keys in alphabetical order.
    Key(Box<[(Box<str>, Value)]>),
    /// An item of a set.
    Value(Value),
    /// An item of a list, by its position.
    Index(i64),
}

impl PathElement {
    /// A field.
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// Parses the key of a JSON field set. `Ok(None)`: a kind of element that this version does not know.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, InvalidPathElement> {
        let invalid = || InvalidPathElement(text.to_owned());
        let (kind, content) = text.split_at_checked(2).ok_or_else(invalid)?;
        if !kind.ends_with(':') {
            return Err(invalid());
        }
        Ok(Some(match kind {
            "f:" => Self::field(content),
            "v:" => Self::Value(serde_json::from_str(content).map_err(|_| invalid())?),
            "k:" => {
                let keys: Map<String, Value> = serde_json::from_str(content).map_err(|_| invalid())?;
                Self::Key(keys.into_iter().map(|(name, value)| (name.into(), value)).collect())
            }
            "i:" => Self::Index(content.parse().map_err(|_| invalid())?),
            _ => return Ok(None),
        }))
    }

    /// Where the element sorts among the kinds of elements.
    const fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(one), Self::Field(two)) => one.cmp(two),
            (Self::Key(one), Self::Key(two)) => compare_keys(one, two),
            (Self::Value(one), Self::Value(two)) => compare_values(one, two),
            (Self::Index(one), Self::Index(two)) => one.cmp(two),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

type Key = (Box<str>, Value);

fn compare_keys(one: &[Key], two: &[Key]) -> Ordering {
    let names_and_values = one.iter().zip(two).map(|((name, value), (other_name, other_value))| {
        name.cmp(other_name).then_with(|| compare_values(value, other_value))
    });
    names_and_values.fold(Ordering::Equal, Ordering::then).then(one.len().cmp(&two.len()))
}

/// As in the messages of conflicts: `.spec`, `[name="http"]`, `[="a"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(formatter, ".{name}"),
            Self::Key(keys) => {
                for (index, (name, value)) in keys.iter().enumerate() {
                    let separator = if index == 0 { '[' } else { ',' };
                    write!(formatter, "{separator}{name}={}", quote(value))?;
                }
                formatter.write_str("]")
            }
            Self::Value(value) => write!(formatter, "[={}]", quote(value)),
            Self::Index(index) => write!(formatter, "[{index}]"),
        }
    }
}

/// A path element that does not parse.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("invalid path element {0:?}")]
pub struct InvalidPathElement(String);
