//! Mutating policies: JSON patches and apply configurations from expressions.

use fairlead_cel::{Budget, ExpressionKind, Session, Value as CelValue};
use fairlead_process::{Status, StatusReason};
use fairlead_schema::apply::{ConfigurationError, ObjectType, merge_configuration};
use fairlead_schema::patch::{JsonPatch, JsonPatchError};
use serde_json::Value;

use super::super::expressions::{ConditionsResult, Expression, ExpressionFailure, RequestVariables};
use super::super::patched::{MAX_PATCHED, PatchedObject};
use super::super::reinvocation::{MutationRun, Reinvocations};
use super::super::request::{WrittenObject, reviewed};
use super::budget::RequestBudget;
use super::invocation::Invocation;
use super::message::{mutation_message, mutation_refusal};
use super::policy::{CompiledPolicy, PolicyKind, PolicyMutation};
use super::review::PolicyReview;
use crate::registry::Subresource;
use crate::resource::Shape;

/// Policy, binding, and namespace and name of the parameter.
type InvocationKey = (Box<str>, Box<str>, Box<str>, Box<str>);

/// The policies that have run in a write.
pub(in crate::dynamic_admission) type PolicyReinvocations = Reinvocations<InvocationKey>;

/// A failed policy.
struct Failure {
    message: String,
    reason: StatusReason,
}

/// The reason why a mutation does not apply, in the words of Kubernetes.
#[derive(Debug, thiserror::Error)]
enum MutationError {
    #[error(transparent)]
    Expression(#[from] ExpressionFailure),
    #[error("type mismatch: {0}")]
    TypeMismatch(String),
    #[error("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {0}")]
    NotJson(String),
    #[error("JSON Patch: {0}")]
    Patch(JsonPatchError),
    #[error("{0}")]
    Identity(String),
    #[error("JSON Patch: {0}")]
    Malformed(String),
    #[error("error applying patch: {0}")]
    Configuration(#[from] ConfigurationError),
}

impl PolicyReview<'_> {
    /// Lets the mutating policies change a new or updated object, one after the other.
    ///
    /// # Errors
    /// 403 if a policy fails whose failure policy is `Fail`.
    pub(in crate::dynamic_admission) async fn mutate(
        &self,
        object: &mut Value,
        old: Option<&Value>,
        run: &mut MutationRun,
        reinvocations: &mut PolicyReinvocations,
    ) -> Result<(), Status> {
        let Some(policies) = self.bound(PolicyKind::Mutating) else { return Ok(()) };
        reinvocations.begin(run, object);
        let invocations = self.invocations(&policies, Some(object), old).await?;
        let mut failures = Vec::new();
        for fault in invocations.iter().filter_map(|invocation| invocation.as_ref().err()) {
            if !fault.policy.ignores_failure {
                let binding = fault.binding.as_ref().map(|binding| &*binding.name);
                let message = mutation_message(&fault.policy.name, binding, &fault.message());
                failures.push(Failure { message, reason: StatusReason::Forbidden });
            }
        }
        let mut budget = RequestBudget::default();
        for invocation in invocations.iter().flatten() {
            let key = key_of(invocation);
            if !reinvocations.runs(run, &key) {
                continue;
            }
            let before = object.clone();
            let errors = self.invoke(invocation, object, old, &mut budget).await?;
            if *object != before {
                reinvocations.changed(run);
            }
            if invocation.policy.is_reinvoked {
                reinvocations.invoked(key);
            }
            if !invocation.policy.ignores_failure {
                let (policy, binding) = (&invocation.policy.name, &invocation.binding.name);
                failures.extend(errors.into_iter().map(|error| Failure {
                    message: mutation_message(policy, Some(binding), &error),
                    reason: StatusReason::Invalid,
                }));
            }
            // An evaluation is short; other requests run between two of them.
            tokio::task::yield_now().await;
        }
        reinvocations.end(object);
        let Some(first) = failures.first() else { return Ok(()) };
        let reason = first.reason;
        let messages = failures.into_iter().map(|failure| failure.message).collect();
        Err(mutation_refusal(self.write, messages, reason))
    }

    /// Applies the mutations of a policy in their order. Returns the errors of those that fail; the others apply.
    async fn invoke(
        &self,
        invocation: &Invocation,
        object: &mut Value,
        old: Option<&Value>,
        request_budget: &mut RequestBudget,
    ) -> Result<Vec<String>, Status> {
        let params = match &invocation.parameter {
            Some(parameter) => parameter.object(self).await?,
            None => Value::Null,
        };
        let mut variables = self.variables(&invocation.version, Some(object), old).await?;
        let compiled = invocation.policy.compiled();
        if !compiled.conditions.is_empty() {
            match compiled.conditions.evaluate(&variables, &params) {
                ConditionsResult::Match => {}
                ConditionsResult::NoMatch => return Ok(Vec::new()),
                ConditionsResult::Failure(message) => return Ok(vec![message]),
            }
        }
        let shape = self.write.resource.version(&invocation.version).map(|version| &version.shape);
        let subresource = self.write.subresource_of_own_kind();
        let merge_type = subresource
            .and_then(Subresource::merge_type)
            .unwrap_or_else(|| shape.unwrap_or(&Shape::Anything).merge_type());
        let mut errors = Vec::new();
        for mutation in &compiled.mutations {
            let mut budget = request_budget.of_policy();
            let available = budget.remaining();
            let evaluation = MutationEvaluation { compiled, variables: &variables, params: &params };
            let patched = evaluation.patched(mutation, merge_type, &mut budget);
            request_budget.charge(available, &budget);
            let accepted = patched.and_then(|after| {
                let mut patched = PatchedObject { before: variables.object(), after, old };
                let kept = patched.keep_identity();
                kept.map_err(|error| MutationError::Identity(format!("the mutation {error}")))?;
                Ok(patched)
            });
            match accepted {
                Ok(patched) => {
                    let annotations = self.objects.annotations();
                    let changed = match patched.into_requested(annotations, self.write, object).await {
                        // The policy made the malformed object, not the client.
                        Err(status) if status.code == 400 => {
                            errors.push(MutationError::Malformed(status.message).to_string());
                            continue;
                        }
                        changed => changed?,
                    };
                    let next = WrittenObject::New(&changed);
                    let next = reviewed(annotations, self.write, &invocation.version, next).await?;
                    *object = changed;
                    variables.set_object(next);
                }
                Err(error) => errors.push(error.to_string()),
            }
        }
        Ok(errors)
    }
}

fn key_of(invocation: &Invocation) -> InvocationKey {
    let parameter = invocation.parameter.as_ref().map(super::params::Parameter::key);
    let (namespace, name) = parameter.unwrap_or_default();
    (invocation.policy.name.clone(), invocation.binding.name.clone(), namespace, name)
}

/// A policy with the variables of a write and one parameter.
struct MutationEvaluation<'e> {
    compiled: &'e CompiledPolicy,
    variables: &'e RequestVariables,
    params: &'e Value,
}

