//! The walk of a request up to the point where it leaves for a shard. Knows HTTP's types but no data plane.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fairlead_authn::{in_cluster_claim, shows_token};
use fairlead_client::Client;
use fairlead_config::{KcpBehaviour, SlowClientsConfig};
use fairlead_process::{Drain, Health, Reloads, Shutdown, Status};
use http::header::{HOST, HeaderMap, HeaderName};
use http::uri::PathAndQuery;
use http::{Method, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use rustc_hash::FxBuildHasher;
use tokio::time::Instant;

use crate::access_log::AccessLog;
use crate::answer::Answer;
use crate::cors::{AllowedOrigin, Cors};
use crate::doors::ShownDoor;
use crate::explain::{At, Outcome, Steps};
use crate::identity::{AssertionNames, Believed, Home, KcpStamping, Sender, identify};
use crate::index::IndexReport;
use crate::limits::{Counting, Exceeded, Kind, Ticket, Whom};
use crate::listener::Connection;
use crate::local::MetricsReaders;
use crate::mapping::{Backend, LivePaths, Paths, Target};
use crate::mount::MountRules;
use crate::moved::resumes;
use crate::observe::{GatewayMetrics, Phase};
use crate::pick::Picker;
use crate::request::{
    ClusterPaths, ClusterTarget, HeaderLimits, LocalEndpoint, OtherPath, PathError, Priority, Reference,
    RequestClass, RequestPath, cluster_path, cluster_within, within_cluster,
};
use crate::route::{Caller, Route, Router};
use crate::screen::{Turned, impersonates, is_of_another_site};
use crate::seen::Seen;
use crate::status::CertificateFile;
use crate::table::RoutingTable;
use crate::tail::Tail;
use crate::top::TopWorkspaces;
use crate::trace::Tracing;
use crate::upstream::{Share, Upstream, Upstreams};
use crate::workspaces::WorkspaceAuthenticators;

/// Everything that requests share.
pub(crate) struct Core {
    /// Where logical clusters are.
    pub(crate) table: Arc<RoutingTable>,
    /// Resolves references.
    pub(crate) router: Arc<Router>,
    /// Which paths lead where.
    pub(crate) paths: Arc<LivePaths>,
    /// Where mounts may lead.
    pub(crate) mounts: ArcSwap<MountRules>,
    /// Which web pages may use the API.
    pub(crate) cors: ArcSwap<Cors>,
    /// The authenticators of workspaces, where a door lets them count.
    pub(crate) workspaces: Option<WorkspaceAuthenticators>,
    /// What is to be done as kcp does it.
    pub(crate) as_kcp: Arc<ArcSwap<Vec<KcpBehaviour>>>,
    /// Shards as servers.
    pub(crate) upstreams: Arc<Upstreams>,
    /// Picks shards.
    pub(crate) picker: Arc<Picker>,
    /// Counts and times.
    pub(crate) metrics: Arc<GatewayMetrics>,
    /// Which workspaces are busy.
    pub(crate) top: Arc<TopWorkspaces>,
    /// A line per request.
    pub(crate) access_log: Arc<AccessLog>,
    /// Which requests are traced.
    pub(crate) traces: Tracing,
    /// Health endpoints.
    pub(crate) health: Health,
    /// How the index is doing.
    pub(crate) index: Arc<IndexReport>,
    /// The root shard, asked who may read metrics.
    pub(crate) metrics_readers: MetricsReaders,
    /// What clients may take their time for.
    pub(crate) slow_clients: ArcSwap<SlowClientsConfig>,
    /// How much header is accepted.
    pub(crate) header_limits: ArcSwap<HeaderLimits>,
    /// The doors, for the status.
    pub(crate) doors: ArcSwap<Vec<ShownDoor>>,
    /// What the certificates of files are told by.
    pub(crate) certificate_files: ArcSwap<Vec<CertificateFile>>,
    /// What keeps files fresh, for the status.
    pub(crate) reloads: Reloads,
    /// Who watches requests as they end.
    pub(crate) tail: Arc<Tail>,
    /// What ends the process, for the status.
    pub(crate) shutdown: Shutdown,
    /// When the process began.
    pub(crate) started: Instant,
}

/// A request as far as deciding about it needs to know. Lent, because a future keeps its arguments, on every floor of the
/// walk.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    /// Its method.
    pub(crate) method: &'a Method,
    /// Its target.
    pub(crate) uri: &'a Uri,
    /// Its headers, as the client sent them.
    pub(crate) headers: &'a HeaderMap,
    /// What kind of exchange it is.
    pub(crate) class: RequestClass,
    /// Where it comes from.
    pub(crate) address: IpAddr,
    /// Its connection.
    pub(crate) connection: &'a Connection,
    /// Who asks, where that was judged already.
    pub(crate) sender: Option<Sender>,
    /// What is remembered of it.
    pub(crate) seen: &'a Seen,
    /// Who wants to know each step, where it is only rehearsed: then nothing is counted.
    pub(crate) steps: Option<&'a Steps>,
}

