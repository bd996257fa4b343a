//! The decision about one request, in order: quotas of the listener, host and header checks, CORS, the path, the workspace's
//! shard, authentication, quotas of the identity and the workspace.
//!
//! May use `forward` (the request that it hands over), `auth`, `routing`, `policy`, `telemetry` and `request`. Must not know
//! HTTP protocols, sockets, or what the admin API responds.

mod authenticate;
pub(crate) mod dispatch;
mod mount;

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fairlead_config::KcpBehaviour;
use fairlead_process::Counting;
use http::header::{HOST, HeaderMap};
use http::{Method, Uri};

use crate::auth::identity::RequestIdentity;
use crate::auth::workspaces::WorkspaceAuthenticators;
use crate::forward::Forwarder;
use crate::forward::target::Forward;
use crate::policy::client_address::InvalidClientAddress;
use crate::policy::connection::Connection;
use crate::policy::cors::Cors;
use crate::policy::quota::{Exceeded, QuotaIdentity, QuotaSubject, RequestKind};
use crate::policy::request_filter::{Rejection, is_cross_site};
use crate::request::decision_log::{DecisionLog, Stage, StageResult};
use crate::request::host;
use crate::request::response::LocalResponse;
use crate::request::{HeaderLimits, LocalEndpoint, RequestClass};
use crate::routing::Routing;
use crate::routing::mapping::Backend;
use crate::telemetry::request_stats::RequestStats;
use crate::upstream::Upstream;

/// Decides about requests. Shared by all of them.
pub(crate) struct RequestPipeline {
    /// Workspaces and paths to shards and backends.
    pub(crate) routing: Arc<Routing>,
    /// Sends requests on.
    pub(crate) forwarder: Arc<Forwarder>,
    /// Which web pages may use the API.
    pub(crate) cors: ArcSwap<Cors>,
    /// The authenticators of workspaces, used at listeners that allow them.
    pub(crate) workspaces: Option<WorkspaceAuthenticators>,
    /// Limits on header fields.
    pub(crate) header_limits: ArcSwap<HeaderLimits>,
}

/// A request as the pipeline sees it. Passed by reference: async fns store their arguments, so passing by value would enlarge
/// every nested future.
#[derive(Debug)]
pub(crate) struct RequestView<'a> {
    /// Its method.
    pub(crate) method: &'a Method,
    /// Its target.
    pub(crate) uri: &'a Uri,
    /// Its headers, as the client sent them.
    pub(crate) headers: &'a HeaderMap,
    /// Read, write, watch or upgrade.
    pub(crate) class: RequestClass,
    /// The client's address.
    pub(crate) address: IpAddr,
    /// Its connection.
    pub(crate) connection: &'a Connection,
    /// The identity, if the request was authenticated already.
    pub(crate) identity: Option<RequestIdentity>,
    /// Statistics of the request, filled on the way.
    pub(crate) stats: &'a RequestStats,
    /// The log of decisions, in a dry run; metrics and quotas are not counted then.
    pub(crate) decision_log: Option<&'a DecisionLog>,
}

impl RequestView<'_> {
    /// Logs a decision, in a dry run.
    pub(crate) fn log_decision(&self, stage: Stage, result: StageResult, message: impl FnOnce() -> String) {
        if let Some(log) = self.decision_log {
            log.record(stage, result, message);
        }
    }

    /// Logs several decisions, in a dry run.
    fn log_decisions(&self, stage: Stage, result: StageResult, messages: impl FnOnce() -> Vec<String>) {
        if let Some(log) = self.decision_log {
            messages().into_iter().for_each(|message| log.record(stage, result, || message));
        }
    }

    /// The authority: `:authority`, the absolute target's, or the `Host` header.
    fn authority(&self) -> Option<&str> {
        match self.uri.authority() {
            Some(authority) => Some(authority.as_str()),
            None => self.headers.get(HOST).and_then(|host| host.to_str().ok()),
        }
    }

    fn counting(&self) -> Counting {
        if self.decision_log.is_some() { Counting::DryRun } else { Counting::Real }
    }
}

