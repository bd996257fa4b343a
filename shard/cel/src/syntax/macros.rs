//! Macros: calls that the parser replaces by comprehensions and tests.

use std::sync::Arc;

use super::tree::{ACCUMULATOR, Comprehension, Expr, ExprId, Literal, Tree};

/// The macros of an environment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MacroSet {
    /// `optMap` and `optFlatMap`.
    pub(crate) optionals: bool,
    /// Comprehensions with two variables.
    pub(crate) two_variables: bool,
    /// `sortBy`.
    pub(crate) sort_by: bool,
    /// `cel.bind`.
    pub(crate) bind: bool,
}

/// The result of looking for a macro.
pub(super) enum Expansion {
    None,
    Expanded(ExprId),
    Invalid { at: ExprId, message: String },
}

/// The variables of a loop.
type Variables = (Arc<str>, Option<Arc<str>>);

type Expanded = Result<ExprId, (ExprId, String)>;

/// A variable of comprehensions that are no loops.
const UNUSED: &str = "#unused";
const SORT_BY_INPUT: &str = "@__sortBy_input__";
const NO_ACCUMULATOR: &str = "iteration variable overwrites accumulator variable";

/// Expands a call if it is a macro.
pub(super) fn expand(
    tree: &mut Tree,
    macros: MacroSet,
    offset: usize,
    function: &str,
    target: Option<ExprId>,
    arguments: &[ExprId],
) -> Expansion {
    let mut builder = Builder { tree, offset };
    let expanded = match (function, target, arguments) {
        ("has", None, [argument]) => builder.has(*argument),
        ("bind", Some(target), [variable, value, body]) if macros.bind && builder.is_ident(target, "cel") => {
            builder.bind(*variable, *value, *body)
        }
        ("all" | "exists" | "exists_one", Some(target), [variable, predicate]) => {
            builder.quantifier(function, target, *variable, *predicate)
        }
        ("map", Some(target), [variable, transform]) => builder.map(target, *variable, None, *transform),
        ("map", Some(target), [variable, filter, transform]) => {
            builder.map(target, *variable, Some(*filter), *transform)
        }
        ("filter", Some(target), [variable, filter]) => builder.filter(target, *variable, *filter),
        ("optMap" | "optFlatMap", Some(target), [variable, transform]) if macros.optionals => {
            builder.opt_map(function, target, *variable, *transform)
        }
        ("sortBy", Some(target), [variable, key]) if macros.sort_by => {
            builder.sort_by(target, *variable, *key)
        }
        ("all" | "exists" | "exists_one" | "existsOne", Some(target), [first, second, predicate])
            if macros.two_variables =>
        {
            builder.quantifier_of_two(function, target, [*first, *second], *predicate)
        }
        (
            "transformList" | "transformMap" | "transformMapEntry",
            Some(target),
            [first, second, rest @ ..],
        ) if macros.two_variables && matches!(rest.len(), 1 | 2) => {
            builder.transform(function, target, [*first, *second], rest)
        }
        _ => return Expansion::None,
    };
    match expanded {
        Ok(id) => Expansion::Expanded(id),
        Err((at, message)) => Expansion::Invalid { at, message },
    }
}

/// Creates nodes that are reported at the call of the macro.
struct Builder<'t> {
    tree: &'t mut Tree,
    offset: usize,
}

