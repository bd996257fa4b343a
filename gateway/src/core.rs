//! The walk of a request up to the point where it leaves for a shard. Knows HTTP's types but no data plane.

use std::sync::Arc;

use arc_swap::ArcSwap;
use fairlead_client::Client;
use fairlead_process::{Health, Shutdown, Status};
use http::header::{AUTHORIZATION, HeaderMap, SEC_WEBSOCKET_PROTOCOL};
use http::uri::PathAndQuery;
use http::{Method, Uri};
use percent_encoding::percent_decode_str;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::identity::{AssertionNames, Sender, identify};
use crate::index::IndexReport;
use crate::listener::Connection;
use crate::local::MetricsReaders;
use crate::observe::{GatewayMetrics, GatewayPhase};
use crate::pick::Picker;
use crate::request::{
    ClusterTarget, HeaderLimits, LocalEndpoint, PathError, Reference, RequestPath, ServiceTarget,
};
use crate::route::{Caller, Route, Router};
use crate::table::RoutingTable;
use crate::upstream::{Upstream, Upstreams};

/// Everything that requests share.
pub(crate) struct Core {
    /// Where logical clusters are.
    pub(crate) table: Arc<RoutingTable>,
    /// Resolves references.
    pub(crate) router: Arc<Router>,
    /// Shards as servers.
    pub(crate) upstreams: Upstreams,
    /// Picks shards.
    pub(crate) picker: Arc<Picker>,
    /// Counts and times.
    pub(crate) metrics: Arc<GatewayMetrics>,
    /// Health endpoints.
    pub(crate) health: Health,
    /// How the index is doing.
    pub(crate) index: Arc<IndexReport>,
    /// The root shard, asked who may read metrics.
    pub(crate) metrics_readers: MetricsReaders,
    /// How much header is accepted.
    pub(crate) header_limits: HeaderLimits,
    /// The doors, for the status.
    pub(crate) doors: ArcSwap<Vec<crate::local::DoorStatus>>,
    /// Ends what has no end of its own.
    pub(crate) shutdown: Shutdown,
    /// When the process began.
    pub(crate) started: Instant,
}

/// A request as far as deciding about it needs to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// Its method.
    pub(crate) method: &'a Method,
    /// Its target.
    pub(crate) uri: &'a Uri,
    /// Its headers, as the client sent them.
    pub(crate) headers: &'a HeaderMap,
    /// Its connection.
    pub(crate) connection: &'a Connection,
}

/// What happens to a request.
#[derive(Debug)]
pub(crate) enum Decision {
    /// It goes to a shard.
    Forward(Forward),
    /// The gateway answers at once.
    Answer(Answer),
    /// The gateway answers, but has to read the body first.
    PickShard,
}

/// A request on its way to a shard.
#[derive(Debug)]
pub(crate) struct Forward {
    /// The shard.
    pub(crate) upstream: Arc<Upstream>,
    /// What the shard is asked for.
    pub(crate) path_and_query: PathAndQuery,
    /// Who asks.
    pub(crate) sender: Sender,
    /// How it is told who asks, where that is not the usual way.
    pub(crate) asserted_by: Option<Arc<AssertionNames>>,
}

impl Core {
    /// Decides about a request. The order is kcp's: an unknown workspace is 403 whoever asks.
    pub(crate) async fn decide(&self, asked: Asked<'_>) -> Decision {
        match self.walk(asked).await {
            Ok(decision) => decision,
            Err(answer) => Decision::Answer(answer),
        }
    }

    async fn walk(&self, asked: Asked<'_>) -> Result<Decision, Answer> {
        if self.header_limits.check(asked.headers).is_err() {
            return Err(Answer::status(&Status::request_header_fields_too_large(), "headers_too_large"));
        }
        let (path, query) = (asked.uri.path(), asked.uri.query());
        match RequestPath::parse(path) {
            Ok(RequestPath::Cluster(target)) => self.to_cluster(asked, target).await,
            Ok(RequestPath::Service(target)) => self.to_service(asked, target).await,
            Ok(RequestPath::Local(endpoint)) => self.local(asked, endpoint).await,
            Ok(RequestPath::Unmapped) => {
                self.identify(asked).await?;
                Err(Answer::not_found())
            }
            Err(PathError::Malformed(why)) => {
                Err(Answer::bad_request(format!("malformed request path: {why}")))
            }
            Err(PathError::Unclean(location)) => Err(Answer::redirect(&location, query)),
            Err(PathError::InvalidCluster(_)) => Err(unknown_workspace(asked)),
        }
    }

