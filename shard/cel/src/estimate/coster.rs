//! Walks the tree and adds up costs.

use std::sync::Arc;

use super::calls::{Operand, call_estimate};
use super::size::{CostEstimate, Size};
use crate::check::Checked;
use crate::limits::{LIST_CREATE_COST, MAP_CREATE_COST, SELECT_COST, STRUCT_CREATE_COST};
use crate::syntax::{ACCUMULATOR, Comprehension, Expr, ExprId, Literal};
use crate::types::{DeclKind, DeclType, FieldType, Type};

/// The cost of a checked expression. `root` is the declaration of the variable that all paths begin with, as in rules of
/// CRDs; without one, sizes of the input are unknown.
pub(crate) fn estimate(checked: &Checked, root: Option<&DeclType>) -> CostEstimate {
    let size = checked.tree.len();
    let mut coster = Coster {
        checked,
        root,
        paths: vec![Path::None; size],
        sizes: vec![None; size],
        entries: vec![None; size],
        locals: Vec::new(),
    };
    coster.cost(checked.tree.root)
}

/// The declaration of a value within the input.
#[derive(Clone, Copy, Debug)]
pub(super) enum Path<'d> {
    /// The value does not come from a declaration.
    None,
    /// The path leads to a declaration, or to nothing.
    To(Option<&'d DeclType>),
}

#[derive(Clone, Copy)]
enum Step<'s> {
    Items,
    Values,
    Keys,
    Indices,
    Field(&'s str),
}

/// Sizes of the entries of a list or map.
#[derive(Clone, Copy)]
struct Entries {
    is_list: bool,
    key: Size,
    value: Size,
}

#[derive(Clone)]
struct Local<'d> {
    name: Arc<str>,
    path: Path<'d>,
    size: Option<Size>,
    entries: Option<Entries>,
}

struct Coster<'c> {
    checked: &'c Checked,
    root: Option<&'c DeclType>,
    paths: Vec<Path<'c>>,
    sizes: Vec<Option<Size>>,
    entries: Vec<Option<Entries>>,
    locals: Vec<Local<'c>>,
}

impl<'c> Coster<'c> {
    fn cost(&mut self, id: ExprId) -> CostEstimate {
        let checked = self.checked;
        match checked.tree.get(id) {
            Expr::Literal(_) | Expr::Broken => CostEstimate::default(),
            Expr::Struct { fields, .. } => {
                let sum = fields.iter().map(|field| self.cost(field.value));
                sum.fold(CostEstimate::fixed(STRUCT_CREATE_COST), CostEstimate::add)
            }
            Expr::Ident(name) => {
                let path = self.local(name).map_or(Path::To(self.root), |local| local.path);
                self.set_path(id, path);
                CostEstimate::fixed(SELECT_COST)
            }
            Expr::Select { operand, field, is_test } => self.select(id, *operand, field, *is_test),
            Expr::Call { function, target, arguments } => self.call(id, function, *target, arguments),
            Expr::List { elements, .. } => {
                let mut sum = CostEstimate::default();
                let mut item = empty_size(elements.is_empty());
                for element in elements {
                    sum = sum.add(self.cost(*element));
                    item = item.union(self.size_or_unknown(*element));
                }
                self.set_entries(id, Some(Entries { is_list: true, key: Size::fixed(1), value: item }));
                sum.add(CostEstimate::fixed(LIST_CREATE_COST))
            }
            Expr::Map(entries) => {
                let mut sum = CostEstimate::default();
                let (mut key, mut value) = (empty_size(entries.is_empty()), empty_size(entries.is_empty()));
                for entry in entries {
                    sum = sum.add(self.cost(entry.key)).add(self.cost(entry.value));
                    key = key.union(self.size_or_unknown(entry.key));
                    value = value.union(self.size_or_unknown(entry.value));
                }
                self.set_entries(id, Some(Entries { is_list: false, key, value }));
                sum.add(CostEstimate::fixed(MAP_CREATE_COST))
            }
            Expr::Comprehension(comprehension) if is_local_variable(checked, comprehension) => {
                self.local_variable(id, comprehension)
            }
            Expr::Comprehension(comprehension) => self.comprehension(id, comprehension),
        }
    }

