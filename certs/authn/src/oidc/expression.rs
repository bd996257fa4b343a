//! CEL expressions over the claims of a token or over the mapped user.
//!
//! Types, functions, error texts and costs are those of Kubernetes (`fairlead_cel`). Tenants write expressions, too: each
//! evaluation is charged to the budget of its token.

use std::{cell::RefCell, fmt, sync::LazyLock};

use fairlead_cel::{
    Budget, CompileError, Environment, EvaluationError as CelError, Inputs, Program, Type, Value as CelValue,
};
use serde_json::Value;
use thiserror::Error;

/// Maximum size in bytes of the texts that an expression may make, such as the groups of a user.
const MAX_TEXTS: usize = 1 << 20;

/// The variable of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    /// `claims`, of any structure.
    Claims,
    /// `user`, with `username`, `uid`, `groups` and `extra`.
    User,
}

/// A checked expression.
pub(crate) struct Expression {
    source: String,
    variable: Variable,
    /// Fields of the variable that it selects.
    fields: Vec<Box<str>>,
    program: Program,
}

/// The reason why an expression cannot be used, in the words of Kubernetes; its author has to correct it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum ExpressionError {
    #[error(transparent)]
    Compilation(#[from] CompileError),
    #[error("must evaluate to bool")]
    NotBoolean,
}

/// The reason why an evaluation has failed. Contains nothing of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum EvaluationError {
    #[error("cannot be evaluated for this token")]
    Failed,
    #[error("is too costly for this token")]
    TooCostly,
    #[error("evaluates to something of a wrong type")]
    WrongType,
}

/// The input of the expressions of one token, with their common budget.
pub(crate) struct Input {
    variable: Variable,
    value: Value,
    budget: RefCell<Budget>,
}

static CLAIMS: LazyLock<Environment> = LazyLock::new(|| Environment::default().with_claims_variable());
static USER: LazyLock<Environment> = LazyLock::new(|| Environment::default().with_user_variable());

impl Variable {
    fn name(self) -> &'static str {
        match self {
            Self::Claims => "claims",
            Self::User => "user",
        }
    }

    fn environment(self) -> &'static Environment {
        match self {
            Self::Claims => &CLAIMS,
            Self::User => &USER,
        }
    }
}

impl Expression {
    /// Compiles an expression of any type.
    pub(crate) fn new(source: &str, variable: Variable) -> Result<Self, ExpressionError> {
        let environment = variable.environment();
        let program = environment.compile(source)?;
        let fields = environment.selected_fields(source, variable.name())?;
        Ok(Self { source: source.to_owned(), variable, fields, program })
    }

