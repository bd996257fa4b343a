//! CEL expressions over the claims of a token or over the mapped user.
//!
//! Errors that Kubernetes finds at compile time are found here, too: unknown variables, fields and functions, and rules that
//! are not boolean. Kubernetes limits the cost at run time. Here the depth of loops and the size of the claims are limited
//! before the evaluation, because the interpreter cannot be stopped.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, LazyLock},
};

use cel::{
    Context, Env, Program, Value as CelValue, extensions,
    objects::{Key, Map as CelMap},
};
use serde_json::Value;
use thiserror::Error;

use super::expression_check::{Analysis, ExpressionError, ResultType, Size, Variable};

/// Longer expressions are refused; usual ones are shorter than 1 KiB.
const MAX_LENGTH: usize = 4 << 10;

/// Stack for the parser, which recurses for each operator of a chain, thousands of times for the worst text of that length.
/// Only the used part of the stack costs memory.
const PARSER_STACK: usize = 64 << 20;

/// Limit for the loop steps of an evaluation; about 50 ms.
const MAX_STEPS: u64 = 100_000;

/// Limit for the bytes of texts that an evaluation creates.
const MAX_BYTES: u64 = 64 << 20;

/// A checked expression.
pub(crate) struct Expression {
    source: String,
    variable: Variable,
    analysis: Analysis,
    program: Program,
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

/// The input of expressions, built once per token.
pub(crate) struct Input {
    variable: Variable,
    value: CelValue,
    size: Size,
}

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut environment = Env::stdlib();
    // An extension fails only if a function of that name exists; then that function is used.
    let _ = environment.add_extension(extensions::strings);
    let _ = environment.add_extension(extensions::encoders);
    Arc::new(environment)
});

impl Expression {
    /// Parses an expression of any type.
    pub(crate) fn new(source: &str, variable: Variable) -> Result<Self, ExpressionError> {
        if source.trim().is_empty() {
            return Err(ExpressionError::Empty);
        }
        if source.len() > MAX_LENGTH {
            return Err(ExpressionError::TooLong);
        }
        // The parser is a library, and tenants write expressions, too. A thread with a large stack parses deeply nested
        // texts; accepted expressions are safe on any stack.
        let parsed = std::thread::scope(|scope| {
            let parser = std::thread::Builder::new().stack_size(PARSER_STACK);
            parser.spawn_scoped(scope, || parse(source, variable)).ok()?.join().ok()
        });
        let cannot = || ExpressionError::Syntax("it cannot be parsed".to_owned());
        let (program, analysis) = parsed.ok_or_else(cannot)??;
        Ok(Self { source: source.to_owned(), variable, analysis, program })
    }

    /// Parses a boolean expression.
    pub(crate) fn rule(source: &str, variable: Variable) -> Result<Self, ExpressionError> {
        let expression = Self::new(source, variable)?;
        match expression.analysis.result_type {
            ResultType::Boolean => Ok(expression),
            ResultType::Other => Err(ExpressionError::NotBoolean),
        }
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Whether it uses this field of its variable.
    pub(crate) fn uses(&self, field: &str) -> bool {
        self.analysis.fields.contains(field)
    }

    /// Evaluates it to a boolean.
    pub(crate) fn holds(&self, input: &Input) -> Result<bool, EvaluationError> {
        match self.evaluate(input)? {
            CelValue::Bool(holds) => Ok(holds),
            _ => Err(EvaluationError::WrongType),
        }
    }

    /// Evaluates it to a string.
    pub(crate) fn text(&self, input: &Input) -> Result<String, EvaluationError> {
        match self.evaluate(input)? {
            CelValue::String(text) => Ok(text.to_string()),
            _ => Err(EvaluationError::WrongType),
        }
    }

    /// Evaluates it to a list of strings, or to one string. As in Kubernetes, empty strings and `null` are dropped.
    pub(crate) fn texts(&self, input: &Input) -> Result<Vec<String>, EvaluationError> {
        let texts = match self.evaluate(input)? {
            CelValue::Null => Vec::new(),
            CelValue::String(text) => vec![text.to_string()],
            CelValue::List(list) => list
                .iter()
                .map(|value| match value {
                    CelValue::String(text) => Ok(text.to_string()),
                    _ => Err(EvaluationError::WrongType),
                })
                .collect::<Result<_, _>>()?,
            _ => return Err(EvaluationError::WrongType),
        };
        Ok(texts.into_iter().filter(|text| !text.is_empty()).collect())
    }

    fn evaluate(&self, input: &Input) -> Result<CelValue, EvaluationError> {
        debug_assert_eq!(self.variable, input.variable);
        let cost = self.analysis.cost(input.size);
        if cost.steps > MAX_STEPS || cost.bytes > MAX_BYTES {
            return Err(EvaluationError::TooCostly);
        }
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        context.add_variable_from_value(input.variable.name(), input.value.clone());
        catch_unwind(AssertUnwindSafe(|| self.program.execute(&context)))
            .map_err(|_| EvaluationError::Failed)?
            .map_err(|_| EvaluationError::Failed)
    }
}

fn parse(source: &str, variable: Variable) -> Result<(Program, Analysis), ExpressionError> {
    let program = ENVIRONMENT
        .compile(source)
        .map_err(|errors| ExpressionError::Syntax(first_line(&errors.to_string())))?;
    let analysis = Analysis::of(program.expression(), variable)?;
    Ok((program, analysis))
}

impl Input {
    pub(crate) fn new(variable: Variable, value: &Value) -> Self {
        Self { variable, value: convert(value), size: size(value) }
    }
}

/// Converts JSON to CEL. Numbers become integers if possible, as in Kubernetes.
fn convert(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(bool) => CelValue::Bool(*bool),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => CelValue::Int(integer),
            (None, Some(float)) => CelValue::Float(float),
            (None, None) => CelValue::Null,
        },
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Array(list) => CelValue::List(Arc::new(list.iter().map(convert).collect())),
        Value::Object(fields) => {
            let fields =
                fields.iter().map(|(name, value)| (Key::String(Arc::new(name.clone())), convert(value)));
            CelValue::Map(CelMap { map: Arc::new(fields.collect::<HashMap<_, _>>()) })
        }
    }
}

