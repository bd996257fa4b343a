//! Label and field selectors.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::Value;

/// A parsed label selector; empty selects everything.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LabelSelector(Vec<LabelTerm>);

/// A requirement of a label selector.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LabelTerm {
    /// The label's key.
    pub key: String,
    /// The comparison.
    pub operator: Operator,
    /// The values to compare with.
    pub values: BTreeSet<String>,
}

/// The comparison of a label selector's term.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operator {
    /// The key is absent.
    Absent,
    /// The key is present, and its value is an integer above the one value.
    Above,
    /// The key is present, and its value is an integer below the one value.
    Below,
    /// The key is present and its value is one of the values.
    In,
    /// The key is absent or its value is none of the values.
    NotIn,
    /// The key is present.
    Present,
}

impl LabelSelector {
    /// Parses Kubernetes' grammar: `a`, `!a`, `a=b`, `a==b`, `a!=b`, `a>1`, `a<1`, `a in (b,c)`, `a notin (b,c)`,
    /// joined by commas. An empty text selects everything, but an empty term between commas is an error, so that
    /// `kubectl delete -l "$A,$B"` with empty variables does not delete everything.
    ///
    /// # Errors
    /// [`SelectorError`] with the invalid term.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let terms = split_outside_parentheses(text).map(LabelTerm::parse).collect::<Result<_, _>>()?;
        Ok(Self(terms))
    }

    /// Reads a `LabelSelector` object: `matchLabels` and `matchExpressions`. An empty object selects everything.
    ///
    /// # Errors
    /// [`SelectorError`] with the invalid requirement.
    pub fn of_object(object: &Value) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for (key, value) in object["matchLabels"].as_object().into_iter().flatten() {
            let value = value.as_str().ok_or_else(|| SelectorError::Term(format!("{key}={value}")))?;
            terms.push(LabelTerm {
                key: key.clone(),
                operator: Operator::In,
                values: BTreeSet::from([value.to_owned()]),
            });
        }
        for requirement in object["matchExpressions"].as_array().into_iter().flatten() {
            let error = || SelectorError::Term(requirement.to_string());
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

impl LabelTerm {
    fn parse(text: &str) -> Result<Self, SelectorError> {
        let text = text.trim();
        let error = || SelectorError::Term(text.to_owned());
        let term = |key: &str, operator, values: BTreeSet<String>| {
            let key = key.trim();
            if is_label_key(key) && values.iter().all(|value| is_label_value(value)) {
                Ok(Self { key: key.to_owned(), operator, values })
            } else {
                Err(error())
            }
        };
        let one = |value: &str| BTreeSet::from([value.trim().to_owned()]);
        if let Some(key) = text.strip_prefix('!') {
            return term(key, Operator::Absent, BTreeSet::new());
        }
        if let Some((head, list)) = text.split_once('(') {
            let list = list.strip_suffix(')').ok_or_else(error)?;
            if list.trim().is_empty() {
                return Err(error());
            }
            let values = list.split(',').map(|value| value.trim().to_owned()).collect();
            let head = head.trim_end();
            return match head.rsplit_once(char::is_whitespace) {
                Some((key, "in")) => term(key, Operator::In, values),
                Some((key, "notin")) => term(key, Operator::NotIn, values),
                _ => Err(error()),
            };
        }
        for (symbol, operator) in [("!=", Operator::NotIn), ("==", Operator::In), ("=", Operator::In)] {
            if let Some((key, value)) = text.split_once(symbol) {
                return term(key, operator, one(value));
            }
        }
        for (symbol, operator) in [('>', Operator::Above), ('<', Operator::Below)] {
            if let Some((key, value)) = text.split_once(symbol) {
                value.trim().parse::<i64>().map_err(|_| error())?;
                return term(key, operator, one(value));
            }
        }
        term(text, Operator::Present, BTreeSet::new())
    }

    /// Compares the label with the value of the term; `None` if either is not an integer.
    fn compare(&self, label: Option<&str>) -> Option<Ordering> {
        let label: i64 = label?.parse().ok()?;
        Some(label.cmp(&self.values.first()?.parse().ok()?))
    }
}

fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    text.split(move |character| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    })
}

fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let prefix_valid = prefix.is_none_or(|prefix| {
        !prefix.is_empty()
            && prefix.len() <= 253
            && prefix
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
    });
    prefix_valid && !name.is_empty() && is_label_value(name)
}

fn is_label_value(value: &str) -> bool {
    let bytes = value.as_bytes();
    bytes.len() <= 63
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        && bytes.first().is_none_or(u8::is_ascii_alphanumeric)
        && bytes.last().is_none_or(u8::is_ascii_alphanumeric)
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
    /// Parses `a=b,c!=d`. A backslash escapes `\`, `,` and `=` in values.
    ///
    /// # Errors
    /// [`SelectorError`] with the invalid term.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for raw in split_unescaped(text) {
            if raw.is_empty() {
                continue;
            }
            let at = raw.find('=').ok_or_else(|| SelectorError::Term(raw.to_owned()))?;
            let (field, value) = raw.split_at(at);
            let value = value.trim_start_matches('=');
            let (field, must_equal) = field.strip_suffix('!').map_or((field, true), |field| (field, false));
            if field.is_empty() {
                return Err(SelectorError::Term(raw.to_owned()));
            }
            terms.push(FieldTerm { field: field.trim().to_owned(), value: unescape(value), must_equal });
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

fn unescape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        out.push(if character == '\\' { characters.next().unwrap_or('\\') } else { character });
    }
    out
}

/// A malformed selector; a client error.
#[derive(Debug, thiserror::Error)]
pub enum SelectorError {
    /// The term is malformed.
    #[error("unable to parse requirement: {0:?}")]
    Term(String),
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
    fn malformed_label_selectors_are_refused() {
        for selector in [
            "a in b",
            "a in (b",
            "=b",
            "a=b c",
            "a=-b",
            "/a=b",
            "a within (b)",
            ",",
            ",,",
            "a,",
            ",a",
            "a,,b",
            "a in ()",
            "a notin ()",
            "a>",
            "a>b",
            "a<1.5",
        ] {
            assert!(LabelSelector::parse(selector).is_err(), "{selector}");
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
        assert!(FieldSelector::parse("metadata.name").is_err());
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
