//! The type checker. Inference and messages follow cel-go.

use std::sync::Arc;

use super::{Declarations, Function};
use crate::syntax::{Comprehension, Expr, ExprId, Issues, Literal, Source, StructField, Tree};
use crate::types::{Substitutions, Type, most_general};

/// A checked expression: the tree with types and references.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) tree: Tree,
    types: Vec<Type>,
    /// Whether the value of a node may have another type than the one that was found for it.
    is_dynamic: Vec<bool>,
    references: Vec<Option<Reference>>,
}

/// The declaration that a name in the expression refers to.
#[derive(Clone, Debug)]
pub(crate) enum Reference {
    /// A variable of the environment, by its place.
    Variable(usize),
    /// A type as a value.
    Type(Type),
    /// A function with the overloads that fit.
    Function(Call),
}

/// A resolved call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) function: Arc<str>,
    pub(crate) overloads: Vec<Arc<str>>,
    /// Whether the target is a part of the name (`lists.range`), not an argument.
    pub(crate) is_namespaced: bool,
}

impl Checked {
    pub(crate) fn type_of(&self, id: ExprId) -> &Type {
        self.types.get(id.index()).unwrap_or(&Type::Error)
    }

    /// Whether the value of a node may have another type than the one that was found for it.
    pub(crate) fn is_dynamic(&self, id: ExprId) -> bool {
        self.is_dynamic.get(id.index()).copied().unwrap_or(false)
    }

    pub(crate) fn reference(&self, id: ExprId) -> Option<&Reference> {
        self.references.get(id.index())?.as_ref()
    }

    pub(crate) fn references(&self) -> impl Iterator<Item = &Reference> {
        self.references.iter().flatten()
    }

    pub(crate) fn call(&self, id: ExprId) -> Option<&Call> {
        match self.reference(id) {
            Some(Reference::Function(call)) => Some(call),
            _ => None,
        }
    }
}

/// Infers the types of an expression and reports its errors.
pub(super) fn check(
    environment: &Declarations,
    source: &Source<'_>,
    tree: Tree,
    issues: &mut Issues,
) -> Checked {
    let size = tree.len();
    let mut checker = Checker {
        environment,
        source,
        tree: &tree,
        issues,
        substitutions: Substitutions::default(),
        types: vec![Type::Error; size],
        references: vec![None; size],
        scopes: Vec::new(),
    };
    checker.check(tree.root);
    // Types that were small may have grown by what was found for their variables.
    for index in 0..size {
        if checker.types.get(index).is_some_and(|type_| checker.substitutions.is_too_large(type_)) {
            checker.report(ExprId::at(index), "the type is nested too deeply".to_owned());
            checker.set_type(ExprId::at(index), Type::Error);
        }
    }
    let types: Vec<Type> =
        checker.types.iter().map(|type_| checker.substitutions.resolve_to_dyn(type_)).collect();
    // Nodes are behind their children, so one pass suffices.
    let mut is_dynamic: Vec<bool> = checker
        .types
        .iter()
        .zip(&types)
        .map(|(found, type_)| found.contains_variable() || type_.contains_dyn())
        .collect();
    for index in 0..is_dynamic.len() {
        let id = ExprId::at(index);
        is_dynamic[index] |=
            tree.children(id).iter().any(|child| is_dynamic.get(child.index()).copied().unwrap_or(false));
    }
    let references = checker.references;
    Checked { tree, types, is_dynamic, references }
}

struct Checker<'c, 's> {
    environment: &'c Declarations,
    source: &'c Source<'s>,
    tree: &'c Tree,
    issues: &'c mut Issues,
    substitutions: Substitutions,
    types: Vec<Type>,
    references: Vec<Option<Reference>>,
    /// Variables of comprehensions, the innermost last.
    scopes: Vec<(Arc<str>, Type)>,
}

impl Checker<'_, '_> {
    fn report(&mut self, id: ExprId, message: String) {
        let position = self.source.position(self.tree.offset(id));
        self.issues.report(position, message);
    }

    fn type_of(&self, id: ExprId) -> Type {
        self.types.get(id.index()).cloned().unwrap_or(Type::Error)
    }

    fn set_type(&mut self, id: ExprId, type_: Type) {
        if let Some(place) = self.types.get_mut(id.index()) {
            *place = type_;
        }
    }

    fn refer(&mut self, id: ExprId, reference: Reference) {
        if let Some(place) = self.references.get_mut(id.index()) {
            *place = Some(reference);
        }
    }

    fn undeclared(&mut self, id: ExprId, name: &str) {
        self.report(id, format!("undeclared reference to '{name}' (in container '')"));
    }

    fn mismatch(&mut self, id: ExprId, expected: &Type, found: &Type) {
        self.report(id, format!("expected type '{expected}' but found '{found}'"));
    }

