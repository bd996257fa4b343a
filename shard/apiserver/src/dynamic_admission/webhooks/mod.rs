//! Admission webhooks: servers of tenants that change or refuse writes. The module must not know who serves the
//! configurations: they are objects of the scope that is written to.
//!
//! A write in a scope without configurations costs one map look-up. Mutating webhooks are called one after the other,
//! in the order of the names of their configurations; validating ones concurrently. A failed call is treated by the
//! webhook's failure policy. Each call is limited in time and in the size of its response.

mod configuration;
mod failure;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod index;
mod review;

use std::sync::Arc;

use fairlead_process::{GroupResource, Status};
use fairlead_schema::patch::JsonPatch;
use futures_util::future::join_all;
use serde_json::Value;

use self::configuration::{Webhook, WebhookKind};
use self::failure::ReviewError;
use self::index::ConfigurationIndex;
use self::review::{Review, Verdict};
use super::expressions::{ConditionsResult, RequestVariables};
use super::follow::FollowedResource;
use super::host::AdmissionHost;
use super::matching::{NamespaceReader, Operation};
use super::patched::{MAX_PATCHED, PatchedObject};
use super::reinvocation::{MutationRun, Reinvocations};
use super::request::{WrittenObject, admission_request, reviewed};
use crate::hub::Hub;
use crate::registry::{AdmissionRequest, ObjectStore};
use crate::scope::Scope;

/// Position and name of a webhook.
pub(super) type WebhookReinvocations = Reinvocations<(usize, Box<str>)>;

/// The webhooks of all scopes.
pub(super) struct Webhooks {
    objects: ObjectStore,
    configurations: Arc<ConfigurationIndex>,
}

impl Webhooks {
    /// Reads all configurations and follows their events. To be called before the hub runs.
    pub(super) fn follow(
        objects: ObjectStore,
        hub: &Hub,
    ) -> Result<(Self, Vec<Arc<FollowedResource>>), Status> {
        let (configurations, followed) = ConfigurationIndex::follow(&objects, hub)?;
        Ok((Self { objects, configurations }, followed))
    }

    /// Whether a scope has webhooks: a map look-up.
    pub(super) fn has_webhooks(&self, scope: &Scope) -> bool {
        self.configurations.has_webhooks(scope.as_str())
    }
}

/// A write that webhooks review.
#[derive(Clone, Copy)]
pub(super) struct WebhookReview<'r> {
    pub(super) webhooks: &'r Webhooks,
    pub(super) namespaces: &'r NamespaceReader,
    pub(super) host: Option<&'r Arc<dyn AdmissionHost>>,
    /// The scope of the configurations.
    pub(super) scope: &'r Scope,
    pub(super) write: &'r AdmissionRequest<'r>,
    pub(super) operation: Operation,
}

