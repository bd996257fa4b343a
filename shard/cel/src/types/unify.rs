//! Assignability and type inference, with the rules of cel-go's checker.

use std::sync::Arc;

use super::Type;
use crate::limits::MAX_TYPE_SIZE;

/// Types that inference has found for variables, indexed by the number of the variable.
#[derive(Default)]
pub(crate) struct Substitutions {
    types: Vec<Option<Type>>,
    /// Assignments since the innermost attempt, for its withdrawal: variable and former type.
    changes: Vec<(u32, Option<Type>)>,
}

impl Substitutions {
    pub(crate) fn new_variable(&mut self) -> Type {
        let number = u32::try_from(self.types.len()).unwrap_or(u32::MAX);
        self.types.push(None);
        Type::Variable(number)
    }

    fn find(&self, variable: &Type) -> Option<&Type> {
        match variable {
            Type::Variable(number) => self.types.get(*number as usize)?.as_ref(),
            _ => None,
        }
    }

    fn assign(&mut self, variable: &Type, to: Type) {
        if let Type::Variable(number) = variable
            && let Some(place) = self.types.get_mut(*number as usize)
        {
            let former = place.replace(to);
            self.changes.push((*number, former));
            // Types found for variables may contain variables whose types grow later.
            if self.is_too_large(variable)
                && let Some(place) = self.types.get_mut(*number as usize)
            {
                *place = Some(Type::Error);
            }
        }
    }

    /// Whether a type is too large for inference, which reads types as trees: `{a: a}` doubles the type of `a`. The types
    /// found for variables count, too.
    pub(crate) fn is_too_large(&self, type_: &Type) -> bool {
        let mut remaining = MAX_TYPE_SIZE;
        let mut pending = vec![type_];
        while let Some(part) = pending.pop() {
            if remaining == 0 {
                return true;
            }
            remaining -= 1;
            match part {
                Type::Variable(_) => pending.extend(self.find(part)),
                Type::Type(Some(parameter)) => pending.push(parameter),
                part => pending.extend(part.parameters()),
            }
        }
        false
    }