fn size(value: &Value) -> Size {
    fn add(value: &Value, size: &mut Size) {
        size.values += 1;
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::String(text) => size.text += u64::try_from(text.len()).unwrap_or(u64::MAX),
            Value::Array(list) => list.iter().for_each(|value| add(value, size)),
            Value::Object(fields) => fields.values().for_each(|value| add(value, size)),
        }
    }
    let mut size = Size::default();
    add(value, &mut size);
    size
}

/// The first line of a parser's message; further lines mark the position in the text.
fn first_line(text: &str) -> String {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it cannot be parsed").to_owned()
}

impl std::fmt::Debug for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Expression").field(&self.source).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims() -> Input {
        Input::new(
            Variable::Claims,
            &json!({
                "sub": "ann", "email": "ann@example.com", "email_verified": true, "exp": 1000, "nbf": 400.5,
                "roles": "a,b", "groups": ["x", "", "y"], "nested": { "deep": ["z"] }, "nothing": null,
                "example.com/team": "t",
            }),
        )
    }

    #[test]
    fn expressions_are_evaluated_as_in_kubernetes() {
        let cases: [(&str, &[&str]); 16] = [
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
    fn mistakes_are_found_when_an_expression_is_parsed() {
        use ExpressionError as E;
        let unknown = |name: &str| E::UnknownVariable(name.to_owned(), "claims");
        let cases = [
            ("", E::Empty),
            ("claim.sub", unknown("claim")),
            ("user.username", unknown("user")),
            ("claims.groups.map(group, groups)", unknown("groups")),
            ("claims.groups.map(group, group) + [group]", unknown("group")),
            ("claims.sub.uppercase()", E::UnknownFunction("uppercase".to_owned())),
            ("lists.range(1000000000)", E::UnknownFunction("range".to_owned())),
            ("Claims{sub: 'x'}", E::Object),
        ];
        for (source, expected) in cases {
            assert_eq!(Expression::new(source, Variable::Claims).unwrap_err(), expected, "{source}");
        }
        for source in ["claims.", "claims.sub ==", "'unclosed", "((((((((((((((((((((((((((((((((("] {
            let error = Expression::new(source, Variable::Claims).unwrap_err();
            assert!(matches!(error, E::Syntax(_)), "{source}: {error}");
        }
        for source in ["claims.sub", "'true'", "claims.?sub.orValue(true)", "size(claims.sub)"] {
            assert_eq!(Expression::rule(source, Variable::Claims).unwrap_err(), E::NotBoolean, "{source}");
        }
        let error = Expression::rule("user.name == 'x'", Variable::User).unwrap_err();
        assert_eq!(error, E::UnknownField("name".to_owned()));
        assert!(Expression::rule("user.extra['a'][0] == user.username", Variable::User).is_ok());
    }

    #[test]
    fn used_fields_are_recorded() {
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
    fn deep_expressions_do_not_overflow_the_stack() {
        let repeat = |head: &str, part: &str, tail: &str| {
            let times = (MAX_LENGTH - head.len() - tail.len()) / part.len();
            format!("{head}{}{tail}", part.repeat(times))
        };
        let deep = [
            repeat("1", "+1", " == 1"),
            repeat("1", "-1", ""),
            repeat("claims", ".a", ""),
            repeat("claims", "[0]", ""),
            repeat("claims", ".?a", ""),
            repeat("claims.a", ".trim()", ""),
        ];
        for source in &deep {
            let error = Expression::new(source, Variable::Claims).unwrap_err();
            assert_eq!(error, ExpressionError::TooDeep, "{}..", &source[..20]);
        }
        let odd = [
            repeat("", "!", "true"),
            repeat("", "-", "1"),
            repeat("", "[", ""),
            repeat("", "(", ""),
            repeat("", "{1:", ""),
            repeat("", "true?", ""),
            repeat("", "true?true:", "true"),
            repeat("true", "&&true", ""),
            repeat("true", "||claims.a", ""),
            repeat("", "claims.map(x,", ""),
            format!("{}1{}", "[".repeat(90), "]".repeat(90)),
            format!("{}1{}", "(".repeat(90), ")".repeat(90)),
            format!("{}1{}", "size([".repeat(40), "])".repeat(40)),
        ];
        for source in &odd {
            // Returning without a crash is enough.
            let _ = Expression::new(source, Variable::Claims);
        }
        // Accepted expressions can be evaluated on a small stack.
        for source in [format!("1{} == 61", "+1".repeat(60)), "true && ".repeat(400) + "true"] {
            let rule = Expression::rule(&source, Variable::Claims).unwrap();
            let small = std::thread::Builder::new().stack_size(256 << 10);
            let result = small.spawn(move || rule.holds(&Input::new(Variable::Claims, &json!({}))));
            assert_eq!(result.unwrap().join().unwrap(), Ok(true), "{}..", &source[..20]);
        }
    }

    #[test]
    fn costly_expressions_are_not_evaluated() {
        let many: Vec<_> = (0..400).map(|number| number.to_string()).collect();
        let large = Input::new(Variable::Claims, &json!({ "l": many, "s": "x".repeat(10_000) }));
        let cases = [
            ("claims.l.all(a, a != 'x')", Ok(true)),
            ("claims.l.all(a, claims.l.exists(b, a == b))", Err(EvaluationError::TooCostly)),
            ("claims.s.replace('x', claims.s).size() > 0", Err(EvaluationError::TooCostly)),
            ("claims.s.replace('x', 'yy').size() == 20000", Ok(true)),
            ("claims.l.join(', ').size() > 0", Ok(true)),
            ("claims.l.all(a, a in claims.l)", Err(EvaluationError::TooCostly)),
            ("claims.l.all(a, claims.s.split('').size() > 0)", Err(EvaluationError::TooCostly)),
            ("claims.s.split('').all(a, a == 'x')", Ok(true)),
            ("claims.s.split('').all(a, a != claims.s)", Err(EvaluationError::TooCostly)),
            (
                "claims.s.split('').all(a, claims.s.split('').exists(b, b == a))",
                Err(EvaluationError::TooCostly),
            ),
            ("claims.l.all(a, a.matches('[0-9]+'))", Ok(true)),
            ("claims.s.split('').all(a, a.matches('x'))", Err(EvaluationError::TooCostly)),
        ];
        for (source, expected) in cases {
            let rule = Expression::rule(source, Variable::Claims).unwrap();
            assert_eq!(rule.holds(&large), expected, "{source}");
        }
        let nested = "claims.l.all(a, claims.l.all(b, claims.l.all(c, claims.l.all(d, a == d))))";
        let growing = format!("claims.s{}.size() > 0", ".replace('', 'twelve bytes')".repeat(3));
        let slowly = format!("claims.s{}.size() > 0", ".replace('', '-')".repeat(6));
        let doubling = format!("[claims.s]{}.size() > 0", ".map(a, a + a)".repeat(5));
        let binding = format!("optional.of(claims.s){}.hasValue()", ".optMap(a, a + a)".repeat(5));
        let lists = format!("[claims.l]{}.size() > 0", ".map(a, a + a.filter(b, true))".repeat(5));
        let encoded = format!("{}bytes(claims.s){} == ''", "base64.encode(bytes(".repeat(5), "))".repeat(5));
        for source in [nested, &growing, &slowly, &doubling, &binding, &lists, &encoded] {
            let error = Expression::rule(source, Variable::Claims).unwrap_err();
            assert_eq!(error, ExpressionError::TooDeep, "{source}");
        }
    }
}