    fn select(&mut self, id: ExprId, operand: ExprId, field: &'c str, is_test: bool) -> CostEstimate {
        // A type with dots in its name is one value.
        if self.checked.reference(id).is_some() {
            self.set_path(id, Path::To(self.root));
            return CostEstimate::fixed(SELECT_COST);
        }
        let mut sum = self.cost(operand);
        if is_test {
            return sum;
        }
        if matches!(self.checked.type_of(operand), Type::Map(_) | Type::Object(_)) {
            sum = sum.add(CostEstimate::fixed(SELECT_COST));
        }
        let path = self.extend(self.path(operand), Step::Field(field));
        self.set_path(id, path);
        sum
    }

    fn call(
        &mut self,
        id: ExprId,
        function: &str,
        target: Option<ExprId>,
        arguments: &[ExprId],
    ) -> CostEstimate {
        let checked = self.checked;
        if function == "dyn"
            && let [argument] = arguments
        {
            let cost = self.cost(*argument);
            self.copy_sizes(id, *argument);
            return cost.add(CostEstimate::fixed(1));
        }
        let mut costs = Vec::with_capacity(arguments.len());
        let mut operands = Vec::with_capacity(arguments.len());
        for argument in arguments {
            costs.push(self.cost(*argument));
            operands.push(self.operand(*argument));
        }
        let Some(call) = checked.call(id) else {
            return CostEstimate::default();
        };
        let mut sum = CostEstimate::default();
        let target = target.filter(|_| !call.is_namespaced);
        let target = target.map(|target| {
            sum = self.cost(target);
            self.operand(target)
        });
        let mut total = CostEstimate { min: u64::MAX, max: 0 };
        let mut result_size: Option<Size> = None;
        for overload in &call.overloads {
            let (cost, size) =
                self.overload(id, &call.function, overload, target.as_ref(), &operands, &costs);
            total = total.union(cost);
            if let Some(size) = size {
                result_size = Some(result_size.map_or(size, |known| known.union(size)));
            }
            let step = match &**overload {
                "index_list" => Some(Step::Items),
                "index_map" => Some(Step::Values),
                _ => None,
            };
            if let (Some(step), Some(container)) = (step, arguments.first()) {
                result_size = self.entries_of(*container).map(|entries| entries.value);
                let path = self.extend(self.path(*container), step);
                self.set_path(id, path);
            }
            result_size = result_size.or_else(|| self.size(id));
        }
        self.set_size(id, result_size);
        sum.add(total)
    }

