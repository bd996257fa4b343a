//! Admission webhooks: servers of tenants that change or refuse writes. The module must not know who serves the
//! configurations: they are objects of the scope that is written to.
//!
//! A write in a scope without configurations costs one map look-up. Mutating webhooks are called one after the other,
//! in the order of the names of their configurations; validating ones concurrently. A failed call is treated by the
//! webhook's failure policy. Each call is limited in time and in the size of its response.

mod configuration;
mod failure;
mod index;
mod review;
mod rules;

use std::sync::Arc;

use fairlead_names::{Origin, ResourceName};
use fairlead_process::Status;
use fairlead_schema::patch::JsonPatch;
use futures_util::future::join_all;
use serde_json::Value;

use self::configuration::{Webhook, WebhookKind};
use self::failure::ReviewError;
use self::index::ConfigurationIndex;
use self::review::{Review, Verdict};
use self::rules::Operation;
use crate::hub::Hub;
use crate::registry::{AdmissionRequest, ObjectStore, to_version};
use crate::request::LabelSelector;
use crate::resource::{Verb, WriteTarget};

/// The largest object that a patch may build by copying.
const MAX_PATCHED: usize = 3 << 20;

/// Calls the admission webhooks of a scope.
pub struct AdmissionWebhooks {
    objects: ObjectStore,
    namespaces: ResourceName,
    configurations: Arc<ConfigurationIndex>,
}

impl AdmissionWebhooks {
    /// Reads all configurations and follows their events. To be called before the hub runs.
    ///
    /// # Errors
    /// 500 if the store cannot be read.
    pub fn follow(objects: ObjectStore, hub: &Hub) -> Result<Arc<Self>, Status> {
        let configurations = ConfigurationIndex::follow(&objects, hub)?;
        Ok(Arc::new(Self { objects, namespaces: ResourceName::new("", "namespaces"), configurations }))
    }

    /// Lets the mutating webhooks change a new or updated object.
    ///
    /// # Errors
    /// A refusal; 500 if a webhook fails whose failure policy is `Fail`.
    pub async fn mutate(
        &self,
        write: &AdmissionRequest<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(webhooks) = self.webhooks(WebhookKind::Mutating, write) else { return Ok(()) };
        let operation = if old.is_some() { Operation::Update } else { Operation::Create };
        // A webhook is called again, once, if a later one has changed the object that it had seen.
        let mut called: Vec<usize> = Vec::new();
        let mut outdated: Vec<usize> = Vec::new();
        for (index, webhook) in webhooks.iter().enumerate() {
            let Some(version) = self.matched(webhook, write, operation, Some(object), old)? else { continue };
            if self.mutate_by(webhook, &version, operation, write, object, old).await? {
                outdated.append(&mut called);
            }
            if webhook.is_reinvoked {
                called.push(index);
            }
        }
        for webhook in outdated.into_iter().filter_map(|index| webhooks.get(index)) {
            if let Some(version) = self.matched(webhook, write, operation, Some(object), old)? {
                self.mutate_by(webhook, &version, operation, write, object, old).await?;
            }
        }
        Ok(())
    }

    /// Asks the validating webhooks; for a delete the mutating ones as well, which may only refuse it.
    ///
    /// # Errors
    /// A refusal; 500 if a webhook fails whose failure policy is `Fail`.
    pub async fn validate(
        &self,
        write: &AdmissionRequest<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let operation = match (write.verb, old) {
            (Verb::Delete | Verb::DeleteCollection, _) => Operation::Delete,
            (_, Some(_)) => Operation::Update,
            (_, None) => Operation::Create,
        };
        if operation == Operation::Delete {
            for webhook in self.webhooks(WebhookKind::Mutating, write).iter().flat_map(|found| found.iter()) {
                if let Some(version) = self.matched(webhook, write, operation, None, old)? {
                    self.refuse_patch(webhook, &version, write, old).await?;
                }
            }
        }
        let Some(webhooks) = self.webhooks(WebhookKind::Validating, write) else { return Ok(()) };
        let mut calls = Vec::new();
        for webhook in webhooks.iter() {
            if let Some(version) = self.matched(webhook, write, operation, object, old)? {
                calls.push(self.validate_by(webhook, version, operation, write, object, old));
            }
        }
        join_all(calls).await.into_iter().collect()
    }
}