    fn check(&mut self, id: ExprId) {
        let tree = self.tree;
        let type_ = match tree.get(id) {
            Expr::Literal(literal) => literal_type(literal),
            Expr::Ident(name) => self.ident(id, name),
            Expr::Select { operand, field, is_test } => self.select(id, *operand, field, *is_test),
            Expr::Call { function, target, arguments } => self.call(id, function, *target, arguments),
            Expr::List { elements, optional } => self.list(elements, optional),
            Expr::Map(_) => self.map(id),
            Expr::Struct { name, fields } => self.structure(id, name, fields),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Broken => Type::Error,
        };
        if self.substitutions.is_too_large(&type_) {
            self.report(id, "the type is nested too deeply".to_owned());
            self.set_type(id, Type::Error);
            return;
        }
        self.set_type(id, type_);
    }

    fn structure(&mut self, id: ExprId, name: &str, fields: &[StructField]) -> Type {
        let name = name.strip_prefix('.').unwrap_or(name);
        if !self.environment.is_patch_type(name) {
            match self.environment.named_type(name) {
                Some(_) => self.report(id, format!("'{name}' is not a message type")),
                None => self.undeclared(id, name),
            }
            return Type::Error;
        }
        for field in fields {
            self.check(field.value);
            let type_ = self.element_type(field.value, field.is_optional);
            let Some(expected) = self.environment.field_type(name, &field.name) else {
                self.report(field.value, format!("undefined field '{}'", field.name));
                continue;
            };
            if !self.substitutions.is_assignable(&expected, &type_) {
                let message = format!(
                    "expected type of field '{}' is '{expected}' but provided type is '{type_}'",
                    field.name
                );
                self.report(field.value, message);
            }
        }
        Type::Object(name.into())
    }

    fn local(&self, name: &str) -> Option<&Type> {
        self.scopes.iter().rev().find(|(local, _)| **local == *name).map(|(_, type_)| type_)
    }

    fn ident(&mut self, id: ExprId, name: &str) -> Type {
        if let Some(type_) = self.local(name) {
            return type_.clone();
        }
        match self.global(id, name.strip_prefix('.').unwrap_or(name)) {
            Some(type_) => type_,
            None => {
                self.undeclared(id, name);
                Type::Error
            }
        }
    }

    /// The type of a variable of the environment or of a type as a value.
    fn global(&mut self, id: ExprId, name: &str) -> Option<Type> {
        if let Some(place) = self.environment.variable(name) {
            self.refer(id, Reference::Variable(place));
            return self.environment.variables().get(place).map(|declared| declared.variable.type_());
        }
        let type_ = self.environment.named_type(name)?;
        self.refer(id, Reference::Type(type_.clone()));
        Some(Type::Type(Some(Arc::new(type_))))
    }

    fn select(&mut self, id: ExprId, operand: ExprId, field: &str, is_test: bool) -> Type {
        if !is_test
            && let Some(name) = self.qualified_name(id)
            && let Some(type_) = self.global(id, name.strip_prefix('.').unwrap_or(&name))
        {
            return type_;
        }
        let type_ = self.field(id, operand, field, false);
        if is_test { Type::Bool } else { self.substitutions.resolve(&type_) }
    }

    /// The text of a chain of selections on a name that is no local variable.
    fn qualified_name(&self, id: ExprId) -> Option<String> {
        let mut fields = Vec::new();
        let mut at = id;
        loop {
            match self.tree.get(at) {
                Expr::Select { operand, field, is_test: false } => {
                    fields.push(&**field);
                    at = *operand;
                }
                Expr::Ident(name) if self.local(name).is_none() => {
                    fields.push(&**name);
                    fields.reverse();
                    return Some(fields.join("."));
                }
                _ => return None,
            }
        }
    }

