//! Evaluates programs over borrowed JSON, and charges each operation.

mod attribute;
mod budget;
mod call;
mod charge;
mod extension;
mod fold;
mod inputs;
mod named;
mod overload;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use rustc_hash::FxHashMap;

pub use budget::{Budget, Evaluation};
pub use inputs::Inputs;
pub(crate) use named::NamedValues;

use crate::failure::{Abort, Failure};
use crate::library::Pattern;
use crate::limits::{
    DEADLINE_CHECK_INTERVAL, MAX_COMPILED_PATTERNS, MAX_MATCH_WORK, MAX_VALUE_DEPTH, NODE_WORK,
};
use crate::plan::{ConstantSet, NamedPlan, Node, Plan};
use crate::value::{Object, Outcome, OwnedMap, Value, is_equal};
use crate::work::Work;

/// Evaluates an expression and charges its cost, and that of named expressions, to a budget.
pub(crate) fn evaluate<'a>(
    plan: &'a Plan,
    inputs: &'a Inputs<'a>,
    named: &mut NamedValues<'a>,
    budget: &mut Budget,
) -> Evaluation<'a> {
    let mut evaluator = Evaluator {
        inputs: Some(inputs),
        named_plans: &plan.named,
        named: std::mem::take(named),
        remaining: budget.remaining(),
        slots: Vec::new(),
        cost: 0,
        limit: budget.call_limit(),
        deadline: budget.deadline(),
        steps: 0,
        patterns: FxHashMap::default(),
        pattern_budget: MAX_COMPILED_PATTERNS,
        match_work: budget.match_work,
        work: budget.new_work(),
    };
    evaluator.slots.resize_with(plan.slots, || Slot::Empty);
    let result = evaluator.node(&plan.root);
    let cost = evaluator.cost.saturating_add(evaluator.named.take_cost());
    *named = evaluator.named;
    budget.match_work = evaluator.match_work;
    budget.work = evaluator.work.remaining();
    budget.settle(cost, result)
}

/// Evaluates a constant part of an expression.
pub(crate) fn evaluate_constant(node: &Node) -> Result<Value<'static>, String> {
    let mut evaluator = Evaluator {
        inputs: None,
        named_plans: &[],
        named: NamedValues::default(),
        remaining: u64::MAX,
        slots: Vec::new(),
        cost: 0,
        limit: u64::MAX,
        deadline: None,
        steps: 0,
        patterns: FxHashMap::default(),
        pattern_budget: MAX_COMPILED_PATTERNS,
        match_work: MAX_MATCH_WORK,
        work: Work::default(),
    };
    let value = evaluator.node(node).map_err(|failure| failure.to_string())?;
    into_static(value).ok_or_else(|| "the value is not constant".to_owned())
}

