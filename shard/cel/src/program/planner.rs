//! Makes programs of checked expressions: constants are evaluated, names become numbers, macros become loops.
//!
//! Which nodes are constants and which are attributes decides the costs, so both follow cel-go.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::check::{Checked, Declared, NAMED, Reference, overload_arguments};
use crate::evaluate::evaluate_constant;
use crate::library::Pattern;
use crate::limits::{LIST_CREATE_COST, MAX_TREE_DEPTH};
use crate::plan::{
    Attribute, Base, Call, ConstantSet, CostRule, Fold, FoldBody, Function, MapStep, NamedPlan, Node, Plan,
    Qualifier, QualifierKey,
};
use crate::syntax::{ACCUMULATOR, Comprehension, Expr, ExprId, Literal};
use crate::value::{List, Value};
use crate::work::Work;

/// Plans an expression.
///
/// # Errors
/// If a constant part cannot be evaluated, or named expressions are nested too deeply.
pub(super) fn plan(
    checked: &Checked,
    variables: &[Declared],
    named: &Arc<Vec<NamedPlan>>,
    pattern_budget: &mut usize,
) -> Result<Plan, String> {
    let mut planner = Planner {
        checked,
        variables,
        named,
        slots: 0,
        scopes: Vec::new(),
        used: FxHashSet::default(),
        pattern_budget,
    };
    let root = planner.node(checked.tree.root)?;
    let below = planner.used.iter().filter_map(|place| Some(named.get(*place)?.plan.depth)).max();
    let depth = checked.tree.depth() + below.unwrap_or(0);
    if depth > MAX_TREE_DEPTH {
        return Err("the expression and its variables are nested too deeply".to_owned());
    }
    Ok(Plan { root, slots: planner.slots, named: Arc::clone(named), depth })
}

struct Planner<'p> {
    checked: &'p Checked,
    variables: &'p [Declared],
    named: &'p [NamedPlan],
    /// The places of the named expressions that it uses.
    used: FxHashSet<usize>,
    slots: usize,
    /// Variables of comprehensions with their slots, the innermost last. Each variable has a slot of its own.
    scopes: Vec<(Arc<str>, usize)>,
    /// Bytes that further constant patterns may take.
    pattern_budget: &'p mut usize,
}

type Planned = Result<Node, String>;