impl Asked<'_> {
    /// Tells a step to whoever wants to know it.
    pub(crate) fn tell(&self, at: At, outcome: Outcome, says: impl FnOnce() -> String) {
        if let Some(steps) = self.steps {
            steps.tell(at, outcome, says);
        }
    }

    /// Tells several steps.
    fn tell_all(&self, at: At, outcome: Outcome, say: impl FnOnce() -> Vec<String>) {
        if let Some(steps) = self.steps {
            say().into_iter().for_each(|says| steps.tell(at, outcome, || says));
        }
    }

    fn counting(&self) -> Counting {
        if self.steps.is_some() { Counting::Rehearsed } else { Counting::Real }
    }
}

/// What happens to a request.
#[derive(Debug)]
pub(crate) enum Decision {
    /// It goes to a shard.
    Forward(Forward),
    /// The gateway answers at once.
    Answer(Answer),
    /// The gateway answers, but has to read the body first.
    Ask(Question),
}

/// What the gateway is asked with a body, by somebody who may.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Question {
    /// Where a workspace should live.
    Pick,
    /// What would become of a request.
    Explain,
    /// What happens from now on.
    Tail,
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
    /// The shard of the logical cluster that the path names, where something else than that shard answers.
    pub(crate) about: Option<Arc<str>>,
    /// By which further headers somebody might be told so.
    pub(crate) believed: Option<Arc<Believed>>,
    /// How many mounts the request has gone through, if any.
    pub(crate) hops: Option<u32>,
    /// The web page that it comes from, if that may read the answer.
    pub(crate) allowed_origin: Option<AllowedOrigin>,
    /// The logical cluster that it is about, if it is about one: its id.
    pub(crate) workspace: Option<Arc<str>>,
    /// The URL that it is mounted from, if it is about a workspace that lives elsewhere.
    pub(crate) mount: Option<Arc<str>>,
    /// What it counts for as long as it is open.
    pub(crate) ticket: Option<Box<Ticket>>,
}

impl Core {
    /// Decides about a request. The order is kcp's: an unknown workspace is 403 whoever asks.
    pub(crate) async fn decide(&self, asked: &Asked<'_>) -> Decision {
        let local = LocalEndpoint::parse(asked.uri.path());
        let believed = self.paths.load().believed.clone();
        if !matches!(local, Some(LocalEndpoint::Live | LocalEndpoint::Ready))
            && let Err(exceeded) = asked.connection.door.quotas.arrive(asked.counting())
        {
            let answer = self.limited(asked, exceeded);
            return Decision::Answer(answer.into_wanted_form(asked.headers, asked.uri.query()));
        }
        // Probes come by address, and say nothing that is worth a secret.
        if !matches!(local, Some(LocalEndpoint::Live | LocalEndpoint::Ready))
            && let Err(turned) = screen(asked)
        {
            asked.tell(At::Host, Outcome::Refused, || turned.to_string());
            return Decision::Answer(
                Answer::turned_away(turned).into_wanted_form(asked.headers, asked.uri.query()),
            );
        }
        let origin = match local {
            Some(_) => None,
            None => self.cors.load().judge(asked.headers),
        };
        if let Some(answer) = origin.as_ref().and_then(|origin| origin.preflight(asked.method)) {
            return Decision::Answer(answer);
        }
        if origin.is_none() && is_of_another_site(asked.headers) && may_act(asked, local.as_ref()) {
            asked.tell(At::Credential, Outcome::Refused, || Turned::OtherSite.to_string());
            return Decision::Answer(Answer::turned_away(Turned::OtherSite));
        }
        let decision = match self.walk(asked).await {
            Ok(Decision::Forward(mut forward)) => {
                // A reload meanwhile: it was judged by what counted before, or by what counts now.
                forward.believed = Believed::either(believed, self.paths.load().believed.clone());
                if let Some(sender) = &asked.connection.door.frame.load().sender {
                    forward.upstream = forward.upstream.on_behalf_of(sender);
                }
                self.admit(asked, forward).map(Decision::Forward)
            }
            other => other,
        };
        match (decision, origin) {
            (Ok(Decision::Forward(forward)), origin) => {
                Decision::Forward(Forward { allowed_origin: origin, ..forward })
            }
            (Ok(Decision::Answer(answer)) | Err(answer), origin) => {
                let answer = answer.into_wanted_form(asked.headers, asked.uri.query());
                Decision::Answer(match origin {
                    Some(origin) => origin.decorate(answer),
                    None => answer,
                })
            }
            (Ok(Decision::Ask(question)), _) => Decision::Ask(question),
        }
    }