    fn field(&mut self, id: ExprId, operand: ExprId, field: &str, is_optional: bool) -> Type {
        self.check(operand);
        let operand_type = self.substitutions.resolve(&self.type_of(operand));
        let unwrapped = operand_type.optional_value();
        let is_optional = is_optional || unwrapped.is_some();
        let target = unwrapped.unwrap_or(&operand_type);
        let result = match target {
            Type::Map(types) => types.1.clone(),
            Type::Object(name) => match self.environment.field_type(name, field) {
                Some(type_) => type_,
                None if self.environment.is_object(name) => {
                    self.report(id, format!("undefined field '{field}'"));
                    Type::Error
                }
                None => {
                    self.report(id, format!("unexpected failed resolution of '{name}'"));
                    Type::Error
                }
            },
            Type::Variable(_) => {
                self.substitutions.is_assignable(&Type::Dyn, target);
                Type::Dyn
            }
            other => {
                if !other.is_dyn_or_error() {
                    self.report(id, format!("type '{other}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        if is_optional { Type::optional(result) } else { result }
    }

    fn call(&mut self, id: ExprId, name: &str, target: Option<ExprId>, arguments: &[ExprId]) -> Type {
        if name == "_?._" {
            return self.optional_select(id, arguments);
        }
        for argument in arguments {
            self.check(*argument);
        }
        let Some(target) = target else {
            return match self.environment.function(name).cloned() {
                Some(function) => self.resolve(id, &function, None, arguments, false),
                None => {
                    self.undeclared(id, name);
                    Type::Error
                }
            };
        };
        // `a.b.c()` is the method `c` of `a.b`, or the function `a.b.c`.
        if let Some(prefix) = self.text_of_path(target)
            && let Some(function) = self.environment.function(&format!("{prefix}.{name}")).cloned()
        {
            return self.resolve(id, &function, None, arguments, true);
        }
        self.check(target);
        match self.environment.function(name).cloned() {
            Some(function) => self.resolve(id, &function, Some(target), arguments, false),
            None => {
                self.undeclared(id, name);
                Type::Error
            }
        }
    }

    fn text_of_path(&self, id: ExprId) -> Option<String> {
        match self.tree.get(id) {
            Expr::Ident(name) => Some(name.to_string()),
            Expr::Select { operand, field, is_test: false } => {
                Some(format!("{}.{field}", self.text_of_path(*operand)?))
            }
            _ => None,
        }
    }

    fn optional_select(&mut self, id: ExprId, arguments: &[ExprId]) -> Type {
        let [operand, field] = arguments else {
            return Type::Error;
        };
        let Some(Literal::String(field)) = self.tree.literal(*field) else {
            return Type::Error;
        };
        let type_ = self.field(id, *operand, field, true);
        let call = Call {
            function: "_?._".into(),
            overloads: vec!["select_optional_field".into()],
            is_namespaced: false,
        };
        self.refer(id, Reference::Function(call));
        self.substitutions.resolve(&type_)
    }

    /// Selects the overloads that fit the arguments. Several may fit if arguments are `dyn`.
    fn resolve(
        &mut self,
        id: ExprId,
        function: &Function,
        target: Option<ExprId>,
        arguments: &[ExprId],
        is_namespaced: bool,
    ) -> Type {
        let operands: Vec<ExprId> = target.iter().chain(arguments).copied().collect();
        let types: Vec<Type> = operands.iter().map(|operand| self.type_of(*operand)).collect();
        if matches!(&*function.name, "_&&_" | "_||_") {
            return self.logical(id, function, &operands, &types);
        }
        let mut result: Option<Type> = None;
        let mut overloads = Vec::new();
        for overload in function.overloads.iter().filter(|overload| overload.is_method == target.is_some()) {
            let mut parameters = Vec::new();
            let mut instantiate = |this: &mut Self, type_: &Type| this.instantiate(type_, &mut parameters);
            let candidate: Vec<Type> =
                overload.arguments.iter().map(|argument| instantiate(self, argument)).collect();
            let candidate_result = instantiate(self, &overload.result);
            if !self.substitutions.are_assignable(&types, &candidate) {
                continue;
            }
            overloads.push(Arc::clone(&overload.id));
            let found = self.substitutions.resolve(&candidate_result);
            result = Some(match result {
                None => found,
                Some(first) if matches!(first, Type::Dyn) || first == found => first,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            let types: Vec<Type> =
                types.iter().map(|type_| self.substitutions.resolve_to_dyn(type_)).collect();
            let signature = signature(&types, target.is_some());
            let message =
                format!("found no matching overload for '{}' applied to '{signature}'", function.name);
            self.report(id, message);
            return Type::Error;
        };
        let call = Call { function: Arc::clone(&function.name), overloads, is_namespaced };
        self.refer(id, Reference::Function(call));
        result
    }

    fn logical(&mut self, id: ExprId, function: &Function, operands: &[ExprId], types: &[Type]) -> Type {
        let mut result = Type::Bool;
        for (operand, type_) in operands.iter().zip(types) {
            if !self.substitutions.is_assignable(type_, &Type::Bool) {
                self.mismatch(*operand, &Type::Bool, type_);
                result = Type::Error;
            }
        }
        let overloads = function.overloads.iter().map(|overload| Arc::clone(&overload.id)).collect();
        let call = Call { function: Arc::clone(&function.name), overloads, is_namespaced: false };
        self.refer(id, Reference::Function(call));
        result
    }

    /// Replaces the parameters of a declaration by new variables.
    fn instantiate(&mut self, type_: &Type, parameters: &mut Vec<(char, Type)>) -> Type {
        match type_ {
            Type::Param(name) => {
                if let Some((_, variable)) = parameters.iter().find(|(parameter, _)| parameter == name) {
                    return variable.clone();
                }
                let variable = self.substitutions.new_variable();
                parameters.push((*name, variable.clone()));
                variable
            }
            Type::List(element) => Type::list(self.instantiate(element, parameters)),
            Type::Map(types) => {
                let key = self.instantiate(&types.0, parameters);
                Type::map(key, self.instantiate(&types.1, parameters))
            }
            Type::Opaque(name, inner) if !inner.is_empty() => {
                let inner: Vec<Type> =
                    inner.iter().map(|type_| self.instantiate(type_, parameters)).collect();
                Type::Opaque(Arc::clone(name), inner.into())
            }
            Type::Type(Some(parameter)) => {
                Type::Type(Some(Arc::new(self.instantiate(parameter, parameters))))
            }
            other => other.clone(),
        }
    }

    fn list(&mut self, elements: &[ExprId], optional: &[bool]) -> Type {
        let mut joined = None;
        for (element, is_optional) in elements.iter().zip(optional) {
            self.check(*element);
            let type_ = self.element_type(*element, *is_optional);
            joined = Some(self.join(joined, type_));
        }
        Type::list(joined.unwrap_or_else(|| self.substitutions.new_variable()))
    }

    /// The type of an element; of one marked with `?` the type of its value.
    fn element_type(&mut self, id: ExprId, is_optional: bool) -> Type {
        let type_ = self.type_of(id);
        if !is_optional {
            return type_;
        }
        if let Some(value) = type_.optional_value() {
            return value.clone();
        }
        if !matches!(type_, Type::Dyn) {
            self.mismatch(id, &Type::optional(type_.clone()), &type_);
        }
        type_
    }

    fn map(&mut self, id: ExprId) -> Type {
        let tree = self.tree;
        let Expr::Map(entries) = tree.get(id) else {
            return Type::Error;
        };
        let mut joined: Option<(Type, Type)> = None;
        for entry in entries {
            self.check(entry.key);
            let (keys, values) = joined.take().unzip();
            let keys = self.join(keys, self.type_of(entry.key));
            self.check(entry.value);
            let value = self.element_type(entry.value, entry.is_optional);
            joined = Some((keys, self.join(values, value)));
        }
        let (keys, values) =
            joined.unwrap_or_else(|| (self.substitutions.new_variable(), self.substitutions.new_variable()));
        Type::map(keys, values)
    }

    /// The common type of the elements of a literal. Mixed literals are refused later, except in `format`.
    fn join(&mut self, joined: Option<Type>, type_: Type) -> Type {
        match joined {
            None => type_,
            Some(joined) if self.substitutions.is_assignable(&joined, &type_) => {
                most_general(&joined, &type_).clone()
            }
            Some(_) => Type::Dyn,
        }
    }

    fn comprehension(&mut self, comprehension: &Comprehension) -> Type {
        self.check(comprehension.range);
        self.check(comprehension.initial);
        let range = self.substitutions.resolve(&self.type_of(comprehension.range));
        let accumulator = self.type_of(comprehension.initial);
        let has_second = comprehension.second_variable.is_some();
        let (first, second) = match &range {
            Type::List(element) if has_second => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Error),
            Type::Map(types) => (types.0.clone(), types.1.clone()),
            Type::Dyn | Type::Error | Type::Variable(_) | Type::Param(_) => {
                self.substitutions.is_assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(comprehension.range, message);
                (Type::Error, Type::Error)
            }
        };
        let depth = self.scopes.len();
        self.scopes.push((Arc::clone(&comprehension.accumulator), accumulator.clone()));
        let outer = self.scopes.len();
        self.scopes.push((Arc::clone(&comprehension.variable), first));
        if let Some(name) = &comprehension.second_variable {
            self.scopes.push((Arc::clone(name), second));
        }
        self.check(comprehension.condition);
        self.require(comprehension.condition, &Type::Bool);
        self.check(comprehension.step);
        self.require(comprehension.step, &accumulator);
        self.scopes.truncate(outer);
        self.check(comprehension.result);
        self.scopes.truncate(depth);
        self.substitutions.resolve(&self.type_of(comprehension.result))
    }

    fn require(&mut self, id: ExprId, expected: &Type) {
        let found = self.type_of(id);
        if !self.substitutions.is_assignable(expected, &found) {
            self.mismatch(id, expected, &found);
        }
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

fn signature(types: &[Type], is_method: bool) -> String {
    let (target, arguments) = if is_method { types.split_at(types.len().min(1)) } else { types.split_at(0) };
    let texts: Vec<String> = arguments.iter().map(Type::to_string).collect();
    let target: String = target.iter().map(|target| format!("{target}.")).collect();
    format!("{target}({})", texts.join(", "))
}
