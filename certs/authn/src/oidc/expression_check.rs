//! Static analysis of expressions: variables, functions, result type and cost.

use std::collections::BTreeSet;

use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, SelectExpr, operators},
};
use thiserror::Error;

/// Limit for nested loops.
const MAX_LOOP_DEPTH: u32 = 3;

/// Limit for the depth of the tree: the interpreter recurses for each level.
const MAX_TREE_DEPTH: u32 = 64;

/// Limits for operations that double their operand, that lengthen it by up to [`MAX_SHORT_LITERAL`] bytes for each byte, or
/// that lengthen it by another operand for each byte. In a chain their effects multiply.
const MAX_DOUBLING: u32 = 4;
const MAX_SHORT_GROWTH: u32 = 3;
const MAX_OPERAND_GROWTH: u32 = 2;

/// Length of a literal that lengthens a text by a small factor only.
const MAX_SHORT_LITERAL: usize = 8;

/// Number of usual steps that cost as much as compiling a regular expression.
const REGEX_COST: u64 = 100;

/// Number of bytes that are compared or copied in one step.
const BYTES_PER_STEP: u64 = 32;

/// The variable of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    /// `claims`, of any structure.
    Claims,
    /// `user`, with `username`, `uid`, `groups` and `extra`.
    User,
}

/// The reason why an expression cannot be used; its author has to correct it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum ExpressionError {
    #[error("it is empty")]
    Empty,
    #[error("it is longer than 4 KiB")]
    TooLong,
    #[error("it is not CEL: {0}")]
    Syntax(String),
    #[error("{0:?} is not known here: expressions are about {1:?}")]
    UnknownVariable(String, &'static str),
    #[error("a user has no field {0:?}, only username, uid, groups and extra")]
    UnknownField(String),
    #[error("the function {0:?} is not supported")]
    UnknownFunction(String),
    #[error("it creates an object, which is not supported")]
    Object,
    #[error("it does not evaluate to true or false")]
    NotBoolean,
    #[error("it is nested too deeply, or its loops are")]
    TooDeep,
}

/// The result of the analysis of a tree.
pub(crate) struct Analysis {
    pub(crate) result_type: ResultType,
    /// Fields of the variable that are used.
    pub(crate) fields: BTreeSet<String>,
    counts: Counts,
}

/// The costly parts of an expression.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Depth of nested loops.
    loops: u32,
    /// Number of sums without a literal operand.
    sums: u64,
    doubling: u32,
    short_growth: u32,
    operand_growth: u32,
    /// Values and bytes of texts of literals.
    literals: Size,
    /// Whether texts are split into lists.
    splits_texts: bool,
    /// Whether loops compile regular expressions.
    compiles_regex: bool,
    /// Whether loops read the whole variable again.
    rereads_variable: bool,
}

/// The size of an expression's input.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Size {
    /// Number of values, at all levels.
    pub(crate) values: u64,
    /// Total bytes of texts.
    pub(crate) text: u64,
}

/// An upper estimate of the cost of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Number of loop steps.
    pub(crate) steps: u64,
    /// Bytes of created texts.
    pub(crate) bytes: u64,
}

/// The result type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultType {
    Boolean,
    Other,
}

impl Variable {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Claims => "claims",
            Self::User => "user",
        }
    }
}

impl Analysis {
    pub(crate) fn of(expression: &IdedExpr, variable: Variable) -> Result<Self, ExpressionError> {
        let mut analyzer = Analyzer {
            variable,
            bound: Vec::new(),
            fields: BTreeSet::new(),
            level: 0,
            loops: 0,
            in_range: false,
            counts: Counts::default(),
        };
        analyzer.visit(expression)?;
        let Analyzer { fields, counts, .. } = analyzer;
        let Counts { loops, doubling, operand_growth, .. } = counts;
        if loops > MAX_LOOP_DEPTH || doubling > MAX_DOUBLING || operand_growth > MAX_OPERAND_GROWTH {
            return Err(ExpressionError::TooDeep);
        }
        Ok(Self { result_type: result_type(&expression.expr), fields, counts })
    }

    /// The upper limit of the cost for an input of this size.
    pub(crate) fn cost(&self, input: Size) -> Cost {
        let Counts { loops, sums, doubling, short_growth, operand_growth, literals, .. } = self.counts;
        let larger = sums.saturating_add(1).saturating_mul(2u64.saturating_pow(doubling));
        let values = input.values.saturating_add(literals.values).saturating_mul(larger);
        let longer = larger.saturating_mul(9u64.saturating_pow(short_growth));
        let text = input.text.saturating_add(literals.text).saturating_mul(longer);
        let iterations =
            if self.counts.splits_texts { values.max(text) } else { values }.saturating_pow(loops);
        let mut step_cost = 1;
        if self.counts.compiles_regex {
            step_cost = REGEX_COST;
        }
        if self.counts.rereads_variable {
            step_cost = values.saturating_add(text / BYTES_PER_STEP).saturating_mul(step_cost);
        }
        let bytes =
            if longer > 1 || operand_growth > 0 { text.saturating_pow(operand_growth + 1) } else { 0 };
        Cost { steps: iterations.saturating_mul(step_cost), bytes: iterations.saturating_mul(bytes) }
    }
}

