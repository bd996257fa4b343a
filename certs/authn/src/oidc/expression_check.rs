//! What can be said about an expression without evaluating it.

use std::collections::BTreeSet;

use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, SelectExpr, operators},
};

use super::expression::{ExpressionError, Variable};

/// More nested loops are no access rule any more.
const DEEPEST: u32 = 3;

/// The tree may be so deep: whoever evaluates it calls himself for each level.
const DEEPEST_TREE: u32 = 64;

/// So many operations may double what they are about, so many lengthen it by [`SHORT`] for each byte, and so
/// many by whatever there is. In a chain each of them multiplies what the others have made.
const MOST_DOUBLING: u32 = 4;
const MOST_MILD: u32 = 3;
const MOST_GROWING: u32 = 2;

/// A literal that makes a text longer by a small factor only.
const SHORT: usize = 8;

/// A step that compiles a regular expression costs as much as so many others.
const COST_OF_MATCHING: u64 = 100;

/// So many bytes are compared or copied in one step.
const BYTES_PER_STEP: u64 = 32;

/// The result of a walk over the tree.
pub(crate) struct Check {
    pub(crate) kind: Kind,
    /// Fields of the variable that are looked at.
    pub(crate) fields: BTreeSet<String>,
    counts: Counts,
}

/// What makes an expression costly.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// How deep loops are nested.
    loops: u32,
    /// Sums of which no part is a literal.
    sums: u64,
    doubling: u32,
    mild: u32,
    growing: u32,
    /// Values and bytes of texts that the expression brings along.
    literals: Size,
    /// Whether texts become lists.
    splits: bool,
    /// Whether loops compile regular expressions.
    matches: bool,
    /// Whether loops look at the whole variable again.
    looks_back: bool,
}

/// How large the input of an expression is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Size {
    /// Values, at all levels.
    pub(crate) values: u64,
    /// Bytes of texts, all together.
    pub(crate) text: u64,
}

/// What an evaluation may need at most, roughly and rather too high.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Steps of loops.
    pub(crate) steps: u64,
    /// Bytes of texts that are made.
    pub(crate) bytes: u64,
}

/// What an expression evaluates to, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Boolean,
    Other,
}

impl Check {
    pub(crate) fn of(expression: &IdedExpr, variable: Variable) -> Result<Self, ExpressionError> {
        let mut walk = Walk {
            variable,
            bound: Vec::new(),
            fields: BTreeSet::new(),
            level: 0,
            loops: 0,
            in_range: false,
            counts: Counts::default(),
        };
        walk.visit(expression)?;
        let Walk { fields, counts, .. } = walk;
        let Counts { loops, doubling, growing, .. } = counts;
        if loops > DEEPEST || doubling > MOST_DOUBLING || growing > MOST_GROWING {
            return Err(ExpressionError::TooDeep);
        }
        Ok(Self { kind: kind(&expression.expr), fields, counts })
    }

    /// What it needs at most for an input of this size.
    pub(crate) fn cost(&self, input: Size) -> Cost {
        let Counts { loops, sums, doubling, mild, growing, literals, .. } = self.counts;
        let larger = sums.saturating_add(1).saturating_mul(2u64.saturating_pow(doubling));
        let values = input.values.saturating_add(literals.values).saturating_mul(larger);
        let longer = larger.saturating_mul(9u64.saturating_pow(mild));
        let text = input.text.saturating_add(literals.text).saturating_mul(longer);
        let turns = if self.counts.splits { values.max(text) } else { values }.saturating_pow(loops);
        let mut each = 1;
        if self.counts.matches {
            each = COST_OF_MATCHING;
        }
        if self.counts.looks_back {
            each = values.saturating_add(text / BYTES_PER_STEP).saturating_mul(each);
        }
        let bytes = if longer > 1 || growing > 0 { text.saturating_pow(growing + 1) } else { 0 };
        Cost { steps: turns.saturating_mul(each), bytes: turns.saturating_mul(bytes) }
    }
}