    /// The cost of one overload with its arguments, and the size of its result.
    fn overload(
        &mut self,
        id: ExprId,
        function: &str,
        overload: &str,
        target: Option<&Operand<'c>>,
        operands: &[Operand<'c>],
        costs: &[CostEstimate],
    ) -> (CostEstimate, Option<Size>) {
        match (overload, operands, costs) {
            ("logical_and" | "logical_or", _, [left, right]) => {
                (CostEstimate { min: left.min, max: left.add(*right).max }, None)
            }
            ("conditional", [_, if_true, if_false], [condition, true_cost, false_cost]) => {
                let entries = union_of_entries(self.entries_of(if_true.id), self.entries_of(if_false.id));
                self.set_entries(id, entries);
                let size = if_true.size_or_unknown().union(if_false.size_or_unknown());
                (condition.add(true_cost.union(*false_cost)), Some(size))
            }
            _ => {
                if matches!(overload, "add_string" | "add_bytes" | "add_list")
                    && let [left, right] = operands
                {
                    let entries = union_of_entries(self.entries_of(left.id), self.entries_of(right.id));
                    self.set_entries(id, entries);
                }
                let own = call_estimate(function, overload, target, operands);
                let sum = costs.iter().fold(own.cost, |sum, cost| sum.add(*cost));
                (sum, own.result_size)
            }
        }
    }

    fn comprehension(&mut self, id: ExprId, loop_: &'c Comprehension) -> CostEstimate {
        let mut sum = self.cost(loop_.range).add(self.cost(loop_.initial));
        self.push_value(&loop_.accumulator, loop_.initial);
        match &loop_.second_variable {
            Some(second) => {
                self.push_iteration(&loop_.variable, loop_.range, Iteration::Key);
                self.push_iteration(second, loop_.range, Iteration::Value);
            }
            None => self.push_iteration(&loop_.variable, loop_.range, Iteration::Single),
        }
        let condition = self.cost(loop_.condition);
        let step = self.cost(loop_.step);
        self.pop(&loop_.variable);
        if let Some(second) = &loop_.second_variable {
            self.pop(second);
        }
        sum = sum.add(self.cost(loop_.result));
        self.pop(&loop_.accumulator);
        let count = self.size_or_unknown(loop_.range);
        sum = sum.add(count.multiply(step.add(condition)));
        match self.checked.tree.get(loop_.initial) {
            Expr::Literal(_) => {
                let size = self.size(loop_.initial);
                self.set_size(id, size);
            }
            Expr::List { .. } | Expr::Map(_) => {
                self.set_size(id, Some(count));
                let entries = self.entries_of(loop_.step);
                self.set_entries(id, entries);
            }
            _ => {}
        }
        sum
    }

    fn local_variable(&mut self, id: ExprId, binding: &'c Comprehension) -> CostEstimate {
        let sum = self.cost(binding.range).add(self.cost(binding.initial));
        self.push_value(&binding.accumulator, binding.initial);
        let sum = sum.add(self.cost(binding.result));
        self.pop(&binding.accumulator);
        self.copy_sizes(id, binding.result);
        sum
    }

    fn local(&self, name: &str) -> Option<&Local<'c>> {
        self.locals.iter().rev().find(|local| *local.name == *name)
    }

    fn push_value(&mut self, name: &Arc<str>, id: ExprId) {
        let (path, entries) = (self.path(id), self.entries_of(id));
        let size = self.size(id);
        self.locals.push(Local { name: Arc::clone(name), path, size, entries });
    }

    fn push_iteration(&mut self, name: &Arc<str>, range: ExprId, iteration: Iteration) {
        let entries = self.entries_of(range);
        let is_list = match entries {
            Some(entries) => entries.is_list,
            None => matches!(self.checked.type_of(range), Type::List(_)),
        };
        let (key, value) = (entries.map(|entries| entries.key), entries.map(|entries| entries.value));
        let (step, size) = match (iteration, is_list) {
            (Iteration::Key, true) => (Step::Indices, key),
            (Iteration::Key | Iteration::Single, false) => (Step::Keys, key),
            (Iteration::Value, false) => (Step::Values, value),
            (Iteration::Value | Iteration::Single, true) => (Step::Items, value),
        };
        let path = self.extend(self.path(range), step);
        self.locals.push(Local { name: Arc::clone(name), path, size, entries: None });
    }

    fn pop(&mut self, name: &str) {
        if let Some(place) = self.locals.iter().rposition(|local| *local.name == *name) {
            self.locals.remove(place);
        }
    }

