//! The selectors of shards in Partitions and PartitionSets, and their canonical text.

use std::collections::{BTreeMap, BTreeSet};

use fairlead_apiserver::request::{LabelSelector, LabelTerm, Operator, SelectorError};
use fairlead_schema::names::{label_value, qualified_name};
use fairlead_schema::{FieldError, FieldPath, aggregate_message};
use serde_json::Value;

/// A selector of shards by their labels.
#[derive(Debug)]
pub(crate) struct ShardSelector {
    labels: LabelSelector,
    text: String,
}

impl ShardSelector {
    /// Reads a `LabelSelector` object. An absent or empty one selects all shards.
    ///
    /// # Errors
    /// The text of Kubernetes for the first invalid requirement.
    pub(crate) fn of_object(object: &Value) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for (key, value) in object["matchLabels"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            requirements.push(Requirement::new(key, Operator::In, vec![value], format!("{key}={value}"))?);
        }
        for expression in object["matchExpressions"].as_array().into_iter().flatten() {
            requirements.push(Requirement::of_expression(expression)?);
        }
        requirements.sort_by(|one, other| one.term.key.cmp(&other.term.key));
        let text = requirements.iter().map(|one| &*one.text).collect::<Vec<_>>().join(",");
        let terms = requirements.into_iter().map(|one| one.term).collect();
        Ok(Self { labels: LabelSelector::of(terms), text })
    }

    /// Parses the canonical text.
    ///
    /// # Errors
    /// [`SelectorError`].
    pub(crate) fn parse(text: &str) -> Result<Self, SelectorError> {
        Ok(Self { labels: LabelSelector::parse(text)?, text: text.to_owned() })
    }

    /// The requirements, sorted by key and joined by commas, as Kubernetes prints a selector. Empty: all shards.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether a shard with these labels is selected.
    pub(crate) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.labels.selects(|key| labels.get(key).map(String::as_str))
    }
}

struct Requirement {
    term: LabelTerm,
    text: String,
}

impl Requirement {
    fn of_expression(expression: &Value) -> Result<Self, String> {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = expression["values"].as_array().into_iter().flatten();
        let mut values: Vec<&str> = values.filter_map(Value::as_str).collect();
        values.sort_unstable();
        let set = values.join(",");
        let (operator, text) = match expression["operator"].as_str().unwrap_or_default() {
            "In" => (Operator::In, format!("{key} in ({set})")),
            "NotIn" => (Operator::NotIn, format!("{key} notin ({set})")),
            "Exists" => (Operator::Present, key.to_owned()),
            "DoesNotExist" => (Operator::Absent, format!("!{key}")),
            other => return Err(SelectorError::Operator(other.to_owned()).to_string()),
        };
        Self::new(key, operator, values, text)
    }

    fn new(key: &str, operator: Operator, values: Vec<&str>, text: String) -> Result<Self, String> {
        let mut errors = Vec::new();
        let findings = qualified_name(key);
        if !findings.is_empty() {
            errors.push(FieldError::invalid_str(FieldPath::new("key"), key, &findings.join("; ")));
        }
        let path = FieldPath::new("values");
        let detail = match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            Operator::Present | Operator::Absent if !values.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            _ => None,
        };
        if let Some(detail) = detail {
            errors.push(FieldError::invalid(path.clone(), &Value::from(values.clone()), detail));
        }
        for (index, value) in values.iter().enumerate() {
            let findings = label_value(value);
            if !findings.is_empty() {
                let path = path.index(index).key(key);
                errors.push(FieldError::invalid_str(path, value, &findings.join("; ")));
            }
        }
        if !errors.is_empty() {
            return Err(aggregate_message(&errors));
        }
        let values: BTreeSet<String> = values.into_iter().map(str::to_owned).collect();
        Ok(Self { term: LabelTerm { key: key.to_owned(), operator, values }, text })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn labels(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_text_is_that_of_kubernetes_and_selects_the_same_shards() {
        let shard = labels(&[("region", "eu"), ("cloud", "a"), ("name", "s1")]);
        for (selector, text, selected) in [
            (Value::Null, "", true),
            (json!({}), "", true),
            (json!({"matchLabels": {"region": "eu", "cloud": "a"}}), "cloud=a,region=eu", true),
            (
                json!({"matchExpressions": [{"key": "region", "operator": "In", "values": ["us", "eu"]}]}),
                "region in (eu,us)",
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "region", "operator": "In", "values": ["us"]}]}),
                "region in (us)",
                false,
            ),
            (
                json!({"matchExpressions": [{"key": "region", "operator": "NotIn", "values": ["us", "eu"]}]}),
                "region notin (eu,us)",
                false,
            ),
            (
                json!({
                    "matchExpressions": [
                        {"key": "z", "operator": "DoesNotExist"}, {"key": "name", "operator": "Exists"},
                    ],
                    "matchLabels": {"region": "eu"},
                }),
                "name,region=eu,!z",
                true,
            ),
        ] {
            let parsed = ShardSelector::of_object(&selector).unwrap();
            assert_eq!(parsed.text(), text, "{selector}");
            assert_eq!(parsed.selects(&shard), selected, "{selector}");
            assert_eq!(ShardSelector::parse(text).unwrap().selects(&shard), selected, "{text}");
        }
    }

    #[test]
    fn an_invalid_requirement_has_the_text_of_kubernetes() {
        for (selector, message) in [
            (
                json!({"matchExpressions": [{"key": "a", "operator": "Like"}]}),
                r#""Like" is not a valid label selector operator"#,
            ),
            (
                json!({"matchLabels": {"/a": "b"}}),
                r#"key: Invalid value: "/a": prefix part must be non-empty"#,
            ),
        ] {
            assert_eq!(ShardSelector::of_object(&selector).unwrap_err(), message);
        }
        for invalid in [
            json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
            json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
            json!({"matchLabels": {"a": "%"}}),
        ] {
            assert!(ShardSelector::of_object(&invalid).is_err(), "{invalid}");
        }
    }
}