struct Walk {
    variable: Variable,
    /// Variables of the loops around.
    bound: Vec<String>,
    fields: BTreeSet<String>,
    level: u32,
    /// How many loops are around.
    loops: u32,
    /// Whether this is what a loop goes over.
    in_range: bool,
    counts: Counts,
}

impl Walk {
    fn visit(&mut self, expression: &IdedExpr) -> Result<(), ExpressionError> {
        if self.level > DEEPEST_TREE {
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
        self.counts.looks_back |= is_input && self.loops > 0 && !self.in_range;
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
        // Nobody can write such a name.
        let is_gathered =
            |argument: &IdedExpr| matches!(&argument.expr, Expr::Ident(name) if name.starts_with('@'));
        let is_short = |argument: &IdedExpr| match &argument.expr {
            Expr::Literal(LiteralValue::String(text)) => text.inner().len() <= SHORT,
            other => matches!(other, Expr::Literal(_)),
        };
        match name {
            // What `map` and `filter` gather element by element is no sum.
            operators::ADD if arguments.iter().any(is_gathered) => {}
            operators::ADD if !arguments.iter().any(is_literal) => {
                self.counts.sums += 1;
                // Something of a loop with something of a loop may be something with itself.
                let of_loops = arguments.iter().all(|argument| self.mentions_bound(argument));
                self.counts.doubling += u32::from(of_loops);
            }
            "encode" => self.counts.doubling += 1,
            "replace" | "join" if arguments.iter().all(is_short) && self.counts.mild < MOST_MILD => {
                self.counts.mild += 1;
            }
            "replace" | "join" => self.counts.growing += 1,
            "split" => self.counts.splits = true,
            "matches" => self.counts.matches |= self.loops > 0,
            _ => {}
        }
    }

    fn comprehension(&mut self, loop_: &ComprehensionExpr) -> Result<(), ExpressionError> {
        let around = std::mem::replace(&mut self.in_range, true);
        self.visit(&loop_.iter_range)?;
        self.in_range = around;
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
        self.in_range = around;
        self.loops -= 1;
        self.bound.truncate(outside);
        Ok(())
    }

    /// Whether a variable of a loop is part of it.
    fn mentions_bound(&self, expression: &IdedExpr) -> bool {
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) | Expr::Struct(_) => false,
            Expr::Ident(name) => self.is_bound(name),
            Expr::Select(select) => self.mentions_bound(&select.operand),
            Expr::Call(call) => {
                let mut parts = call.target.iter().map(AsRef::as_ref).chain(&call.args);
                parts.any(|part| self.mentions_bound(part))
            }
            // What a loop inside makes is counted there, and may be of the loop outside.
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

/// Types are values, too.
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

/// What answers yes or no.
const PREDICATES: [&str; 6] = ["startsWith", "endsWith", "contains", "matches", "hasValue", "bool"];

const FUNCTIONS: [&str; 30] = [
    // Of the language.
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
    // Of texts.
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
    // Of encodings.
    "encode",
    "decode",
];

fn is_operator(name: &str) -> bool {
    OPERATORS.contains(&name)
        || [operators::OPT_INDEX, operators::OPT_SELECT, operators::NOT_STRICTLY_FALSE].contains(&name)
}

fn kind(expression: &Expr) -> Kind {
    let boolean = match expression {
        Expr::Literal(LiteralValue::Boolean(_)) => true,
        Expr::Select(select) => select.test,
        Expr::Comprehension(loop_) => {
            // `all` and `exists` gather one yes or no; `exists_one` counts and compares at the end.
            let gathers = matches!(loop_.accu_init.expr, Expr::Literal(LiteralValue::Boolean(_)));
            gathers || kind(&loop_.result.expr) == Kind::Boolean
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
                call.args.iter().skip(1).all(|branch| kind(&branch.expr) == Kind::Boolean)
            }
            name => PREDICATES.contains(&name),
        },
        _ => false,
    };
    if boolean { Kind::Boolean } else { Kind::Other }
}