    async fn to_cluster(&self, asked: Asked<'_>, target: ClusterTarget<'_>) -> Result<Decision, Answer> {
        let route = self.route(asked, &target.reference).await?;
        let sender = self.identify(asked).await?;
        let (upstream, cluster) = match &route {
            Route::Shard { name, url, cluster, .. } => (self.upstream(name, url)?, cluster),
            _ => return Err(unserved_mount()),
        };
        let query = asked.uri.query();
        let mut text = String::with_capacity(
            "/clusters/".len() + cluster.len() + target.rest.len() + query.map_or(0, |query| query.len() + 1),
        );
        text.push_str("/clusters/");
        text.push_str(cluster);
        text.push_str(&target.rest);
        if let Some(query) = query {
            text.push('?');
            text.push_str(query);
        }
        let path_and_query = PathAndQuery::from_maybe_shared(bytes::Bytes::from(text))
            .map_err(|error| Answer::bad_request(format!("malformed request path: {error}")))?;
        Ok(Decision::Forward(Forward { upstream, path_and_query, sender, asserted_by: None }))
    }

    /// Virtual workspaces are served by the root shard. A logical cluster in the path has to exist, but does not
    /// decide where the request goes.
    async fn to_service(&self, asked: Asked<'_>, target: ServiceTarget<'_>) -> Result<Decision, Answer> {
        if let Some(reference) = &target.reference {
            self.route(asked, reference).await?;
        }
        let sender = self.identify(asked).await?;
        let root = Reference::root();
        let upstream = match self.router.route(&root, Caller::Anonymous).await {
            Route::Shard { name, url, .. } => self.upstream(&name, &url)?,
            _ => return Err(Answer::unavailable("the root shard is not known yet", "not_synced")),
        };
        let path_and_query = asked.uri.path_and_query().cloned();
        let path_and_query = path_and_query.ok_or_else(|| Answer::bad_request("the request has no path"))?;
        Ok(Decision::Forward(Forward { upstream, path_and_query, sender, asserted_by: None }))
    }

    async fn route(&self, asked: Asked<'_>, reference: &Reference<'_>) -> Result<Route, Answer> {
        let start = Instant::now();
        let has_token =
            asked.headers.contains_key(AUTHORIZATION) || asked.headers.contains_key(SEC_WEBSOCKET_PROTOCOL);
        let caller = if has_token || asked.connection.credentials.is_presented() {
            Caller::WithCredentials
        } else {
            Caller::Anonymous
        };
        let route = self.router.route(reference, caller).await;
        self.metrics.phase(GatewayPhase::Route, start.elapsed());
        match route {
            Route::Shard { .. } | Route::Mount(_) => Ok(route),
            Route::Unavailable => Err(Answer::unavailable("Not available.", "unavailable_workspace")),
            Route::NotSynced => {
                Err(Answer::unavailable("the workspaces of all shards are not known yet", "not_synced"))
            }
            Route::Busy => Err(Answer::unavailable("too many requests wait for new workspaces", "busy")),
            Route::Unknown => Err(unknown_workspace(asked)),
        }
    }

    async fn identify(&self, asked: Asked<'_>) -> Result<Sender, Answer> {
        let start = Instant::now();
        let judged = identify(asked.connection, asked.headers).await;
        self.metrics.phase(GatewayPhase::Auth, start.elapsed());
        judged.map_err(|rejected| {
            tracing::debug!(door = %asked.connection.door.name, peer = %asked.connection.peer, %rejected, "not authenticated");
            Answer::unauthorized()
        })
    }

    async fn local(&self, asked: Asked<'_>, endpoint: LocalEndpoint) -> Result<Decision, Answer> {
        let answer = match endpoint {
            LocalEndpoint::Live | LocalEndpoint::Ready => self.probe(asked.uri),
            LocalEndpoint::Metrics => self.metrics(&self.identify(asked).await?).await,
            LocalEndpoint::Status => self.status(&self.identify(asked).await?),
            LocalEndpoint::ShardPicks => {
                let sender = self.identify(asked).await?;
                self.may_pick(asked, &sender)?;
                return Ok(Decision::PickShard);
            }
        };
        Ok(Decision::Answer(answer))
    }

    fn upstream(&self, name: &Arc<str>, url: &Arc<str>) -> Result<Arc<Upstream>, Answer> {
        self.upstreams.get(name, url).map_err(|error| {
            tracing::warn!(shard = %name, %error, "the shard cannot be reached");
            Answer::unavailable("the shard has no usable address", "no_address")
        })
    }
}

fn unknown_workspace(asked: Asked<'_>) -> Answer {
    let path = percent_decode_str(asked.uri.path()).decode_utf8_lossy();
    Answer::no_such_workspace(asked.method, &path)
}

/// Mounts are known to the index and not served yet; they are never mistaken for an unknown workspace.
fn unserved_mount() -> Answer {
    Answer::unavailable("mounted workspaces are not served by this gateway", "mount")
}

/// A client of the root shard for the gateway's own questions.
pub(crate) fn root_cluster(root: &Client) -> Client {
    root.with_prefix("/clusters/root")
}
