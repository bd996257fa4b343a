//! Converts stored objects to the requested version by the webhook of their resource.

use std::sync::Arc;

use fairlead_process::Status;
use serde_json::Value;
use tokio::task::JoinSet;

use super::{prune_converted, refresh_stored};
use crate::object::{EncodedObject, ObjectMetaRef, ScopeAnnotations};
use crate::registry::conversion_webhook::{CacheKey, ConversionClaim, ConversionWebhook, Lookup};
use crate::registry::{Conversion, ServedResource, StoredObject, Target, malformed_status};

/// Objects of one call. A webhook that takes a millisecond per object responds well within the time-out.
const BATCH_OBJECTS: usize = 128;
/// Bytes of the objects of one call, which are serialized and parsed in one piece: about 2 ms.
const BATCH_BYTES: usize = 256 * 1024;

/// Converts the objects of a resource with a webhook.
#[derive(Clone)]
pub(crate) struct WebhookConverter {
    webhook: Arc<ConversionWebhook>,
    resource: Arc<ServedResource>,
    version: Arc<str>,
    annotations: ScopeAnnotations,
}

impl WebhookConverter {
    /// The converter of a request; `None` if its resource has no webhook.
    pub(crate) fn of(target: &Target, annotations: ScopeAnnotations) -> Option<Self> {
        let Conversion::Webhook(webhook) = &target.resource.conversion else { return None };
        Some(Self {
            webhook: Arc::clone(webhook),
            resource: Arc::clone(&target.resource),
            version: Arc::clone(&target.version),
            annotations,
        })
    }

    /// Converts objects to the requested version. Those that are in this version stay as they are.
    ///
    /// # Errors
    /// 500 if the webhook fails.
    pub(crate) async fn convert(&self, mut objects: Vec<StoredObject>) -> Result<Vec<StoredObject>, Status> {
        let mut batch = ConversionBatch::default();
        let mut from = 0;
        for end in 1..=objects.len() {
            batch.add(&objects[end - 1]);
            if batch.is_full() || end == objects.len() {
                self.convert_batch(&mut objects[from..end]).await?;
                from = end;
                batch = ConversionBatch::default();
            }
        }
        Ok(objects)
    }

    async fn convert_batch(&self, objects: &mut [StoredObject]) -> Result<(), Status> {
        loop {
            let (mut missing, mut in_flight) = (Vec::new(), Vec::new());
            for (index, stored) in objects.iter_mut().enumerate() {
                if stored.object.as_object().version() == &*self.version {
                    continue;
                }
                match self.key(stored)?.map(|key| self.webhook.cache.look_up(key)) {
                    Some(Lookup::Ready(object)) => stored.object = object,
                    Some(Lookup::InFlight(pending)) => in_flight.push((index, pending)),
                    Some(Lookup::Missing(claim)) => missing.push((index, Some(claim))),
                    None => missing.push((index, None)),
                }
            }
            if !missing.is_empty() {
                let trees: Result<Vec<ManagedTree>, Status> =
                    missing.iter().map(|(index, _)| self.tree(&objects[*index])).collect();
                let (indexes, claims): (Vec<usize>, Vec<_>) = missing.into_iter().unzip();
                let converted = self.call_in_task(claims, trees?).await?;
                for (index, object) in indexes.into_iter().zip(converted) {
                    objects[index].object = object;
                }
            }
            // Others convert these. A caller that gave up leaves its objects to the next round.
            let mut is_complete = true;
            for (index, pending) in in_flight {
                match pending.outcome().await {
                    Some(outcome) => objects[index].object = outcome?,
                    None => is_complete = false,
                }
            }
            if is_complete {
                return Ok(());
            }
        }
    }

    /// Calls the webhook in a task, because others wait for its claims: a client that does not read its response, so that this
    /// future is not polled, must not delay them. Dropping the future aborts the task.
    async fn call_in_task(
        &self,
        claims: Vec<Option<ConversionClaim>>,
        trees: Vec<ManagedTree>,
    ) -> Result<Vec<EncodedObject>, Status> {
        let mut task = JoinSet::new();
        let converter = self.clone();
        task.spawn(async move {
            let converted = converter.call(trees).await;
            for (index, claim) in claims.into_iter().enumerate() {
                let Some(claim) = claim else { continue };
                let outcome = converted.as_ref().map(|converted| converted.get(index).cloned());
                if let Some(outcome) = outcome.map_err(Clone::clone).transpose() {
                    claim.complete(outcome);
                }
            }
            converted
        });
        match task.join_next().await {
            Some(Ok(converted)) => converted,
            Some(Err(error)) => Err(Status::internal(error)),
            None => Err(Status::internal("a conversion ended without a result")),
        }
    }

    async fn call(&self, trees: Vec<ManagedTree>) -> Result<Vec<EncodedObject>, Status> {
        let desired = self.resource.api_version(&self.version);
        let (trees, managed): (Vec<Value>, Vec<Vec<u8>>) =
            trees.into_iter().map(|ManagedTree { object, managed }| (object, managed)).unzip();
        let converted = self.webhook.convert(&desired, trees).await?;
        converted.into_iter().zip(managed).map(|(object, managed)| self.encode(object, &managed)).collect()
    }

    fn tree(&self, stored: &StoredObject) -> Result<ManagedTree, Status> {
        let object = stored.object.as_object();
        let managed = object.managed_fields().to_vec();
        let mut object = object
            .to_value(stored.revision, stored.scope.as_str(), self.annotations)
            .map_err(|error| malformed_status(&error))?;
        refresh_stored(&self.resource, &mut object);
        Ok(ManagedTree { object, managed })
    }

    /// A converted object in the form of a stored one. It complies with the schema of its version, so it is sent as it is.
    fn encode(&self, mut object: Value, managed: &[u8]) -> Result<EncodedObject, Status> {
        prune_converted(&self.resource, &self.version, &mut object);
        EncodedObject::strip(&mut object, self.annotations);
        crate::object::encode_managed(&object, self.resource.schema_hash, managed)
            .map_err(|error| malformed_status(&error))
    }

    /// The key in the cache; `None` for an object that is not stored.
    fn key(&self, stored: &StoredObject) -> Result<Option<CacheKey>, Status> {
        if stored.revision.0 == 0 {
            return Ok(None);
        }
        let meta =
            ObjectMetaRef::parse(stored.object.as_object()).map_err(|error| malformed_status(&error))?;
        Ok(Some(CacheKey {
            webhook: self.webhook.id,
            scope: stored.scope.clone(),
            uid: (*meta.uid).into(),
            revision: stored.revision,
            version: Arc::clone(&self.version),
        }))
    }
}

/// An object to convert, and its managedFields as they are stored, which no webhook changes.
struct ManagedTree {
    object: Value,
    managed: Vec<u8>,
}

/// Counts the objects of one call.
#[derive(Default)]
pub(crate) struct ConversionBatch {
    objects: usize,
    bytes: usize,
}

impl ConversionBatch {
    /// Adds an object.
    pub(crate) fn add(&mut self, stored: &StoredObject) {
        self.objects += 1;
        self.bytes += stored.object.stored().len();
    }

    /// Whether the call has enough objects.
    pub(crate) fn is_full(&self) -> bool {
        self.objects >= BATCH_OBJECTS || self.bytes >= BATCH_BYTES
    }
}