impl WebhookReview<'_> {
    /// Lets the mutating webhooks change a new or updated object. In the second pass, only those run that have to run
    /// again.
    ///
    /// # Errors
    /// A refusal; 500 if a webhook fails whose failure policy is `Fail`.
    pub(super) async fn mutate(
        &self,
        object: &mut Value,
        old: Option<&Value>,
        run: &mut MutationRun,
        reinvocations: &mut WebhookReinvocations,
    ) -> Result<(), Status> {
        let Some(webhooks) = self.of_kind(WebhookKind::Mutating) else { return Ok(()) };
        reinvocations.begin(run, object);
        for (index, webhook) in webhooks.iter().enumerate() {
            // The key has the name as well: a configuration may change between the passes.
            let key = (index, webhook.name.clone());
            let Some(version) = self.matched(webhook, Some(object), old).await? else { continue };
            if !reinvocations.runs(run, &key) {
                continue;
            }
            if self.mutate_by(webhook, &version, object, old).await? {
                reinvocations.changed(run);
            }
            if webhook.is_reinvoked {
                reinvocations.invoked(key);
            }
        }
        reinvocations.end(object);
        Ok(())
    }

    /// Asks the validating webhooks; for a delete the mutating ones as well, which may only refuse it.
    ///
    /// # Errors
    /// A refusal; 500 if a webhook fails whose failure policy is `Fail`.
    pub(super) async fn validate(&self, object: Option<&Value>, old: Option<&Value>) -> Result<(), Status> {
        let Some(webhooks) = self.of_kind(WebhookKind::Validating) else { return Ok(()) };
        let mut calls = Vec::new();
        for webhook in webhooks.iter() {
            if let Some(version) = self.matched(webhook, object, old).await? {
                calls.push(self.validate_by(webhook, version, object, old));
            }
        }
        join_all(calls).await.into_iter().collect()
    }

    /// Asks the mutating webhooks about a delete, which they may only refuse.
    ///
    /// # Errors
    /// As [`validate`](Self::validate).
    pub(super) async fn refuse_delete(&self, old: Option<&Value>) -> Result<(), Status> {
        let Some(webhooks) = self.of_kind(WebhookKind::Mutating) else { return Ok(()) };
        for webhook in webhooks.iter() {
            if let Some(version) = self.matched(webhook, None, old).await? {
                self.refuse_patch(webhook, &version, old).await?;
            }
        }
        Ok(())
    }

    fn of_kind(&self, kind: WebhookKind) -> Option<Arc<[Arc<Webhook>]>> {
        self.webhooks.configurations.webhooks(kind, self.scope.as_str())
    }

    /// The version in which the webhook reviews the write, or `None` if it does not review it.
    async fn matched(
        &self,
        webhook: &Webhook,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Option<Arc<str>>, Status> {
        let write = self.write;
        let Some(version) = webhook.matched_version(write, self.operation) else { return Ok(None) };
        if !webhook.selectors.select(self.namespaces, write, object, old)? {
            return Ok(None);
        }
        let Some(conditions) = webhook.conditions() else { return Ok(Some(version)) };
        let object = self.reviewed_if_any(&version, object.map(WrittenObject::New)).await?;
        let old = self.reviewed_if_any(&version, old.map(WrittenObject::Old)).await?;
        let request = admission_request(write, &version, self.operation);
        let host =
            self.host.ok_or_else(|| Status::service_unavailable("not yet ready to handle request", 1))?;
        let variables = RequestVariables::new(host, write, request, object, old);
        match conditions.evaluate(&variables, &Value::Null) {
            ConditionsResult::Match => Ok(Some(version)),
            ConditionsResult::NoMatch => Ok(None),
            ConditionsResult::Failure(failure) => {
                let name = &write.resource.name;
                let resource = GroupResource::new(&name.group, &name.resource);
                Err(Status::forbidden(resource, write.name, failure))
            }
        }
    }

    /// Returns whether the webhook has changed the object.
    async fn mutate_by(
        &self,
        webhook: &Webhook,
        version: &Arc<str>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<bool, Status> {
        let reviewed = self.reviewed(version, WrittenObject::New(object)).await?;
        let reviewed_old = self.reviewed_if_any(version, old.map(WrittenObject::Old)).await?;
        let review = Review {
            webhook,
            version,
            operation: self.operation,
            write: self.write,
            object: Some(&reviewed),
            old: reviewed_old.as_ref(),
            uid: review_uid(),
        };
        let Some(verdict) = call(&review).await? else { return Ok(false) };
        let Some(patch) = self.admitted(webhook, verdict)? else { return Ok(false) };
        let mut patched = reviewed.clone();
        JsonPatch::parse(patch)
            .and_then(|patch| patch.apply(&mut patched, MAX_PATCHED))
            .map_err(Status::internal)?;
        if patched == reviewed {
            return Ok(false);
        }
        let mut patched = PatchedObject { before: &reviewed, after: patched, old };
        patched
            .keep_identity()
            .map_err(|error| Status::internal(format!("admission webhook {:?} {error}", webhook.name)))?;
        let requested = patched.into_requested(self.webhooks.objects.annotations(), self.write, object).await;
        *object = requested.map_err(|status| match status.code {
            // The webhook made the malformed object, not the client.
            400 => Status::internal(format!("admission webhook {:?}: {}", webhook.name, status.message)),
            _ => status,
        })?;
        Ok(true)
    }

    async fn validate_by(
        &self,
        webhook: &Webhook,
        version: Arc<str>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let object = self.reviewed_if_any(&version, object.map(WrittenObject::New)).await?;
        let old = self.reviewed_if_any(&version, old.map(WrittenObject::Old)).await?;
        let review = Review {
            webhook,
            version: &version,
            operation: self.operation,
            write: self.write,
            object: object.as_ref(),
            old: old.as_ref(),
            uid: review_uid(),
        };
        match call(&review).await? {
            Some(verdict) => self.admitted(webhook, verdict).map(drop),
            None => Ok(()),
        }
    }

    /// A mutating webhook may refuse a delete, but there is no object that it could change.
    async fn refuse_patch(
        &self,
        webhook: &Webhook,
        version: &Arc<str>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let old = self.reviewed_if_any(version, old.map(WrittenObject::Old)).await?;
        let review = Review {
            webhook,
            version,
            operation: self.operation,
            write: self.write,
            object: None,
            old: old.as_ref(),
            uid: review_uid(),
        };
        let Some(verdict) = call(&review).await? else { return Ok(()) };
        match self.admitted(webhook, verdict)? {
            None => Ok(()),
            Some(_) => Err(Status::internal(format!(
                "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                webhook.name
            ))),
        }
    }

    /// The patch of a verdict that admits the write, after its warnings have been recorded.
    fn admitted(&self, webhook: &Webhook, verdict: Verdict) -> Result<Option<Value>, Status> {
        verdict.warnings.into_iter().for_each(|warning| self.write.warnings.add(warning));
        match verdict.refusal {
            Some(refusal) => Err(refusal.into_status(&webhook.name)),
            None => Ok(verdict.patch),
        }
    }

    /// The object in the version that the webhook reviews, with the annotations of its scope.
    async fn reviewed(&self, version: &str, object: WrittenObject<'_>) -> Result<Value, Status> {
        reviewed(self.webhooks.objects.annotations(), self.write, version, object).await
    }

    async fn reviewed_if_any(
        &self,
        version: &str,
        object: Option<WrittenObject<'_>>,
    ) -> Result<Option<Value>, Status> {
        match object {
            Some(object) => self.reviewed(version, object).await.map(Some),
            None => Ok(None),
        }
    }
}

/// Calls a webhook. `None` if the call failed and the failure policy is `Ignore`.
async fn call(review: &Review<'_>) -> Result<Option<Verdict>, Status> {
    let webhook = review.webhook;
    let request = review.request();
    let response = webhook.endpoint.call(&request, webhook.timeout).await.map_err(ReviewError::Call);
    if let Err(ReviewError::Call(error)) = &response
        && let Some(refusal) = error.refusal()
    {
        return Err(refusal);
    }
    let verdict = response.and_then(|body| review.verdict(&body).map_err(ReviewError::Response));
    match verdict {
        Ok(verdict) => Ok(Some(verdict)),
        Err(error) if webhook.ignores_failure => {
            tracing::warn!(
                webhook = %webhook.name,
                configuration = %webhook.configuration,
                scope = %review.write.scope,
                %error,
                "admission webhook failed; its failure policy is Ignore"
            );
            Ok(None)
        }
        Err(error) => Err(Status::internal(format!("failed calling webhook {:?}: {error}", webhook.name))),
    }
}

fn review_uid() -> String {
    uuid::Uuid::new_v4().to_string()
}
