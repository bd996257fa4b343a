//! Label selectors: from the text of the command line to the form of the API.

use std::collections::BTreeMap;

use serde::Serialize;

/// A label selector of the Kubernetes API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LabelSelector {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    match_labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    match_expressions: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Requirement {
    key: String,
    operator: Operator,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// A text that is not a selector. The user has to correct it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a label selector, which looks like `a=b,c!=d,e in (f,g),h,!i`")]
pub(crate) struct SelectorError(String);

impl LabelSelector {
    /// Parses `a=b,c in (d,e),!f`. The server validates keys and values.
    pub(crate) fn parse(text: &str) -> Result<Self, SelectorError> {
        let malformed = || SelectorError(text.to_owned());
        let mut selector = Self::default();
        for term in terms(text) {
            selector.add(term.trim()).ok_or_else(malformed)?;
        }
        Ok(selector)
    }

    fn add(&mut self, term: &str) -> Option<()> {
        let (key, operator, values) = if let Some((key, values)) = term.split_once('(') {
            let values = values.strip_suffix(')')?.split(',').map(str::trim).collect();
            match key.trim().rsplit_once(char::is_whitespace)? {
                (key, "in") => (key, Operator::In, values),
                (key, "notin") => (key, Operator::NotIn, values),
                _ => return None,
            }
        } else if let Some((key, value)) = term.split_once("!=") {
            (key, Operator::NotIn, vec![value.trim()])
        } else if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
            let (key, value) = (key_of(key)?, value.trim());
            let known = self.match_labels.insert(key.to_owned(), value.to_owned());
            // A map has one value per key, so a second value is an error.
            return known.is_none_or(|known| known == value).then_some(());
        } else if let Some(key) = term.strip_prefix('!') {
            (key, Operator::DoesNotExist, Vec::new())
        } else {
            (term, Operator::Exists, Vec::new())
        };
        self.match_expressions.push(Requirement {
            key: key_of(key)?.to_owned(),
            operator,
            values: values.into_iter().map(str::to_owned).collect(),
        });
        Some(())
    }
}

/// Splits at commas outside parentheses.
fn terms(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
}

fn key_of(text: &str) -> Option<&str> {
    let text = text.trim();
    let reserved = |c: char| c.is_whitespace() || matches!(c, '=' | '!' | '(' | ')' | ',');
    (!text.is_empty() && !text.contains(reserved)).then_some(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_are_parsed_like_those_of_kubectl() {
        let expression = |key: &str, operator: &str, values: &[&str]| match values {
            [] => json!({ "key": key, "operator": operator }),
            values => json!({ "key": key, "operator": operator, "values": values }),
        };
        for (text, form) in [
            ("name=root", json!({ "matchLabels": { "name": "root" } })),
            ("a==b , c = d", json!({ "matchLabels": { "a": "b", "c": "d" } })),
            ("a!=b", json!({ "matchExpressions": [expression("a", "NotIn", &["b"])] })),
            ("a in (b, c)", json!({ "matchExpressions": [expression("a", "In", &["b", "c"])] })),
            ("a notin (b)", json!({ "matchExpressions": [expression("a", "NotIn", &["b"])] })),
            (
                "a,!b",
                json!({ "matchExpressions": [expression("a", "Exists", &[]), expression("b", "DoesNotExist", &[])] }),
            ),
            (
                "r=x,z in (1,2),!c",
                json!({
                    "matchLabels": { "r": "x" },
                    "matchExpressions": [expression("z", "In", &["1", "2"]), expression("c", "DoesNotExist", &[])],
                }),
            ),
        ] {
            assert_eq!(serde_json::to_value(LabelSelector::parse(text).unwrap()).unwrap(), form, "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "a=b,", "=b", "a b", "a in b", "a in (b", "a within (b)", "a=b,a=c", "!"] {
            assert!(LabelSelector::parse(text).is_err(), "{text:?}");
        }
    }
}
