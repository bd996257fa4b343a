//! What can be said about an expression without evaluating it.

use std::collections::BTreeSet;

use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, SelectExpr, operators},
};

use super::expression::{ExpressionError, Variable};

/// More is no access rule any more.
const DEEPEST: u32 = 3;

/// So many calls may make a text longer by short literals, and so many by whatever there is.
const MOST_MILD: u32 = 3;
const MOST_GROWING: u32 = 2;

/// A literal that makes a text longer by a small factor only.
const SHORT: usize = 8;

/// A step that compiles a regular expression costs as much as so many others.
const COST_OF_MATCHING: u64 = 100;

/// The result of a walk over the tree.
pub(crate) struct Check {
    pub(crate) kind: Kind,
    /// Fields of the variable that are looked at.
    pub(crate) fields: BTreeSet<String>,
    /// How often loops are nested.
    depth: u32,
    /// How often a text may become as long as the product of two.
    growing: u32,
    longest_literal: u64,
    splits: bool,
    matches: bool,
}

/// How large the input of an expression is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Size {
    /// Values, at all levels.
    pub(crate) values: u64,
    /// Bytes of texts, all together.
    pub(crate) text: u64,
}

/// What an evaluation may need at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Steps of loops.
    pub(crate) steps: u64,
    /// Bytes of texts that are longer than those of the input.
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
            depth: 0,
            deepest: 0,
            mild: 0,
            growing: 0,
            longest_literal: 0,
            splits: false,
            matches: false,
        };
        walk.visit(expression)?;
        let Walk { fields, deepest, growing, longest_literal, splits, matches, .. } = walk;
        if deepest > DEEPEST || growing > MOST_GROWING {
            return Err(ExpressionError::TooDeep);
        }
        let kind = kind(&expression.expr);
        Ok(Self { kind, fields, depth: deepest, growing, longest_literal, splits, matches })
    }

    /// What it needs at most for an input of this size.
    pub(crate) fn cost(&self, size: Size) -> Cost {
        let turns = if self.splits { size.values.max(size.text) } else { size.values };
        let turns = turns.saturating_pow(self.depth);
        let each = if self.matches && self.depth > 0 { COST_OF_MATCHING } else { 1 };
        let text = size.text.max(self.longest_literal);
        let bytes = if self.growing > 0 { text.saturating_pow(self.growing + 1) } else { 0 };
        Cost { steps: turns.saturating_mul(each), bytes: turns.saturating_mul(bytes) }
    }
}

struct Walk {
    variable: Variable,
    /// Variables of the loops around.
    bound: Vec<String>,
    fields: BTreeSet<String>,
    depth: u32,
    deepest: u32,
    mild: u32,
    growing: u32,
    longest_literal: u64,
    splits: bool,
    matches: bool,
}

impl Walk {
    fn visit(&mut self, expression: &IdedExpr) -> Result<(), ExpressionError> {
        match &expression.expr {
            Expr::Literal(LiteralValue::String(text)) => {
                self.longest_literal =
                    self.longest_literal.max(text.inner().len().try_into().unwrap_or(u64::MAX));
                Ok(())
            }
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::List(list) => list.elements.iter().try_for_each(|element| self.visit(element)),
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

    fn variable(&self, name: &str) -> Result<(), ExpressionError> {
        let known = name == self.variable.name() || TYPES.contains(&name) || self.is_bound(name);
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
        if GROWING.contains(&name) {
            let is_short = |argument: &IdedExpr| match &argument.expr {
                Expr::Literal(LiteralValue::String(text)) => text.inner().len() <= SHORT,
                other => matches!(other, Expr::Literal(_)),
            };
            if call.args.iter().all(is_short) && self.mild < MOST_MILD {
                self.mild += 1;
            } else {
                self.growing += 1;
            }
        }
        self.splits |= name == "split";
        self.matches |= name == "matches";
        if let Some(target) = &call.target {
            let is_namespace = matches!(&target.expr, Expr::Ident(name)
                if NAMESPACES.contains(&name.as_str()) && !self.is_bound(name));
            if !is_namespace {
                self.visit(target)?;
            }
        }
        call.args.iter().try_for_each(|argument| self.visit(argument))
    }

    fn comprehension(&mut self, loop_: &ComprehensionExpr) -> Result<(), ExpressionError> {
        self.visit(&loop_.iter_range)?;
        self.visit(&loop_.accu_init)?;
        let outside = self.bound.len();
        self.bound.push(loop_.accu_var.clone());
        self.visit(&loop_.result)?;
        self.bound.push(loop_.iter_var.clone());
        self.bound.extend(loop_.iter_var2.clone());
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        self.visit(&loop_.loop_cond)?;
        self.visit(&loop_.loop_step)?;
        self.depth -= 1;
        self.bound.truncate(outside);
        Ok(())
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

const NAMESPACES: [&str; 3] = ["base64", "optional", "strings"];

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

const FUNCTIONS: [&str; 31] = [
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
    "quote",
    // Of encodings.
    "encode",
    "decode",
];

/// Whose results may be as long as the product of their inputs.
const GROWING: [&str; 2] = ["replace", "join"];

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