impl MutationEvaluation<'_> {
    /// The object after a mutation.
    fn patched(
        &self,
        mutation: &PolicyMutation,
        merge_type: ObjectType<'_>,
        budget: &mut Budget,
    ) -> Result<Value, MutationError> {
        let object = self.variables.object();
        match mutation {
            PolicyMutation::JsonPatch(expression) => {
                let patch = JsonPatch::parse(self.json_patch(expression, budget)?);
                let mut patched = object.clone();
                match patch.and_then(|patch| patch.apply(&mut patched, MAX_PATCHED)) {
                    Ok(()) => Ok(patched),
                    // A patch whose test fails does not apply, and that is no error.
                    Err(JsonPatchError::TestFailed { .. }) => Ok(object.clone()),
                    Err(error) => Err(MutationError::Patch(error)),
                }
            }
            PolicyMutation::ApplyConfiguration(expression) => {
                let configuration = self.configuration(expression, budget)?;
                Ok(merge_configuration(merge_type, object, &configuration)?)
            }
        }
    }

    /// The operations that an expression makes.
    fn json_patch(&self, expression: &Expression, budget: &mut Budget) -> Result<Value, MutationError> {
        let environment = self.compiled.environments.of(ExpressionKind::JsonPatch);
        let inputs = self.variables.inputs(environment, self.params);
        let mut session = Session::new(&inputs);
        let result = expression.evaluate(&mut session, budget)?;
        let CelValue::List(operations) = &result else {
            return Err(MutationError::TypeMismatch("the expression should evaluate to array".to_owned()));
        };
        let operations = operations.items().map_err(|error| MutationError::NotJson(error.to_string()))?;
        for operation in &operations {
            if let CelValue::Object(operation) = operation
                && let Some(CelValue::Object(value)) = operation.get("value")
            {
                value.check_names().map_err(MutationError::TypeMismatch)?;
            }
        }
        // As a whole, because its size is limited.
        result.to_json().map_err(|error| MutationError::NotJson(error.to_string()))
    }

    /// The configuration that an expression makes, with the kind of the object.
    fn configuration(&self, expression: &Expression, budget: &mut Budget) -> Result<Value, MutationError> {
        let environment = self.compiled.environments.of(ExpressionKind::ApplyConfiguration);
        let inputs = self.variables.inputs(environment, self.params);
        let mut session = Session::new(&inputs);
        let value = expression.evaluate(&mut session, budget)?;
        let CelValue::Object(made) = &value else {
            return Err(MutationError::TypeMismatch("the expression should evaluate to Object".to_owned()));
        };
        made.check_names().map_err(MutationError::TypeMismatch)?;
        let mut configuration = value.to_json().map_err(|error| MutationError::NotJson(error.to_string()))?;
        for field in ["apiVersion", "kind"] {
            configuration[field] = self.variables.object()[field].clone();
        }
        Ok(configuration)
    }
}
