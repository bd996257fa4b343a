//! Values with selections and indexes.

use super::Evaluator;
use crate::failure::Failure;
use crate::limits::SELECT_COST;
use crate::plan::{Attribute, Base, Node, Qualifier, QualifierKey};
use crate::value::{Outcome, Value};
use crate::work::Work;

impl<'a> Evaluator<'a> {
    pub(super) fn attribute(&mut self, attribute: &'a Attribute) -> Outcome<'a> {
        let result = self.resolve(attribute);
        if matches!(result, Err(Failure::Abort(_))) {
            return result;
        }
        match attribute.own_cost {
            0 => {}
            cost if cost > 0 => self.charge(u64::from(cost.unsigned_abs()) * SELECT_COST)?,
            _ => self.cost = self.cost.saturating_sub(SELECT_COST),
        }
        result
    }

    /// The value without the cost of the attribute itself.
    fn resolve(&mut self, attribute: &'a Attribute) -> Outcome<'a> {
        let base = match &attribute.base {
            Base::Variable(place) => match self.inputs {
                Some(inputs) => inputs.get(*place)?,
                None => return Err(Failure::error("no such attribute(s)")),
            },
            Base::Local(slot) => self.local(*slot)?,
            Base::Named(place) => self.named_value(*place)?,
            Base::Expression(node) => self.node(node)?,
            Base::Conditional { condition, branches } => match self.node(condition)? {
                Value::Bool(true) => self.resolve(&branches[0])?,
                Value::Bool(false) => self.resolve(&branches[1])?,
                _ => return Err(Failure::no_such_overload()),
            },
        };
        if attribute.qualifiers.is_empty() {
            return Ok(base);
        }
        let (mut value, mut is_optional) = match base {
            Value::Optional(None) => {
                let is_test = attribute.qualifiers.last().is_some_and(|last| last.is_test);
                return Ok(if is_test { Value::Bool(false) } else { Value::NONE });
            }
            Value::Optional(Some(value)) => ((*value).clone(), true),
            value => (value, false),
        };
        for qualifier in &attribute.qualifiers {
            is_optional |= qualifier.is_optional;
            if qualifier.is_test {
                let present = self.select(&value, qualifier, true);
                match present {
                    Err(Failure::Abort(_)) => {}
                    Ok(None) if is_optional => {}
                    _ => self.charge(SELECT_COST)?,
                }
                return Ok(Value::Bool(present?.is_some()));
            }
            let selected = self.select(&value, qualifier, is_optional);
            match selected {
                Ok(Some(selected)) => {
                    self.charge(SELECT_COST)?;
                    value = selected;
                }
                Ok(None) => return Ok(Value::NONE),
                Err(error @ Failure::Error(_)) => {
                    // A failed step is charged, unless it is optional.
                    if !is_optional {
                        self.charge(SELECT_COST)?;
                    }
                    return Err(error);
                }
                Err(abort) => return Err(abort),
            }
        }
        Ok(if is_optional { Value::optional(value) } else { value })
    }

    /// A part of a value; `None` if it is absent and that is no error.
    fn select(
        &mut self,
        value: &Value<'a>,
        qualifier: &'a Qualifier,
        is_lenient: bool,
    ) -> Result<Option<Value<'a>>, Failure> {
        match &qualifier.key {
            QualifierKey::Name(name) => {
                let found = match value {
                    Value::Map(map) => map.find_text(name, &self.work)?,
                    Value::Object(object) => {
                        self.work.charge(object.len() as u64 * 2)?;
                        if is_lenient { object.get(name).cloned() } else { Some(object.select(name)) }
                    }
                    Value::List(_) => {
                        return Err(Failure::error("unsupported index type 'string' in list"));
                    }
                    _ => None,
                };
                match found {
                    None if !is_lenient => Err(Failure::error(format!("no such key: {name}"))),
                    found => Ok(found),
                }
            }
            QualifierKey::Constant(key) => select_by(value, key, is_lenient, &self.work),
            QualifierKey::Expression(node) => {
                let key = self.index(node)?;
                let is_key = matches!(
                    key,
                    Value::String(_) | Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Double(_)
                );
                if !is_key {
                    return Err(Failure::error(format!("invalid qualifier type: {}", key.type_name())));
                }
                select_by(value, &key, is_lenient, &self.work)
            }
        }
    }

    fn index(&mut self, node: &'a Node) -> Outcome<'a> {
        match node {
            Node::Attribute(attribute) => self.resolve(attribute),
            other => self.node(other),
        }
    }
}

fn select_by<'a>(
    value: &Value<'a>,
    key: &Value<'a>,
    is_lenient: bool,
    work: &Work,
) -> Result<Option<Value<'a>>, Failure> {
    let absent = |fault: &str| {
        if is_lenient { Ok(None) } else { Err(Failure::error(format!("{fault}: {key}"))) }
    };
    match value {
        Value::Map(map) => match map.find(key, work)? {
            Some(found) => Ok(Some(found)),
            None => absent("no such key"),
        },
        Value::List(list) => {
            let index = match key {
                Value::Int(index) => usize::try_from(*index).ok(),
                Value::Uint(index) => usize::try_from(*index).ok(),
                Value::Double(index) if index.fract() == 0.0 && index.abs() < 9e15 => {
                    if *index < 0.0 {
                        None
                    } else {
                        Some(*index as usize)
                    }
                }
                Value::Double(_) => {
                    return Err(Failure::error(format!("unsupported index value {key} in list")));
                }
                other => {
                    let message = format!("unsupported index type '{}' in list", other.type_name());
                    return Err(Failure::error(message));
                }
            };
            match index.and_then(|index| list.get(index, work)) {
                Some(item) => item.map(Some),
                None => absent("index out of bounds"),
            }
        }
        _ => absent("no such key"),
    }
}
