//! Dynamic admission control: webhooks and policies of tenants, which change or refuse writes. The module must not know
//! who serves the configurations: they are objects of the scope that is written to.
//!
//! The order is that of kcp: mutating webhooks, mutating policies, both once more if something has changed the object;
//! then, after validation, validating policies and validating webhooks. A write in a scope without configurations costs
//! two map look-ups.

mod expressions;
mod follow;
mod host;
mod matching;
mod patched;
mod policies;
mod reinvocation;
mod request;
mod webhooks;

use std::sync::{Arc, OnceLock};

use fairlead_names::ResourceName;
use fairlead_process::Status;
use serde_json::Value;

pub use self::host::AdmissionHost;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::webhooks::fuzzing::admission_response;

use self::follow::FollowedResource;
use self::matching::{NamespaceReader, Operation};
use self::policies::{PolicyIndex, PolicyReinvocations, PolicyReview, check_permissions};
use self::reinvocation::MutationRun;
use self::webhooks::{WebhookReinvocations, WebhookReview, Webhooks};
use crate::hub::Hub;
use crate::registry::{AdmissionRequest, ObjectStore};
use crate::scope::Scope;

/// Calls the admission webhooks and evaluates the admission policies of a scope.
pub struct DynamicAdmission {
    objects: ObjectStore,
    webhooks: Webhooks,
    policies: Arc<PolicyIndex>,
    namespaces: NamespaceReader,
    followed: Vec<Arc<FollowedResource>>,
    host: OnceLock<Arc<dyn AdmissionHost>>,
}

/// The parts of the review of one write.
struct Reviews<'r> {
    webhooks: WebhookReview<'r>,
    policies: PolicyReview<'r>,
}

impl DynamicAdmission {
    /// Reads all configurations and follows their events. To be called before the hub runs.
    ///
    /// # Errors
    /// 500 if the store cannot be read.
    pub fn follow(objects: ObjectStore, hub: &Hub) -> Result<Arc<Self>, Status> {
        let (webhooks, mut followed) = Webhooks::follow(objects.clone(), hub)?;
        let (policies, of_policies) = PolicyIndex::follow(&objects, hub)?;
        followed.extend(of_policies);
        Ok(Arc::new(Self {
            webhooks,
            policies,
            followed,
            namespaces: NamespaceReader::new(objects.clone()),
            objects,
            host: OnceLock::new(),
        }))
    }

    /// Sets the host. It is not an argument of [`follow`](Self::follow), because a host depends on a registry, and the
    /// registry on admission.
    pub fn set_host(&self, host: Arc<dyn AdmissionHost>) {
        // The host is set once, at start.
        let _ = self.host.set(host);
    }

    /// The resources of configurations.
    pub fn configuration_resources(&self) -> impl Iterator<Item = &ResourceName> {
        self.followed.iter().map(|followed| &followed.resource)
    }

    /// Replaces the configurations of one resource in a scope of another server, whose objects are not in the store. They review
    /// writes for which the host names this scope. Objects of the store take precedence over those with the same name.
    ///
    /// # Errors
    /// 500 if the store cannot be read.
    pub fn set_remote(
        &self,
        resource: &ResourceName,
        scope: &str,
        objects: &[Arc<Value>],
    ) -> Result<(), Status> {
        match self.followed.iter().find(|followed| followed.resource == *resource) {
            Some(followed) => followed.set_remote(scope, objects),
            None => Ok(()),
        }
    }

    /// Whether a scope has webhooks or policies: two map look-ups.
    pub fn has_configurations(&self, scope: &Scope) -> bool {
        self.webhooks.has_webhooks(scope) || self.policies.has_policies(scope)
    }

    /// Lets mutating webhooks and policies change a new or updated object.
    ///
    /// # Errors
    /// A refusal, or the failure of a webhook or policy whose failure policy is `Fail`.
    pub async fn mutate(
        &self,
        write: &AdmissionRequest<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if is_configuration(write) {
            return Ok(());
        }
        let source = self.configuration_scope(write)?;
        let scope = source.as_ref().unwrap_or(write.scope);
        let Some(reviews) = self.reviews(write, scope, old) else { return Ok(()) };
        let mut run = MutationRun::default();
        let mut webhooks = WebhookReinvocations::default();
        let mut policies = PolicyReinvocations::default();
        reviews.webhooks.mutate(object, old, &mut run, &mut webhooks).await?;
        reviews.policies.mutate(object, old, &mut run, &mut policies).await?;
        if run.is_changed {
            run.is_reinvocation = true;
            reviews.webhooks.mutate(object, old, &mut run, &mut webhooks).await?;
            reviews.policies.mutate(object, old, &mut run, &mut policies).await?;
        }
        Ok(())
    }

    /// Asks validating policies and webhooks; for a delete the mutating webhooks as well, which may only refuse it.
    ///
    /// # Errors
    /// A refusal, or the failure of a webhook or policy whose failure policy is `Fail`.
    pub async fn validate(
        &self,
        write: &AdmissionRequest<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if is_configuration(write) {
            let review = self.policy_review(write, write.scope, old);
            return object.map_or(Ok(()), |object| check_permissions(&review, object, old));
        }
        let source = self.configuration_scope(write)?;
        let scope = source.as_ref().unwrap_or(write.scope);
        let Some(reviews) = self.reviews(write, scope, old) else { return Ok(()) };
        if reviews.policies.operation == Operation::Delete {
            reviews.webhooks.refuse_delete(old).await?;
        }
        reviews.policies.validate(object, old).await?;
        reviews.webhooks.validate(object, old).await
    }

    /// The scope whose configurations review the write, if it is not the written one: that of the export of a bound
    /// resource.
    fn configuration_scope(&self, write: &AdmissionRequest<'_>) -> Result<Option<Scope>, Status> {
        self.host.get().map_or(Ok(None), |host| host.configuration_scope(write))
    }

    /// `None` if the scope has neither webhooks nor policies.
    fn reviews<'r>(
        &'r self,
        write: &'r AdmissionRequest<'r>,
        scope: &'r Scope,
        old: Option<&Value>,
    ) -> Option<Reviews<'r>> {
        if !self.has_configurations(scope) {
            return None;
        }
        let policies = self.policy_review(write, scope, old);
        let webhooks = WebhookReview {
            webhooks: &self.webhooks,
            namespaces: &self.namespaces,
            host: self.host.get(),
            scope,
            write,
            operation: policies.operation,
        };
        Some(Reviews { webhooks, policies })
    }

    fn policy_review<'r>(
        &'r self,
        write: &'r AdmissionRequest<'r>,
        scope: &'r Scope,
        old: Option<&Value>,
    ) -> PolicyReview<'r> {
        PolicyReview {
            objects: &self.objects,
            index: &self.policies,
            namespaces: &self.namespaces,
            host: self.host.get(),
            scope,
            write,
            operation: Operation::of(write, old),
        }
    }
}

/// Whether the write changes a configuration. Those are not reviewed, so a broken one can be repaired.
fn is_configuration(write: &AdmissionRequest<'_>) -> bool {
    &*write.resource.name.group == "admissionregistration.k8s.io"
}