    /// Counts a request that may go to a shard.
    fn admit(&self, asked: &Asked<'_>, mut forward: Forward) -> Result<Forward, Answer> {
        let quotas = &asked.connection.door.quotas;
        if !quotas.count() {
            return Ok(forward);
        }
        let kind = match asked.class {
            RequestClass::Read | RequestClass::Write => Kind::Request,
            RequestClass::Watch => Kind::Watch,
            RequestClass::Upgrade => Kind::Upgrade,
        };
        let other;
        let (identity, groups) = match &forward.sender {
            Sender::Known(identity) => match (identity.user(), identity.user().tied_to()) {
                (user, None) => (user.name.as_str(), user.groups.as_slice()),
                // Names and groups of a workspace's own are told apart from everybody else's.
                (user, Some(cluster)) => {
                    other = format!("{cluster}/{}", user.name);
                    (other.as_str(), &[][..])
                }
            },
            Sender::PassedOn => {
                other = asked.address.to_string();
                (other.as_str(), &[][..])
            }
        };
        let whom =
            Whom { identity, groups, workspace: forward.workspace.as_deref().or(forward.mount.as_deref()) };
        asked.tell_all(At::Quota, Outcome::Noted, || quotas.standing(kind, &whom));
        let ticket = quotas.admit(kind, &whom, asked.counting());
        let ticket = ticket.map_err(|exceeded| self.limited(asked, exceeded))?;
        forward.ticket = ticket.map(Box::new);
        Ok(forward)
    }

    fn limited(&self, asked: &Asked<'_>, exceeded: Exceeded) -> Answer {
        let door = &asked.connection.door;
        if asked.steps.is_none() {
            tracing::debug!(door = %door.name, peer = %asked.connection.peer, ?exceeded, "429");
            self.metrics.limited(&door.name, &exceeded);
        }
        asked.tell(At::Quota, Outcome::Refused, || exceeded.to_string());
        Answer::too_many(exceeded.to_string(), exceeded.wait, "limited")
    }

    async fn walk(&self, asked: &Asked<'_>) -> Result<Decision, Answer> {
        if self.header_limits.load().check(asked.uri, asked.headers).is_err() {
            return Err(Answer::status(&Status::request_header_fields_too_large(), "headers_too_large"));
        }
        let paths = self.paths.load();
        let path = RequestPath::parse(asked.uri.path(), paths.clusters);
        asked.tell(At::Path, outcome_of(&path), || told_path(&path));
        match path {
            Ok(RequestPath::Local(endpoint)) => {
                drop(paths);
                // Boxed, because it is rare and large: every request's task would have room for it.
                Box::pin(self.local(asked, endpoint)).await
            }
            path if asked.sender.is_none() && authenticates_first(asked) => {
                drop((path, paths));
                asked.tell(At::Credential, Outcome::Noted, || {
                    "this door judges credentials before it looks for a workspace".to_owned()
                });
                let sender = match self.identify(asked).await? {
                    // Whom only a shard could judge is nobody yet.
                    Sender::PassedOn => {
                        asked.tell(At::Credential, Outcome::Refused, || {
                            "only a shard could judge it, and none is asked before".to_owned()
                        });
                        return Err(Answer::unauthorized());
                    }
                    known @ Sender::Known(_) => Some(known),
                };
                // Boxed, because it is itself.
                Box::pin(self.walk(&Asked { sender, ..*asked })).await
            }
            Ok(RequestPath::Cluster(target)) => self.to_cluster(asked, &paths, &target).await,
            Ok(RequestPath::Other(other)) => match self.home_path(asked, &paths, other) {
                // Boxed, because it is rare.
                Some(path) => Box::pin(self.to_home(asked, &paths, &path)).await,
                None => self.to_mapping(asked, &paths, other).await,
            },
            Err(PathError::Malformed(why)) => {
                Err(Answer::bad_request(format!("malformed request path: {why}")))
            }
            Err(PathError::Unclean(location)) => {
                Err(Answer::redirect(asked.method, &location, asked.uri.query()))
            }
            Err(PathError::InvalidCluster(_)) => Err(unknown_workspace(asked)),
        }
    }

