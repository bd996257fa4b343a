//! The estimated cost of rules (KEP-2876): per rule and for all rules of a schema together.

use fairlead_cel::{STATIC_COST_LIMIT, STATIC_COST_LIMIT_PER_CRD};
use serde_json::{Map, Value};

use crate::field::{FieldError, FieldPath};

/// Number of rules that an error about the cost of all rules names.
const NAMED_RULES: usize = 4;

/// The maximum number of values that a schema describes within one object, or `None` if only the size of a request
/// limits it.
pub(super) type Cardinality = Option<u64>;

/// The cardinality of the children of a schema.
pub(super) fn below(own: Cardinality, schema: &Map<String, Value>) -> Cardinality {
    let limit = |name: &str| {
        let limit = schema.get(name).and_then(Value::as_i64)?;
        Some(u64::try_from(limit).unwrap_or(0))
    };
    let factor = match schema.get("type").and_then(Value::as_str) {
        Some("object") if schema.get("additionalProperties").is_some_and(|values| !values.is_null()) => {
            limit("maxProperties")?
        }
        Some("array") => limit("maxItems")?,
        _ => 1,
    };
    Some(own?.saturating_mul(factor))
}

/// The error of one expression that costs too much. `name` is `estimated rule cost`.
pub(super) fn check(name: &str, cost: u64, path: &FieldPath) -> Option<FieldError> {
    (cost > STATIC_COST_LIMIT)
        .then(|| FieldError::forbidden(path.clone(), &message(name, cost, STATIC_COST_LIMIT)))
}

/// The cost of all rules of a schema.
#[derive(Default)]
pub(super) struct TotalCost {
    total: u64,
    /// The most expensive expressions, in descending order.
    most_expensive: Vec<(u64, FieldPath)>,
}

impl TotalCost {
    pub(super) fn add(&mut self, cost: u64, path: &FieldPath) {
        self.total = self.total.saturating_add(cost);
        if cost >= STATIC_COST_LIMIT_PER_CRD / 100 {
            self.most_expensive.push((cost, path.clone()));
            self.most_expensive.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            self.most_expensive.truncate(NAMED_RULES);
        }
    }

    /// The errors if all rules together cost too much. `path` is that of the schema.
    pub(super) fn check(&self, path: &FieldPath) -> Vec<FieldError> {
        if self.total <= STATIC_COST_LIMIT_PER_CRD {
            return Vec::new();
        }
        let contributed =
            "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        let rules = self.most_expensive.iter();
        let mut errors: Vec<FieldError> =
            rules.map(|(_, path)| FieldError::forbidden(path.clone(), contributed)).collect();
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let detail = message(name, self.total, STATIC_COST_LIMIT_PER_CRD);
        errors.push(FieldError::forbidden(path.clone(), &detail));
        errors
    }
}

fn message(name: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}