impl Planner<'_> {
    fn node(&mut self, id: ExprId) -> Planned {
        let checked = self.checked;
        match checked.reference(id) {
            Some(Reference::Type(type_)) => {
                return Ok(Node::Constant(Value::Type(type_.runtime_name().into())));
            }
            Some(Reference::Variable(place)) if self.is_named(*place) => {
                return Err("variables can only be used as variables.<name>".to_owned());
            }
            Some(Reference::Variable(place)) => return Ok(attribute(Base::Variable(*place))),
            _ => {}
        }
        match checked.tree.get(id) {
            Expr::Literal(literal) => Ok(Node::Constant(constant(literal))),
            Expr::Ident(name) => self.ident(name),
            Expr::Select { operand, field, is_test } => {
                if let Some(Reference::Variable(place)) = checked.reference(*operand)
                    && self.is_named(*place)
                {
                    return self.named(field, *is_test);
                }
                let key = QualifierKey::Name((**field).into());
                let operand = self.node(*operand)?;
                Ok(qualify(operand, Qualifier { key, is_optional: false, is_test: *is_test }))
            }
            Expr::Call { function, target, arguments } => self.call(id, function, *target, arguments),
            Expr::List { elements, optional } => self.list(elements, optional),
            Expr::Map(_) => self.map(id),
            Expr::Struct { name, fields } => {
                let name = name.strip_prefix('.').unwrap_or(name).into();
                let fields = fields.iter();
                let fields = fields
                    .map(|field| Ok((Arc::clone(&field.name), self.node(field.value)?, field.is_optional)))
                    .collect::<Result<Box<[_]>, String>>()?;
                Ok(Node::Struct { name, fields })
            }
            Expr::Broken => Err("unsupported expression".to_owned()),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    /// Whether a variable of the environment is `variables`.
    fn is_named(&self, place: usize) -> bool {
        !self.named.is_empty() && self.variables.get(place).is_some_and(|declared| *declared.name == *NAMED)
    }

    fn named(&mut self, name: &str, is_test: bool) -> Planned {
        if is_test {
            return Ok(Node::Constant(Value::Bool(true)));
        }
        let place = self.named.iter().rposition(|named| *named.name == *name);
        let place = place.ok_or_else(|| format!("undeclared variable: {name}"))?;
        self.used.insert(place);
        let base = Base::Named(place);
        Ok(Node::Attribute(Box::new(Attribute { base, qualifiers: Vec::new(), own_cost: 2 })))
    }

    fn ident(&self, name: &str) -> Planned {
        let local = self.scopes.iter().rev().find(|(local, _)| **local == *name);
        if let Some((_, slot)) = local {
            return Ok(attribute(Base::Local(*slot)));
        }
        let place = self.variables.iter().position(|declared| *declared.name == *name);
        place
            .map(|place| attribute(Base::Variable(place)))
            .ok_or_else(|| format!("undeclared variable: {name}"))
    }

    fn call(&mut self, id: ExprId, name: &str, target: Option<ExprId>, arguments: &[ExprId]) -> Planned {
        let call = self.checked.call(id);
        let (name, is_namespaced) = call.map_or((name, false), |call| (&*call.function, call.is_namespaced));
        let overload = match call.map(|call| call.overloads.as_slice()) {
            Some([overload]) => &**overload,
            _ => "",
        };
        let target = target.filter(|_| !is_namespaced);
        let mut operands = Vec::with_capacity(arguments.len() + 1);
        for operand in target.iter().chain(arguments) {
            operands.push(self.node(*operand)?);
        }
        match (name, operands.len()) {
            ("_&&_", 2) => return pair(operands).map(Node::And),
            ("_||_", 2) => return pair(operands).map(Node::Or),
            ("or", 2) => return pair(operands).map(Node::OptionalOr),
            ("orValue", 2) => return pair(operands).map(Node::OptionalOrValue),
            ("_?_:_", 3) => return conditional(operands),
            ("_[_]" | "_[?_]" | "_?._", 2) => {
                let is_optional = name != "_[_]";
                let [operand, index] = two(operands)?;
                let key = index_key(index)?;
                return Ok(qualify(operand, Qualifier { key, is_optional, is_test: false }));
            }
            ("@in", 2) if overload == "in_list" => return Ok(membership(two(operands)?, name)),
            _ => {}
        }
        let function = Function::named(name).ok_or_else(|| format!("no such overload: {name}"))?;
        let mut call = Call {
            function,
            name: name.into(),
            overload: overload.into(),
            cost: CostRule::of(name, overload),
            is_variadic: operands.len() > 2
                || matches!(function, Function::Format)
                || (overload.is_empty() && !function.is_unguarded()),
            arguments: operands.into(),
            guard: None,
            pattern: None,
        };
        let operand_ids: Vec<ExprId> = target.iter().chain(arguments).copied().collect();
        if !function.is_unguarded() && operand_ids.iter().any(|operand| self.checked.is_dynamic(*operand)) {
            call.guard = overload_arguments(overload);
        }
        if function.is_conversion() && matches!(&*call.arguments, [Node::Constant(_)]) {
            return evaluate_constant(&Node::Call(Box::new(call))).map(Node::Constant);
        }
        if function.has_pattern()
            && let Some(Node::Constant(Value::String(pattern))) = call.arguments.get(1)
        {
            call.pattern = Some(Pattern::within(pattern.as_str(), self.pattern_budget)?);
            call.is_variadic = true;
        }
        Ok(Node::Call(Box::new(call)))
    }

    fn list(&mut self, elements: &[ExprId], optional: &[bool]) -> Planned {
        let elements = elements.iter().map(|id| self.node(*id)).collect::<Result<Box<[Node]>, _>>()?;
        let is_constant = elements.iter().all(|element| matches!(element, Node::Constant(_)));
        let list = Node::List { elements, optional: optional.into() };
        if is_constant { evaluate_constant(&list).map(Node::Constant) } else { Ok(list) }
    }

    fn map(&mut self, id: ExprId) -> Planned {
        let checked = self.checked;
        let Expr::Map(entries) = checked.tree.get(id) else {
            return Err("unsupported expression".to_owned());
        };
        let mut planned = Vec::with_capacity(entries.len());
        for entry in entries {
            planned.push((self.node(entry.key)?, self.node(entry.value)?, entry.is_optional));
        }
        let is_constant = planned
            .iter()
            .all(|(key, value, _)| matches!((key, value), (Node::Constant(_), Node::Constant(_))));
        let map = Node::Map(planned.into());
        if is_constant { evaluate_constant(&map).map(Node::Constant) } else { Ok(map) }
    }

    fn new_slot(&mut self, name: &Arc<str>) -> usize {
        let slot = self.slots;
        self.slots += 1;
        self.scopes.push((Arc::clone(name), slot));
        slot
    }

    fn comprehension(&mut self, comprehension: &Comprehension) -> Planned {
        let depth = self.scopes.len();
        if *comprehension.accumulator != *ACCUMULATOR {
            let value = Box::new(self.node(comprehension.initial)?);
            let slot = self.new_slot(&comprehension.accumulator);
            let body = Box::new(self.node(comprehension.result)?);
            self.scopes.truncate(depth);
            return Ok(Node::Bind { slot, value, body });
        }
        let range = self.node(comprehension.range)?;
        let slot = self.new_slot(&comprehension.variable);
        let second_slot = comprehension.second_variable.as_ref().map(|name| self.new_slot(name));
        let body = self.body(comprehension)?;
        self.scopes.truncate(depth);
        Ok(Node::Fold(Box::new(Fold { range, slot, second_slot, body })))
    }

    /// The loop of a macro, recognised by the form of its step.
    fn body(&mut self, comprehension: &Comprehension) -> Result<FoldBody, String> {
        let unknown = || "unsupported comprehension".to_owned();
        let tree = &self.checked.tree;
        let parts = |id: ExprId| match tree.get(id) {
            Expr::Call { function, arguments, .. } => Some((&**function, arguments.as_slice())),
            _ => None,
        };
        let (function, arguments) = parts(comprehension.step).ok_or_else(unknown)?;
        let (filter, step) = match (function, arguments) {
            ("_&&_", [_, predicate]) => return Ok(FoldBody::All(self.node(*predicate)?)),
            ("_||_", [_, predicate]) => return Ok(FoldBody::Exists(self.node(*predicate)?)),
            ("_?_:_", [predicate, ..]) if tree.literal(comprehension.initial) == Some(&Literal::Int(0)) => {
                return Ok(FoldBody::ExistsOne(self.node(*predicate)?));
            }
            ("_?_:_", [filter, step, _]) => (Some(self.node(*filter)?), parts(*step).ok_or_else(unknown)?),
            _ => (None, (function, arguments)),
        };
        match step {
            ("_+_", [_, addition]) => {
                let Expr::List { elements, .. } = tree.get(*addition) else {
                    return Err(unknown());
                };
                let element = self.node(*elements.first().ok_or_else(unknown)?)?;
                let list_cost = if matches!(element, Node::Constant(_)) { 0 } else { LIST_CREATE_COST };
                Ok(FoldBody::List { filter, element, list_cost })
            }
            ("cel.@mapInsert", [_, _, value]) => {
                Ok(FoldBody::Map { filter, step: MapStep::Value(self.node(*value)?) })
            }
            ("cel.@mapInsert", [_, entries]) => {
                Ok(FoldBody::Map { filter, step: MapStep::Entries(self.node(*entries)?) })
            }
            _ => Err(unknown()),
        }
    }
}

fn constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::text(Arc::clone(text)),
        Literal::Bytes(bytes) => Value::Bytes(Arc::clone(bytes)),
    }
}

