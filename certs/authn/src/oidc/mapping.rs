//! Maps the claims of a verified token to a user.

use std::{cell::OnceCell, collections::BTreeMap};

use serde_json::Value;

use super::expression::{EvaluationError, Expression, Input, Variable};
use crate::{TokenError, UserInfo, jwt::Claims, service_account::add_credential_id};

/// The claims or expressions for the attributes of a user.
#[derive(Debug)]
pub(crate) struct Mappings {
    pub(crate) username: ClaimOrExpression,
    pub(crate) groups: Option<ClaimOrExpression>,
    pub(crate) uid: Option<ClaimOrExpression>,
    pub(crate) extra: Vec<(String, Expression)>,
}

/// A claim with a prefix, or the value of an expression over all claims.
#[derive(Debug)]
pub(crate) enum ClaimOrExpression {
    Claim { name: String, prefix: String },
    Expression(Expression),
}

/// The rules that an accepted token satisfies.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Claims with their required values.
    pub(crate) required: Vec<(String, String)>,
    /// Expressions with the messages of their failure.
    pub(crate) claim_rules: Vec<(Expression, String)>,
    pub(crate) user_rules: Vec<(Expression, String)>,
}

/// The claims, and the input of expressions, which is built when the first one is evaluated.
struct Evaluation<'a> {
    claims: &'a Claims,
    input: OnceCell<Input>,
}

impl Mappings {
    /// The user, if all rules are satisfied.
    pub(crate) fn user(&self, rules: &Rules, claims: &Claims) -> Result<UserInfo, TokenError> {
        let evaluation = Evaluation { claims, input: OnceCell::new() };
        let mut user = UserInfo {
            name: self.username(&evaluation)?,
            groups: self.groups(&evaluation)?,
            uid: self.uid(&evaluation)?,
            extra: BTreeMap::new(),
        };
        add_credential_id(claims, &mut user.extra);
        for (key, expression) in &self.extra {
            let values = expression.texts(evaluation.input()).map_err(|error| rule(expression, &error))?;
            if !values.is_empty() {
                user.extra.insert(key.clone(), values);
            }
        }
        rules.check(&evaluation, &user)?;
        Ok(user)
    }

    fn username(&self, evaluation: &Evaluation<'_>) -> Result<String, TokenError> {
        let name = self.username.text(evaluation)?;
        if let ClaimOrExpression::Claim { name: claim, .. } = &self.username
            && claim == "email"
        {
            match evaluation.claims.get("email_verified") {
                None | Some(Value::Bool(true)) => {}
                Some(_) => return Err(TokenError::claim("email_verified", "is not true")),
            }
        }
        if name.is_empty() {
            return Err(TokenError::Rule("the user name is empty".into()));
        }
        Ok(name)
    }

    fn groups(&self, evaluation: &Evaluation<'_>) -> Result<Vec<String>, TokenError> {
        let (name, prefix) = match &self.groups {
            None => return Ok(Vec::new()),
            Some(ClaimOrExpression::Expression(expression)) => {
                return expression.texts(evaluation.input()).map_err(|error| rule(expression, &error));
            }
            Some(ClaimOrExpression::Claim { name, prefix }) => (name, prefix),
        };
        let wrong = || TokenError::claim(name, "is neither a string nor a list of strings");
        let prefixed =
            |value: &Value| value.as_str().map(|group| format!("{prefix}{group}")).ok_or_else(wrong);
        match evaluation.claims.get(name) {
            // Ignoring them would silently drop groups, and perhaps restrictions with them.
            None if evaluation.is_distributed(name) => {
                Err(TokenError::claim(name, "is a distributed claim, which is not supported"))
            }
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(groups)) => groups.iter().map(prefixed).collect(),
            Some(group) => Ok(vec![prefixed(group)?]),
        }
    }

    fn uid(&self, evaluation: &Evaluation<'_>) -> Result<Option<String>, TokenError> {
        let uid = self.uid.as_ref().map(|uid| uid.text(evaluation)).transpose()?;
        Ok(uid.filter(|uid| !uid.is_empty()))
    }
}

impl ClaimOrExpression {
    fn text(&self, evaluation: &Evaluation<'_>) -> Result<String, TokenError> {
        match self {
            Self::Claim { name, prefix } => Ok(format!("{prefix}{}", evaluation.claims.text(name)?)),
            Self::Expression(expression) => {
                expression.text(evaluation.input()).map_err(|error| rule(expression, &error))
            }
        }
    }
}

impl Rules {
    fn check(&self, evaluation: &Evaluation<'_>, user: &UserInfo) -> Result<(), TokenError> {
        for (claim, value) in &self.required {
            if evaluation.claims.text(claim)? != value {
                return Err(TokenError::claim(claim, "does not have the required value"));
            }
        }
        check_all(&self.claim_rules, || evaluation.input())?;
        if self.user_rules.is_empty() {
            return Ok(());
        }
        let input = Input::new(Variable::User, as_value(user));
        check_all(&self.user_rules, || &input)
    }
}

fn check_all<'a>(rules: &[(Expression, String)], input: impl Fn() -> &'a Input) -> Result<(), TokenError> {
    for (expression, message) in rules {
        match expression.holds(input()) {
            Ok(true) => {}
            Ok(false) if message.is_empty() => return Err(TokenError::Rule(expression.source().into())),
            Ok(false) => return Err(TokenError::Rule(message.as_str().into())),
            Err(error) => return Err(rule(expression, &error)),
        }
    }
    Ok(())
}

impl Evaluation<'_> {
    fn input(&self) -> &Input {
        self.input.get_or_init(|| Input::new(Variable::Claims, Value::Object(self.claims.0.clone())))
    }

    /// Whether it is a distributed claim (OpenID Connect Core 1.0, section 5.6.2).
    fn is_distributed(&self, claim: &str) -> bool {
        self.claims.get("_claim_names").is_some_and(|names| names.get(claim).is_some())
    }
}

fn rule(expression: &Expression, error: &EvaluationError) -> TokenError {
    TokenError::Rule(format!("{:?} {error}", expression.source()).into())
}

/// The user as `UserInfo` of Kubernetes in JSON, without empty fields.
fn as_value(user: &UserInfo) -> Value {
    serde_json::to_value(user).unwrap_or(Value::Null)
}