/// The outcome of the decision.
#[derive(Debug)]
pub(crate) enum Action {
    /// Forward it to a shard or backend.
    Forward(Forward),
    /// Respond here.
    Respond(LocalResponse),
    /// Let the admin API respond.
    Admin(LocalEndpoint),
}

impl RequestPipeline {
    /// Decides about a request. As in kcp, an unknown workspace is 403 before any authentication.
    pub(crate) async fn decide(&self, view: &RequestView<'_>) -> Action {
        let local = LocalEndpoint::parse(view.uri.path());
        let began = std::time::Instant::now();
        let is_probe = matches!(local, Some(LocalEndpoint::Live | LocalEndpoint::Ready));
        let quotas = &view.connection.listener.quotas;
        let admitted = match is_probe {
            true => quotas.probe(view.address, view.counting()),
            false => quotas.admit_request(view.counting()),
        };
        if let Err(exceeded) = admitted {
            let response = self.limited(view, exceeded);
            return Action::Respond(response.into_accepted_format(view.headers, view.uri.query()));
        }
        // Health checkers use the IP address as host, so the host filter does not apply to probes.
        if !is_probe && let Err(rejection) = check_request_filter(view) {
            view.log_decision(Stage::Host, StageResult::Refused, || rejection.to_string());
            return Action::Respond(
                LocalResponse::from(rejection).into_accepted_format(view.headers, view.uri.query()),
            );
        }
        let origin = match local {
            Some(_) => None,
            None => self.cors.load().evaluate(view.headers),
        };
        if let Some(response) = origin.as_ref().and_then(|origin| origin.preflight(view.method)) {
            return Action::Respond(response);
        }
        if origin.is_none()
            && is_csrf_target(view, local.as_ref())
            && is_cross_site(view.headers, view.authority())
        {
            view.log_decision(Stage::Credential, StageResult::Refused, || Rejection::CrossSite.to_string());
            return Action::Respond(LocalResponse::from(Rejection::CrossSite));
        }
        let decision = match self.dispatch_by_path(view).await {
            Ok(Action::Forward(mut forward)) => {
                forward.trusted = self.routing.paths.load().trusted_headers_since(began);
                if let Some(upstream_identity) =
                    &view.connection.listener.connection_policy.load().upstream_identity
                {
                    forward.upstream = forward.upstream.with_client_certificate(upstream_identity);
                }
                self.admit(view, forward).map(Action::Forward)
            }
            other => other,
        };
        match (decision, origin) {
            (Ok(Action::Forward(forward)), origin) => {
                Action::Forward(Forward { allowed_origin: origin, ..forward })
            }
            (Ok(Action::Respond(response)) | Err(response), origin) => {
                let response = response.into_accepted_format(view.headers, view.uri.query());
                Action::Respond(match origin {
                    Some(origin) => origin.decorate(response),
                    None => response,
                })
            }
            (Ok(Action::Admin(endpoint)), _) => Action::Admin(endpoint),
        }
    }

    /// Counts a request against the quotas of its identity and workspace.
    fn admit(&self, view: &RequestView<'_>, mut forward: Forward) -> Result<Forward, LocalResponse> {
        let quotas = &view.connection.listener.quotas;
        if !quotas.has_quotas() {
            return Ok(forward);
        }
        let kind = match view.class {
            RequestClass::Read | RequestClass::Write => RequestKind::Request,
            RequestClass::Watch => RequestKind::Watch,
            RequestClass::Upgrade => RequestKind::Upgrade,
        };
        let (identity, groups) = match &forward.identity {
            RequestIdentity::Authenticated(identity) => {
                match (identity.user(), identity.user().cluster_name()) {
                    (user, None) => (QuotaIdentity::User(&user.name), user.groups.as_slice()),
                    (user, Some(cluster)) => (QuotaIdentity::WorkspaceUser(cluster, &user.name), &[][..]),
                }
            }
            RequestIdentity::PassThrough => (QuotaIdentity::Address(view.address), &[][..]),
        };
        let subject = QuotaSubject {
            identity,
            groups,
            workspace: forward.workspace.as_deref().or(forward.mount.as_deref()),
        };
        view.log_decisions(Stage::Quota, StageResult::Info, || quotas.remaining(kind, &subject));
        let quota = quotas.admit(kind, &subject, view.counting());
        let quota = quota.map_err(|exceeded| self.limited(view, exceeded))?;
        forward.quota = quota.map(Box::new);
        Ok(forward)
    }

