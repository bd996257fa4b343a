//! The form in which expressions are evaluated.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::{CostRule, Function};
use crate::library::Pattern;
use crate::types::Type;
use crate::value::Value;

/// An operation.
#[derive(Debug)]
pub(crate) enum Node {
    Constant(Value<'static>),
    Attribute(Box<Attribute>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Call(Box<Call>),
    List {
        elements: Box<[Node]>,
        /// Whether the element of the same index is optional.
        optional: Box<[bool]>,
    },
    Map(Box<[(Node, Node, bool)]>),
    /// `Object{…}` or `JSONPatch{…}`.
    Struct {
        name: Arc<str>,
        fields: Box<[(Arc<str>, Node, bool)]>,
    },
    Fold(Box<Fold>),
    /// A local variable, evaluated at its first use.
    Bind {
        slot: usize,
        value: Box<Node>,
        body: Box<Node>,
    },
    /// `x in ['a', 'b']`; costs nothing.
    InSet {
        operand: Box<Node>,
        set: Box<ConstantSet>,
    },
    /// `or` of optionals.
    OptionalOr(Box<[Node; 2]>),
    /// `orValue`.
    OptionalOrValue(Box<[Node; 2]>),
}

/// Constants of a list.
#[derive(Debug)]
pub(crate) enum ConstantSet {
    Texts(FxHashSet<Box<str>>),
    Values(Vec<Value<'static>>),
}

/// A value with selections and indexes. Costs one unit for itself and one for each step.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) base: Base,
    pub(crate) qualifiers: Vec<Qualifier>,
    /// Cost of the attribute itself; -1 takes back that of a step. A named expression costs 2.
    pub(crate) own_cost: i8,
}

#[derive(Debug)]
pub(crate) enum Base {
    /// A variable of the environment, by its place.
    Variable(usize),
    /// A variable of a comprehension, by its slot.
    Local(usize),
    /// A named expression, by its place.
    Named(usize),
    Expression(Node),
    /// A ternary: steps behind it apply to the selected branch.
    Conditional {
        condition: Box<Node>,
        branches: Box<[Attribute; 2]>,
    },
}

/// A selection or an index.
#[derive(Debug)]
pub(crate) struct Qualifier {
    pub(crate) key: QualifierKey,
    pub(crate) is_optional: bool,
    /// Whether only the presence is wanted (`has`).
    pub(crate) is_test: bool,
}

#[derive(Debug)]
pub(crate) enum QualifierKey {
    Name(Box<str>),
    Constant(Value<'static>),
    Expression(Node),
}

/// A call of a function.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) function: Function,
    pub(crate) name: Box<str>,
    /// The overload, or an empty text if several fit.
    pub(crate) overload: Box<str>,
    pub(crate) arguments: Box<[Node]>,
    pub(crate) cost: CostRule,
    /// Whether evaluation ends at the first argument that fails; then the call itself costs nothing.
    pub(crate) is_variadic: bool,
    /// Types that the overload takes, if the types of the operands are not known before.
    pub(crate) guard: Option<&'static [Type]>,
    /// The pattern, if it is constant.
    pub(crate) pattern: Option<Pattern>,
}

/// A loop.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) range: Node,
    pub(crate) slot: usize,
    pub(crate) second_slot: Option<usize>,
    pub(crate) body: FoldBody,
}

#[derive(Debug)]
pub(crate) enum FoldBody {
    All(Node),
    Exists(Node),
    ExistsOne(Node),
    List {
        filter: Option<Node>,
        element: Node,
        /// Cost of the list that is appended; a constant one costs nothing.
        list_cost: u64,
    },
    Map {
        filter: Option<Node>,
        step: MapStep,
    },
}

#[derive(Debug)]
pub(crate) enum MapStep {
    /// A value for each key of the range.
    Value(Node),
    /// A map whose entries are added.
    Entries(Node),
}
