//! Label selectors in the form of Kubernetes objects (`metav1.LabelSelector`).

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

/// All terms must match; a selector without terms matches everything.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LabelSelector {
    #[serde(default)]
    match_labels: BTreeMap<String, String>,
    #[serde(default)]
    match_expressions: Vec<Expression>,
}

#[derive(Debug, Deserialize)]
struct Expression {
    key: String,
    operator: String,
    #[serde(default)]
    values: Vec<String>,
}

/// The selector is invalid; a retry does not help.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum SelectorError {
    /// Not one of `In`, `NotIn`, `Exists`, `DoesNotExist`.
    #[error("{0:?} is not a selector operator")]
    Operator(String),
    /// `In` and `NotIn` need values, the others have none.
    #[error("operator {0} with {1} values")]
    Values(String, usize),
}

impl LabelSelector {
    /// # Errors
    /// [`SelectorError`] for the first invalid expression.
    pub(crate) fn validate(&self) -> Result<(), SelectorError> {
        for Expression { operator, values, .. } in &self.match_expressions {
            let valid = match operator.as_str() {
                "In" | "NotIn" => !values.is_empty(),
                "Exists" | "DoesNotExist" => values.is_empty(),
                _ => return Err(SelectorError::Operator(operator.clone())),
            };
            if !valid {
                return Err(SelectorError::Values(operator.clone(), values.len()));
            }
        }
        Ok(())
    }

    /// Whether the labels satisfy all terms. An invalid expression matches nothing.
    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|expression| {
                let value = labels.get(&expression.key);
                match expression.operator.as_str() {
                    "In" => value.is_some_and(|value| expression.values.contains(value)),
                    "NotIn" => value.is_none_or(|value| !expression.values.contains(value)),
                    "Exists" => value.is_some(),
                    "DoesNotExist" => value.is_none(),
                    _ => false,
                }
            })
    }
}

/// `region=eu,zone In (a,b)`; empty for a selector that matches everything.
impl fmt::Display for LabelSelector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = self.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
        let expressions = self.match_expressions.iter().map(|Expression { key, operator, values }| {
            let values = if values.is_empty() { String::new() } else { format!(" ({})", values.join(",")) };
            format!("{key} {operator}{values}")
        });
        formatter.write_str(&labels.chain(expressions).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    #[test]
    fn terms_are_matched() {
        let labels =
            BTreeMap::from([("region".to_owned(), "eu".to_owned()), ("fast".to_owned(), String::new())]);
        for (selector, expected) in [
            (r#"{}"#, true),
            (r#"{"matchLabels":{"region":"eu"}}"#, true),
            (r#"{"matchLabels":{"region":"us"}}"#, false),
            (r#"{"matchLabels":{"region":"eu","zone":"a"}}"#, false),
            (r#"{"matchExpressions":[{"key":"region","operator":"In","values":["us","eu"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"region","operator":"NotIn","values":["eu"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"zone","operator":"NotIn","values":["a"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"fast","operator":"Exists"}]}"#, true),
            (r#"{"matchExpressions":[{"key":"fast","operator":"DoesNotExist"}]}"#, false),
            (r#"{"matchExpressions":[{"key":"zone","operator":"DoesNotExist"}]}"#, true),
        ] {
            let selector: LabelSelector = serde_json::from_str(selector).unwrap();
            assert_eq!(selector.validate(), Ok(()));
            assert_eq!(selector.matches(&labels), expected, "{selector:?}");
        }
    }

    #[test]
    fn a_selector_is_displayed_on_one_line() {
        let selector: LabelSelector = serde_json::from_str(
            r#"{"matchLabels":{"a":"b","c":""},"matchExpressions":[{"key":"d","operator":"In","values":["e","f"]},{"key":"g","operator":"Exists"}]}"#,
        )
        .unwrap();
        assert_eq!(selector.to_string(), "a=b,c=,d In (e,f),g Exists");
        assert_eq!(LabelSelector::default().to_string(), "");
    }

    #[test]
    fn values_must_fit_the_operator() {
        for selector in [
            r#"{"matchExpressions":[{"key":"a","operator":"In"}]}"#,
            r#"{"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}"#,
        ] {
            let selector: LabelSelector = serde_json::from_str(selector).unwrap();
            assert!(matches!(selector.validate(), Err(SelectorError::Values(..))));
        }
    }
}