    fn limited(&self, view: &RequestView<'_>, exceeded: Exceeded) -> LocalResponse {
        let listener = &view.connection.listener;
        if view.decision_log.is_none() {
            tracing::debug!(listener = %listener.name, peer = %view.connection.peer, ?exceeded, "429");
            self.forwarder.telemetry.metrics.limited(
                &listener.name,
                exceeded.scope.as_str(),
                exceeded.limit.as_str(),
            );
        }
        view.log_decision(Stage::Quota, StageResult::Refused, || exceeded.to_string());
        LocalResponse::too_many(exceeded.to_string(), exceeded.wait, "limited")
    }

    /// Whether kcp-front-proxy's behaviour is configured here.
    fn emulates_kcp(&self, behaviour: KcpBehaviour) -> bool {
        self.forwarder.emulates_kcp(behaviour)
    }

    fn upstream(&self, name: &Arc<str>, url: &Arc<str>) -> Result<Arc<Upstream>, LocalResponse> {
        self.forwarder.upstreams.get(name, url).map_err(|error| {
            tracing::warn!(shard = %name, %error, "the shard cannot be reached");
            LocalResponse::unavailable("the shard has no usable address", "no_address")
        })
    }

    fn backend(&self, backend: &Backend) -> Result<Arc<Upstream>, LocalResponse> {
        self.forwarder.upstreams.backend(&backend.spec).map_err(|error| {
            tracing::warn!(mapping = %backend.spec.name, %error, "the backend cannot be reached");
            LocalResponse::unavailable("the backend has no usable address", "no_address")
        })
    }
}

/// Applies the listener's filters of hosts and headers.
fn check_request_filter(view: &RequestView<'_>) -> Result<(), Rejection> {
    let policy = view.connection.listener.policy.load();
    policy.request_filter.host(view.authority(), view.connection.server_name.as_deref())?;
    policy.request_filter.headers(view.headers)
}

/// Whether a request presents a client certificate and changes something or reads from the gateway itself. Browsers send
/// certificates by themselves, so such requests are refused when another site's page sends them (CSRF).
fn is_csrf_target(view: &RequestView<'_>, local: Option<&LocalEndpoint>) -> bool {
    let shows_certificate = view.connection.credentials.is_presented();
    let reads = matches!(*view.method, Method::GET | Method::HEAD | Method::OPTIONS)
        && view.class != RequestClass::Upgrade;
    let is_page = matches!(local, Some(LocalEndpoint::Live | LocalEndpoint::Ready | LocalEndpoint::Admin(_)));
    shows_certificate && !is_page && (local.is_some() || !reads)
}

/// The response to a request that is invalid whatever its path: ambiguous client address, invalid host, or CONNECT.
pub(crate) fn refusal(
    client_address: &Result<IpAddr, InvalidClientAddress>,
    host_error: Option<host::HostError>,
    method: &Method,
) -> Option<LocalResponse> {
    match (client_address, host_error) {
        (Err(error), _) => Some(LocalResponse::bad_request(error.to_string())),
        (_, Some(host_error)) => Some(LocalResponse::bad_request(host_error)),
        _ if *method == Method::CONNECT => {
            Some(LocalResponse::status(&fairlead_process::Status::unknown_method(), "method"))
        }
        _ => None,
    }
}
