//! Checks of constants after the types are known: patterns, durations, timestamps, `format` and literals.

use super::Checked;
use crate::functions::{Clause, FormatFault, parse_format};
use crate::library::{Duration, Pattern, Timestamp};
use crate::syntax::{Expr, ExprId, Issues, Literal, Source};
use crate::types::Type;

/// Reports constants that are wrong.
pub(super) fn validate(checked: &Checked, source: &Source<'_>, issues: &mut Issues) {
    let mut validator = Validator { checked, source, issues };
    // Nodes with the question whether they are below a call of `format`, whose lists may mix types.
    let mut pending = vec![(checked.tree.root, false)];
    while let Some((id, is_in_format)) = pending.pop() {
        validator.node(id, is_in_format);
        let is_format =
            matches!(checked.tree.get(id), Expr::Call { function, .. } if **function == *"format");
        let children = checked.tree.children(id);
        pending.extend(children.into_iter().rev().map(|child| (child, is_in_format || is_format)));
    }
}

struct Validator<'v, 's> {
    checked: &'v Checked,
    source: &'v Source<'s>,
    issues: &'v mut Issues,
}

impl Validator<'_, '_> {
    fn report(&mut self, id: ExprId, message: String) {
        let position = self.source.position(self.checked.tree.offset(id));
        self.issues.report(position, message);
    }

    fn node(&mut self, id: ExprId, is_in_format: bool) {
        let checked = self.checked;
        match checked.tree.get(id) {
            Expr::Call { function, arguments, .. } => {
                let argument = arguments.first().and_then(|id| Some((*id, checked.tree.literal(*id)?)));
                if let Some((argument, literal)) = argument
                    && !is_valid_argument(function, literal)
                {
                    self.report(argument, format!("invalid {function} argument"));
                }
                if **function == *"format" {
                    self.format(id);
                }
            }
            Expr::List { elements, optional } if !is_in_format => {
                let types =
                    elements.iter().zip(optional).map(|(id, optional)| (*id, self.type_of(*id, *optional)));
                self.same_types(types.collect());
            }
            Expr::Map(entries) if !is_in_format => {
                let (mut keys, mut values) = (Vec::new(), Vec::new());
                for entry in entries {
                    keys.push((entry.key, self.type_of(entry.key, false)));
                    values.push((entry.value, self.type_of(entry.value, entry.is_optional)));
                }
                self.same_types(keys);
                self.same_types(values);
            }
            _ => {}
        }
    }

    fn type_of(&self, id: ExprId, is_optional: bool) -> Type {
        let type_ = self.checked.type_of(id);
        if is_optional { type_.optional_value().unwrap_or(type_).clone() } else { type_.clone() }
    }

    fn same_types(&mut self, types: Vec<(ExprId, Type)>) {
        let Some((_, expected)) = types.first() else {
            return;
        };
        if let Some((id, found)) = types.iter().find(|(_, type_)| !type_.is_equivalent(expected)) {
            self.report(*id, format!("expected type '{expected}' but found '{found}'"));
        }
    }

    fn format(&mut self, id: ExprId) {
        let tree = &self.checked.tree;
        let Expr::Call { target: Some(target), arguments, .. } = tree.get(id) else {
            return;
        };
        let (Some(Literal::String(text)), [argument]) = (tree.literal(*target), arguments.as_slice()) else {
            return;
        };
        let Expr::List { elements, .. } = tree.get(*argument) else {
            return;
        };
        let mut used = 0;
        let parsed = parse_format(text, elements.len(), |index, clause, _| {
            used = index + 1;
            match elements.get(index).and_then(|element| self.unfit(*element, clause)) {
                Some(unfit) => Err((unfit, clause.fault(self.checked.type_of(unfit).runtime_name()))),
                None => Ok(()),
            }
        });
        match parsed {
            Err(FormatFault::Text(message)) => self.report(id, message),
            Err(FormatFault::Argument((element, message))) => {
                self.report(element, format!("error during formatting: {message}"));
            }
            Ok(_) if elements.len() > used => {
                let given = elements.len();
                let message =
                    format!("too many arguments supplied to string.format (expected {used}, got {given})");
                self.report(id, message);
            }
            Ok(_) => {}
        }
    }

    /// The argument, or the part of it, that a placeholder does not take.
    fn unfit(&self, id: ExprId, clause: Clause) -> Option<ExprId> {
        let type_ = self.checked.type_of(id);
        let fits = match clause {
            _ if matches!(type_, Type::Dyn) => true,
            Clause::String => !matches!(type_, Type::Object(_) | Type::Opaque(..)),
            Clause::Decimal | Clause::Octal => matches!(type_, Type::Int | Type::Uint),
            Clause::Fixed(_) | Clause::Scientific(_) => matches!(type_, Type::Double | Type::String),
            Clause::Binary => matches!(type_, Type::Int | Type::Uint | Type::Bool),
            Clause::Hexadecimal { .. } => {
                matches!(type_, Type::Int | Type::Uint | Type::String | Type::Bytes)
            }
        };
        if !fits {
            return Some(id);
        }
        match (clause, self.checked.tree.get(id)) {
            (Clause::String, Expr::List { .. } | Expr::Map(_)) => {
                self.checked.tree.children(id).into_iter().find_map(|child| self.unfit(child, clause))
            }
            _ => None,
        }
    }
}

fn is_valid_argument(function: &str, literal: &Literal) -> bool {
    match (function, literal) {
        ("duration", Literal::String(text)) => Duration::parse(text).is_some(),
        ("timestamp", Literal::String(text)) => {
            Timestamp::parse(text).is_some_and(|timestamp| timestamp.in_range().is_some())
        }
        ("timestamp", Literal::Int(seconds)) => Timestamp::from_seconds(*seconds).is_some(),
        ("matches", Literal::String(pattern)) => Pattern::is_valid(pattern),
        _ => true,
    }
}
