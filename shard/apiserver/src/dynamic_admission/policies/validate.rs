//! Validating policies: evaluation, and what follows from a failed validation.

use std::collections::BTreeMap;

use fairlead_cel::{Budget, ExpressionKind, MAX_MESSAGE_SIZE, Session, Value as CelValue};
use fairlead_process::{Status, StatusReason};
use serde_json::{Value, json};

use super::super::expressions::{ConditionsResult, Expression, ExpressionFailure, RequestVariables};
use super::binding::{Binding, ValidationAction};
use super::budget::RequestBudget;
use super::invocation::Invocation;
use super::message::validation_refusal;
use super::policy::{CompiledPolicy, Policy, PolicyKind, Validation};
use super::review::PolicyReview;

/// The audit annotation with the failed validations of bindings with the action `Audit`.
const FAILURE_ANNOTATION: &str = "validation.policy.admission.k8s.io/validation_failure";
/// The longest value of an audit annotation, in bytes.
const MAX_ANNOTATION: usize = 10 * 1024;

/// A validation that failed, or an expression that has no value although the failure policy is `Fail`.
struct Denial {
    /// The place of the validation in the policy.
    index: usize,
    message: String,
    reason: StatusReason,
}

/// The result of a policy for one parameter.
#[derive(Default)]
struct Outcome {
    denials: Vec<Denial>,
    /// Audit annotations by key.
    annotations: Vec<(Box<str>, String)>,
    /// Errors of audit annotations, which refuse the write whatever the actions of the binding are.
    annotation_errors: Vec<String>,
}

impl Outcome {
    /// The outcome of a policy that fails as a whole.
    fn failure(policy: &Policy, message: String) -> Self {
        let mut outcome = Self::default();
        if !policy.ignores_failure {
            outcome.denials.push(Denial { index: 0, message, reason: StatusReason::Invalid });
        }
        outcome
    }
}

impl PolicyReview<'_> {
    /// Evaluates the validating policies.
    ///
    /// # Errors
    /// The first refusal.
    pub(in crate::dynamic_admission) async fn validate(
        &self,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(policies) = self.bound(PolicyKind::Validating) else { return Ok(()) };
        let invocations = self.invocations(&policies, object, old).await?;
        let mut refusal = None;
        let mut refuse = |policy: &Policy, binding: Option<&Binding>, message: &str, reason| {
            refusal.get_or_insert_with(|| {
                let binding = binding.map(|binding| &*binding.name);
                validation_refusal(self.write, &policy.name, binding, message, reason)
            });
        };
        let mut variables = BTreeMap::new();
        let mut budget = RequestBudget::default();
        let mut annotations = AnnotationValues::default();
        for invocation in &invocations {
            let invocation = match invocation {
                Ok(invocation) => invocation,
                Err(fault) => {
                    if !fault.policy.ignores_failure {
                        let (message, invalid) = (fault.message(), StatusReason::Invalid);
                        refuse(&fault.policy, fault.binding.as_deref(), &message, invalid);
                    }
                    continue;
                }
            };
            let variables = match variables.entry(invocation.version.clone()) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    entry.insert(self.variables(&invocation.version, object, old).await?)
                }
            };
            let outcome = self.evaluate(invocation, variables, &mut budget).await?;
            let Invocation { policy, binding, .. } = invocation;
            for denial in outcome.denials {
                for action in &binding.actions {
                    match action {
                        ValidationAction::Deny => {
                            refuse(policy, Some(binding), &denial.message, denial.reason);
                        }
                        ValidationAction::Warn => self.write.warnings.add(format!(
                            "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                            policy.name, binding.name, denial.message
                        )),
                        ValidationAction::Audit => self.annotate_failure(policy, binding, &denial),
                    }
                }
            }
            for error in outcome.annotation_errors {
                refuse(policy, Some(binding), &error, StatusReason::Invalid);
            }
            for (key, value) in outcome.annotations {
                annotations.add(format!("{}/{key}", policy.name), value);
            }
            // An evaluation is short; other requests run between two of them.
            tokio::task::yield_now().await;
        }
        for (key, values) in annotations.0 {
            self.write.audit_annotations.add(&key, values.join(", "));
        }
        refusal.map_or(Ok(()), Err)
    }

    async fn evaluate(
        &self,
        invocation: &Invocation,
        variables: &RequestVariables,
        budget: &mut RequestBudget,
    ) -> Result<Outcome, Status> {
        let params = match &invocation.parameter {
            Some(parameter) => parameter.object(self).await?,
            None => Value::Null,
        };
        let policy = &*invocation.policy;
        let compiled = policy.compiled();
        if !compiled.conditions.is_empty() {
            match compiled.conditions.evaluate(variables, &params) {
                ConditionsResult::Match => {}
                ConditionsResult::NoMatch => return Ok(Outcome::default()),
                ConditionsResult::Failure(message) => return Ok(Outcome::failure(policy, message)),
            }
        }
        let evaluation = PolicyEvaluation { policy, compiled, variables, params: &params };
        Ok(evaluation.run(budget))
    }

    fn annotate_failure(&self, policy: &Policy, binding: &Binding, denial: &Denial) {
        let actions: Vec<&str> = binding.actions.iter().map(|action| action.as_str()).collect();
        let failure = json!([{
            "message": denial.message,
            "policy": *policy.name,
            "binding": *binding.name,
            "expressionIndex": denial.index,
            "validationActions": actions,
        }]);
        self.write.audit_annotations.add(FAILURE_ANNOTATION, failure.to_string());
    }
}