fn attribute(base: Base) -> Node {
    Node::Attribute(Box::new(Attribute { base, qualifiers: Vec::new(), own_cost: 1 }))
}

fn two(operands: Vec<Node>) -> Result<[Node; 2], String> {
    operands.try_into().map_err(|_| "wrong number of operands".to_owned())
}

fn pair(operands: Vec<Node>) -> Result<Box<[Node; 2]>, String> {
    two(operands).map(Box::new)
}

/// Adds a step to a value. An attribute gets longer; other values become the base of one.
fn qualify(operand: Node, qualifier: Qualifier) -> Node {
    let mut attribute = match operand {
        Node::Attribute(attribute) => attribute,
        other => Box::new(Attribute { base: Base::Expression(other), qualifiers: Vec::new(), own_cost: 1 }),
    };
    // The presence test costs nothing, but the step is charged.
    if qualifier.is_test {
        attribute.own_cost -= 1;
    }
    attribute.qualifiers.push(qualifier);
    Node::Attribute(attribute)
}

/// A branch of a ternary, or an index: attributes there cost their steps only.
fn unwrapped(node: Node) -> Attribute {
    match node {
        Node::Attribute(attribute) => Attribute { own_cost: 0, ..*attribute },
        other => Attribute { base: Base::Expression(other), qualifiers: Vec::new(), own_cost: 0 },
    }
}

