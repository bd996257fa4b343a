//! Endpoints of the gateway itself: health, metrics, statistics, placement.

use std::sync::Arc;
use std::time::SystemTime;

use fairlead_process::{METRICS_CONTENT_TYPE, Status};
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Method, Response, StatusCode, Uri};
use serde_json::json;
use tokio::time::Instant;

use crate::admin::AdminApi;
use crate::admin::stats_json::stats;
use crate::admin::top_report::TopReport;
use crate::auth::identity::{OPERATORS, RequestIdentity, SHARDS};
use crate::pipeline::RequestView;
use crate::policy::listener::PlacementEndpoint;
use crate::request::Reference;
use crate::request::response::LocalResponse;
use crate::routing::placement::{PlacementError, PlacementRequest};
use crate::routing::resolver::{CallerKind, Route};
use crate::telemetry::tail::Filter;

impl AdminApi {
    pub(crate) fn probe(&self, uri: &Uri) -> LocalResponse {
        let response = self.health.respond(uri.path(), uri.query());
        response.map_or_else(LocalResponse::not_found, |response| LocalResponse::new(response, "probe"))
    }

    /// The overall result of a probe, without details.
    pub(crate) fn overall_result(&self, uri: &Uri) -> LocalResponse {
        let probe = if uri.path().starts_with("/livez") { "/livez" } else { "/readyz" };
        let response = self.health.respond(probe, None);
        let code = response.map_or(StatusCode::NOT_FOUND, |response| response.status());
        LocalResponse::plain(code, if code == StatusCode::OK { "ok" } else { "not ready" }, "probe")
    }

