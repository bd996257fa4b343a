//! The endpoints that the gateway answers itself: health, metrics, figures, shard picks.

use std::sync::Arc;
use std::time::SystemTime;

use fairlead_process::{METRICS_CONTENT_TYPE, Status};
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Method, Response, StatusCode, Uri};
use serde_json::json;
use tokio::time::Instant;

use crate::admin::AdminApi;
use crate::admin::stats_json::figures;
use crate::admin::top_report::TopReport;
use crate::auth::identity::{OPERATORS, SHARDS, Sender};
use crate::pipeline::Asked;
use crate::policy::listener::ShardPicks;
use crate::request::Reference;
use crate::request::response::Answer;
use crate::routing::placement::{PickError, PickRequest};
use crate::routing::resolver::{Caller, Route};
use crate::telemetry::tail::Filter;

impl AdminApi {
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
        let telemetry = &self.pipeline.forwarder.telemetry;
        match telemetry.metrics.text(&self.gateway_state(), &telemetry.top) {
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
        let figures = figures(&self.pipeline.forwarder.telemetry.metrics.families(), SystemTime::now());
        let mut answer = Answer::json(StatusCode::OK, figures.to_string().into_bytes(), "figures");
        answer.forbid_storing();
        answer
    }

    /// The filter, where its workspace is in the table just now.
    pub(crate) async fn with_cluster(&self, mut filter: Filter) -> Filter {
        let reference = filter.workspace.as_deref().and_then(|workspace| Reference::parse(workspace).ok());
        if let Some(reference) = reference
            && let Route::Shard { cluster, .. } =
                self.pipeline.routing.router.route(&reference, Caller::Anonymous).await
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
        let (top, table) =
            (Arc::clone(&self.pipeline.forwarder.telemetry.top), self.pipeline.routing.table.load_full());
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