    /// Compiles a boolean expression. As in Kubernetes, the type must be known: a claim has none.
    pub(crate) fn rule(source: &str, variable: Variable) -> Result<Self, ExpressionError> {
        let expression = Self::new(source, variable)?;
        match expression.program.output_type() {
            Type::Bool => Ok(expression),
            _ => Err(ExpressionError::NotBoolean),
        }
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Whether it selects this field of its variable.
    pub(crate) fn uses(&self, field: &str) -> bool {
        self.fields.iter().any(|used| **used == *field)
    }

    /// Evaluates it to a boolean.
    pub(crate) fn holds(&self, input: &Input) -> Result<bool, EvaluationError> {
        self.evaluate(input, |value| value.as_bool().ok_or(EvaluationError::WrongType))
    }

    /// Evaluates it to a string.
    pub(crate) fn text(&self, input: &Input) -> Result<String, EvaluationError> {
        self.evaluate(input, owned_text)
    }

    /// Evaluates it to a list of strings, or to one string. As in Kubernetes, empty strings and `null` are dropped.
    pub(crate) fn texts(&self, input: &Input) -> Result<Vec<String>, EvaluationError> {
        let texts = self.evaluate(input, |value| match value {
            CelValue::Null => Ok(Vec::new()),
            CelValue::List(list) => owned_texts(&list.items().map_err(reason)?),
            value => Ok(vec![owned_text(value)?]),
        })?;
        Ok(texts.into_iter().filter(|text| !text.is_empty()).collect())
    }

    /// Evaluates it in some µs and reads the result, which borrows from the input.
    fn evaluate<T>(
        &self,
        input: &Input,
        read: impl FnOnce(&CelValue<'_>) -> Result<T, EvaluationError>,
    ) -> Result<T, EvaluationError> {
        debug_assert_eq!(self.variable, input.variable);
        let inputs = Inputs::new(self.variable.environment()).with_json(self.variable.name(), &input.value);
        let evaluation = self.program.evaluate(&inputs, &mut input.budget.borrow_mut());
        read(&evaluation.result.map_err(reason)?)
    }
}

/// The texts of a list, which may contain one large text many times.
fn owned_texts(values: &[CelValue<'_>]) -> Result<Vec<String>, EvaluationError> {
    let mut remaining = MAX_TEXTS;
    let mut texts = Vec::new();
    for value in values {
        let text = value.as_str().ok_or(EvaluationError::WrongType)?;
        remaining = remaining.checked_sub(text.len()).ok_or(EvaluationError::TooCostly)?;
        texts.push(text.to_owned());
    }
    Ok(texts)
}

fn owned_text(value: &CelValue<'_>) -> Result<String, EvaluationError> {
    value.as_str().map(str::to_owned).ok_or(EvaluationError::WrongType)
}

fn reason(error: CelError) -> EvaluationError {
    match error {
        CelError::Failed(_) => EvaluationError::Failed,
        CelError::CostLimit | CelError::BudgetExhausted | CelError::Interrupted => EvaluationError::TooCostly,
    }
}

impl Input {
    pub(crate) fn new(variable: Variable, value: Value) -> Self {
        Self { variable, value, budget: RefCell::default() }
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.source).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims() -> Input {
        let claims = json!({
            "sub": "ann", "email": "ann@example.com", "email_verified": true, "exp": 1000, "nbf": 400.5,
            "roles": "a,b", "groups": ["x", "", "y"], "nested": { "deep": ["z"] }, "nothing": null,
            "example.com/team": "t", "ip": "10.1.2.3",
        });
        Input::new(Variable::Claims, claims)
    }

    #[test]
    fn expressions_are_evaluated_as_in_kubernetes() {
        let cases: [(&str, &[&str]); 18] = [
            ("claims.sub", &["ann"]),
            ("'oidc:' + claims.sub", &["oidc:ann"]),
            ("claims['example.com/team']", &["t"]),
            ("claims.roles.split(',')", &["a", "b"]),
            ("claims.roles.split(',') + claims.groups", &["a", "b", "x", "y"]),
            ("claims.groups.map(group, 'g:' + group)", &["g:x", "g:", "g:y"]),
            ("claims.groups.filter(group, group != 'x')", &["y"]),
            ("claims.nested.deep", &["z"]),
            ("claims.?missing.orValue('none')", &["none"]),
            ("claims.?nested.?missing.orValue([])", &[]),
            ("claims.?nested.?deep.optMap(list, list + ['more']).orValue([])", &["z", "more"]),
            ("claims.groups.map(group, group + '-' + claims.sub)", &["x-ann", "-ann", "y-ann"]),
            ("has(claims.missing) ? claims.missing : claims.sub", &["ann"]),
            ("claims.nothing", &[]),
            ("claims.email.split('@')[0].upperAscii()", &["ANN"]),
            ("claims.exp > 999 && claims.nbf < 401.0 ? string(claims.exp) : ''", &["1000"]),
            // Kubernetes' own libraries.
            ("cidr('10.0.0.0/8').containsIP(ip(claims.ip)) ? 'inside' : 'outside'", &["inside"]),
            ("claims.roles.find('[a-z]')", &["a"]),
        ];
        for (source, expected) in cases {
            let expression = Expression::new(source, Variable::Claims).unwrap();
            assert_eq!(expression.texts(&claims()).unwrap(), expected, "{source}");
        }
    }

    #[test]
    fn rules_are_evaluated_to_booleans() {
        let cases = [
            ("claims.exp - 400 <= 600", Ok(true)),
            ("claims.?email_verified.orValue(true) == true", Ok(true)),
            ("claims.email_verified == false || claims.email.endsWith('@example.com')", Ok(true)),
            ("!('x' in claims.groups)", Ok(false)),
            ("claims.groups.all(group, group.startsWith('x'))", Ok(false)),
            ("claims.groups.exists(group, group == 'y') && has(claims.sub)", Ok(true)),
            ("claims.email.matches('^[a-z]+@example[.]com$')", Ok(true)),
            ("claims.missing == 'x'", Err(EvaluationError::Failed)),
            ("claims.sub > 7", Err(EvaluationError::Failed)),
            ("claims.exp / 0 == 1", Err(EvaluationError::Failed)),
        ];
        for (source, expected) in cases {
            let rule = Expression::rule(source, Variable::Claims).unwrap();
            assert_eq!(rule.holds(&claims()), expected, "{source}");
        }
    }

    #[test]
    fn mistakes_are_found_when_an_expression_is_compiled() {
        for (source, variable, expected) in [
            ("", Variable::Claims, "Syntax error"),
            ("claims.", Variable::Claims, "Syntax error"),
            ("'unclosed", Variable::Claims, "Syntax error"),
            ("claim.sub", Variable::Claims, "undeclared reference to 'claim' (in container '')"),
            ("user.username", Variable::Claims, "undeclared reference to 'user' (in container '')"),
            (
                "claims.groups.map(group, group) + [group]",
                Variable::Claims,
                "undeclared reference to 'group'",
            ),
            ("claims.sub.uppercase()", Variable::Claims, "undeclared reference to 'uppercase'"),
            ("Claims{sub: 'x'}", Variable::Claims, "undeclared reference to 'Claims'"),
            ("user.name == 'x'", Variable::User, "undefined field 'name'"),
            ("claims.sub", Variable::User, "undeclared reference to 'claims'"),
        ] {
            let error = Expression::new(source, variable).unwrap_err().to_string();
            assert!(error.starts_with("compilation failed: ERROR: <input>:1:"), "{source}: {error}");
            assert!(error.contains(expected), "{source}: {error}");
        }
        for source in ["claims.sub", "'true'", "claims.?sub.orValue(true)", "size(claims.sub)"] {
            let error = Expression::rule(source, Variable::Claims).unwrap_err();
            assert_eq!(error.to_string(), "must evaluate to bool", "{source}");
        }
        assert!(Expression::rule("user.extra['a'][0] == user.username", Variable::User).is_ok());
    }

    #[test]
    fn selected_fields_are_recorded() {
        let uses = |source: &str| {
            let expression = Expression::new(source, Variable::Claims).unwrap();
            ["email", "email_verified"].map(|field| expression.uses(field))
        };
        assert_eq!(uses("claims.email"), [true, false]);
        assert_eq!(uses("claims.?email.orValue('')"), [true, false]);
        assert_eq!(uses("has(claims.email_verified) ? claims.email : claims.sub"), [true, true]);
        assert_eq!(uses("claims.groups.filter(email, email == claims.sub)"), [false, false]);
    }

    #[test]
    fn deep_expressions_need_little_stack() {
        let repeat = |head: &str, part: &str, tail: &str| format!("{head}{}{tail}", part.repeat(2000));
        let sources = [
            repeat("1", "+1", " == 1"),
            repeat("claims", ".a", ""),
            repeat("claims", "[0]", ""),
            repeat("claims.a", ".trim()", ""),
            repeat("", "!", "true"),
            repeat("", "[", ""),
            repeat("", "(", ""),
            repeat("", "true?", ""),
            repeat("", "claims.map(x,", ""),
            "true && ".repeat(400) + "true",
        ];
        let small = std::thread::Builder::new().stack_size(1 << 20);
        let thread = small.spawn(move || {
            for source in sources {
                if let Ok(expression) = Expression::new(&source, Variable::Claims) {
                    // Returning without a crash is enough.
                    let _ = expression.holds(&Input::new(Variable::Claims, json!({})));
                }
            }
        });
        thread.unwrap().join().unwrap();
    }

    #[test]
    fn costly_expressions_are_interrupted() {
        let many: Vec<_> = (0..1000).map(|number| number.to_string()).collect();
        let large = json!({ "l": many, "s": "x".repeat(10_000) });
        let cases = [
            ("claims.l.all(a, a != 'x')", Ok(true)),
            ("claims.l.all(a, claims.l.all(b, a != 'x'))", Err(EvaluationError::TooCostly)),
            ("claims.s.replace('x', 'yy').size() == 20000", Ok(true)),
            ("claims.l.join(', ').size() > 0", Ok(true)),
            ("claims.l.all(a, a.matches('[0-9]+'))", Ok(true)),
        ];
        for (source, expected) in cases {
            let rule = Expression::rule(source, Variable::Claims).unwrap();
            assert_eq!(rule.holds(&Input::new(Variable::Claims, large.clone())), expected, "{source}");
        }
        // All expressions of a token have one budget.
        let input = Input::new(Variable::Claims, large);
        let rule = Expression::rule("claims.l.all(a, claims.l.all(b, a != 'x'))", Variable::Claims).unwrap();
        for _ in 0..20 {
            assert_eq!(rule.holds(&input), Err(EvaluationError::TooCostly));
        }
        let cheap = Expression::rule("claims.l.all(a, a != 'x')", Variable::Claims).unwrap();
        assert_eq!(cheap.holds(&input), Err(EvaluationError::TooCostly));
    }
}