/// A constant refers to nothing of the input, but its type does not say so.
fn into_static(value: Value<'_>) -> Option<Value<'static>> {
    Some(match value {
        Value::Null => Value::Null,
        Value::Bool(value) => Value::Bool(value),
        Value::Int(value) => Value::Int(value),
        Value::Uint(value) => Value::Uint(value),
        Value::Double(value) => Value::Double(value),
        Value::String(text) => Value::text(text.as_str()),
        Value::Bytes(bytes) => Value::Bytes(bytes),
        Value::Duration(duration) => Value::Duration(duration),
        Value::Timestamp(timestamp) => Value::Timestamp(timestamp),
        Value::List(list) => {
            let values = list.values(&Work::unlimited()).ok()?;
            Value::list(values.into_iter().map(into_static).collect::<Option<_>>()?)
        }
        Value::Map(map) => {
            let mut owned = OwnedMap::default();
            for key in map.keys() {
                let value = map.find(&key, &Work::unlimited()).ok()??;
                owned.insert(into_static(key)?, into_static(value)?);
            }
            Value::Map(crate::value::Map::Owned(owned.into()))
        }
        Value::Optional(None) => Value::NONE,
        Value::Optional(Some(value)) => Value::optional(into_static((*value).clone())?),
        Value::Type(name) => Value::Type(name),
        Value::Extension(extension) => Value::Extension(extension),
        Value::Preserved(_) | Value::Object(_) => return None,
    })
}

/// Charges an entry of a new map, which keeps a copy of its key.
fn charge_entry(key: &Value<'_>, work: &Work) -> Result<(), Failure> {
    work.items(2)?;
    work.produce(key.text_size())
}

/// A variable of a comprehension.
enum Slot<'a> {
    Empty,
    /// Evaluated at the first use.
    Lazy(&'a Node),
    Value(Outcome<'a>),
}

/// The state of an evaluation.
struct Evaluator<'a> {
    inputs: Option<&'a Inputs<'a>>,
    named_plans: &'a [NamedPlan],
    named: NamedValues<'a>,
    /// What the budget has left.
    remaining: u64,
    slots: Vec<Slot<'a>>,
    cost: u64,
    limit: u64,
    deadline: Option<Instant>,
    steps: u32,
    /// Patterns that are not constant.
    patterns: FxHashMap<Box<str>, Result<Pattern, Box<str>>>,
    /// Bytes that further ones of them may take.
    pattern_budget: usize,
    /// The work that further matches may cause.
    match_work: u64,
    /// Other work that the cost does not cover.
    work: Work,
}

impl<'a> Evaluator<'a> {
    fn charge_match(&mut self, pattern: &Pattern, length: usize) -> Result<(), Failure> {
        let left =
            self.match_work.checked_sub(pattern.work(length)).ok_or(Failure::Abort(Abort::CostLimit))?;
        self.match_work = left;
        Ok(())
    }

    fn charge(&mut self, cost: u64) -> Result<(), Failure> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(Failure::Abort(Abort::CostLimit)) } else { Ok(()) }
    }

    /// Fails if a cost would exceed the limit, without charging it: before work whose cost is known only afterwards.
    fn require(&self, cost: u64) -> Result<(), Failure> {
        if self.cost.saturating_add(cost) > self.limit {
            Err(Failure::Abort(Abort::CostLimit))
        } else {
            Ok(())
        }
    }

    /// Counts a step of a loop and looks at the clock from time to time.
    fn step(&mut self) -> Result<(), Failure> {
        self.steps = self.steps.wrapping_add(1);
        if let Some(deadline) = self.deadline
            && self.steps.is_multiple_of(DEADLINE_CHECK_INTERVAL)
            && Instant::now() >= deadline
        {
            return Err(Failure::Abort(Abort::Deadline));
        }
        Ok(())
    }

    fn node(&mut self, node: &'a Node) -> Outcome<'a> {
        self.work.charge(NODE_WORK)?;
        let result = self.operation(node);
        match &result {
            Ok(value) if value.depth() > MAX_VALUE_DEPTH => Err(Failure::too_large()),
            // Errors may contain texts, and are copied.
            Err(Failure::Error(Cow::Owned(message))) => {
                self.work.produce(message.len())?;
                result
            }
            _ => result,
        }
    }

    fn operation(&mut self, node: &'a Node) -> Outcome<'a> {
        match node {
            Node::Constant(value) => Ok(value.clone()),
            Node::Attribute(attribute) => self.attribute(attribute),
            Node::And(terms) => self.logical(terms, false),
            Node::Or(terms) => self.logical(terms, true),
            Node::Call(call) => self.call(call),
            Node::List { elements, optional } => {
                let list = self.list(elements, optional);
                self.charge_constructor(crate::limits::LIST_CREATE_COST, list)
            }
            Node::Map(entries) => {
                let map = self.map(entries);
                self.charge_constructor(crate::limits::MAP_CREATE_COST, map)
            }
            Node::Struct { name, fields } => {
                let object = self.structure(name, fields);
                self.charge_constructor(crate::limits::STRUCT_CREATE_COST, object)
            }
            Node::Fold(fold) => self.fold(fold),
            Node::Bind { slot, value, body } => {
                self.set_slot(*slot, Slot::Lazy(value));
                self.node(body)
            }
            Node::InSet { operand, set } => {
                let value = self.node(operand)?;
                Ok(Value::Bool(match &**set {
                    ConstantSet::Texts(texts) => {
                        self.work.read(value.text_size())?;
                        value.as_str().is_some_and(|text| texts.contains(text))
                    }
                    ConstantSet::Values(values) => {
                        for member in values {
                            if is_equal(&value, member, &self.work)? {
                                return Ok(Value::Bool(true));
                            }
                        }
                        false
                    }
                }))
            }
            Node::OptionalOr(terms) => match self.node(&terms[0])? {
                Value::Optional(None) => self.node(&terms[1]),
                value @ Value::Optional(_) => Ok(value),
                _ => Err(Failure::no_such_overload()),
            },
            Node::OptionalOrValue(terms) => match self.node(&terms[0])? {
                Value::Optional(None) => self.node(&terms[1]),
                Value::Optional(Some(value)) => Ok((*value).clone()),
                _ => Err(Failure::no_such_overload()),
            },
        }
    }

    /// Charges for a list or map. Failed ones are charged, too; aborted evaluations are not.
    fn charge_constructor(&mut self, cost: u64, result: Outcome<'a>) -> Outcome<'a> {
        if !matches!(result, Err(Failure::Abort(_))) {
            self.charge(cost)?;
        }
        result
    }

    /// `&&` and `||`: one term decides, and then errors of the other one do not matter.
    fn logical(&mut self, terms: &'a [Node; 2], decisive: bool) -> Outcome<'a> {
        let mut failure = None;
        for term in terms {
            match self.node(term) {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => {
                    failure.get_or_insert_with(Failure::no_such_overload);
                }
                Err(abort @ Failure::Abort(_)) => return Err(abort),
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        failure.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn list(&mut self, elements: &'a [Node], optional: &[bool]) -> Outcome<'a> {
        self.work.items(elements.len())?;
        let mut values = Vec::with_capacity(elements.len());
        for (element, is_optional) in elements.iter().zip(optional) {
            let value = self.node(element)?;
            match (is_optional, value) {
                (false, value) => values.push(value),
                (true, Value::Optional(None)) => {}
                (true, Value::Optional(Some(value))) => values.push((*value).clone()),
                (true, other) => {
                    return Err(Failure::error(format!(
                        "cannot initialize optional list element from non-optional value {other}"
                    )));
                }
            }
        }
        Ok(Value::list(values))
    }

    fn map(&mut self, entries: &'a [(Node, Node, bool)]) -> Outcome<'a> {
        let mut map = OwnedMap::default();
        for (key, value, is_optional) in entries {
            let key = self.node(key)?;
            let value = self.node(value)?;
            charge_entry(&key, &self.work)?;
            match (is_optional, value) {
                (false, value) => map.insert(key, value),
                (true, Value::Optional(None)) => {
                    self.work.charge(map.len() as u64)?;
                    map.remove(&key);
                }
                (true, Value::Optional(Some(value))) => map.insert(key, (*value).clone()),
                (true, other) => {
                    return Err(Failure::error(format!(
                        "cannot initialize optional entry '{key}' from non-optional value {other}"
                    )));
                }
            }
        }
        Ok(Value::Map(crate::value::Map::Owned(map.into())))
    }

    fn structure(&mut self, name: &Arc<str>, fields: &'a [(Arc<str>, Node, bool)]) -> Outcome<'a> {
        let mut object = Object::new(Arc::clone(name));
        for (field, value, is_optional) in fields {
            match (is_optional, self.node(value)?) {
                (false, value) => object.set(Arc::clone(field), value, &self.work)?,
                (true, Value::Optional(None)) => {}
                (true, Value::Optional(Some(value))) => {
                    object.set(Arc::clone(field), (*value).clone(), &self.work)?;
                }
                (true, other) => {
                    return Err(Failure::error(format!(
                        "cannot initialize optional entry '{field}' from non-optional value {other}"
                    )));
                }
            }
        }
        Ok(Value::Object(Arc::new(object)))
    }

    fn set_slot(&mut self, slot: usize, value: Slot<'a>) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = value;
        }
    }

    fn local(&mut self, slot: usize) -> Outcome<'a> {
        match self.slots.get(slot) {
            Some(Slot::Value(value)) => value.clone(),
            Some(Slot::Lazy(node)) => {
                let node = *node;
                let value = match self.node(node) {
                    // An empty list or map becomes one of the expression, which `optional.ofNonZeroValue` sees.
                    Ok(Value::List(list)) if list.is_empty() => Ok(Value::list(Vec::new())),
                    Ok(Value::Map(map)) if map.is_empty() => {
                        Ok(Value::Map(crate::value::Map::Owned(OwnedMap::default().into())))
                    }
                    value => value,
                };
                if !matches!(value, Err(Failure::Abort(_))) {
                    self.set_slot(slot, Slot::Value(value.clone()));
                }
                value
            }
            _ => Err(Failure::error("no such attribute(s)")),
        }
    }

    /// A pattern that is not constant. Compiling costs more than what Kubernetes charges for it, so the
    /// size of all is limited.
    fn pattern(&mut self, source: &str) -> Result<Pattern, Failure> {
        if let Some(known) = self.patterns.get(source) {
            return known.clone().map_err(|message| Failure::error(String::from(message)));
        }
        let compiled = Pattern::within(source, &mut self.pattern_budget).map_err(String::into_boxed_str);
        if self.pattern_budget == 0 {
            return Err(Failure::Abort(Abort::CostLimit));
        }
        self.patterns.insert(source.into(), compiled.clone());
        compiled.map_err(|message| Failure::error(String::from(message)))
    }
}