    /// Whether values of `from` can be used as `to`. Without success no variable is changed.
    pub(crate) fn is_assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.attempt(|this| this.assignable(from, to))
    }

    pub(crate) fn are_assignable(&mut self, from: &[Type], to: &[Type]) -> bool {
        self.attempt(|this| this.all_assignable(from, to))
    }

    fn attempt(&mut self, check: impl FnOnce(&mut Self) -> bool) -> bool {
        self.changes.clear();
        if check(self) {
            return true;
        }
        while let Some((number, former)) = self.changes.pop() {
            if let Some(place) = self.types.get_mut(number as usize) {
                *place = former;
            }
        }
        false
    }

    fn all_assignable(&mut self, from: &[Type], to: &[Type]) -> bool {
        from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.assignable(from, to))
    }

    fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        if to.is_variable() {
            match self.substitutes(from, to) {
                Substitution::Valid => return true,
                Substitution::Conflict => return false,
                Substitution::Impossible => {}
            }
        }
        if from.is_variable() {
            return matches!(self.substitutes(to, from), Substitution::Valid);
        }
        if from.is_dyn_or_error() || to.is_dyn_or_error() {
            return true;
        }
        match (from, to) {
            (Type::Null, other) | (other, Type::Null) => is_nullable(other),
            (Type::List(from), Type::List(to)) => self.assignable(from, to),
            (Type::Map(from), Type::Map(to)) => {
                self.assignable(&from.0, &to.0) && self.assignable(&from.1, &to.1)
            }
            (Type::Opaque(from, parameters), Type::Opaque(to, others)) => {
                from == to && self.all_assignable(parameters, others)
            }
            (Type::Type(_), Type::Type(_)) => true,
            (from, to) => from == to,
        }
    }

    /// Whether `variable`, or the type found for it, can stand for `other`.
    fn substitutes(&mut self, other: &Type, variable: &Type) -> Substitution {
        if other == variable {
            return Substitution::Valid;
        }
        if let Some(found) = self.find(variable).cloned() {
            if *other == found {
                return Substitution::Valid;
            }
            if !self.assignable(other, &found) {
                return Substitution::Conflict;
            }
            let general = most_general(other, &found).clone();
            if !self.occurs(variable, &general) {
                self.assign(variable, general);
            }
            return Substitution::Valid;
        }
        if self.occurs(variable, other) {
            return Substitution::Impossible;
        }
        self.assign(variable, other.clone());
        Substitution::Valid
    }

    /// Whether a variable occurs in a type, which would make the type infinite.
    fn occurs(&self, variable: &Type, within: &Type) -> bool {
        if variable == within {
            return true;
        }
        match within {
            Type::Variable(_) => self.find(within).is_some_and(|found| self.occurs(variable, found)),
            Type::List(element) => self.occurs(variable, element),
            Type::Map(types) => self.occurs(variable, &types.0) || self.occurs(variable, &types.1),
            Type::Opaque(_, parameters) => {
                parameters.iter().any(|parameter| self.occurs(variable, parameter))
            }
            Type::Type(Some(parameter)) => self.occurs(variable, parameter),
            _ => false,
        }
    }

    /// Replaces variables by the types found for them.
    pub(crate) fn resolve(&self, type_: &Type) -> Type {
        self.substitute(type_, false)
    }

    /// Replaces variables by the types found for them, and all others by `dyn`.
    pub(crate) fn resolve_to_dyn(&self, type_: &Type) -> Type {
        self.substitute(type_, true)
    }

    fn substitute(&self, type_: &Type, to_dyn: bool) -> Type {
        match type_ {
            Type::Variable(_) => match self.find(type_) {
                Some(found) => self.substitute(found, to_dyn),
                None if to_dyn => Type::Dyn,
                None => type_.clone(),
            },
            Type::Param(_) if to_dyn => Type::Dyn,
            Type::List(element) => Type::list(self.substitute(element, to_dyn)),
            Type::Map(types) => {
                Type::map(self.substitute(&types.0, to_dyn), self.substitute(&types.1, to_dyn))
            }
            Type::Opaque(name, parameters) if !parameters.is_empty() => {
                let parameters: Vec<Type> = parameters.iter().map(|p| self.substitute(p, to_dyn)).collect();
                Type::Opaque(Arc::clone(name), parameters.into())
            }
            Type::Type(Some(parameter)) => Type::Type(Some(Arc::new(self.substitute(parameter, to_dyn)))),
            other => other.clone(),
        }
    }
}

enum Substitution {
    Valid,
    /// The variable has another type already.
    Conflict,
    /// The variable occurs in the other type.
    Impossible,
}

/// Types that `null` can be used as: those of messages in protobuf, which CEL comes from.
fn is_nullable(type_: &Type) -> bool {
    matches!(type_, Type::Null | Type::Opaque(..) | Type::Object(_) | Type::Duration | Type::Timestamp)
}

/// The more general of two types of which one can be used as the other.
pub(crate) fn most_general<'t>(first: &'t Type, second: &'t Type) -> &'t Type {
    if is_equal_or_less_specific(first, second) { first } else { second }
}

fn is_equal_or_less_specific(first: &Type, second: &Type) -> bool {
    if matches!(first, Type::Dyn) || first.is_variable() {
        return true;
    }
    if matches!(second, Type::Dyn) || second.is_variable() {
        return false;
    }
    match (first, second) {
        (Type::List(a), Type::List(b)) => is_equal_or_less_specific(a, b),
        (Type::Map(a), Type::Map(b)) => {
            is_equal_or_less_specific(&a.0, &b.0) && is_equal_or_less_specific(&a.1, &b.1)
        }
        (Type::Opaque(a, p), Type::Opaque(b, q)) => {
            a == b
                && p.len() == q.len()
                && p.iter().zip(q.iter()).all(|(p, q)| is_equal_or_less_specific(p, q))
        }
        (Type::Type(_), Type::Type(_)) => true,
        (a, b) => a == b,
    }
}