    /// The path in its own workspace that a service account means whose client knows only host and port. The token is
    /// not verified yet; what it says only chooses where it will be.
    fn home_path(&self, asked: &Asked<'_>, paths: &Paths, other: OtherPath<'_>) -> Option<String> {
        let begins = |prefix| other.raw.starts_with(prefix);
        if paths.clusters == ClusterPaths::Ordinary
            || begins("/clusters/")
            || begins("/services/")
            || !asked.connection.door.policy.load().in_cluster_clients
            || asked.headers.get(SHARDED_REQUEST).is_some_and(|value| !value.is_empty())
        {
            return None;
        }
        let cluster = in_cluster_claim(asked.headers)?;
        let path = cluster_path(&cluster, other.raw);
        asked.tell(At::Path, Outcome::Noted, || {
            format!("a service account's token, not judged yet, makes it {path}")
        });
        Some(path)
    }

    async fn to_home(&self, asked: &Asked<'_>, paths: &Paths, path: &str) -> Result<Decision, Answer> {
        match RequestPath::parse(path, paths.clusters) {
            Ok(RequestPath::Cluster(target)) => self.to_cluster(asked, paths, &target).await,
            _ => Err(unknown_workspace(asked)),
        }
    }

    async fn to_cluster(
        &self,
        asked: &Asked<'_>,
        paths: &Paths,
        target: &ClusterTarget<'_>,
    ) -> Result<Decision, Answer> {
        let route = self.route(asked, &target.reference).await?;
        let sender = self.identify_in(asked, &route).await?;
        let (upstream, cluster) = match &route {
            Route::Shard { name, url, cluster, recently_moved, .. } => {
                if *recently_moved {
                    may_go_on(asked)?;
                }
                (self.upstream(name, url)?, cluster)
            }
            Route::Mount(url) => return self.to_mount(asked, paths, url, &target.rest, sender),
            _ => return Err(unknown_workspace(asked)),
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
        let asserted_by = paths.asserted_to_shards.clone();
        let forward = Forward::new(upstream, text, sender, asserted_by)?;
        Ok(Decision::Forward(Forward { workspace: Some(Arc::clone(cluster)), ..forward }))
    }

    /// What is mapped to a path that is none of a workspace. A logical cluster in it has to exist, but only virtual
    /// workspaces of shards are looked for where it is.
    async fn to_mapping(
        &self,
        asked: &Asked<'_>,
        paths: &Paths,
        other: OtherPath<'_>,
    ) -> Result<Decision, Answer> {
        let Some((mapping, matched)) = paths.find(other.raw) else {
            asked.tell(At::Mapping, Outcome::Refused, || "nothing is mapped to this path".to_owned());
            self.identify(asked).await?;
            return Err(Answer::not_found());
        };
        asked.tell(At::Mapping, Outcome::Passed, || mapping.to_string());
        let route = {
            let reference = match (&matched.cluster, paths.clusters) {
                (_, ClusterPaths::Ordinary) => Ok(None),
                (Some(cluster), _) => Reference::parse_or_wildcard(cluster),
                (None, _) => cluster_within(matched.rest),
            };
            match reference.map_err(|_| unknown_workspace(asked))? {
                Some(reference) => Some(self.route(asked, &reference).await?),
                None => None,
            }
        };
        let sender = match &route {
            Some(route) => self.identify_in(asked, route).await?,
            None => self.identify(asked).await?,
        };
        let mut about = None;
        let workspace = match &route {
            Some(Route::Shard { cluster, .. }) => Some(Arc::clone(cluster)),
            _ => None,
        };
        let (upstream, text) = match &mapping.target {
            Target::Backend(backend) => {
                let text = backend.path_and_query(other.raw, asked.uri.query());
                if let Some(Route::Shard { name, .. }) = route {
                    about = Some(name);
                }
                (self.backend(backend)?, text)
            }
            Target::Services(policy) => {
                // Boxed, because it is large, and other requests would have room for it.
                let shard = Box::pin(self.shard_of_service(asked, *policy, route, matched.rest)).await?;
                (shard, asked.uri.path_and_query().map(ToString::to_string).unwrap_or_default())
            }
        };
        let forward = Forward::new(upstream, text, sender, mapping.asserted_by.clone())?;
        Ok(Decision::Forward(Forward { about, workspace, ..forward }))
    }

    async fn route(&self, asked: &Asked<'_>, reference: &Reference<'_>) -> Result<Route, Answer> {
        let start = Instant::now();
        let caller = if shows_token(asked.headers) || asked.connection.credentials.is_presented() {
            Caller::WithCredentials
        } else {
            Caller::Anonymous
        };
        let route = self.router.route_telling(reference, caller, asked.steps).await;
        asked.seen.phase(Phase::Route, start.elapsed());
        match route {
            Route::Shard { ref cluster, .. } => {
                asked.seen.cluster(cluster);
                Ok(route)
            }
            Route::Mount(_) => Ok(route),
            Route::Unavailable if self.does(KcpBehaviour::UnavailableBody) => Err(Answer::plain(
                StatusCode::SERVICE_UNAVAILABLE,
                "Not available.\n",
                "unavailable_workspace",
            )),
            Route::Unavailable => Err(Answer::unavailable("Not available.", "unavailable_workspace")),
            Route::NotSynced if self.does(KcpBehaviour::Unsynced) => Err(unknown_workspace(asked)),
            Route::NotSynced => {
                Err(Answer::unavailable("the workspaces of all shards are not known yet", "not_synced"))
            }
            Route::Busy => Err(Answer::unavailable("too many requests wait for new workspaces", "busy")),
            Route::Unknown => Err(unknown_workspace(asked)),
        }
    }

    fn identify(&self, asked: &Asked<'_>) -> impl Future<Output = Result<Sender, Answer>> {
        self.identify_at(asked, None)
    }

    /// In a workspace whose type has authenticators of its own, they have a say, too.
    async fn identify_in(&self, asked: &Asked<'_>, route: &Route) -> Result<Sender, Answer> {
        let Route::Shard { cluster, workspace_type: Some(workspace_type), .. } = route else {
            return self.identify(asked).await;
        };
        let counts = asked.connection.door.policy.load().workspaces;
        let own = self.workspaces.as_ref().filter(|_| counts).and_then(|all| all.of(workspace_type));
        let home = own.as_deref().map(|authenticator| Home { authenticator, cluster });
        self.identify_at(asked, home.as_ref()).await
    }

    async fn identify_at(&self, asked: &Asked<'_>, home: Option<&Home<'_>>) -> Result<Sender, Answer> {
        if let Some(sender) = &asked.sender {
            return Ok(sender.clone());
        }
        let addresses = &asked.connection.door.quotas.addresses;
        let shows_one = shows_token(asked.headers);
        if shows_one {
            addresses.may_try(asked.address).map_err(|exceeded| self.limited(asked, exceeded))?;
        }
        let start = Instant::now();
        let judged = identify(asked.connection, asked.headers, asked.uri, home, asked.steps).await;
        asked.seen.phase(Phase::Auth, start.elapsed());
        if let Ok(Sender::Known(identity)) = &judged {
            asked.seen.identity(identity);
            let policy = asked.connection.door.policy.load();
            policy.screen.user(identity.user()).map_err(|turned| {
                asked.tell(At::Identity, Outcome::Refused, || turned.to_string());
                Answer::turned_away(turned)
            })?;
        }
        if matches!(judged, Ok(Sender::PassedOn)) {
            asked.tell(At::Identity, Outcome::Noted, || {
                "nobody here judges what is shown: the shard gets it as it is, and says who it is".to_owned()
            });
        }
        judged.map_err(|rejected| {
            asked.tell(At::Identity, Outcome::Refused, || rejected.to_string());
            tracing::debug!(door = %asked.connection.door.name, peer = %asked.connection.peer, %rejected, "not authenticated");
            if shows_one && asked.steps.is_none() {
                addresses.failed(asked.address);
            }
            // Whatever certificate there is: the workspace's issuers were asked about no token.
            if home.is_some() && !shows_one && self.does(KcpBehaviour::NoCredential) {
                Answer::kcp_panic()
            } else {
                Answer::unauthorized()
            }
        })
    }

    async fn local(&self, asked: &Asked<'_>, endpoint: LocalEndpoint) -> Result<Decision, Answer> {
        // Whoever acts for somebody else must not see what only he may: shards would judge by the other one.
        if !matches!(endpoint, LocalEndpoint::Live | LocalEndpoint::Ready)
            && asked.headers.keys().any(|name| impersonates(name.as_str()))
        {
            asked.tell(At::Identity, Outcome::Refused, || Turned::Impersonates.to_string());
            return Err(Answer::turned_away(Turned::Impersonates));
        }
        let answer = match endpoint {
            LocalEndpoint::Live | LocalEndpoint::Ready => self.probe(asked.uri),
            LocalEndpoint::Metrics => self.metrics(&self.identify(asked).await?).await,
            LocalEndpoint::Status => self.status(&self.identify(asked).await?).await,
            LocalEndpoint::Figures => self.figures(&self.identify(asked).await?).await,
            LocalEndpoint::Admin(file) => {
                let sender = self.identify(asked).await?;
                self.admin_page(asked, &sender, file)?
            }
            LocalEndpoint::Tail => {
                Self::is_operator(&self.identify(asked).await?, crate::tail::PATH)?;
                return Ok(Decision::Ask(Question::Tail));
            }
            LocalEndpoint::Top => self.top_workspaces(&self.identify(asked).await?).await,
            LocalEndpoint::Explain => {
                self.may_explain(asked, &self.identify(asked).await?)?;
                return Ok(Decision::Ask(Question::Explain));
            }
            LocalEndpoint::ShardPicks => {
                let sender = self.identify(asked).await?;
                self.may_pick(asked, &sender)?;
                return Ok(Decision::Ask(Question::Pick));
            }
        };
        Ok(Decision::Answer(answer))
    }

    /// Whether something is to be done as kcp does it.
    pub(crate) fn does(&self, behaviour: KcpBehaviour) -> bool {
        self.as_kcp.load().contains(&behaviour)
    }

    /// How far a backend is to be told who asks as kcp does it.
    pub(crate) fn kcp_stamping(&self) -> KcpStamping {
        let as_kcp = self.as_kcp.load();
        KcpStamping {
            nominations_last: as_kcp.contains(&KcpBehaviour::Stamping),
            keeps_uid: as_kcp.contains(&KcpBehaviour::RemoteUid),
        }
    }

    /// What ends exchanges without an end of their own while the connection's door drains.
    pub(crate) fn drain(&self, connection: &Connection) -> Option<Drain> {
        (!self.does(KcpBehaviour::Drain)).then(|| connection.drain.clone())
    }

    pub(crate) fn upstream(&self, name: &Arc<str>, url: &Arc<str>) -> Result<Arc<Upstream>, Answer> {
        self.upstreams.get(name, url).map_err(|error| {
            tracing::warn!(shard = %name, %error, "the shard cannot be reached");
            Answer::unavailable("the shard has no usable address", "no_address")
        })
    }

    pub(crate) fn backend(&self, backend: &Backend) -> Result<Arc<Upstream>, Answer> {
        self.upstreams.backend(&backend.spec).map_err(|error| {
            tracing::warn!(mapping = %backend.spec.name, %error, "the backend cannot be reached");
            Answer::unavailable("the backend has no usable address", "no_address")
        })
    }
}

impl Forward {
    /// When it is its turn. Turns are the logical cluster's; what is about none is in turn by who asks.
    pub(crate) fn share(&self, class: RequestClass, method: &Method, client: IpAddr) -> Share {
        let flow = match (&self.workspace, &self.sender) {
            (Some(workspace), _) => FxBuildHasher.hash_one(&**workspace),
            (None, Sender::Known(identity)) => FxBuildHasher.hash_one(&identity.user().name),
            (None, Sender::PassedOn) => FxBuildHasher.hash_one(client),
        };
        let writes = class == RequestClass::Write;
        let path = within_cluster(self.path_and_query.path());
        Share { flow, writes, priority: Priority::of(class, method, path) }
    }

