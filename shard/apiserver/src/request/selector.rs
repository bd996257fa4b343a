//! Label and field selectors.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::Value;

use super::label_syntax::{self, LabelTerm, Operator};

/// A parsed label selector; empty selects everything.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LabelSelector(Vec<LabelTerm>);

impl LabelSelector {
    /// Parses the text form, such as `a=b,c in (d,e)`. An empty text selects everything.
    ///
    /// # Errors
    /// [`SelectorError::Labels`].
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        label_syntax::parse(text).map(Self).map_err(SelectorError::Labels)
    }

    /// Reads a `LabelSelector` object: `matchLabels` and `matchExpressions`. An empty object selects everything.
    ///
    /// # Errors
    /// [`SelectorError`] with the invalid requirement.
    pub fn of_object(object: &Value) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for (key, value) in object["matchLabels"].as_object().into_iter().flatten() {
            let value = value.as_str().ok_or_else(|| SelectorError::Requirement(format!("{key}={value}")))?;
            terms.push(LabelTerm {
                key: key.clone(),
                operator: Operator::In,
                values: BTreeSet::from([value.to_owned()]),
            });
        }
        for requirement in object["matchExpressions"].as_array().into_iter().flatten() {
            let error = || SelectorError::Requirement(requirement.to_string());
            let key = requirement["key"].as_str().ok_or_else(error)?.to_owned();
            let values: BTreeSet<String> = requirement["values"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|value| value.as_str().map(str::to_owned).ok_or_else(error))
                .collect::<Result<_, _>>()?;
            let operator = match requirement["operator"].as_str() {
                Some("In") if !values.is_empty() => Operator::In,
                Some("NotIn") if !values.is_empty() => Operator::NotIn,
                Some("Exists") if values.is_empty() => Operator::Present,
                Some("DoesNotExist") if values.is_empty() => Operator::Absent,
                Some("In" | "NotIn" | "Exists" | "DoesNotExist") => return Err(error()),
                other => {
                    return Err(SelectorError::Operator(other.unwrap_or_default().to_owned()));
                }
            };
            terms.push(LabelTerm { key, operator, values });
        }
        Ok(Self(terms))
    }

    /// A selector of terms.
    pub fn of(terms: Vec<LabelTerm>) -> Self {
        Self(terms)
    }

    /// A selector of objects with these labels.
    pub fn of_labels<'l>(labels: impl IntoIterator<Item = (&'l str, &'l str)>) -> Self {
        let term = |(key, value): (&str, &str)| LabelTerm {
            key: key.to_owned(),
            operator: Operator::In,
            values: BTreeSet::from([value.to_owned()]),
        };
        Self(labels.into_iter().map(term).collect())
    }

    /// A selector of what this and another one select. The terms of this one come first, so a watch is indexed by them.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(self.0.iter().chain(&other.0).cloned().collect())
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The terms.
    pub fn terms(&self) -> &[LabelTerm] {
        &self.0
    }

    /// Whether the labels that `label` looks up are selected.
    pub fn selects<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.0.iter().all(|term| {
            let value = label(&term.key);
            match term.operator {
                Operator::Absent => value.is_none(),
                Operator::Above => term.compare(value).is_some_and(Ordering::is_gt),
                Operator::Below => term.compare(value).is_some_and(Ordering::is_lt),
                Operator::In => value.is_some_and(|value| term.values.contains(value)),
                Operator::NotIn => value.is_none_or(|value| !term.values.contains(value)),
                Operator::Present => value.is_some(),
            }
        })
    }

    /// The first `key=value` term, by which a watch is indexed.
    pub fn equality_term(&self) -> Option<(&str, &str)> {
        self.0.iter().find_map(|term| match (term.operator, term.values.first()) {
            (Operator::In, Some(value)) if term.values.len() == 1 => Some((&*term.key, &**value)),
            _ => None,
        })
    }
}

/// A parsed field selector; empty selects everything. Which fields exist depends on the resource.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FieldSelector(Vec<FieldTerm>);

/// A requirement of a field selector.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FieldTerm {
    /// `metadata.name`.
    pub field: String,
    /// The value to compare with.
    pub value: String,
    /// Whether it must be equal (`=`, `==`), or must not (`!=`).
    pub must_equal: bool,
}

impl FieldSelector {
    /// Parses `a=b,c==d,e!=f`. A backslash escapes `\`, `,` and `=` in values.
    ///
    /// # Errors
    /// [`SelectorError`] with the invalid term.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for raw in split_unescaped(text).filter(|raw| !raw.is_empty()) {
            let malformed = || SelectorError::Fields { selector: text.to_owned(), term: raw.to_owned() };
            let (field, value) = raw.split_once('=').ok_or_else(malformed)?;
            let (field, must_equal) = field.strip_suffix('!').map_or((field, true), |field| (field, false));
            let value = if must_equal { value.strip_prefix('=').unwrap_or(value) } else { value };
            terms.push(FieldTerm { field: field.to_owned(), value: unescape(value)?, must_equal });
        }
        Ok(Self(terms))
    }

    /// This selector with one more term, `field=value`.
    #[must_use]
    pub fn and(mut self, field: &str, value: &str) -> Self {
        self.0.push(FieldTerm { field: field.to_owned(), value: value.to_owned(), must_equal: true });
        self
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The terms.
    pub fn terms(&self) -> &[FieldTerm] {
        &self.0
    }

    /// The terms on name and namespace.
    #[must_use]
    pub fn of_identity(&self) -> Self {
        let is_identity = |term: &&FieldTerm| matches!(&*term.field, "metadata.name" | "metadata.namespace");
        Self(self.0.iter().filter(is_identity).cloned().collect())
    }

    /// The value of the first term `field=value`.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|term| term.must_equal && term.field == field).map(|term| &*term.value)
    }

    /// Whether the object whose fields `field` looks up is selected.
    pub fn selects(&self, field: impl Fn(&str) -> String) -> bool {
        self.0.iter().all(|term| (field(&term.field) == term.value) == term.must_equal)
    }
}

