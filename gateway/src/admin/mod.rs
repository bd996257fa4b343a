//! Admin API: endpoints of the gateway itself: probes, metrics, status, busy workspaces, explain, tail, placement, admin page.
//!
//! May use `pipeline` (for a dry run), `forward` and everything below them. Must not know HTTP protocols or sockets.

mod endpoints;
pub(crate) mod explain;
mod metrics_readers;
mod page;
mod scrape;
mod stats_json;
pub(crate) mod status;
mod tail_stream;
mod top_report;

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fairlead_client::Client;
use fairlead_config::ListenerConfig;
use fairlead_process::{Health, Reloads, Shutdown};
use http::StatusCode;
use http::request::Parts;
use tokio::time::Instant;

use crate::auth::identity::RequestIdentity;
use crate::pipeline::dispatch::authenticates_before_routing;
use crate::pipeline::{RequestPipeline, RequestView};
use crate::policy::connection::Connection;
use crate::policy::connection_backlog::BacklogBudget;
use crate::policy::listener::Listener;
use crate::policy::request_filter::{Rejection, is_impersonation_header};
use crate::request::LocalEndpoint;
use crate::request::decision_log::{Stage, StageResult};
use crate::request::response::LocalResponse;
use crate::routing::index::IndexReport;
use crate::routing::placement::{PlacementSettings, Scheduler};
use metrics_readers::MetricsReaders;
use status::CertificateFile;

/// The endpoints of the gateway itself, with the state that they need.
pub(crate) struct AdminApi {
    pipeline: Arc<RequestPipeline>,
    scheduler: Arc<Scheduler>,
    health: Health,
    index: Arc<IndexReport>,
    metrics_readers: MetricsReaders,
    reloads: Reloads,
    shutdown: Shutdown,
    /// Start time of the process.
    started: Instant,
    /// The open listeners.
    pub(crate) listeners: ArcSwap<Vec<ListenerInfo>>,
    /// Certificate files whose expiry the status shows.
    pub(crate) certificate_files: ArcSwap<Vec<CertificateFile>>,
    /// Memory for slow readers.
    pub(crate) backlog_budget: Arc<BacklogBudget>,
}

/// Dependencies of the admin API.
pub(crate) struct AdminParts {
    pub(crate) pipeline: Arc<RequestPipeline>,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) health: Health,
    pub(crate) index: Arc<IndexReport>,
    /// A client for the root shard, which authorizes readers of metrics.
    pub(crate) root: Client,
    pub(crate) reloads: Reloads,
    pub(crate) shutdown: Shutdown,
    pub(crate) certificate_files: Vec<CertificateFile>,
    pub(crate) backlog_budget: Arc<BacklogBudget>,
}

/// An open listener, for the status.
#[derive(Clone)]
pub(crate) struct ListenerInfo {
    /// The listener.
    pub(crate) listener: Arc<Listener>,
    /// Its listen address.
    pub(crate) address: String,
    /// Its settings.
    pub(crate) config: ListenerConfig,
}

/// The reaction of the admin API to a request.
pub(crate) enum AdminReply {
    /// A complete response.
    Respond(LocalResponse),
    /// The client is authorized for this call: its body is to be read, or a stream begins.
    Continue(AdminCall),
}

/// A call with a request body or a streamed response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AdminCall {
    /// The placement of a workspace.
    PlaceWorkspace,
    /// A dry run of a request.
    Explain,
    /// A stream of completed requests.
    Tail,
}

impl AdminApi {
    /// Builds the admin API from its parts. It has no listeners yet.
    pub(crate) fn new(parts: AdminParts) -> Self {
        let AdminParts {
            pipeline,
            scheduler,
            health,
            index,
            root,
            reloads,
            shutdown,
            certificate_files,
            backlog_budget,
        } = parts;
        Self {
            pipeline,
            scheduler,
            health,
            index,
            metrics_readers: MetricsReaders::new(root.with_prefix("/clusters/root")),
            reloads,
            shutdown,
            started: Instant::now(),
            listeners: ArcSwap::default(),
            certificate_files: ArcSwap::from_pointee(certificate_files),
            backlog_budget,
        }
    }

