//! The environments of one admission policy or webhook: the variables and the result of each kind of its expressions.

use std::sync::LazyLock;

use thiserror::Error;

use crate::admission::AdmissionVariables;
use crate::check::CompileError;
use crate::environment::Environment;
use crate::program::Program;
use crate::types::Type;

/// Variables that messages do not have.
const HIDDEN: [&str; 2] = ["authorizer", "authorizer.requestResource"];

/// Maximum number of variables of a policy. Each variable keeps those before it, so their cost is quadratic.
const MAX_VARIABLES: usize = 200;

/// Building an environment costs more than compiling an expression, so all policies share them: without and with params.
static BASES: LazyLock<[Environment; 2]> = LazyLock::new(|| {
    [false, true].map(|params| {
        let variables = AdmissionVariables { params, authorizer: true, patch_types: false };
        Environment::default().with_admission_variables(variables)
    })
});
static PATCHING: LazyLock<Environment> = LazyLock::new(|| Environment::default().with_patch_types());

/// The purpose of an expression. It decides about variables and the type of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpressionKind {
    /// A match condition of a policy or webhook: a boolean, without `variables`.
    MatchCondition,
    /// A validation: a boolean.
    Validation,
    /// A `messageExpression`: a string, without `authorizer`.
    Message,
    /// The value of an audit annotation: a string or null.
    AuditAnnotation,
    /// A list of `JSONPatch`.
    JsonPatch,
    /// An `Object`.
    ApplyConfiguration,
}

/// The fault of an expression of a policy, in the words of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExpressionError {
    /// The expression is wrong.
    #[error("{0}")]
    Invalid(String),
    /// A constant part of it cannot be evaluated. Kubernetes reports it as its own fault.
    #[error("{0}")]
    Internal(String),
}

impl From<CompileError> for ExpressionError {
    fn from(error: CompileError) -> Self {
        match error {
            CompileError::Invalid(_) => Self::Invalid(error.to_string()),
            CompileError::Constant(_) => Self::Internal(error.to_string()),
        }
    }
}

/// The environments of the expressions of one policy. Variables are added first, in their order.
#[derive(Clone, Debug)]
pub struct PolicyEnvironments {
    conditions: Environment,
    expressions: Environment,
    messages: Environment,
    patches: Environment,
    variables: usize,
}

impl PolicyEnvironments {
    /// The environments of a policy without variables. `has_params`: it has a `paramKind`.
    #[must_use]
    pub fn new(has_params: bool) -> Self {
        let [without, with] = &*BASES;
        let base = if has_params { with } else { without };
        let base = base.clone().with_shared_patterns();
        Self {
            conditions: base.clone(),
            expressions: base.clone(),
            messages: hidden(&base),
            patches: base.with_patch_types_of(&PATCHING),
            variables: 0,
        }
    }

    /// Adds `variables.<name>`. After an error, expressions may use it as a value of any type, so that one mistake is
    /// reported once.
    ///
    /// # Errors
    /// If the expression is invalid, or there are too many variables.
    pub fn add_variable(&mut self, name: &str, source: &str) -> Result<(), ExpressionError> {
        self.variables += 1;
        if self.variables > MAX_VARIABLES {
            let message = format!("a policy must not have more than {MAX_VARIABLES} variables");
            return Err(ExpressionError::Invalid(message));
        }
        let (expressions, result) = match self.expressions.clone().with_named_expression(name, source) {
            Ok(added) => (Ok(added), Ok(())),
            Err(error) => {
                (self.expressions.clone().with_named_expression(name, "dyn(null)"), Err(error.into()))
            }
        };
        // The replacement always compiles.
        if let Ok(expressions) = expressions {
            self.messages = hidden(&expressions);
            self.patches = expressions.clone().with_patch_types_of(&PATCHING);
            self.expressions = expressions;
        }
        result
    }

