//! The endpoints that the gateway answers itself: health, metrics, figures, shard picks.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use fairlead_authn::UserInfo;
use fairlead_client::{Client, Request};
use fairlead_process::{METRICS_CONTENT_TYPE, Status};
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Method, Response, StatusCode, Uri};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::core::{Asked, Core};
use crate::figures::figures;
use crate::identity::{OPERATORS, SHARDS, Sender};
use crate::listener::ShardPicks;
use crate::pick::{PickError, PickRequest};
use crate::request::Reference;
use crate::route::{Caller, Route};
use crate::tail::Filter;
use crate::top::TopReport;

/// How long the root shard's answer about a reader of metrics is believed, as in kcp.
const ALLOWED_FOR: Duration = Duration::from_secs(300);
const DENIED_FOR: Duration = Duration::from_secs(30);
/// Readers remembered at most.
const MAX_READERS: usize = 1024;
/// The largest question that is read.
pub(crate) const MAX_QUESTION_BYTES: usize = 64 << 10;

impl Core {
    pub(crate) fn probe(&self, uri: &Uri) -> Answer {
        let response = self.health.respond(uri.path(), uri.query());
        response.map_or_else(Answer::not_found, |response| Answer::new(response, "probe"))
    }

    /// The same in as few words as there are, about all checks of a probe.
    pub(crate) fn verdict(&self, uri: &Uri) -> Answer {
        let probe = if uri.path().starts_with("/livez") { "/livez" } else { "/readyz" };
        let response = self.health.respond(probe, None);
        let code = response.map_or(StatusCode::NOT_FOUND, |response| response.status());
        Answer::plain(code, if code == StatusCode::OK { "ok" } else { "not ready" }, "probe")
    }

    pub(crate) async fn metrics(&self, sender: &Sender) -> Answer {
        if let Err(refused) = self.may_read_metrics(sender, "/metrics").await {
            return refused;
        }
        self.picker.note_shards(Instant::now().into_std());
        match self.metrics.text(&self.table, &self.index, &self.upstreams.shards(), &self.top) {
            Ok(text) => {
                let mut response = Response::new(text);
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(METRICS_CONTENT_TYPE));
                Answer::new(response, "metrics")
            }
            Err(error) => {
                tracing::error!(%error, "the metrics cannot be printed");
                Answer::status(&Status::internal("the metrics cannot be printed"), "internal")
            }
        }
    }

    /// Whether the sender may see figures of the gateway: an operator, or whom the root shard lets read `/metrics`.
    async fn may_read_metrics(&self, sender: &Sender, path: &str) -> Result<(), Answer> {
        let Sender::Known(identity) = sender else {
            return Err(Answer::unauthorized());
        };
        if sender.is_in(OPERATORS) {
            return Ok(());
        }
        match self.metrics_readers.may_read(identity.user()).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Answer::forbidden(&identity.user().name, "get", path)),
            Err(why) => {
                tracing::warn!(%why, "the root shard could not be asked who may read metrics");
                Err(Answer::status(&Status::internal("the access review failed"), "internal"))
            }
        }
    }

    /// Whether the sender is an operator, who asks for what is at this path.
    pub(crate) fn is_operator(sender: &Sender, path: &str) -> Result<(), Answer> {
        match sender {
            Sender::PassedOn => Err(Answer::unauthorized()),
            Sender::Known(identity) if !sender.is_in(OPERATORS) => {
                Err(Answer::forbidden(&identity.user().name, "get", path))
            }
            Sender::Known(_) => Ok(()),
        }
    }

    /// Tells figures of requests since the process began.
    pub(crate) async fn figures(&self, sender: &Sender) -> Answer {
        if let Err(refused) = self.may_read_metrics(sender, "/services/fairlead/v1/figures").await {
            return refused;
        }
        let figures = figures(&self.metrics.families(), SystemTime::now());
        let mut answer = Answer::json(StatusCode::OK, figures.to_string().into_bytes(), "figures");
        answer.forbid_storing();
        answer
    }

    /// The filter, where its workspace is in the table just now.
    pub(crate) async fn with_cluster(&self, mut filter: Filter) -> Filter {
        let reference = filter.workspace.as_deref().and_then(|workspace| Reference::parse(workspace).ok());
        if let Some(reference) = reference
            && let Route::Shard { cluster, .. } = self.router.route(&reference, Caller::Anonymous).await
        {
            filter.cluster = Some(cluster);
        }
        filter
    }

    /// Tells which workspaces are busy, by path where the table knows it.
    pub(crate) async fn top_workspaces(&self, sender: &Sender) -> Answer {
        if let Err(refused) = self.may_read_metrics(sender, "/services/fairlead/v1/top").await {
            return refused;
        }
        let (top, table) = (Arc::clone(&self.top), self.table.load_full());
        // The whole table is read for the paths.
        let report = tokio::task::spawn_blocking(move || TopReport::of(&top, &table)).await;
        match report.map(|report| serde_json::to_vec(&report)) {
            Ok(Ok(body)) => Answer::json(StatusCode::OK, body, "top"),
            Ok(Err(error)) => Answer::status(&Status::internal(error), "internal"),
            Err(error) => Answer::status(&Status::internal(error), "internal"),
        }
    }

    /// Whether the sender may ask for picks at its door.
    pub(crate) fn may_pick(&self, asked: &Asked<'_>, sender: &Sender) -> Result<(), Answer> {
        if asked.connection.door.policy.load().picks == ShardPicks::Hidden {
            return Err(Answer::not_found());
        }
        match sender {
            Sender::PassedOn => Err(Answer::unauthorized()),
            Sender::Known(identity) if !sender.is_in(SHARDS) => {
                let path = "/services/fairlead/v1/shard-picks";
                Err(Answer::forbidden(&identity.user().name, "create", path))
            }
            Sender::Known(_) if asked.method != Method::POST => {
                Err(Answer::status(&Status::unknown_method(), "method"))
            }
            Sender::Known(_) => Ok(()),
        }
    }

    /// Answers a shard's question where a workspace should live.
    pub(crate) fn pick_shard(&self, body: &[u8]) -> Answer {
        let request: PickRequest = match serde_json::from_slice(body) {
            Ok(request) => request,
            Err(error) => return Answer::bad_request(format!("the question does not decode: {error}")),
        };
        match self.picker.pick(&request, Instant::now().into_std()) {
            Ok(pick) => match serde_json::to_vec(&pick) {
                Ok(body) => Answer::json(StatusCode::OK, body, "pick"),
                Err(error) => Answer::status(&Status::internal(error), "internal"),
            },
            Err(error @ (PickError::Invalid(_) | PickError::Selector(_))) => {
                Answer::bad_request(error.to_string())
            }
            Err(error @ PickError::NotListed) => Answer::unavailable(&error.to_string(), "not_synced"),
            Err(PickError::NotNow(why)) => no_shard_now(&why),
            Err(PickError::NoShardFits(why)) => no_shard_fits(&why),
        }
    }
}

