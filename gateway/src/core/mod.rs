//! What requests share, and what becomes of one up to the point where it leaves for a shard. Knows HTTP's types but no data
//! plane.

mod forward;
mod sender;
mod walk;

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fairlead_client::Client;
use fairlead_config::{KcpBehaviour, SlowClientsConfig};
use fairlead_process::{Counting, Drain, Health, Reloads, Shutdown};
use http::header::{HOST, HeaderMap};
use http::{Method, Uri};
use tokio::time::Instant;

use crate::access_log::AccessLog;
use crate::answer::Answer;
use crate::cors::Cors;
use crate::doors::ShownDoor;
use crate::explain::{At, Outcome, Steps};
use crate::identity::{KcpStamping, Sender};
use crate::index::IndexReport;
use crate::limits::{Exceeded, Kind, Whom};
use crate::listener::Connection;
use crate::local::MetricsReaders;
use crate::mapping::{Backend, LivePaths};
use crate::mount::MountRules;
use crate::observe::GatewayMetrics;
use crate::pick::Picker;
use crate::request::{HeaderLimits, LocalEndpoint, RequestClass};
use crate::route::Router;
use crate::screen::{Turned, is_of_another_site};
use crate::seen::Seen;
use crate::status::CertificateFile;
use crate::table::RoutingTable;
use crate::tail::Tail;
use crate::top::TopWorkspaces;
use crate::trace::Tracing;
use crate::upstream::{Upstream, Upstreams};
use crate::workspaces::WorkspaceAuthenticators;
pub(crate) use forward::Forward;
pub(crate) use walk::unknown_workspace;

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

    /// What it says that it is for.
    fn authority(&self) -> Option<&str> {
        match self.uri.authority() {
            Some(authority) => Some(authority.as_str()),
            None => self.headers.get(HOST).and_then(|host| host.to_str().ok()),
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

impl Core {
    /// Decides about a request. The order is kcp's: an unknown workspace is 403 whoever asks.
    pub(crate) async fn decide(&self, asked: &Asked<'_>) -> Decision {
        let local = LocalEndpoint::parse(asked.uri.path());
        let began = std::time::Instant::now();
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
        if origin.is_none()
            && may_act(asked, local.as_ref())
            && is_of_another_site(asked.headers, asked.authority())
        {
            asked.tell(At::Credential, Outcome::Refused, || Turned::OtherSite.to_string());
            return Decision::Answer(Answer::turned_away(Turned::OtherSite));
        }
        let decision = match self.walk(asked).await {
            Ok(Decision::Forward(mut forward)) => {
                forward.believed = self.paths.load().believed_since(began);
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

/// What the door demands before anything else is looked at.
fn screen(asked: &Asked<'_>) -> Result<(), Turned> {
    let policy = asked.connection.door.policy.load();
    policy.screen.host(asked.authority(), asked.connection.server_name.as_deref())?;
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

/// A client of the root shard for the gateway's own questions.
pub(crate) fn root_cluster(root: &Client) -> Client {
    root.with_prefix("/clusters/root")
}