impl AdmissionWebhooks {
    /// The webhooks of the written scope. Configurations themselves are not reviewed, so a broken one can be repaired.
    fn webhooks(&self, kind: WebhookKind, write: &AdmissionRequest<'_>) -> Option<Arc<[Arc<Webhook>]>> {
        let is_configuration = &*write.resource.name.group == "admissionregistration.k8s.io";
        if is_configuration { None } else { self.configurations.webhooks(kind, write.scope.as_str()) }
    }

    /// The version in which the webhook reviews the write, or `None` if it does not review it.
    fn matched(
        &self,
        webhook: &Webhook,
        write: &AdmissionRequest<'_>,
        operation: Operation,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Option<Arc<str>>, Status> {
        let Some(version) = webhook.matched_version(write, operation) else { return Ok(None) };
        let is_selected = |value: Option<&Value>| value.is_some_and(|value| selects(&webhook.objects, value));
        if !webhook.objects.is_empty() && !is_selected(object) && !is_selected(old) {
            return Ok(None);
        }
        if !webhook.namespaces.is_empty() && !self.selects_namespace(webhook, write, object.or(old))? {
            return Ok(None);
        }
        Ok(Some(version))
    }

    /// Whether the selector of namespaces selects the namespace of the object, or the namespace that is the object.
    /// Other cluster-scoped objects are not restricted.
    fn selects_namespace(
        &self,
        webhook: &Webhook,
        write: &AdmissionRequest<'_>,
        object: Option<&Value>,
    ) -> Result<bool, Status> {
        if write.resource.name == self.namespaces {
            return Ok(object.is_some_and(|object| selects(&webhook.namespaces, object)));
        }
        let Some(namespace) = write.namespace else { return Ok(true) };
        let found = self.objects.get(&self.namespaces, &Origin::BuiltIn, write.scope, None, namespace)?;
        // A write in a missing namespace is refused elsewhere.
        let Some(found) = found else { return Ok(false) };
        Ok(selects(&webhook.namespaces, &self.objects.tree(&found)?))
    }

    /// Returns whether the webhook has changed the object.
    async fn mutate_by(
        &self,
        webhook: &Webhook,
        version: &Arc<str>,
        operation: Operation,
        write: &AdmissionRequest<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<bool, Status> {
        let reviewed = self.reviewed(write, version, object).await?;
        let reviewed_old = self.reviewed_if_any(write, version, old).await?;
        let review = Review {
            webhook,
            version,
            operation,
            write,
            object: Some(&reviewed),
            old: reviewed_old.as_ref(),
            uid: review_uid(),
        };
        let Some(verdict) = call(&review).await? else { return Ok(false) };
        let Some(patch) = self.admitted(webhook, write, verdict)? else { return Ok(false) };
        let mut patched = reviewed.clone();
        JsonPatch::parse(patch)
            .and_then(|patch| patch.apply(&mut patched, MAX_PATCHED))
            .map_err(Status::internal)?;
        if patched == reviewed {
            return Ok(false);
        }
        keep_identity(webhook, &reviewed, &mut patched)?;
        if let Some(scale) = write.scale(version) {
            *object = scale.apply(&patched, object).map_err(Status::internal)?;
            return Ok(true);
        }
        for annotation in self.objects.annotations() {
            if let Some(annotations) = patched["metadata"]["annotations"].as_object_mut() {
                annotations.remove(*annotation);
                if annotations.is_empty()
                    && let Some(metadata) = patched["metadata"].as_object_mut()
                {
                    metadata.remove("annotations");
                }
            }
        }
        let mut changed = to_version(write.resource, write.version, patched).await?;
        if let Some(served) = write.resource.version(write.version) {
            served.shape.admit(&mut changed)?;
        }
        let strategy = write.resource.strategy(write.version);
        match old {
            Some(old) => {
                let target = write.subresource.map_or(WriteTarget::Main, WriteTarget::Subresource);
                strategy.prepare_update(target, old, &mut changed);
            }
            None => strategy.prepare_create(&mut changed),
        }
        *object = changed;
        Ok(true)
    }

    async fn validate_by(
        &self,
        webhook: &Webhook,
        version: Arc<str>,
        operation: Operation,
        write: &AdmissionRequest<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let object = self.reviewed_if_any(write, &version, object).await?;
        let old = self.reviewed_if_any(write, &version, old).await?;
        let review = Review {
            webhook,
            version: &version,
            operation,
            write,
            object: object.as_ref(),
            old: old.as_ref(),
            uid: review_uid(),
        };
        match call(&review).await? {
            Some(verdict) => self.admitted(webhook, write, verdict).map(drop),
            None => Ok(()),
        }
    }

    /// A mutating webhook may refuse a delete, but there is no object that it could change.
    async fn refuse_patch(
        &self,
        webhook: &Webhook,
        version: &Arc<str>,
        write: &AdmissionRequest<'_>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let old = self.reviewed_if_any(write, version, old).await?;
        let review = Review {
            webhook,
            version,
            operation: Operation::Delete,
            write,
            object: None,
            old: old.as_ref(),
            uid: review_uid(),
        };
        let Some(verdict) = call(&review).await? else { return Ok(()) };
        match self.admitted(webhook, write, verdict)? {
            None => Ok(()),
            Some(_) => Err(Status::internal(format!(
                "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                webhook.name
            ))),
        }
    }

    /// The patch of a verdict that admits the write, after its warnings have been recorded.
    fn admitted(
        &self,
        webhook: &Webhook,
        write: &AdmissionRequest<'_>,
        verdict: Verdict,
    ) -> Result<Option<Value>, Status> {
        verdict.warnings.into_iter().for_each(|warning| write.warnings.add(warning));
        match verdict.refusal {
            Some(refusal) => Err(refusal.into_status(&webhook.name)),
            None => Ok(verdict.patch),
        }
    }

    async fn reviewed_if_any(
        &self,
        write: &AdmissionRequest<'_>,
        version: &str,
        object: Option<&Value>,
    ) -> Result<Option<Value>, Status> {
        match object {
            Some(object) => self.reviewed(write, version, object).await.map(Some),
            None => Ok(None),
        }
    }

    /// The object in the version that the webhook reviews, with the annotations of its scope.
    async fn reviewed(
        &self,
        write: &AdmissionRequest<'_>,
        version: &str,
        object: &Value,
    ) -> Result<Value, Status> {
        let mut reviewed = if version == write.version {
            object.clone()
        } else {
            to_version(write.resource, version, object.clone()).await?
        };
        if let Some(scale) = write.scale(version) {
            return Ok(scale.scale_of(&reviewed).map_err(Status::internal)?.object);
        }
        for (annotation, segment) in self.objects.annotations().iter().zip(write.scope.as_str().split('/')) {
            reviewed["metadata"]["annotations"][*annotation] = segment.into();
        }
        Ok(reviewed)
    }
}

/// Calls a webhook. `None` if the call failed and the failure policy is `Ignore`.
async fn call(review: &Review<'_>) -> Result<Option<Verdict>, Status> {
    let webhook = review.webhook;
    let request = review.request();
    let response = webhook.endpoint.call(&request, webhook.timeout).await.map_err(ReviewError::Call);
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

/// Refuses a patch that changes the identity of the object, and restores the fields that only the server sets.
fn keep_identity(webhook: &Webhook, before: &Value, patched: &mut Value) -> Result<(), Status> {
    for pointer in ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"] {
        if before.pointer(pointer) != patched.pointer(pointer) {
            return Err(Status::internal(format!(
                "admission webhook {:?} changed {}, which identifies the object",
                webhook.name,
                pointer.trim_start_matches('/').replace('/', ".")
            )));
        }
    }
    let Some(metadata) = patched["metadata"].as_object_mut() else { return Ok(()) };
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
    ] {
        match before["metadata"].get(field) {
            Some(value) => metadata.insert(field.to_owned(), value.clone()),
            None => metadata.remove(field),
        };
    }
    Ok(())
}

/// Whether the selector selects the labels of the object.
fn selects(selector: &LabelSelector, object: &Value) -> bool {
    selector.selects(|key| object["metadata"]["labels"].get(key)?.as_str())
}