    /// Authenticates and authorizes a request to an endpoint, and responds to it unless the endpoint takes a body or streams.
    pub(crate) async fn call(&self, view: &RequestView<'_>, endpoint: LocalEndpoint) -> AdminReply {
        let reply = self.reply(view, endpoint).await.unwrap_or_else(AdminReply::Respond);
        match reply {
            AdminReply::Respond(response) => {
                AdminReply::Respond(response.into_accepted_format(view.headers, view.uri.query()))
            }
            call @ AdminReply::Continue(_) => call,
        }
    }

    /// Replaces the placement settings.
    pub(crate) fn set_placement(&self, settings: PlacementSettings) {
        self.scheduler.set_settings(settings);
    }

    /// Responds to a call whose body has been read.
    pub(crate) async fn respond(
        &self,
        call: AdminCall,
        connection: &Connection,
        client: IpAddr,
        head: &Parts,
        body: &[u8],
    ) -> LocalResponse {
        match call {
            AdminCall::PlaceWorkspace => self.place_workspace(body),
            AdminCall::Explain => self.explain(connection, client, head, body).await,
            AdminCall::Tail => LocalResponse::not_found(),
        }
    }

    async fn reply(
        &self,
        view: &RequestView<'_>,
        endpoint: LocalEndpoint,
    ) -> Result<AdminReply, LocalResponse> {
        // Impersonation is refused, because only shards authorize it: a client must not get the impersonated user's permissions here.
        if !matches!(endpoint, LocalEndpoint::Live | LocalEndpoint::Ready)
            && view.headers.keys().any(|name| is_impersonation_header(name.as_str()))
        {
            view.log_decision(Stage::Identity, StageResult::Refused, || Rejection::Impersonation.to_string());
            return Err(LocalResponse::from(Rejection::Impersonation));
        }
        let identify = || self.pipeline.identify(view);
        let response = match endpoint {
            LocalEndpoint::Live | LocalEndpoint::Ready => self.respond_to_probe(view).await,
            LocalEndpoint::Metrics => self.metrics(&identify().await?).await,
            LocalEndpoint::Status => self.status(&identify().await?).await,
            LocalEndpoint::Stats => self.stats(&identify().await?).await,
            LocalEndpoint::Admin(file) => {
                let identity = identify().await?;
                self.admin_page(view, &identity, file)?
            }
            LocalEndpoint::Tail => {
                Self::require_operator(&identify().await?, crate::telemetry::tail::PATH)?;
                return Ok(AdminReply::Continue(AdminCall::Tail));
            }
            LocalEndpoint::Top => self.top_workspaces(&identify().await?).await,
            LocalEndpoint::Explain => {
                self.may_explain(view, &identify().await?)?;
                return Ok(AdminReply::Continue(AdminCall::Explain));
            }
            LocalEndpoint::ShardPicks => {
                self.may_place_workspaces(view, &identify().await?)?;
                return Ok(AdminReply::Continue(AdminCall::PlaceWorkspace));
            }
        };
        Ok(AdminReply::Respond(response))
    }

    /// The check details name shards and files. At a listener that authenticates before routing, unauthenticated clients get only
    /// the overall result.
    async fn respond_to_probe(&self, view: &RequestView<'_>) -> LocalResponse {
        if authenticates_before_routing(view) {
            let overall_result = self.overall_result(view.uri);
            let is_plain_probe =
                matches!(view.uri.path(), "/livez" | "/readyz") && view.uri.query().is_none();
            let is_sufficient = is_plain_probe && overall_result.response.status() == StatusCode::OK;
            if is_sufficient
                || !matches!(self.pipeline.identify(view).await, Ok(RequestIdentity::Authenticated(_)))
            {
                return overall_result;
            }
        }
        self.probe(view.uri)
    }
}