    /// Compiles an expression.
    ///
    /// # Errors
    /// If it is invalid, or its result has another type.
    pub fn compile(&self, kind: ExpressionKind, source: &str) -> Result<Program, ExpressionError> {
        let program = self.of(kind).compile(source)?;
        let found = program.output_type();
        let expected = match kind {
            ExpressionKind::MatchCondition | ExpressionKind::Validation => "bool",
            ExpressionKind::Message => "string",
            ExpressionKind::AuditAnnotation => "one of [string null_type]",
            ExpressionKind::JsonPatch => "list(JSONPatch)",
            ExpressionKind::ApplyConfiguration => "Object",
        };
        let is_expected = match kind {
            ExpressionKind::MatchCondition | ExpressionKind::Validation => *found == Type::Bool,
            ExpressionKind::Message => *found == Type::String,
            ExpressionKind::AuditAnnotation => matches!(found, Type::String | Type::Null),
            ExpressionKind::JsonPatch => {
                matches!(found, Type::List(item) if matches!(&**item, Type::Object(name) if **name == *"JSONPatch"))
            }
            ExpressionKind::ApplyConfiguration => {
                matches!(found, Type::Object(name) if **name == *"Object")
            }
        };
        if is_expected {
            return Ok(program);
        }
        // Kubernetes prints the names of these types at run time here, and not in errors of the type check.
        let found = match found {
            Type::Null => "null_type".to_owned(),
            Type::Duration | Type::Timestamp => found.runtime_name().to_owned(),
            other => other.to_string(),
        };
        Err(ExpressionError::Invalid(format!("must evaluate to {expected} but got {found}")))
    }

    /// The environment of a kind of expressions, for their inputs.
    #[must_use]
    pub fn of(&self, kind: ExpressionKind) -> &Environment {
        match kind {
            ExpressionKind::MatchCondition => &self.conditions,
            ExpressionKind::Validation | ExpressionKind::AuditAnnotation => &self.expressions,
            ExpressionKind::Message => &self.messages,
            ExpressionKind::JsonPatch | ExpressionKind::ApplyConfiguration => &self.patches,
        }
    }
}

/// The environment of messages, which must not tell what the client may do elsewhere.
fn hidden(environment: &Environment) -> Environment {
    HIDDEN.iter().fold(environment.clone(), |environment, name| environment.without_variable(name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn compile(kind: ExpressionKind, source: &str) -> Result<(), String> {
        let mut environments = PolicyEnvironments::new(true);
        environments.add_variable("small", "object.spec.replicas < 3").unwrap();
        environments
            .add_variable("permitted", "authorizer.group('').resource('pods').check('get').allowed()")
            .unwrap();
        assert!(environments.add_variable("broken", "object.").is_err());
        environments.compile(kind, source).map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn the_purpose_decides_about_the_type_of_the_result() {
        use ExpressionKind::{
            ApplyConfiguration, AuditAnnotation, JsonPatch, MatchCondition, Message, Validation,
        };
        for (kind, source, expected) in [
            (Validation, "variables.small", Ok(())),
            (Validation, "variables.broken == 1 && variables.permitted", Ok(())),
            (Validation, "object.spec", Err("must evaluate to bool but got dyn")),
            (Validation, "[1]", Err("must evaluate to bool but got list(int)")),
            (Validation, "variables.missing", Err("undefined field 'missing'")),
            (MatchCondition, "request.name == params.name", Ok(())),
            (MatchCondition, "variables.small", Err("undeclared reference to 'variables'")),
            (Message, "'no: ' + string(params.max)", Ok(())),
            (Message, "variables.permitted ? 'a' : 'b'", Ok(())),
            (
                Message,
                "authorizer.path('/x').check('get').reason()",
                Err("undeclared reference to 'authorizer'"),
            ),
            (Message, "1", Err("must evaluate to string but got int")),
            (AuditAnnotation, "null", Ok(())),
            (AuditAnnotation, "''", Ok(())),
            (
                AuditAnnotation,
                "duration('1s')",
                Err("must evaluate to one of [string null_type] but got google.protobuf.Duration"),
            ),
            (JsonPatch, "[JSONPatch{op: 'add', path: '/a', value: variables.small}]", Ok(())),
            (JsonPatch, "[]", Err("must evaluate to list(JSONPatch) but got list(dyn)")),
            (JsonPatch, "Object{}", Err("must evaluate to list(JSONPatch) but got Object")),
            (ApplyConfiguration, "Object{spec: Object.spec{a: variables.small}}", Ok(())),
            (ApplyConfiguration, "Object.spec{}", Err("must evaluate to Object but got Object.spec")),
            (Validation, "Object{} == Object{}", Err("undeclared reference to 'Object'")),
        ] {
            match (compile(kind, source), expected) {
                (Ok(()), Ok(())) => {}
                (Err(found), Err(expected)) => assert!(found.contains(expected), "{source}: {found}"),
                (found, _) => panic!("{source}: {found:?}"),
            }
        }
    }
}
