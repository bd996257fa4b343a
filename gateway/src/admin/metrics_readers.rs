//! Authorization of metrics: a SubjectAccessReview at the root shard, whose decision is cached.

use std::time::Duration;

use bytes::Bytes;
use fairlead_authn::UserInfo;
use fairlead_client::{Client, Request};
use http::Method;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

/// Lifetime of a cached decision that allows access, as in kcp.
const ALLOWED_FOR: Duration = Duration::from_secs(300);
const DENIED_FOR: Duration = Duration::from_secs(30);
/// Maximum number of cached decisions.
const MAX_READERS: usize = 1024;

/// Authorizes readers of metrics by the access rules of the root shard.
pub(super) struct MetricsReaders {
    root: Client,
    decisions: Mutex<FxHashMap<String, (bool, Instant)>>,
}

#[derive(Deserialize)]
struct AccessReview {
    status: AccessReviewStatus,
}

#[derive(Deserialize)]
struct AccessReviewStatus {
    #[serde(default)]
    allowed: bool,
}

impl MetricsReaders {
    /// `root` is a client for the root logical cluster.
    pub(super) fn new(root: Client) -> Self {
        Self { root, decisions: Mutex::default() }
    }

    pub(super) async fn may_read(&self, user: &UserInfo) -> Result<bool, String> {
        // The key contains all attributes that the decision may depend on.
        let key = serde_json::to_string(user).map_err(|error| error.to_string())?;
        let now = Instant::now();
        if let Some((allowed, until)) = self.decisions.lock().get(&key).copied()
            && now < until
        {
            return Ok(allowed);
        }
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra,
                "nonResourceAttributes": { "path": "/metrics", "verb": "get" },
            },
        });
        let request = Request::new(Method::POST, "/apis/authorization.k8s.io/v1/subjectaccessreviews")
            .with_body("application/json", Bytes::from(review.to_string()));
        let response = self.root.request(request).await.map_err(|error| error.to_string())?;
        let review: AccessReview =
            serde_json::from_slice(&response.body).map_err(|error| error.to_string())?;
        let allowed = review.status.allowed;
        let mut decisions = self.decisions.lock();
        if decisions.len() >= MAX_READERS {
            decisions.retain(|_, (_, until)| now < *until);
        }
        if decisions.len() < MAX_READERS {
            decisions.insert(key, (allowed, now + if allowed { ALLOWED_FOR } else { DENIED_FOR }));
        }
        Ok(allowed)
    }
}