    /// Counts bytes of a body.
    pub(crate) fn carried(&self, bytes: usize) {
        if let Some(ticket) = &self.ticket {
            ticket.carried(bytes as u64);
        }
    }

    /// # Errors
    /// 400 for a path that HTTP cannot carry.
    pub(crate) fn new(
        upstream: Arc<Upstream>,
        path_and_query: String,
        sender: Sender,
        asserted_by: Option<Arc<AssertionNames>>,
    ) -> Result<Self, Answer> {
        let path_and_query = PathAndQuery::from_maybe_shared(bytes::Bytes::from(path_and_query))
            .map_err(|error| Answer::bad_request(format!("malformed request path: {error}")))?;
        Ok(Self {
            upstream,
            path_and_query,
            sender,
            asserted_by,
            about: None,
            believed: None,
            hops: None,
            allowed_origin: None,
            workspace: None,
            mount: None,
            ticket: None,
        })
    }
}

/// What the door demands before anything else is looked at.
fn screen(asked: &Asked<'_>) -> Result<(), Turned> {
    let policy = asked.connection.door.policy.load();
    let authority = match asked.uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => asked.headers.get(HOST).and_then(|host| host.to_str().ok()),
    };
    policy.screen.host(authority, asked.connection.server_name.as_deref())?;
    policy.screen.headers(asked.headers)
}

