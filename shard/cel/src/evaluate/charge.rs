//! Costs of calls, from the sizes of their operands and results.

use super::Evaluator;
use crate::failure::Failure;
use crate::functions::MAX_RANGE;
use crate::limits::{LIST_CREATE_COST, REGEX_FACTOR, STRING_FACTOR};
use crate::plan::{Call, CostRule};
use crate::value::{Extension, Outcome, Value};
use crate::work::Work;

/// The size of an operand; failed ones count as 1.
fn size(operand: Option<&Outcome<'_>>) -> u64 {
    match operand {
        Some(Ok(Value::Optional(Some(value)))) => value.cost_size(),
        Some(Ok(value)) => value.cost_size(),
        _ => 1,
    }
}

/// The size of an operand, in whose place Kubernetes' own rules do not look into optionals.
fn plain_size(operand: Option<&Outcome<'_>>) -> u64 {
    match operand {
        Some(Ok(value)) => value.cost_size(),
        _ => 1,
    }
}

fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

fn regex_cost(text: u64, pattern: u64) -> u64 {
    let text = ((1.0 + text as f64) * STRING_FACTOR).ceil() as u64;
    text.saturating_mul(scaled(pattern, REGEX_FACTOR))
}

impl<'a> Evaluator<'a> {
    /// Charges a call before it is made.
    pub(super) fn charge_call(&mut self, call: &Call, operands: &[Outcome<'a>]) -> Result<(), Failure> {
        let first = operands.first();
        let second = operands.get(1);
        let cost = match call.cost {
            CostRule::Fixed(cost) => cost,
            CostRule::Traversal => match first {
                Some(Ok(value)) => self.traversal_cost(value)?,
                _ => 1,
            },
            CostRule::First { times: 2 } => (plain_size(first) as f64 * 2.0 * STRING_FACTOR).ceil() as u64,
            CostRule::First { .. } => scaled(plain_size(first), STRING_FACTOR),
            CostRule::Second => scaled(size(second), STRING_FACTOR),
            CostRule::Regex => regex_cost(plain_size(first), plain_size(second)),
            CostRule::Contains => {
                scaled(size(first), STRING_FACTOR).saturating_mul(scaled(size(second), STRING_FACTOR))
            }
            CostRule::ContainsIp { is_text } => {
                let base = scaled(plain_size(first) * 2, STRING_FACTOR);
                base + if is_text { scaled(plain_size(second), STRING_FACTOR) } else { 0 }
            }
            CostRule::ContainsCidr { is_text } => {
                let network = plain_size(first);
                let base = scaled(network * 2, STRING_FACTOR) + scaled(network, STRING_FACTOR) + 1;
                base + if is_text { scaled(plain_size(second), STRING_FACTOR) } else { 0 }
            }
            CostRule::Validate => match first {
                Some(Ok(Value::Extension(Extension::Format(format)))) => {
                    regex_cost(plain_size(second), format.pattern_length())
                }
                _ => 1,
            },
            CostRule::Selector => {
                let length = plain_size(second);
                let requirements = scaled(length, 0.5);
                LIST_CREATE_COST
                    + scaled(length, STRING_FACTOR)
                    + scaled(requirements, (LIST_CREATE_COST + 40) as f64)
            }
            CostRule::Equals if matches!(first, Some(Ok(Value::Extension(_)))) => 1,
            CostRule::Equals | CostRule::Smaller => scaled(size(first).min(size(second)), STRING_FACTOR),
            CostRule::SecondItems => size(second),
            CostRule::Sum => scaled(size(first).saturating_add(size(second)), STRING_FACTOR),
            CostRule::Flatten => {
                let depth = match second {
                    Some(Ok(Value::Int(depth))) => *depth as f64,
                    _ => 1.0,
                };
                ((plain_size(first) as f64 * depth) as u64).saturating_add(1 + LIST_CREATE_COST)
            }
            CostRule::SelfCompare(index) => self_compare_cost(operands.get(usize::from(index)), &self.work),
            CostRule::Sets { times } => {
                let product = plain_size(first).saturating_mul(plain_size(second));
                ((product as f64 * f64::from(times)) as u64).saturating_add(1)
            }
            // These are charged by their result. Before, the cost that the operands promise must be affordable.
            CostRule::JoinResult => {
                return self.require(scaled(joined_size(first, second), 2.0 * STRING_FACTOR));
            }
            CostRule::OutputList => {
                let promised = match first {
                    Some(Ok(Value::Int(size))) if *size <= MAX_RANGE => u64::try_from(*size).unwrap_or(0),
                    _ => 0,
                };
                return self.require(promised);
            }
        };
        self.charge(cost)
    }

    /// Charges a call by its result.
    pub(super) fn charge_result(&mut self, call: &Call, result: &Outcome<'a>) -> Result<(), Failure> {
        match call.cost {
            CostRule::JoinResult => {
                self.charge((plain_size(Some(result)) as f64 * 2.0 * STRING_FACTOR).ceil() as u64)
            }
            CostRule::OutputList => {
                self.charge(plain_size(Some(result)).saturating_add(1 + LIST_CREATE_COST))
            }
            _ => Ok(()),
        }
    }

    /// A look at all parts of a value. Ends at the limit, because the parts may be many.
    fn traversal_cost(&self, value: &Value<'a>) -> Result<u64, Failure> {
        let mut cost: u64 = 0;
        let mut pending = vec![value.clone()];
        while let Some(value) = pending.pop() {
            self.work.visits(2)?;
            match value {
                Value::String(text) => cost += (text.as_str().len() as f64 * STRING_FACTOR) as u64,
                Value::Bytes(bytes) => cost += (bytes.len() as f64 * STRING_FACTOR) as u64,
                Value::List(list) => {
                    for item in list.iter(&self.work) {
                        match item {
                            Ok(item) => pending.push(item),
                            Err(abort @ Failure::Abort(_)) => return Err(abort),
                            Err(_) => cost += 1,
                        }
                    }
                }
                Value::Map(map) => {
                    self.work.visits(map.len())?;
                    for key in map.keys() {
                        match map.find(&key, &self.work) {
                            Ok(Some(value)) => pending.push(value),
                            Err(abort @ Failure::Abort(_)) => return Err(abort),
                            _ => cost += 1,
                        }
                        pending.push(key);
                    }
                }
                _ => cost += 1,
            }
            self.require(cost)?;
        }
        Ok(cost)
    }
}

fn self_compare_cost(operand: Option<&Outcome<'_>>, work: &Work) -> u64 {
    let Some(Ok(Value::List(list))) = operand else {
        return 1 + LIST_CREATE_COST;
    };
    let size = list.len() as u64;
    let is_text = matches!(list.get(0, work), Some(Ok(Value::String(_) | Value::Bytes(_))));
    let factor = if is_text { 2.0 + STRING_FACTOR } else { 2.0 };
    ((size.saturating_mul(size) as f64 * factor) as u64).saturating_add(1 + LIST_CREATE_COST)
}

/// A lower bound of the size of joined texts, in bytes divided by the longest code point.
fn joined_size(list: Option<&Outcome<'_>>, separator: Option<&Outcome<'_>>) -> u64 {
    match (list, separator) {
        (Some(Ok(Value::List(list))), Some(Ok(Value::String(separator)))) => {
            (list.len() as u64).saturating_sub(1).saturating_mul(separator.size() as u64)
        }
        _ => 0,
    }
}
