//! Explain: a dry run of a request through the code that serves requests, with a trace of the decisions.
//!
//! Nothing is counted, cached or forwarded. Authenticators make their calls as for a real request (issuer keys, webhooks,
//! shards for service accounts), and a workspace that may not be indexed yet is waited for. Endpoints of the gateway itself do
//! respond: for metrics, the root shard authorizes the user, and its decision is cached.

mod dry_run;
mod request;

use std::net::IpAddr;
use std::sync::Arc;

use fairlead_authn::AuthenticationMethod;
use fairlead_process::{Status, StatusReason};
use http::header::{AUTHORIZATION, COOKIE, HeaderMap, SEC_WEBSOCKET_PROTOCOL};
use http::request::Parts;
use http::{Method, StatusCode};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::admin::AdminApi;
use crate::admin::ListenerInfo;
use crate::admin::explain::dry_run::{DryRun, dry_run};
use crate::auth::identity::RequestIdentity;
use crate::forward::target::Forward;
use crate::pipeline::{Action, RequestView};
use crate::policy::connection::Connection;
use crate::policy::listener::ClientCertificateUse;
use crate::request::decision_log::{DecisionLog, Stage, StageResult, TraceEntry};
use crate::request::response::LocalResponse;
use crate::telemetry::request_stats::RequestStats;
use request::ExplainRequest;

/// Path of the endpoint.
pub(crate) const PATH: &str = "/services/fairlead/v1/explain";

/// The result of a dry run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation {
    /// The request that was explained.
    request: ExplainedRequest,
    steps: Vec<TraceEntry>,
    /// The user of the request, if the gateway authenticates it.
    user: Option<User>,
    /// The id of the logical cluster that the path leads to.
    cluster: Option<Arc<str>>,
    /// The server that would get the request; `None` if the gateway responds itself.
    forward: Option<Destination>,
    /// The response of the gateway itself, if it does not forward the request.
    response: Option<ExplainedResponse>,
}

