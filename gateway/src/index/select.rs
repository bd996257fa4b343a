//! Which shards a gateway follows: all, or those that are named or match a label selector.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use crate::table::ShardSpec;

/// A choice of shards. The workspaces of all others do not exist for this gateway.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ShardSelection {
    /// Empty for any.
    names: BTreeSet<String>,
    terms: Vec<Term>,
}

/// One term of a label selector in text form: `a=b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a`, `!a`.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Term {
    key: String,
    rule: Rule,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Rule {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
}

/// The selector is not one; whoever wrote it is to blame.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0:?} is not a term of a label selector")]
pub(crate) struct SelectorSyntax(String);

impl ShardSelection {
    /// Shards with one of these names (any for none) whose labels match the selector (any for an empty one).
    ///
    /// # Errors
    /// When the selector is not one.
    pub(crate) fn new(
        names: impl IntoIterator<Item = String>,
        selector: &str,
    ) -> Result<Self, SelectorSyntax> {
        let terms = split_terms(selector).into_iter().map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { names: names.into_iter().collect(), terms })
    }

    /// Whether a shard is followed.
    pub(crate) fn includes(&self, shard: &ShardSpec) -> bool {
        (self.names.is_empty() || self.names.contains(&*shard.name))
            && self.terms.iter().all(|term| term.matches(&shard.labels))
    }
}

/// The same text for the same choice; empty for all shards.
impl fmt::Display for ShardSelection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.names.is_empty() && self.terms.is_empty() {
            return Ok(());
        }
        write!(formatter, "{:?} {:?}", self.names, self.terms)
    }
}

impl Term {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match &self.rule {
            Rule::In(values) => value.is_some_and(|value| values.contains(value)),
            Rule::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Rule::Exists => value.is_some(),
            Rule::DoesNotExist => value.is_none(),
        }
    }
}

impl FromStr for Term {
    type Err = SelectorSyntax;

    fn from_str(text: &str) -> Result<Self, SelectorSyntax> {
        let wrong = || SelectorSyntax(text.to_owned());
        let one = |value: &str| BTreeSet::from([value.trim().to_owned()]);
        let text = text.trim();
        let (key, rule) = if let Some(key) = text.strip_prefix('!') {
            (key, Rule::DoesNotExist)
        } else if let Some((key, value)) = text.split_once("!=") {
            (key, Rule::NotIn(one(value)))
        } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
            (key, Rule::In(one(value)))
        } else if let Some(head) = text.strip_suffix(')') {
            let (head, values) = head.split_once('(').ok_or_else(wrong)?;
            let values: BTreeSet<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
            match head.split_whitespace().collect::<Vec<_>>()[..] {
                [key, "in"] => (key, Rule::In(values)),
                [key, "notin"] => (key, Rule::NotIn(values)),
                _ => return Err(wrong()),
            }
        } else {
            (text, Rule::Exists)
        };
        let key = key.trim();
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let is_key = !key.is_empty() && key.chars().all(|c| is_name(c) || c == '/');
        let is_value = |value: &String| value.chars().all(is_name);
        let are_values = match &rule {
            Rule::In(values) | Rule::NotIn(values) => values.iter().all(is_value),
            Rule::Exists | Rule::DoesNotExist => true,
        };
        if !is_key || !are_values {
            return Err(wrong());
        }
        Ok(Self { key: key.to_owned(), rule })
    }
}

/// At commas that are in no parentheses.
fn split_terms(selector: &str) -> Vec<&str> {
    if selector.trim().is_empty() {
        return Vec::new();
    }
    let mut depth = 0_usize;
    selector
        .split(|c: char| {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            c == ',' && depth == 0
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use std::sync::Arc;

    use super::*;

    #[test]
    fn shards_are_chosen_by_name_and_by_labels() {
        let labels = [("region", "eu"), ("fast", "")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let shard = ShardSpec {
            name: "alpha".into(),
            url: "https://alpha".into(),
            labels: Arc::new(labels.into()),
            cordoned: false,
        };
        for (names, selector, expected) in [
            ("", "", true),
            ("alpha beta", "", true),
            ("beta", "", false),
            ("", "region=eu", true),
            ("", "region==eu", true),
            ("beta", "region=eu", false),
            ("", "region=us", false),
            ("", "region!=us,fast", true),
            ("", "zone!=a", true),
            ("", "region in (us, eu),!zone", true),
            ("", "region notin (us,eu)", false),
            ("", "zone notin (a)", true),
            ("", "zone", false),
            ("", "fast=", true),
        ] {
            let names = names.split_whitespace().map(str::to_owned);
            let selection = ShardSelection::new(names, selector).unwrap();
            assert_eq!(selection.includes(&shard), expected, "{selection}");
            assert_eq!(selection.to_string().is_empty(), selection == ShardSelection::default());
        }
        for selector in ["a b", "=x", "a in b", "a near (b)", ",", "a,", "a=(b)", "a=b=c"] {
            assert!(ShardSelection::new([], selector).is_err(), "{selector}");
        }
    }
}