    fn path(&self, id: ExprId) -> Path<'c> {
        if let Expr::Ident(name) = self.checked.tree.get(id)
            && let Some(local) = self.local(name)
        {
            return local.path;
        }
        self.paths.get(id.index()).copied().unwrap_or(Path::None)
    }

    fn set_path(&mut self, id: ExprId, path: Path<'c>) {
        if let Some(place) = self.paths.get_mut(id.index()) {
            *place = path;
        }
    }

    /// A path with one more step. The first step stands for a variable, as in Kubernetes, whatever it is.
    fn extend(&self, path: Path<'c>, step: Step<'_>) -> Path<'c> {
        let declared = match path {
            Path::None => return Path::To(self.root),
            Path::To(declared) => declared,
        };
        Path::To(declared.and_then(|declared| follow(declared, step)))
    }

    fn set_size(&mut self, id: ExprId, size: Option<Size>) {
        if let (Some(place), Some(size)) = (self.sizes.get_mut(id.index()), size) {
            *place = Some(size);
        }
    }

    fn set_entries(&mut self, id: ExprId, entries: Option<Entries>) {
        if let (Some(place), Some(entries)) = (self.entries.get_mut(id.index()), entries) {
            *place = Some(entries);
        }
    }

    fn copy_sizes(&mut self, to: ExprId, from: ExprId) {
        let (size, entries) = (self.size(from), self.entries_of(from));
        self.set_size(to, size);
        self.set_entries(to, entries);
    }

    fn size(&mut self, id: ExprId) -> Option<Size> {
        if let Some(size) = self.sizes.get(id.index()).copied().flatten() {
            return Some(size);
        }
        let expr = self.checked.tree.get(id);
        if let Some(size) = size_of_expression(expr) {
            return Some(Size::fixed(size));
        }
        if let Path::To(Some(declared)) = self.path(id) {
            let size = Size { min: 0, max: declared.max_elements() };
            self.set_size(id, Some(size));
            return Some(size);
        }
        if is_scalar(self.checked.type_of(id)) {
            return Some(Size::fixed(1));
        }
        match expr {
            Expr::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    fn size_or_unknown(&mut self, id: ExprId) -> Size {
        self.size(id).unwrap_or(Size::UNKNOWN)
    }

    fn entries_of(&self, id: ExprId) -> Option<Entries> {
        if let Some(entries) = self.entries.get(id.index()).copied().flatten() {
            return Some(entries);
        }
        match self.checked.tree.get(id) {
            Expr::Ident(name) => self.local(name).and_then(|local| local.entries),
            _ => None,
        }
    }

    fn operand(&mut self, id: ExprId) -> Operand<'c> {
        let size = self.size(id);
        let literal = self.checked.tree.literal(id);
        let element_size = match self.path(id) {
            Path::None => None,
            path => match self.extend(path, Step::Items) {
                Path::To(Some(declared)) => Some(Size { min: 0, max: declared.max_elements() }),
                _ => None,
            },
        };
        Operand { id, size, element_size, type_: self.checked.type_of(id), literal }
    }
}

#[derive(Clone, Copy)]
enum Iteration {
    Key,
    Value,
    Single,
}

/// The size of the elements of a literal, before the first one.
fn empty_size(is_empty: bool) -> Size {
    Size { min: if is_empty { 0 } else { u64::MAX }, max: 0 }
}

fn union_of_entries(left: Option<Entries>, right: Option<Entries>) -> Option<Entries> {
    let (left, right) = (left?, right?);
    Some(Entries {
        is_list: left.is_list,
        key: left.key.union(right.key),
        value: left.value.union(right.value),
    })
}

/// Whether a comprehension is a local variable: a loop over nothing.
fn is_local_variable(checked: &Checked, comprehension: &Comprehension) -> bool {
    matches!(checked.tree.literal(comprehension.condition), Some(Literal::Bool(false)))
        && *comprehension.accumulator != *ACCUMULATOR
}

fn follow<'d>(declared: &'d DeclType, step: Step<'_>) -> Option<&'d DeclType> {
    match step {
        Step::Items | Step::Values => declared.element(),
        Step::Keys => match declared.kind() {
            DeclKind::Map(_) => Some(&MAP_KEY),
            _ => None,
        },
        Step::Indices => None,
        Step::Field(name) => match declared.kind() {
            DeclKind::Object(object) => match &object.field(name)?.type_ {
                FieldType::Declared(field) => Some(field),
                FieldType::Preserved => None,
            },
            _ => None,
        },
    }
}

/// Keys of maps. Kubernetes declares no length for them.
static MAP_KEY: std::sync::LazyLock<DeclType> = std::sync::LazyLock::new(DeclType::bool);

fn size_of_expression(expr: &Expr) -> Option<u64> {
    match expr {
        Expr::Literal(Literal::String(text)) => Some(text.chars().count() as u64),
        Expr::Literal(Literal::Bytes(bytes)) => Some(bytes.len() as u64),
        Expr::Literal(_) => Some(1),
        Expr::List { elements, .. } => Some(elements.len() as u64),
        Expr::Map(entries) => Some(entries.len() as u64),
        _ => None,
    }
}

/// Whether all values of a type have the same size.
fn is_scalar(type_: &Type) -> bool {
    match type_ {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        other => other.optional_value().is_some_and(is_scalar),
    }
}