#[derive(Debug, Serialize)]
struct ExplainedRequest {
    method: String,
    url: String,
    listener: Arc<str>,
    class: &'static str,
    /// The address that would count as the client's.
    client: IpAddr,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct User {
    name: String,
    uid: Option<String>,
    groups: Vec<String>,
    extra: Value,
    /// The kind of credential.
    authenticated_by: &'static str,
    dropped_groups: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Destination {
    url: String,
    /// The name of the shard or of the backend.
    server: Arc<str>,
    /// The headers that the server would get; the values of secrets are omitted.
    headers: Vec<(String, String)>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExplainedResponse {
    code: u16,
    /// The reason in metrics and in the access log.
    reason: &'static str,
    status_reason: Option<String>,
    message: Option<String>,
    location: Option<String>,
}

impl AdminApi {
    /// Authorizes a call of Explain.
    pub(crate) fn may_explain(
        &self,
        view: &RequestView<'_>,
        identity: &RequestIdentity,
    ) -> Result<(), LocalResponse> {
        Self::require_operator(identity, PATH)?;
        match *view.method {
            Method::GET | Method::POST => Ok(()),
            _ => Err(LocalResponse::status(&Status::unknown_method(), "method")),
        }
    }

    /// Responds to an operator at `connection`, whose address is `requester`.
    pub(crate) async fn explain(
        &self,
        connection: &Connection,
        requester: IpAddr,
        head: &Parts,
        body: &[u8],
    ) -> LocalResponse {
        let request = match head.method {
            Method::POST => ExplainRequest::from_body(body),
            _ => ExplainRequest::from_query(head.uri.query().unwrap_or_default()),
        };
        let request = match request {
            Ok(request) => request,
            Err(error) => return LocalResponse::bad_request(error.to_string()),
        };
        let listeners = self.listeners.load();
        let name = request.listener.as_deref().unwrap_or(&connection.listener.name);
        let Some(open) = listeners.iter().find(|open| *open.listener.name == *name) else {
            let names: Vec<&str> = listeners.iter().map(|open| &*open.listener.name).collect();
            let message = format!("there is no listener {name:?}, only {}", names.join(", "));
            return LocalResponse::status(&Status::new(404, StatusReason::NotFound, message), "no_listener");
        };
        match self.dry_run(open, &request, (requester, connection)).await {
            Ok(explanation) => match serde_json::to_vec(&explanation) {
                Ok(body) => {
                    let mut response = LocalResponse::json(StatusCode::OK, body, "explain");
                    response.set_no_store();
                    response
                }
                Err(error) => LocalResponse::status(&Status::internal(error), "internal"),
            },
            Err(error) => LocalResponse::bad_request(error.to_string()),
        }
    }

    async fn dry_run(
        &self,
        open: &ListenerInfo,
        request: &ExplainRequest,
        (requester, requester_connection): (IpAddr, &Connection),
    ) -> Result<Explanation, request::InvalidExplainRequest> {
        let (log, stats) = (DecisionLog::default(), RequestStats::default());
        let head = request.head(&open.listener)?;
        let explained = |class, client| ExplainedRequest {
            method: head.method.to_string(),
            url: head.uri.to_string(),
            listener: Arc::clone(&open.listener.name),
            class,
            client,
        };
        record_listener(open, request, &log);
        let peer = request.peer.unwrap_or(requester);
        let is_closed = {
            let peers = &open.listener.connection_policy.load().peers;
            peers.is_limited() && !peers.admit(peer)
        };
        if is_closed {
            let outcome = if request.peer.is_some() { StageResult::Refused } else { StageResult::Info };
            log.record(Stage::Peer, outcome, || {
                format!("a connection from {peer} is closed at once at this listener")
            });
            if request.peer.is_some() {
                let request = explained("none", peer);
                let (steps, _) = log.into_parts();
                return Ok(Explanation {
                    request,
                    steps,
                    user: None,
                    cluster: None,
                    forward: None,
                    response: None,
                });
            }
        }
        let connection = request.connection(&open.listener, requester_connection.drain.clone(), peer)?;
        let dry_run_result = dry_run(self, &connection, head.clone(), &stats, &log).await;
        let request = explained(dry_run_result.class.as_str(), dry_run_result.client);
        let (forward, response) = self.result(&dry_run_result, &log);
        let (identity, cluster) =
            stats.with(|annotations| (annotations.identity.clone(), annotations.cluster.clone()));
        let (steps, dropped_groups) = log.into_parts();
        let user = identity.map(|identity| {
            let user = identity.user();
            User {
                name: user.name.clone(),
                uid: user.uid.clone(),
                groups: user.groups.clone(),
                extra: serde_json::to_value(&user.extra).unwrap_or_default(),
                authenticated_by: credential_kind(identity.method()),
                dropped_groups,
            }
        });
        Ok(Explanation { request, steps, user, cluster, forward, response })
    }

    fn result(
        &self,
        dry_run_result: &DryRun,
        log: &DecisionLog,
    ) -> (Option<Destination>, Option<ExplainedResponse>) {
        match &dry_run_result.decision {
            Action::Forward(forward) => {
                self.record_server(forward, dry_run_result, log);
                let sent = dry_run_result.upstream_head.as_ref();
                let destination = Destination {
                    url: format!("{}{}", forward.upstream.base(), forward.path_and_query),
                    server: Arc::clone(&forward.upstream.name),
                    headers: sent.map(|sent| without_secrets(&sent.headers)).unwrap_or_default(),
                };
                (Some(destination), None)
            }
            Action::Respond(response) => (None, Some(ExplainedResponse::of(response))),
            Action::Admin(_) => {
                let message = "the gateway responds itself".to_owned();
                let (status_reason, location) = (None, None);
                (
                    None,
                    Some(ExplainedResponse {
                        code: 200,
                        reason: "local",
                        status_reason,
                        message: Some(message),
                        location,
                    }),
                )
            }
        }
    }

    fn record_server(&self, forward: &Forward, dry_run_result: &DryRun, log: &DecisionLog) {
        let view = self.pipeline.routing.table.load();
        if let Some(shard) = view.shards().find(|shard| shard.spec.name == forward.upstream.name) {
            let index_status = self.index.of(shard.index, Instant::now());
            let age = index_status.age.map_or("never synced".to_owned(), |age| {
                format!("last synced {:.1} s ago", age.as_secs_f64())
            });
            let watched = if index_status.watching {
                "its workspaces are watched"
            } else {
                "its workspaces are NOT watched"
            };
            let outcome = if index_status.watching { StageResult::Passed } else { StageResult::Info };
            log.record(Stage::Shard, outcome, || format!("{}: {watched}, {age}", forward.upstream.name));
        }
        let status = self.pipeline.forwarder.upstreams.status_of(&forward.upstream);
        let (outcome, message) = match status.connection_problem {
            Some(connection_problem) => (
                StageResult::Info,
                format!("{connection_problem}: without an open connection the response is 503"),
            ),
            None => (StageResult::Passed, "no connection failure is known".to_owned()),
        };
        log.record(Stage::Shard, outcome, || message);
        if let Some(occupancy) = status.occupancy {
            let waits = if occupancy.waiting > 0 || occupancy.open >= occupancy.limit {
                "would be queued"
            } else {
                "no wait"
            };
            log.record(Stage::Shard, StageResult::Info, || {
                let (open, limit, waiting) = (occupancy.open, occupancy.limit, occupancy.waiting);
                format!("{open} of at most {limit} concurrent requests, {waiting} queued: {waits}")
            });
        }
        let sent = dry_run_result.upstream_head.as_ref();
        if let Some(user) = sent.and_then(|sent| sent.headers.get("impersonate-user")) {
            log.record(Stage::Shard, StageResult::Info, || {
                format!("impersonates {user:?}; the shard authorizes this")
            });
        }
    }
}

/// Adds the properties of the listener to the trace.
fn record_listener(open: &ListenerInfo, request: &ExplainRequest, log: &DecisionLog) {
    let ListenerInfo { listener, address, .. } = open;
    log.record(Stage::Listener, StageResult::Passed, || {
        let authentication = match listener.connection_policy.load().certificates {
            ClientCertificateUse::Identity => "client certificates authenticate",
            ClientCertificateUse::Transport => "client certificates do not authenticate",
        };
        format!("{} at {address}: {authentication}", listener.name)
    });
    if request.certificate.is_some() {
        log.record(Stage::Listener, StageResult::Info, || {
            "the TLS handshake, in which the client proves that it has the certificate's key, is assumed"
                .to_owned()
        });
    }
    if listener.connection_policy.load().peers.proxy_protocol {
        log.record(Stage::Peer, StageResult::Info, || {
            "connections begin with a PROXY protocol header".to_owned()
        });
    }
}

fn credential_kind(method: AuthenticationMethod) -> &'static str {
    match method {
        AuthenticationMethod::Anonymous => "nothing",
        AuthenticationMethod::ClientCertificate => "certificate",
        AuthenticationMethod::RequestHeader => "request headers",
        AuthenticationMethod::TokenFile
        | AuthenticationMethod::ServiceAccount
        | AuthenticationMethod::Jwt
        | AuthenticationMethod::Webhook => "token",
    }
}

/// The headers, with the values of secrets omitted.
fn without_secrets(headers: &HeaderMap) -> Vec<(String, String)> {
    let secret = [AUTHORIZATION, COOKIE, SEC_WEBSOCKET_PROTOCOL];
    let shown = headers.iter().map(|(name, value)| {
        let value = if secret.contains(name) {
            "(as the client sent it)".to_owned()
        } else {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        };
        (name.to_string(), value)
    });
    shown.collect()
}

impl ExplainedResponse {
    fn of(response: &LocalResponse) -> Self {
        let body: Value = serde_json::from_slice(response.response.body()).unwrap_or_default();
        let text = |key: &str| body["kind"].as_str().filter(|kind| *kind == "Status").and(body[key].as_str());
        let location = response.response.headers().get(http::header::LOCATION);
        Self {
            code: response.response.status().as_u16(),
            reason: response.reason,
            status_reason: text("reason").map(str::to_owned),
            message: text("message").map(str::to_owned),
            location: location.map(|location| String::from_utf8_lossy(location.as_bytes()).into_owned()),
        }
    }
}
