//! The endpoints that the gateway answers itself: health, metrics, status, shard picks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fairlead_authn::UserInfo;
use fairlead_client::{Client, Request};
use fairlead_process::{METRICS_CONTENT_TYPE, Status};
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Method, Response, StatusCode, Uri};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::core::{Asked, Core};
use crate::identity::{OPERATORS, SHARDS, Sender};
use crate::listener::ShardPicks;
use crate::pick::{PickError, PickRequest};
use crate::top::TopReport;
use crate::upstream::{Fault, Standing};

/// How long the root shard's answer about a reader of metrics is believed, as in kcp.
const ALLOWED_FOR: Duration = Duration::from_secs(300);
const DENIED_FOR: Duration = Duration::from_secs(30);
/// Readers remembered at most.
const MAX_READERS: usize = 1024;
/// The largest question for a shard that is read.
pub(crate) const MAX_PICK_BYTES: usize = 64 << 10;

impl Core {
    pub(crate) fn probe(&self, uri: &Uri) -> Answer {
        let response = self.health.respond(uri.path(), uri.query());
        response.map_or_else(Answer::not_found, |response| Answer::new(response, "probe"))
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

    pub(crate) fn status(&self, sender: &Sender) -> Answer {
        match sender {
            Sender::PassedOn => Answer::unauthorized(),
            Sender::Known(identity) if !sender.is_in(OPERATORS) => {
                Answer::forbidden(&identity.user().name, "get", "/services/fairlead/v1/status")
            }
            Sender::Known(_) => {
                let report = self.report();
                match serde_json::to_vec(&report) {
                    Ok(body) => Answer::json(StatusCode::OK, body, "status"),
                    Err(error) => Answer::status(&Status::internal(error), "internal"),
                }
            }
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

    fn report(&self) -> StatusReport {
        let now = Instant::now();
        let root = self.table.load();
        let servers = self.upstreams.shards();
        let shards = root.shards().map(|shard| {
            let server = servers.iter().find(|server| server.name == shard.spec.name);
            let mirrors = self.index.of(shard.index, now);
            let counts = root.counts(shard.index);
            let standing = self.picker.standing(shard.index);
            ShardStatus {
                name: Arc::clone(&shard.spec.name),
                url: Arc::clone(&shard.spec.url),
                synced: shard.is_synced(),
                watching: mirrors.watching,
                age_seconds: mirrors.age.map(|age| age.as_secs_f64()),
                workspaces: counts.clusters,
                child_workspaces: counts.workspaces,
                unschedulable: shard.spec.cordoned,
                draining: shard.spec.marks.draining,
                excluded: standing.as_ref().and_then(|standing| standing.exclusion),
                weight: standing.as_ref().map(|standing| standing.weight),
                capacity: standing.as_ref().and_then(|standing| standing.capacity),
                reserved: standing.as_ref().map_or(0, |standing| standing.reserved),
                requests_per_second: standing.as_ref().map_or(0.0, |standing| standing.rate),
                busy: standing.as_ref().map_or(0.0, |standing| standing.busy),
                lists: mirrors.relists,
                watches: mirrors.restarts,
                last_error: mirrors.last_error,
                healthy: server.is_none_or(|server| server.is_healthy),
                left_alone: server.is_some_and(|server| server.left_alone),
                addresses: server.map_or(0, |server| server.addresses.known),
                ejected: server.map(|server| ejected(&server.addresses)).unwrap_or_default(),
            }
        });
        let mut shards: Vec<ShardStatus> = shards.collect();
        shards.sort_by(|one, other| one.name.cmp(&other.name));
        StatusReport {
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: self.started.elapsed().as_secs(),
            synced: root.is_synced(),
            doors: Vec::clone(&self.doors.load()),
            shards,
        }
    }
}

/// What `fairlead status` shows of the gateway.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusReport {
    version: &'static str,
    uptime_seconds: u64,
    synced: bool,
    doors: Vec<DoorStatus>,
    shards: Vec<ShardStatus>,
}

/// A door in the status.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DoorStatus {
    /// Its name.
    pub(crate) name: Arc<str>,
    /// Where it listens.
    pub(crate) address: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShardStatus {
    name: Arc<str>,
    url: Arc<str>,
    synced: bool,
    watching: bool,
    age_seconds: Option<f64>,
    /// Logical clusters of workspaces on the shard.
    workspaces: u32,
    /// Workspaces whose parent lives on the shard.
    child_workspaces: u32,
    unschedulable: bool,
    draining: bool,
    /// Why it gets no new workspaces.
    excluded: Option<&'static str>,
    weight: Option<u32>,
    capacity: Option<u32>,
    /// Workspaces picked here that the index does not show yet.
    reserved: u32,
    requests_per_second: f64,
    /// Reads and writes that wait for it at any moment.
    busy: f64,
    lists: u64,
    watches: u64,
    last_error: Option<Arc<str>>,
    /// It can be connected to, as far as anybody has tried, and not all its addresses are ejected.
    healthy: bool,
    /// Requests for it fail at once.
    left_alone: bool,
    /// How many addresses it has, as far as anybody has asked.
    addresses: usize,
    ejected: Vec<EjectedAddress>,
}

/// An address that fails.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EjectedAddress {
    address: String,
    why: Fault,
    /// How often in a row.
    times: u32,
    for_seconds: u64,
    /// It gets no requests. Otherwise too many fail, or there is no other.
    left_out: bool,
}

fn ejected(addresses: &Standing) -> Vec<EjectedAddress> {
    let ejected = addresses.ejected.iter().map(|(address, out)| EjectedAddress {
        address: address.to_string(),
        why: out.fault,
        times: out.times,
        for_seconds: out.since.elapsed().as_secs(),
        left_out: addresses.leaves_out,
    });
    ejected.collect()
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