struct Analyzer {
    variable: Variable,
    /// Variables of the enclosing loops.
    bound: Vec<String>,
    fields: BTreeSet<String>,
    level: u32,
    /// Number of enclosing loops.
    loops: u32,
    /// Whether the current expression is the range of a loop.
    in_range: bool,
    counts: Counts,
}

impl Analyzer {
    fn visit(&mut self, expression: &IdedExpr) -> Result<(), ExpressionError> {
        if self.level > MAX_TREE_DEPTH {
            return Err(ExpressionError::TooDeep);
        }
        self.level += 1;
        let result = self.visit_inside(expression);
        self.level -= 1;
        result
    }

    fn visit_inside(&mut self, expression: &IdedExpr) -> Result<(), ExpressionError> {
        match &expression.expr {
            Expr::Literal(LiteralValue::String(text)) => {
                self.counts.literals.text += u64::try_from(text.inner().len()).unwrap_or(u64::MAX);
                Ok(())
            }
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::List(list) => {
                self.counts.literals.values += u64::try_from(list.elements.len()).unwrap_or(u64::MAX);
                list.elements.iter().try_for_each(|element| self.visit(element))
            }
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.visit(&entry.key)?;
                    self.visit(&entry.value)
                }
                EntryExpr::StructField(field) => self.visit(&field.value),
            }),
            Expr::Struct(_) => Err(ExpressionError::Object),
        }
    }

    fn variable(&mut self, name: &str) -> Result<(), ExpressionError> {
        let is_input = name == self.variable.name() && !self.is_bound(name);
        self.counts.rereads_variable |= is_input && self.loops > 0 && !self.in_range;
        let known = is_input || TYPES.contains(&name) || self.is_bound(name);
        if known {
            Ok(())
        } else {
            Err(ExpressionError::UnknownVariable(name.to_owned(), self.variable.name()))
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Result<(), ExpressionError> {
        if self.is_the_variable(&select.operand) {
            self.field(&select.field)?;
        }
        self.visit(&select.operand)
    }

    fn field(&mut self, name: &str) -> Result<(), ExpressionError> {
        if self.variable == Variable::User && !["username", "uid", "groups", "extra"].contains(&name) {
            return Err(ExpressionError::UnknownField(name.to_owned()));
        }
        self.fields.insert(name.to_owned());
        Ok(())
    }

    fn call(&mut self, call: &CallExpr) -> Result<(), ExpressionError> {
        let name = call.func_name.as_str();
        if !is_operator(name) && !FUNCTIONS.contains(&name) && !PREDICATES.contains(&name) {
            return Err(ExpressionError::UnknownFunction(name.to_owned()));
        }
        if name == operators::OPT_SELECT
            && let [operand, field] = call.args.as_slice()
            && self.is_the_variable(operand)
            && let Expr::Literal(LiteralValue::String(field)) = &field.expr
        {
            self.field(field.inner())?;
        }
        self.count(name, &call.args);
        if let Some(target) = &call.target {
            let is_namespace = matches!(&target.expr, Expr::Ident(name)
                if NAMESPACES.contains(&name.as_str()) && !self.is_bound(name));
            if !is_namespace {
                self.visit(target)?;
            }
        }
        call.args.iter().try_for_each(|argument| self.visit(argument))
    }

    fn count(&mut self, name: &str, arguments: &[IdedExpr]) {
        let is_literal = |argument: &IdedExpr| matches!(argument.expr, Expr::Literal(_));
        // Expressions cannot contain such a name; the macros create it.
        let is_accumulator =
            |argument: &IdedExpr| matches!(&argument.expr, Expr::Ident(name) if name.starts_with('@'));
        let is_short = |argument: &IdedExpr| match &argument.expr {
            Expr::Literal(LiteralValue::String(text)) => text.inner().len() <= MAX_SHORT_LITERAL,
            other => matches!(other, Expr::Literal(_)),
        };
        match name {
            // `map` and `filter` append element by element; that is not counted as a sum.
            operators::ADD if arguments.iter().any(is_accumulator) => {}
            operators::ADD if !arguments.iter().any(is_literal) => {
                self.counts.sums += 1;
                // If both operands depend on loop variables, a value may be added to itself.
                let are_in_loop = arguments.iter().all(|argument| self.mentions_bound(argument));
                self.counts.doubling += u32::from(are_in_loop);
            }
            "encode" => self.counts.doubling += 1,
            "replace" | "join"
                if arguments.iter().all(is_short) && self.counts.short_growth < MAX_SHORT_GROWTH =>
            {
                self.counts.short_growth += 1;
            }
            "replace" | "join" => self.counts.operand_growth += 1,
            "split" => self.counts.splits_texts = true,
            "matches" => self.counts.compiles_regex |= self.loops > 0,
            _ => {}
        }
    }

    fn comprehension(&mut self, loop_: &ComprehensionExpr) -> Result<(), ExpressionError> {
        let outer_in_range = std::mem::replace(&mut self.in_range, true);
        self.visit(&loop_.iter_range)?;
        self.in_range = outer_in_range;
        self.visit(&loop_.accu_init)?;
        let outside = self.bound.len();
        self.bound.push(loop_.accu_var.clone());
        self.visit(&loop_.result)?;
        self.bound.push(loop_.iter_var.clone());
        self.bound.extend(loop_.iter_var2.clone());
        self.loops += 1;
        self.counts.loops = self.counts.loops.max(self.loops);
        self.in_range = false;
        self.visit(&loop_.loop_cond)?;
        self.visit(&loop_.loop_step)?;
        self.in_range = outer_in_range;
        self.loops -= 1;
        self.bound.truncate(outside);
        Ok(())
    }

    /// Whether the expression contains a loop variable.
    fn mentions_bound(&self, expression: &IdedExpr) -> bool {
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) | Expr::Struct(_) => false,
            Expr::Ident(name) => self.is_bound(name),
            Expr::Select(select) => self.mentions_bound(&select.operand),
            Expr::Call(call) => {
                let mut parts = call.target.iter().map(AsRef::as_ref).chain(&call.args);
                parts.any(|part| self.mentions_bound(part))
            }
            // Operations of an inner loop are counted there, but may depend on the outer loop.
            Expr::Comprehension(_) | Expr::Map(_) => true,
            Expr::List(list) => list.elements.iter().any(|element| self.mentions_bound(element)),
        }
    }

    fn is_bound(&self, name: &str) -> bool {
        self.bound.iter().any(|bound| bound == name)
    }

    fn is_the_variable(&self, expression: &IdedExpr) -> bool {
        let name = self.variable.name();
        matches!(&expression.expr, Expr::Ident(ident) if ident == name) && !self.is_bound(name)
    }
}

