//! What the claims of a verified token make of its bearer.

use std::{cell::OnceCell, collections::BTreeMap};

use serde_json::Value;

use super::expression::{Expression, Input, Variable};
use crate::{TokenFault, UserInfo, jwt::Claims, service_account::add_credential_id};

/// From which claims a user is made.
#[derive(Debug)]
pub(crate) struct Mappings {
    pub(crate) username: ClaimOrExpression,
    pub(crate) groups: Option<ClaimOrExpression>,
    pub(crate) uid: Option<ClaimOrExpression>,
    pub(crate) extra: Vec<(String, Expression)>,
}

/// A claim as it is, or what an expression makes of all claims.
#[derive(Debug)]
pub(crate) enum ClaimOrExpression {
    Claim { name: String, prefix: String },
    Expression(Expression),
}

/// What must hold for a token to be accepted.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Claims with the texts that they must be.
    pub(crate) required: Vec<(String, String)>,
    /// With the messages for who fails them.
    pub(crate) of_claims: Vec<(Expression, String)>,
    pub(crate) of_user: Vec<(Expression, String)>,
}

/// The claims, and what expressions see of them: made when the first one is evaluated.
struct Evaluation<'a> {
    claims: &'a Claims,
    input: OnceCell<Input>,
}

impl Mappings {
    /// The user, if all rules hold.
    pub(crate) fn user(&self, rules: &Rules, claims: &Claims) -> Result<UserInfo, TokenFault> {
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

    fn username(&self, evaluation: &Evaluation<'_>) -> Result<String, TokenFault> {
        let name = self.username.text(evaluation)?;
        if let ClaimOrExpression::Claim { name: claim, .. } = &self.username
            && claim == "email"
        {
            match evaluation.claims.get("email_verified") {
                None | Some(Value::Bool(true)) => {}
                Some(_) => return Err(TokenFault::claim("email_verified", "is not true")),
            }
        }
        if name.is_empty() {
            return Err(TokenFault::Rule("the user name is empty".into()));
        }
        Ok(name)
    }

    fn groups(&self, evaluation: &Evaluation<'_>) -> Result<Vec<String>, TokenFault> {
        let (name, prefix) = match &self.groups {
            None => return Ok(Vec::new()),
            Some(ClaimOrExpression::Expression(expression)) => {
                return expression.texts(evaluation.input()).map_err(|error| rule(expression, &error));
            }
            Some(ClaimOrExpression::Claim { name, prefix }) => (name, prefix),
        };
        let wrong = || TokenFault::claim(name, "is neither a string nor a list of strings");
        let prefixed =
            |value: &Value| value.as_str().map(|group| format!("{prefix}{group}")).ok_or_else(wrong);
        match evaluation.claims.get(name) {
            // Without them the user would lose groups, and with those perhaps restrictions, unnoticed.
            None if evaluation.is_elsewhere(name) => {
                Err(TokenFault::claim(name, "is kept elsewhere (distributed claims), which is not supported"))
            }
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(groups)) => groups.iter().map(prefixed).collect(),
            Some(group) => Ok(vec![prefixed(group)?]),
        }
    }

    fn uid(&self, evaluation: &Evaluation<'_>) -> Result<Option<String>, TokenFault> {
        let uid = self.uid.as_ref().map(|uid| uid.text(evaluation)).transpose()?;
        Ok(uid.filter(|uid| !uid.is_empty()))
    }
}

impl ClaimOrExpression {
    fn text(&self, evaluation: &Evaluation<'_>) -> Result<String, TokenFault> {
        match self {
            Self::Claim { name, prefix } => Ok(format!("{prefix}{}", evaluation.claims.text(name)?)),
            Self::Expression(expression) => {
                expression.text(evaluation.input()).map_err(|error| rule(expression, &error))
            }
        }
    }
}

impl Rules {
    fn check(&self, evaluation: &Evaluation<'_>, user: &UserInfo) -> Result<(), TokenFault> {
        for (claim, value) in &self.required {
            if evaluation.claims.text(claim)? != value {
                return Err(TokenFault::claim(claim, "is not what it is required to be"));
            }
        }
        check_all(&self.of_claims, || evaluation.input())?;
        if self.of_user.is_empty() {
            return Ok(());
        }
        let input = Input::new(Variable::User, &as_value(user));
        check_all(&self.of_user, || &input)
    }
}

fn check_all<'a>(rules: &[(Expression, String)], input: impl Fn() -> &'a Input) -> Result<(), TokenFault> {
    for (expression, message) in rules {
        match expression.holds(input()) {
            Ok(true) => {}
            Ok(false) if message.is_empty() => return Err(TokenFault::Rule(expression.source().into())),
            Ok(false) => return Err(TokenFault::Rule(message.as_str().into())),
            Err(error) => return Err(rule(expression, &error)),
        }
    }
    Ok(())
}

impl Evaluation<'_> {
    fn input(&self) -> &Input {
        self.input.get_or_init(|| Input::new(Variable::Claims, &Value::Object(self.claims.0.clone())))
    }

    /// OpenID Connect Core 1.0, section 5.6.2.
    fn is_elsewhere(&self, claim: &str) -> bool {
        self.claims.get("_claim_names").is_some_and(|names| names.get(claim).is_some())
    }
}

fn rule(expression: &Expression, error: &super::expression::EvaluationError) -> TokenFault {
    TokenFault::Rule(format!("{:?} {error}", expression.source()).into())
}

/// As `UserInfo` of Kubernetes in JSON: what is empty is not there.
fn as_value(user: &UserInfo) -> Value {
    serde_json::to_value(user).unwrap_or(Value::Null)
}