fn split_unescaped(text: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    text.split(move |character| {
        let separates = character == ',' && !escaped;
        escaped = character == '\\' && !escaped;
        separates
    })
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        out.push(match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => escaped,
                other => return Err(SelectorError::Escape(other.map(String::from).unwrap_or_default())),
            },
            ',' | '=' => return Err(SelectorError::Unescaped(u32::from(character))),
            other => other,
        });
    }
    Ok(out)
}

/// A malformed selector; a client error.
#[derive(Debug, thiserror::Error)]
pub enum SelectorError {
    /// The text of a label selector is malformed; this is Kubernetes' error.
    #[error("{0}")]
    Labels(String),
    /// A term of a field selector has no operator.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Fields {
        /// The whole selector.
        selector: String,
        /// The term.
        term: String,
    },
    /// A backslash in the value of a field selector escapes something else than `\`, `,` and `=`.
    #[error("invalid field selector: invalid escape sequence: \\{0}")]
    Escape(String),
    /// A comma or equals sign in the value of a field selector; the number is its code point, as in Kubernetes.
    #[error("invalid field selector: unescaped character in value: {0}")]
    Unescaped(u32),
    /// A requirement of a `LabelSelector` object is malformed.
    #[error("unable to parse requirement: {0:?}")]
    Requirement(String),
    /// The operator of a `LabelSelector` object is unknown.
    #[error("{0:?} is not a valid label selector operator")]
    Operator(String),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_selectors_select() {
        let labels = |key: &str| match key {
            "app" => Some("web"),
            "a.io/tier" => Some(""),
            "level" => Some("7"),
            _ => None,
        };
        for (selector, selected) in [
            ("", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("app=web", true),
            ("a.io/tier in ()", true),
            ("app in (,web)", true),
            ("app==web,a.io/tier=", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app in (web, db)", true),
            ("app notin (web,db)", false),
            ("other notin (x),app in (web)", true),
            ("app in (db)", false),
            ("level>6", true),
            ("level > 7", false),
            ("level<8,app", true),
            ("app>1", false),
            ("other<1", false),
        ] {
            assert_eq!(LabelSelector::parse(selector).unwrap().selects(labels), selected, "{selector}");
        }
    }

    #[test]
    fn the_first_equality_is_the_index_term() {
        let selector = LabelSelector::parse("x,app in (a,b),tier=db").unwrap();
        assert_eq!(selector.equality_term(), Some(("tier", "db")));
    }

    #[test]
    fn field_selectors_select() {
        let fields = |field: &str| {
            if field == "metadata.name" { "a,b".to_owned() } else { String::new() }
        };
        for (selector, selected) in [
            ("metadata.name=a\\,b", true),
            ("metadata.name==a\\,b", true),
            ("metadata.name!=a\\,b", false),
            ("metadata.name=a", false),
            ("spec.x!=1,metadata.name!=c", true),
        ] {
            assert_eq!(FieldSelector::parse(selector).unwrap().selects(fields), selected, "{selector}");
        }
        for (selector, expected) in [
            ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
            ("a=b,zz", "invalid selector: 'a=b,zz'; can't understand 'zz'"),
            (r"a=b\", r"invalid field selector: invalid escape sequence: \"),
            (r"a=b\x", r"invalid field selector: invalid escape sequence: \x"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ] {
            assert_eq!(FieldSelector::parse(selector).unwrap_err().to_string(), expected);
        }
        assert_eq!(FieldSelector::parse("metadata.name=x").unwrap().exact("metadata.name"), Some("x"));
    }

    #[test]
    fn selector_objects_select_by_labels() {
        let label = |key: &str| if key == "name" { Some("alpha") } else { None };
        for (selector, selected) in [
            (Value::Null, true),
            (json!({"matchLabels": {"name": "alpha"}}), true),
            (json!({"matchLabels": {"name": "beta"}}), false),
            (
                json!({"matchExpressions": [{"key": "name", "operator": "In", "values": ["alpha", "beta"]}]}),
                true,
            ),
            (json!({"matchExpressions": [{"key": "region", "operator": "Exists"}]}), false),
            (json!({"matchExpressions": [{"key": "region", "operator": "DoesNotExist"}]}), true),
        ] {
            assert_eq!(LabelSelector::of_object(&selector).unwrap().selects(label), selected, "{selector}");
        }
        assert!(
            LabelSelector::of_object(&json!({"matchExpressions": [{"key": "a", "operator": "Like"}]}))
                .is_err()
        );
        for invalid in [
            json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
            json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
            json!({"matchExpressions": [{"operator": "Exists"}]}),
            json!({"matchLabels": {"a": 1}}),
        ] {
            assert!(LabelSelector::of_object(&invalid).is_err(), "{invalid}");
        }
    }
}