/// The values of audit annotations, each once. Several parameters may give several values.
#[derive(Default)]
struct AnnotationValues(BTreeMap<String, Vec<String>>);

impl AnnotationValues {
    fn add(&mut self, key: String, mut value: String) {
        let end = (0..=MAX_ANNOTATION).rev().find(|at| value.is_char_boundary(*at)).unwrap_or_default();
        value.truncate(end);
        let values = self.0.entry(key).or_default();
        if !values.contains(&value) {
            values.push(value);
        }
    }
}

/// A policy with the variables of a write and one parameter.
struct PolicyEvaluation<'e> {
    policy: &'e Policy,
    compiled: &'e CompiledPolicy,
    variables: &'e RequestVariables,
    params: &'e Value,
}

impl PolicyEvaluation<'_> {
    fn run(&self, request_budget: &mut RequestBudget) -> Outcome {
        let mut budget = request_budget.of_policy();
        let available = budget.remaining();
        let validated = self.validations(&mut budget);
        request_budget.charge(available, &budget);
        let mut outcome = match validated {
            Ok(denials) => Outcome { denials, ..Outcome::default() },
            Err(failure) => return Outcome::failure(self.policy, failure.to_string()),
        };
        let mut budget = request_budget.of_policy();
        let available = budget.remaining();
        let annotated = self.annotations(&mut budget, &mut outcome);
        request_budget.charge(available, &budget);
        match annotated {
            Ok(()) => outcome,
            Err(failure) => Outcome::failure(self.policy, failure.to_string()),
        }
    }

    /// The failed validations; an error if the budget is exhausted.
    fn validations(&self, budget: &mut Budget) -> Result<Vec<Denial>, ExpressionFailure> {
        let environments = &self.compiled.environments;
        let inputs = self.variables.inputs(environments.of(ExpressionKind::Validation), self.params);
        let mut session = Session::new(&inputs);
        let mut failed = Vec::new();
        let mut denials = Vec::new();
        for (index, validation) in self.compiled.validations.iter().enumerate() {
            match validation.expression.evaluate(&mut session, budget) {
                Ok(CelValue::Bool(true)) => {}
                Ok(_) => failed.push((index, validation)),
                Err(failure @ ExpressionFailure::OutOfBudget) => return Err(failure),
                Err(_) if self.policy.ignores_failure => {}
                Err(failure) => {
                    let message = failure.to_string();
                    denials.push(Denial { index, message, reason: StatusReason::Invalid });
                }
            }
        }
        // Messages have variables of their own, as in Kubernetes: without `authorizer`.
        let inputs = self.variables.inputs(environments.of(ExpressionKind::Message), self.params);
        let mut session = Session::new(&inputs);
        for (index, validation) in failed {
            let message = match evaluated_message(validation, &mut session, budget) {
                Ok(message) => message,
                Err(_) if self.policy.ignores_failure => continue,
                Err(failure) => format!("failed messageExpression: {failure}"),
            };
            denials.push(Denial { index, message, reason: validation.reason });
        }
        denials.sort_by_key(|denial| denial.index);
        Ok(denials)
    }

    fn annotations(&self, budget: &mut Budget, outcome: &mut Outcome) -> Result<(), ExpressionFailure> {
        let environment = self.compiled.environments.of(ExpressionKind::AuditAnnotation);
        let inputs = self.variables.inputs(environment, self.params);
        let mut session = Session::new(&inputs);
        for annotation in &self.compiled.annotations {
            match annotation.value.evaluate(&mut session, budget) {
                Ok(value) => {
                    let text = value.as_str().unwrap_or_default().trim();
                    if !text.is_empty() {
                        outcome.annotations.push((annotation.key.clone(), text.to_owned()));
                    }
                }
                Err(failure @ ExpressionFailure::OutOfBudget) => return Err(failure),
                Err(_) if self.policy.ignores_failure => {}
                Err(failure) => outcome.annotation_errors.push(failure.to_string()),
            }
        }
        Ok(())
    }
}

/// The message of a failed validation: that of its expression, else its text, else one with the expression.
fn evaluated_message<'a>(
    validation: &'a Validation,
    session: &mut Session<'a>,
    budget: &mut Budget,
) -> Result<String, ExpressionFailure> {
    let evaluated = match &validation.message_expression {
        Some(expression) => message_of(expression, session, budget)?,
        None => None,
    };
    Ok(match evaluated {
        Some(message) => message,
        None if validation.message.is_empty() => {
            format!("failed expression: {}", validation.expression.source().trim())
        }
        None => validation.message.to_string(),
    })
}

/// The value of a message expression; `None` if it fails or cannot be a message.
fn message_of<'a>(
    expression: &'a Expression,
    session: &mut Session<'a>,
    budget: &mut Budget,
) -> Result<Option<String>, ExpressionFailure> {
    match expression.evaluate(session, budget) {
        Ok(value) => {
            let message = value.as_str().unwrap_or_default().trim();
            let is_usable =
                !message.is_empty() && message.len() <= MAX_MESSAGE_SIZE && !message.contains('\n');
            Ok(is_usable.then(|| message.to_owned()))
        }
        Err(failure @ ExpressionFailure::OutOfBudget) => Err(failure),
        Err(ExpressionFailure::Failed(_)) => Ok(None),
    }
}