fn conditional(operands: Vec<Node>) -> Planned {
    let [condition, if_true, if_false]: [Node; 3] =
        operands.try_into().map_err(|_| "wrong number of operands".to_owned())?;
    let branches = Box::new([unwrapped(if_true), unwrapped(if_false)]);
    let base = Base::Conditional { condition: Box::new(condition), branches };
    Ok(Node::Attribute(Box::new(Attribute { base, qualifiers: Vec::new(), own_cost: 0 })))
}

fn index_key(index: Node) -> Result<QualifierKey, String> {
    Ok(match index {
        Node::Constant(
            value @ (Value::String(_) | Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Double(_)),
        ) => QualifierKey::Constant(value),
        Node::Constant(other) => return Err(format!("invalid qualifier type: {}", other.type_name())),
        Node::Attribute(attribute) => {
            QualifierKey::Expression(Node::Attribute(Box::new(Attribute { own_cost: 0, ..*attribute })))
        }
        other => QualifierKey::Expression(other),
    })
}

/// `in` with a list. A constant list of simple values is a set, and an empty one has no members.
fn membership([operand, list]: [Node; 2], name: &str) -> Node {
    if let Node::Constant(Value::List(list)) = &list {
        if list.is_empty() {
            return Node::Constant(Value::Bool(false));
        }
        if let Some(set) = constant_set(list) {
            return Node::InSet { operand: Box::new(operand), set: Box::new(set) };
        }
    }
    Node::Call(Box::new(Call {
        function: Function::In,
        name: name.into(),
        overload: "in_list".into(),
        guard: None,
        arguments: Box::new([operand, list]),
        cost: CostRule::of(name, "in_list"),
        is_variadic: false,
        pattern: None,
    }))
}

fn constant_set(list: &List<'static>) -> Option<ConstantSet> {
    let values = list.values(&Work::default()).ok()?;
    let is_simple = |value: &Value<'_>| {
        matches!(value, Value::Bool(_) | Value::Double(_) | Value::Int(_) | Value::Uint(_) | Value::String(_))
    };
    if !values.iter().all(is_simple) {
        return None;
    }
    let texts: Option<_> = values.iter().map(|value| value.as_str().map(Box::from)).collect();
    Some(texts.map_or(ConstantSet::Values(values), ConstantSet::Texts))
}