/// Types, which are values in CEL.
const TYPES: [&str; 10] =
    ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];

const NAMESPACES: [&str; 2] = ["base64", "optional"];

const OPERATORS: [&str; 18] = [
    operators::CONDITIONAL,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::SUBSTRACT,
    operators::ADD,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER_EQUALS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::LESS,
    operators::NEGATE,
    operators::INDEX,
    operators::IN,
];

/// Functions with a boolean result.
const PREDICATES: [&str; 6] = ["startsWith", "endsWith", "contains", "matches", "hasValue", "bool"];

const FUNCTIONS: [&str; 30] = [
    // The language's own functions.
    "size",
    "string",
    "int",
    "uint",
    "double",
    "bytes",
    "dyn",
    "type",
    "of",
    "none",
    "ofNonZeroValue",
    "optional.of",
    "optional.none",
    "optional.ofNonZeroValue",
    "value",
    "or",
    "orValue",
    // Functions of strings.
    "charAt",
    "indexOf",
    "lastIndexOf",
    "join",
    "lowerAscii",
    "upperAscii",
    "replace",
    "split",
    "substring",
    "trim",
    "reverse",
    // Functions of encodings.
    "encode",
    "decode",
];

fn is_operator(name: &str) -> bool {
    OPERATORS.contains(&name)
        || [operators::OPT_INDEX, operators::OPT_SELECT, operators::NOT_STRICTLY_FALSE].contains(&name)
}

fn result_type(expression: &Expr) -> ResultType {
    let boolean = match expression {
        Expr::Literal(LiteralValue::Boolean(_)) => true,
        Expr::Select(select) => select.test,
        Expr::Comprehension(loop_) => {
            // `all` and `exists` accumulate a boolean; `exists_one` counts and compares at the end.
            let accumulates_boolean = matches!(loop_.accu_init.expr, Expr::Literal(LiteralValue::Boolean(_)));
            accumulates_boolean || result_type(&loop_.result.expr) == ResultType::Boolean
        }
        Expr::Call(call) => match call.func_name.as_str() {
            operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::EQUALS
            | operators::NOT_EQUALS
            | operators::GREATER_EQUALS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::LESS
            | operators::IN => true,
            operators::CONDITIONAL => {
                call.args.iter().skip(1).all(|branch| result_type(&branch.expr) == ResultType::Boolean)
            }
            name => PREDICATES.contains(&name),
        },
        _ => false,
    };
    if boolean { ResultType::Boolean } else { ResultType::Other }
}
