//! The invocations of a write: for each matching policy its matching bindings, for each of these its parameters.

use std::sync::Arc;

use fairlead_process::Status;
use serde_json::Value;

use super::super::expressions::RequestVariables;
use super::super::request::{WrittenObject, admission_request, reviewed};
use super::binding::Binding;
use super::index::BoundPolicy;
use super::params::{ConfigurationError, Parameter};
use super::policy::Policy;
use super::review::PolicyReview;

/// A policy that reviews the write, with one binding and one parameter of it.
pub(super) struct Invocation {
    pub(super) policy: Arc<Policy>,
    pub(super) binding: Arc<Binding>,
    pub(super) parameter: Option<Parameter>,
    /// The version in which the object is reviewed.
    pub(super) version: Arc<str>,
}

/// A policy that cannot be applied because of its configuration.
pub(super) struct MisconfiguredPolicy {
    pub(super) policy: Arc<Policy>,
    /// `None` if the policy itself is at fault.
    pub(super) binding: Option<Arc<Binding>>,
    pub(super) error: ConfigurationError,
}

/// All invocations of a write, in the order of policies and bindings.
pub(super) type Invocations = Vec<Result<Invocation, MisconfiguredPolicy>>;

impl MisconfiguredPolicy {
    pub(super) fn message(&self) -> String {
        let kind = if self.binding.is_some() { "binding" } else { "policy" };
        format!("failed to configure {kind}: {}", self.error)
    }
}

impl PolicyReview<'_> {
    /// Finds what reviews the write.
    pub(super) async fn invocations(
        &self,
        policies: &[BoundPolicy],
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Invocations, Status> {
        let mut invocations = Invocations::new();
        for bound in policies {
            let policy = &bound.policy;
            let matched = policy.constraints.matched_version(
                self.namespaces,
                self.write,
                self.operation,
                object,
                old,
            )?;
            let Some(version) = matched else { continue };
            let misconfigured = |binding: Option<&Arc<Binding>>, error| {
                let (policy, binding) = (Arc::clone(policy), binding.cloned());
                Err(MisconfiguredPolicy { policy, binding, error })
            };
            let resource = match &policy.param_kind {
                None => None,
                Some(kind) => match self.param_resource(kind)? {
                    Ok(resource) => Some((kind, resource)),
                    Err(error) => {
                        invocations.push(misconfigured(None, error));
                        continue;
                    }
                },
            };
            for binding in &bound.bindings {
                if let Some(constraints) = &binding.constraints
                    && constraints
                        .matched_version(self.namespaces, self.write, self.operation, object, old)?
                        .is_none()
                {
                    continue;
                }
                let parameters = match (&resource, &binding.params) {
                    (Some((kind, resource)), Some(reference)) => {
                        match self.parameters(kind, resource, reference).await? {
                            Ok(parameters) => parameters.into_iter().map(Some).collect(),
                            Err(error) => {
                                invocations.push(misconfigured(Some(binding), error));
                                continue;
                            }
                        }
                    }
                    _ => vec![None],
                };
                for parameter in parameters {
                    invocations.push(Ok(Invocation {
                        policy: Arc::clone(policy),
                        binding: Arc::clone(binding),
                        parameter,
                        version: Arc::clone(&version),
                    }));
                }
            }
        }
        Ok(invocations)
    }

    /// The variables of expressions, with objects in a version.
    pub(super) async fn variables(
        &self,
        version: &str,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<RequestVariables, Status> {
        let request = admission_request(self.write, version, self.operation);
        let object = self.reviewed_if_any(version, object.map(WrittenObject::New)).await?;
        let old = self.reviewed_if_any(version, old.map(WrittenObject::Old)).await?;
        let variables = RequestVariables::new(self.host()?, self.write, request, object, old);
        Ok(variables.with_namespace(self.namespaces.namespace_of(self.write)?))
    }

    async fn reviewed_if_any(
        &self,
        version: &str,
        object: Option<WrittenObject<'_>>,
    ) -> Result<Option<Value>, Status> {
        match object {
            Some(object) => reviewed(self.objects.annotations(), self.write, version, object).await.map(Some),
            None => Ok(None),
        }
    }
}