/// 422, final: no fallback helps. The reason is ours, so it is not among Kubernetes' own.
fn no_shard_fits(message: &str) -> Answer {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "NoShardFits", "code": 422,
    });
    Answer::json(StatusCode::UNPROCESSABLE_ENTITY, body.to_string().into_bytes(), "no_shard_fits")
}

/// 503: the shard that asks asks again. The reason tells it from whatever else is 503 on the way, after which it picks by
/// itself.
fn no_shard_now(message: &str) -> Answer {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "NoShardNow", "details": {"retryAfterSeconds": 1}, "code": 503,
    });
    let mut answer =
        Answer::json(StatusCode::SERVICE_UNAVAILABLE, body.to_string().into_bytes(), "no_shard_now");
    answer.response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

/// Who may read metrics, as the root shard's access rules say.
pub(crate) struct MetricsReaders {
    root: Client,
    known: Mutex<FxHashMap<String, (bool, Instant)>>,
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
    /// Asks `root`, a client of the root logical cluster.
    pub(crate) fn new(root: Client) -> Self {
        Self { root, known: Mutex::default() }
    }

    async fn may_read(&self, user: &UserInfo) -> Result<bool, String> {
        // Everything that the answer may depend on.
        let key = serde_json::to_string(user).map_err(|error| error.to_string())?;
        let now = Instant::now();
        if let Some((allowed, until)) = self.known.lock().get(&key).copied()
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
        let answer = self.root.request(request).await.map_err(|error| error.to_string())?;
        let review: AccessReview = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
        let allowed = review.status.allowed;
        let mut known = self.known.lock();
        if known.len() >= MAX_READERS {
            known.retain(|_, (_, until)| now < *until);
        }
        if known.len() < MAX_READERS {
            known.insert(key, (allowed, now + if allowed { ALLOWED_FOR } else { DENIED_FOR }));
        }
        Ok(allowed)
    }
}
