//! Label selectors of shards.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use crate::setting::plain_settings;
use crate::units::{UnitError, as_text};

/// A label selector in text form, as kubectl takes it; the empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardSelector(Vec<Term>);

/// One term: `a=b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a`, `!a`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    key: String,
    rule: Rule,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
}

impl ShardSelector {
    /// Whether these labels are selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|term| term.matches(labels))
    }

    /// Whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for ShardSelector {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        split_terms(text).into_iter().map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for ShardSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            term.fmt(f)?;
        }
        Ok(())
    }
}

as_text!(ShardSelector);
plain_settings!(ShardSelector);

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
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong =
            || UnitError::new(text, "a term of a label selector such as \"region in (eu,us),!retired\"");
        let one = |value: &str| BTreeSet::from([value.trim().to_owned()]);
        let trimmed = text.trim();
        let (key, rule) = if let Some(key) = trimmed.strip_prefix('!') {
            (key, Rule::DoesNotExist)
        } else if let Some((key, value)) = trimmed.split_once("!=") {
            (key, Rule::NotIn(one(value)))
        } else if let Some((key, value)) = trimmed.split_once("==").or_else(|| trimmed.split_once('=')) {
            (key, Rule::In(one(value)))
        } else if let Some(head) = trimmed.strip_suffix(')') {
            let (head, values) = head.split_once('(').ok_or_else(wrong)?;
            let values: BTreeSet<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
            match head.split_whitespace().collect::<Vec<_>>()[..] {
                [key, "in"] => (key, Rule::In(values)),
                [key, "notin"] => (key, Rule::NotIn(values)),
                _ => return Err(wrong()),
            }
        } else {
            (trimmed, Rule::Exists)
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

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, rule } = self;
        let several = |values: &BTreeSet<String>| values.iter().cloned().collect::<Vec<_>>().join(",");
        match rule {
            Rule::In(values) => write!(f, "{key} in ({})", several(values)),
            Rule::NotIn(values) => write!(f, "{key} notin ({})", several(values)),
            Rule::Exists => f.write_str(key),
            Rule::DoesNotExist => write!(f, "!{key}"),
        }
    }
}

/// Splits at commas outside of parentheses.
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
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn labels_are_selected_as_kubernetes_does() {
        let labels = [("region", "eu"), ("fast", "")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let labels = BTreeMap::from(labels);
        for (text, expected) in [
            ("", true),
            ("region=eu", true),
            ("region==eu", true),
            ("region=us", false),
            ("region!=us,fast", true),
            ("zone!=a", true),
            ("region in (us, eu),!zone", true),
            ("region notin (us,eu)", false),
            ("zone notin (a)", true),
            ("zone", false),
            ("fast=", true),
        ] {
            let selector: ShardSelector = text.parse().unwrap();
            assert_eq!(selector.matches(&labels), expected, "{text}");
            assert_eq!(selector.is_everything(), text.is_empty());
            assert_eq!(selector.to_string().parse(), Ok(selector), "the text form is parsed again: {text}");
        }
    }

    #[test]
    fn invalid_selectors_are_rejected_with_the_term() {
        for (text, term) in [
            ("a b", "a b"),
            ("=x", "=x"),
            ("x, a in b", " a in b"),
            ("a in (", "a in ("),
            ("a near (b)", "a near (b)"),
            (",", ""),
            ("a,", ""),
            ("a=(b)", "a=(b)"),
            ("a=b=c", "a=b=c"),
        ] {
            let error = text.parse::<ShardSelector>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{term:?} is not a term of a label selector")), "{error}");
        }
    }
}