impl Builder<'_> {
    fn add(&mut self, expr: Expr) -> ExprId {
        self.tree.add(expr, self.offset)
    }

    fn literal(&mut self, literal: Literal) -> ExprId {
        self.add(Expr::Literal(literal))
    }

    fn ident(&mut self, name: &str) -> ExprId {
        self.add(Expr::Ident(name.into()))
    }

    fn accumulator(&mut self) -> ExprId {
        self.ident(ACCUMULATOR)
    }

    fn call(&mut self, function: &str, arguments: Vec<ExprId>) -> ExprId {
        self.add(Expr::Call { function: function.into(), target: None, arguments })
    }

    fn member_call(&mut self, function: &str, target: ExprId, arguments: Vec<ExprId>) -> ExprId {
        self.add(Expr::Call { function: function.into(), target: Some(target), arguments })
    }

    fn list(&mut self, elements: Vec<ExprId>) -> ExprId {
        let optional = vec![false; elements.len()];
        self.add(Expr::List { elements, optional })
    }

    fn is_ident(&self, id: ExprId, name: &str) -> bool {
        matches!(self.tree.get(id), Expr::Ident(found) if **found == *name)
    }

    fn variable(&self, id: ExprId, message: &str) -> Result<Arc<str>, (ExprId, String)> {
        match self.tree.get(id) {
            Expr::Ident(name) if **name == *ACCUMULATOR || **name == *"__result__" => {
                Err((id, NO_ACCUMULATOR.to_owned()))
            }
            Expr::Ident(name) => Ok(Arc::clone(name)),
            _ => Err((id, message.to_owned())),
        }
    }

    fn has(&mut self, argument: ExprId) -> Expanded {
        match self.tree.get(argument) {
            Expr::Select { operand, field, is_test: false } => {
                let test = Expr::Select { operand: *operand, field: Arc::clone(field), is_test: true };
                Ok(self.add(test))
            }
            _ => Err((argument, "invalid argument to has() macro".to_owned())),
        }
    }

    fn fold(&mut self, range: ExprId, variables: Variables, parts: Parts) -> ExprId {
        self.add(Expr::Comprehension(Box::new(Comprehension {
            range,
            variable: variables.0,
            second_variable: variables.1,
            accumulator: ACCUMULATOR.into(),
            initial: parts.initial,
            condition: parts.condition,
            step: parts.step,
            result: parts.result,
        })))
    }

    /// A local variable: a loop over nothing, whose accumulator is the variable.
    fn local(&mut self, name: &Arc<str>, value: ExprId, step: Option<ExprId>, body: ExprId) -> ExprId {
        let range = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(false));
        let step = step.unwrap_or_else(|| self.ident(name));
        self.add(Expr::Comprehension(Box::new(Comprehension {
            range,
            variable: UNUSED.into(),
            second_variable: None,
            accumulator: Arc::clone(name),
            initial: value,
            condition,
            step,
            result: body,
        })))
    }

    fn bind(&mut self, variable: ExprId, value: ExprId, body: ExprId) -> Expanded {
        let Expr::Ident(name) = self.tree.get(variable) else {
            return Err((variable, "cel.bind() variable names must be simple identifiers".to_owned()));
        };
        let name = Arc::clone(name);
        Ok(self.local(&name, value, None, body))
    }

    fn quantifier(
        &mut self,
        function: &str,
        target: ExprId,
        variable: ExprId,
        predicate: ExprId,
    ) -> Expanded {
        let name = self.variable(variable, "argument must be a simple name")?;
        let parts = self.quantifier_parts(function, predicate);
        Ok(self.fold(target, (name, None), parts))
    }

    fn quantifier_of_two(
        &mut self,
        function: &str,
        target: ExprId,
        variables: [ExprId; 2],
        predicate: ExprId,
    ) -> Expanded {
        let names = self.two_variables(variables)?;
        let parts = self.quantifier_parts(function, predicate);
        Ok(self.fold(target, names, parts))
    }

    fn quantifier_parts(&mut self, function: &str, predicate: ExprId) -> Parts {
        let accumulator = self.accumulator();
        match function {
            "all" => {
                let initial = self.literal(Literal::Bool(true));
                let condition = self.call("@not_strictly_false", vec![accumulator]);
                let accumulator = self.accumulator();
                let step = self.call("_&&_", vec![accumulator, predicate]);
                Parts { initial, condition, step, result: self.accumulator() }
            }
            "exists" => {
                let initial = self.literal(Literal::Bool(false));
                let negated = self.call("!_", vec![accumulator]);
                let condition = self.call("@not_strictly_false", vec![negated]);
                let accumulator = self.accumulator();
                let step = self.call("_||_", vec![accumulator, predicate]);
                Parts { initial, condition, step, result: self.accumulator() }
            }
            _ => {
                let initial = self.literal(Literal::Int(0));
                let condition = self.literal(Literal::Bool(true));
                let one = self.literal(Literal::Int(1));
                let next = self.call("_+_", vec![accumulator, one]);
                let unchanged = self.accumulator();
                let step = self.call("_?_:_", vec![predicate, next, unchanged]);
                let accumulator = self.accumulator();
                let one = self.literal(Literal::Int(1));
                Parts { initial, condition, step, result: self.call("_==_", vec![accumulator, one]) }
            }
        }
    }

    fn map(
        &mut self,
        target: ExprId,
        variable: ExprId,
        filter: Option<ExprId>,
        transform: ExprId,
    ) -> Expanded {
        let name = self.variable(variable, "argument is not an identifier")?;
        let parts = self.collect(filter, transform);
        Ok(self.fold(target, (name, None), parts))
    }

    fn filter(&mut self, target: ExprId, variable: ExprId, filter: ExprId) -> Expanded {
        let name = self.variable(variable, "argument is not an identifier")?;
        let parts = self.collect(Some(filter), variable);
        Ok(self.fold(target, (name, None), parts))
    }

    /// A loop that appends to a list.
    fn collect(&mut self, filter: Option<ExprId>, element: ExprId) -> Parts {
        let initial = self.list(Vec::new());
        let accumulator = self.accumulator();
        let addition = self.list(vec![element]);
        let step = self.call("_+_", vec![accumulator, addition]);
        self.conditional_step(initial, filter, step)
    }

    fn conditional_step(&mut self, initial: ExprId, filter: Option<ExprId>, step: ExprId) -> Parts {
        let condition = self.literal(Literal::Bool(true));
        let step = match filter {
            Some(filter) => {
                let unchanged = self.accumulator();
                self.call("_?_:_", vec![filter, step, unchanged])
            }
            None => step,
        };
        Parts { initial, condition, step, result: self.accumulator() }
    }

    fn opt_map(&mut self, function: &str, target: ExprId, variable: ExprId, transform: ExprId) -> Expanded {
        let Expr::Ident(name) = self.tree.get(variable) else {
            return Err((variable, format!("{function}() variable name must be a simple identifier")));
        };
        let name = Arc::clone(name);
        let has_value = self.member_call("hasValue", target, Vec::new());
        let copy = self.tree.copy(target);
        let value = self.member_call("value", copy, Vec::new());
        let mut body = self.local(&name, value, None, transform);
        if function == "optMap" {
            body = self.call("optional.of", vec![body]);
        }
        let none = self.call("optional.none", Vec::new());
        Ok(self.call("_?_:_", vec![has_value, body, none]))
    }

    fn sort_by(&mut self, target: ExprId, variable: ExprId, key: ExprId) -> Expanded {
        let is_list = matches!(
            self.tree.get(target),
            Expr::List { .. }
                | Expr::Select { .. }
                | Expr::Ident(_)
                | Expr::Comprehension(_)
                | Expr::Call { .. }
        );
        if !is_list {
            let message =
                "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err((target, message.to_owned()));
        }
        let name: Arc<str> = SORT_BY_INPUT.into();
        let range = self.ident(&name);
        let keys = self.map(range, variable, None, key)?;
        let input = self.ident(&name);
        let sorted = self.member_call("@sortByAssociatedKeys", input, vec![keys]);
        Ok(self.local(&name, target, None, sorted))
    }

    fn two_variables(&self, variables: [ExprId; 2]) -> Result<Variables, (ExprId, String)> {
        let simple = |id: ExprId| match self.tree.get(id) {
            Expr::Ident(name) => Ok(Arc::clone(name)),
            _ => Err((id, "argument must be a simple name".to_owned())),
        };
        let (first, second) = (simple(variables[0])?, simple(variables[1])?);
        if first == second {
            return Err((variables[1], format!("duplicate variable name: {first}")));
        }
        for id in variables {
            self.variable(id, "argument must be a simple name")?;
        }
        Ok((first, Some(second)))
    }

    fn transform(
        &mut self,
        function: &str,
        target: ExprId,
        variables: [ExprId; 2],
        rest: &[ExprId],
    ) -> Expanded {
        let names = self.two_variables(variables)?;
        let (filter, transform) = match rest {
            [filter, transform] => (Some(*filter), *transform),
            [transform] => (None, *transform),
            _ => return Err((target, "wrong number of arguments".to_owned())),
        };
        let parts = if function == "transformList" {
            self.collect(filter, transform)
        } else {
            let initial = self.add(Expr::Map(Vec::new()));
            let mut arguments = vec![self.accumulator()];
            if function == "transformMap" {
                arguments.push(self.ident(&names.0));
            }
            arguments.push(transform);
            let step = self.call("cel.@mapInsert", arguments);
            self.conditional_step(initial, filter, step)
        };
        Ok(self.fold(target, names, parts))
    }
}

/// The parts of a loop.
struct Parts {
    initial: ExprId,
    condition: ExprId,
    step: ExprId,
    result: ExprId,
}