/// Whether a request does something, or has the gateway itself answer, with a certificate that goes along unasked.
fn may_act(asked: &Asked<'_>, local: Option<&LocalEndpoint>) -> bool {
    let shows_certificate = asked.connection.credentials.is_presented();
    let reads = matches!(*asked.method, Method::GET | Method::HEAD | Method::OPTIONS)
        && asked.class != RequestClass::Upgrade;
    let is_page = matches!(local, Some(LocalEndpoint::Live | LocalEndpoint::Ready | LocalEndpoint::Admin(_)));
    shows_certificate && !is_page && (local.is_some() || !reads)
}

fn outcome_of(path: &Result<RequestPath<'_>, PathError>) -> Outcome {
    if path.is_ok() { Outcome::Passed } else { Outcome::Refused }
}

fn told_path(path: &Result<RequestPath<'_>, PathError>) -> String {
    match path {
        Ok(RequestPath::Local(_)) => "the gateway answers it itself".to_owned(),
        Ok(RequestPath::Cluster(target)) => {
            let rest = if target.rest.is_empty() { "nothing more" } else { &*target.rest };
            format!("workspace {}, and in it {rest}", target.reference)
        }
        Ok(RequestPath::Other(_)) => "no workspace's own: mapped paths are looked through".to_owned(),
        Err(PathError::Unclean(location)) => format!("not clean: clients are sent to {location}"),
        Err(error) => error.to_string(),
    }
}

fn authenticates_first(asked: &Asked<'_>) -> bool {
    asked.connection.door.policy.load().screen.authenticates_first
}

/// Set by clients that know of logical clusters: their paths are as they mean them.
const SHARDED_REQUEST: HeaderName = HeaderName::from_static("x-kubernetes-sharded-request");

/// Refuses what goes on from a revision of the shard that had the logical cluster before.
fn may_go_on(asked: &Asked<'_>) -> Result<(), Answer> {
    if resumes(asked.class, asked.uri.query()) {
        let message = "the logical cluster has moved to another shard: list again";
        return Err(Answer::status(&Status::expired(message), "moved"));
    }
    Ok(())
}

pub(crate) fn unknown_workspace(asked: &Asked<'_>) -> Answer {
    let path = percent_decode_str(asked.uri.path()).decode_utf8_lossy();
    Answer::no_such_workspace(asked.method, &path)
}

/// A client of the root shard for the gateway's own questions.
pub(crate) fn root_cluster(root: &Client) -> Client {
    root.with_prefix("/clusters/root")
}