    pub(crate) async fn metrics(&self, identity: &RequestIdentity) -> LocalResponse {
        if let Err(refused) = self.may_read_metrics(identity, "/metrics").await {
            return refused;
        }
        self.scheduler.update_shard_metrics(Instant::now().into_std());
        let telemetry = &self.pipeline.forwarder.telemetry;
        match telemetry.metrics.text(&self.gateway_state(), &telemetry.top) {
            Ok(text) => {
                let mut response = Response::new(text);
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(METRICS_CONTENT_TYPE));
                LocalResponse::new(response, "metrics")
            }
            Err(error) => {
                tracing::error!(%error, "the metrics cannot be encoded");
                LocalResponse::status(&Status::internal("the metrics cannot be encoded"), "internal")
            }
        }
    }

    /// Authorizes a reader of statistics: an operator, or a user that the root shard authorizes for `/metrics`.
    async fn may_read_metrics(&self, identity: &RequestIdentity, path: &str) -> Result<(), LocalResponse> {
        let RequestIdentity::Authenticated(known) = identity else {
            return Err(LocalResponse::unauthorized());
        };
        if identity.is_in(OPERATORS) {
            return Ok(());
        }
        match self.metrics_readers.may_read(known.user()).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(LocalResponse::forbidden(&known.user().name, "get", path)),
            Err(reason) => {
                tracing::warn!(%reason, "the access review of a metrics reader failed");
                Err(LocalResponse::status(&Status::internal("the access review failed"), "internal"))
            }
        }
    }

    /// Refuses clients that are not operators; `path` is for the error message.
    pub(crate) fn require_operator(identity: &RequestIdentity, path: &str) -> Result<(), LocalResponse> {
        match identity {
            RequestIdentity::PassThrough => Err(LocalResponse::unauthorized()),
            RequestIdentity::Authenticated(known) if !identity.is_in(OPERATORS) => {
                Err(LocalResponse::forbidden(&known.user().name, "get", path))
            }
            RequestIdentity::Authenticated(_) => Ok(()),
        }
    }

    /// Responds with statistics of requests since the process began.
    pub(crate) async fn stats(&self, identity: &RequestIdentity) -> LocalResponse {
        if let Err(refused) = self.may_read_metrics(identity, "/services/fairlead/v1/stats").await {
            return refused;
        }
        let stats = stats(&self.pipeline.forwarder.telemetry.metrics.families(), SystemTime::now());
        let mut response = LocalResponse::json(StatusCode::OK, stats.to_string().into_bytes(), "stats");
        response.set_no_store();
        response
    }

    /// Adds the logical cluster of the filter's workspace, if the table has it.
    pub(crate) async fn with_cluster(&self, mut filter: Filter) -> Filter {
        let reference = filter.workspace.as_deref().and_then(|workspace| Reference::parse(workspace).ok());
        if let Some(reference) = reference
            && let Route::Shard { cluster, .. } =
                self.pipeline.routing.resolver.route(&reference, CallerKind::Anonymous).await
        {
            filter.cluster = Some(cluster);
        }
        filter
    }

    /// Responds with the busiest workspaces, with their paths as far as they are in the table.
    pub(crate) async fn top_workspaces(&self, identity: &RequestIdentity) -> LocalResponse {
        if let Err(refused) = self.may_read_metrics(identity, "/services/fairlead/v1/top").await {
            return refused;
        }
        let (top, table) =
            (Arc::clone(&self.pipeline.forwarder.telemetry.top), self.pipeline.routing.table.load_full());
        // Off the async runtime, because it reads the whole table.
        let report = tokio::task::spawn_blocking(move || TopReport::of(&top, &table)).await;
        match report.map(|report| serde_json::to_vec(&report)) {
            Ok(Ok(body)) => LocalResponse::json(StatusCode::OK, body, "top"),
            Ok(Err(error)) => LocalResponse::status(&Status::internal(error), "internal"),
            Err(error) => LocalResponse::status(&Status::internal(error), "internal"),
        }
    }

    /// Authorizes a placement request at its listener.
    pub(crate) fn may_place_workspaces(
        &self,
        view: &RequestView<'_>,
        identity: &RequestIdentity,
    ) -> Result<(), LocalResponse> {
        if view.connection.listener.policy.load().placement_endpoint == PlacementEndpoint::Hidden {
            return Err(LocalResponse::not_found());
        }
        match identity {
            RequestIdentity::PassThrough => Err(LocalResponse::unauthorized()),
            RequestIdentity::Authenticated(known) if !identity.is_in(SHARDS) => {
                let path = "/services/fairlead/v1/shard-picks";
                Err(LocalResponse::forbidden(&known.user().name, "create", path))
            }
            RequestIdentity::Authenticated(_) if view.method != Method::POST => {
                Err(LocalResponse::status(&Status::unknown_method(), "method"))
            }
            RequestIdentity::Authenticated(_) => Ok(()),
        }
    }

    /// Responds to a shard's placement request.
    pub(crate) fn place_workspace(&self, body: &[u8]) -> LocalResponse {
        let request: PlacementRequest = match serde_json::from_slice(body) {
            Ok(request) => request,
            Err(error) => {
                return LocalResponse::bad_request(format!("invalid request body: {error}"));
            }
        };
        match self.scheduler.pick(&request, Instant::now().into_std()) {
            Ok(pick) => match serde_json::to_vec(&pick) {
                Ok(body) => LocalResponse::json(StatusCode::OK, body, "placement"),
                Err(error) => LocalResponse::status(&Status::internal(error), "internal"),
            },
            Err(error @ (PlacementError::Invalid(_) | PlacementError::Selector(_))) => {
                LocalResponse::bad_request(error.to_string())
            }
            Err(error @ PlacementError::NotListed) => {
                LocalResponse::unavailable(&error.to_string(), "not_synced")
            }
            Err(PlacementError::NotNow(reason)) => no_shard_now(&reason),
            Err(PlacementError::NoShardFits(reason)) => no_shard_fits(&reason),
        }
    }
}

/// 422, final: the shard must not choose by itself. The reason is Fairlead's own, because Kubernetes has none for this case.
fn no_shard_fits(message: &str) -> LocalResponse {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "NoShardFits", "code": 422,
    });
    LocalResponse::json(StatusCode::UNPROCESSABLE_ENTITY, body.to_string().into_bytes(), "no_shard_fits")
}

/// 503: the shard retries. The reason distinguishes it from other 503 responses, after which the shard chooses by
/// itself.
fn no_shard_now(message: &str) -> LocalResponse {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "NoShardNow", "details": {"retryAfterSeconds": 1}, "code": 503,
    });
    let mut response =
        LocalResponse::json(StatusCode::SERVICE_UNAVAILABLE, body.to_string().into_bytes(), "no_shard_now");
    response.response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}
