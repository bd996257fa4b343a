//! A webhook that converts the objects of a custom resource.

mod cache;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod review;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairlead_process::{Status, StatusReason};
use fairlead_schema::crd::{ReviewVersion, WebhookClient};
use serde_json::Value;
use tokio::sync::Semaphore;

use self::review::ReviewFailure;
use crate::webhook_client::{CallError, Endpoint};

pub use cache::ConversionCache;

pub(super) use cache::{CacheKey, ConversionClaim, Lookup};

/// The time-out of a conversion, which includes the wait for other calls of the webhook. Kubernetes has the same one.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Concurrent calls of one webhook.
const CONCURRENT_CALLS: usize = 16;

/// A conversion webhook. All logical clusters with an equal definition share one.
pub struct ConversionWebhook {
    /// Distinguishes it from other webhooks in the cache.
    pub(super) id: u64,
    endpoint: Endpoint,
    review_version: ReviewVersion,
    calls: Semaphore,
    pub(super) cache: Arc<ConversionCache>,
}

impl ConversionWebhook {
    /// The webhook of a definition. Nothing is connected before the first conversion.
    pub fn new(client: &WebhookClient, cache: Arc<ConversionCache>) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        Self {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            endpoint: Endpoint::new(&client.config),
            review_version: client.review_version,
            calls: Semaphore::new(CONCURRENT_CALLS),
            cache,
        }
    }

    /// Converts one object to the desired apiVersion, which is not its own.
    ///
    /// # Errors
    /// 500 in the words of Kubernetes.
    pub(super) async fn convert_one(&self, desired: &str, object: Value) -> Result<Value, Status> {
        let mut converted = self.convert(desired, vec![object]).await?;
        converted.pop().ok_or_else(|| Status::internal("a conversion webhook returned no object"))
    }

    /// Converts objects to the desired apiVersion, which is not their own. The results have the order of the objects.
    ///
    /// # Errors
    /// 500 in the words of Kubernetes. All of the objects fail together.
    pub(super) async fn convert(&self, desired: &str, objects: Vec<Value>) -> Result<Vec<Value>, Status> {
        let uid = uuid::Uuid::new_v4().to_string();
        let kind = objects.first().map(described).unwrap_or_default();
        let outcome = async {
            let request = review::request(self.review_version, &uid, desired, &objects);
            let body = self.call(&request).await?;
            review::converted(self.review_version, &uid, &body, desired, objects)
        };
        outcome.await.map_err(|failure| {
            if let ReviewFailure::Call(error) = &failure
                && let Some(refusal) = error.refusal()
            {
                return refusal;
            }
            let message = format!("conversion webhook for {kind} {failure}");
            tracing::debug!(%message, "a conversion webhook failed");
            Status::new(500, StatusReason::Unknown, message)
        })
    }

    async fn call(&self, request: &Value) -> Result<bytes::Bytes, ReviewFailure> {
        let call = async {
            // The semaphore is never closed.
            let _permit = self.calls.acquire().await;
            self.endpoint.call(request, TIMEOUT).await
        };
        match tokio::time::timeout(TIMEOUT, call).await {
            Ok(response) => Ok(response?),
            Err(_) => Err(CallError::Timeout { url: self.endpoint.url(TIMEOUT), after: TIMEOUT }.into()),
        }
    }
}

/// Version and kind of an object, as Kubernetes writes them in messages. The core group is empty before the slash.
fn described(object: &Value) -> String {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let api_version = text("apiVersion");
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={}", text("kind"))
}
