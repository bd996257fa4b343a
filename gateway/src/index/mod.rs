//! Keeps the routing table true: watches the list of shards, and on every shard its logical clusters and workspaces.
//!
//! One task owns the table's writer and applies what the followers of the shards say in batches. A cut connection
//! costs nothing: the mirror resumes where it was and the table stays as it is.

mod follow;
mod objects;

use std::sync::Arc;
use std::time::Duration;

use fairlead_client::{
    Backoff, Client, Credentials, Endpoint, Event, ListWatch, Reflector, ReflectorOptions, ReflectorStatus,
};
use fairlead_process::Shutdown;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::pick::Picker;
use crate::route::{Freshness, Router};
use crate::table::{ShardIndex, ShardSpec, TableWriter};
use follow::{Follower, Mirrors, News};
use objects::{ExportIdentity, ShardObject};

/// How many changes wait at most between the followers and the table; then the watches wait.
const QUEUE: usize = 4096;
/// How often the identity of the workspaces' export is looked at once it is known.
const IDENTITY_CHECK: Duration = Duration::from_secs(60);

/// Times of the index.
#[derive(Clone, Debug)]
pub(crate) struct IndexOptions {
    /// Times of the mirrors.
    pub(crate) reflector: ReflectorOptions,
    /// How long a shard that cannot be read keeps the gateway from being ready.
    pub(crate) sync_deadline: Duration,
}

impl Default for IndexOptions {
    fn default() -> Self {
        // All shards start together with the gateway, and a stale table costs 503s: try often.
        let reflector = ReflectorOptions {
            initial_backoff: Duration::from_millis(50),
            longest_backoff: Duration::from_secs(1),
            ..ReflectorOptions::default()
        };
        Self { reflector, sync_deadline: Duration::from_secs(30) }
    }
}

/// How to talk to shards: the root shard by its client, the others with the same credentials.
#[derive(Clone)]
pub(crate) struct ShardClients {
    /// The root shard, without a logical cluster.
    pub(crate) root: Client,
    /// The credentials of `root`, replaced on rotation.
    pub(crate) credentials: Arc<arc_swap::ArcSwap<Credentials>>,
}

impl ShardClients {
    /// A client of the server at a base URL.
    ///
    /// # Errors
    /// For what is no URL.
    pub(crate) fn of(&self, url: &str) -> Result<Client, fairlead_client::EndpointError> {
        let endpoint = Endpoint::parse(url)?;
        Ok(Client::with_credentials(endpoint, Arc::clone(&self.credentials), self.root.options().clone()))
    }
}

/// The index; [`Index::run`] is its task.
pub(crate) struct Index {
    writer: TableWriter,
    router: Arc<Router>,
    picker: Arc<Picker>,
    clients: ShardClients,
    options: IndexOptions,
    ready: watch::Sender<bool>,
    report: Arc<IndexReport>,
    followed: FxHashMap<Arc<str>, Followed>,
    followers: JoinSet<()>,
    next_follower: u64,
}

struct Followed {
    shard: ShardIndex,
    follower: u64,
    url: Arc<str>,
    task: tokio::task::AbortHandle,
}

/// How the index is doing, for metrics and the status endpoint.
#[derive(Debug, Default)]
pub(crate) struct IndexReport {
    shards: Mutex<FxHashMap<ShardIndex, Mirrors>>,
}

/// The state of one shard's mirrors.
#[derive(Clone, Debug, Default)]
pub(crate) struct MirrorReport {
    /// How old the table's knowledge of the shard may be; `None` if it has never been heard.
    pub(crate) age: Option<Duration>,
    /// Whether all watches are open.
    pub(crate) watching: bool,
    /// Completed lists, over both mirrors.
    pub(crate) relists: u64,
    /// Opened watches, over both mirrors.
    pub(crate) restarts: u64,
    /// Why the last try failed.
    pub(crate) last_error: Option<Arc<str>>,
}

impl Freshness for IndexReport {
    fn is_watching(&self, shard: Option<ShardIndex>) -> bool {
        let shards = self.shards.lock();
        match shard {
            Some(shard) => shards.get(&shard).is_some_and(Mirrors::are_watching),
            None => shards.values().all(Mirrors::are_watching),
        }
    }
}

impl IndexReport {
    /// The state of a shard's mirrors at `now`.
    pub(crate) fn of(&self, shard: ShardIndex, now: Instant) -> MirrorReport {
        let Some(mirrors) = self.shards.lock().get(&shard).cloned() else {
            return MirrorReport::default();
        };
        let clusters = mirrors.clusters.borrow().clone();
        let workspaces =
            mirrors.workspaces.lock().as_ref().map(|status| status.borrow().clone()).unwrap_or_default();
        let age = |status: &ReflectorStatus| status.staleness(now);
        MirrorReport {
            age: age(&clusters).zip(age(&workspaces)).map(|(clusters, workspaces)| clusters.max(workspaces)),
            watching: mirrors.are_watching(),
            relists: clusters.relists + workspaces.relists,
            restarts: clusters.restarts + workspaces.restarts,
            last_error: clusters.last_error.or(workspaces.last_error),
        }
    }
}

impl Index {
    /// An index that fills `writer`'s table once it runs, and sets `ready` when everything was read once.
    pub(crate) fn new(
        writer: TableWriter,
        router: Arc<Router>,
        picker: Arc<Picker>,
        clients: ShardClients,
        options: IndexOptions,
        ready: watch::Sender<bool>,
        report: Arc<IndexReport>,
    ) -> Self {
        Self {
            writer,
            router,
            picker,
            clients,
            options,
            ready,
            report,
            followed: FxHashMap::default(),
            followers: JoinSet::new(),
            next_follower: 0,
        }
    }

    /// Follows everything until the process drains.
    pub(crate) async fn run(mut self, shutdown: Shutdown) {
        let (news, mut inbox) = mpsc::channel(QUEUE);
        let (identity, known_identity) = watch::channel(None);
        self.followers.spawn(read_identity(self.clients.root.with_prefix("/clusters/root"), identity));
        let source = ListWatch::new("/apis/core.kcp.io/v1alpha1/shards");
        let root = self.clients.root.with_prefix("/clusters/root");
        let mut shards = Reflector::<ShardObject>::new(root, source, self.options.reflector.clone());
        let mut batch = Vec::new();
        let deadline = tokio::time::sleep(self.options.sync_deadline);
        tokio::pin!(deadline);
        loop {
            tokio::select! {
                () = shutdown.draining() => return,
                event = shards.next() => self.on_shards(event, &known_identity, &news),
                _ = inbox.recv_many(&mut batch, QUEUE) => self.on_news(&mut batch),
                () = &mut deadline, if !*self.ready.borrow() => {
                    // Without the list of shards nothing can be served; with it, what was read can be.
                    if self.writer.table().load().is_listed() {
                        tracing::warn!("not all shards could be read in time; serving what is known");
                        self.ready.send_replace(true);
                    } else {
                        deadline.as_mut().reset(Instant::now() + Duration::from_secs(1));
                    }
                }
            }
            if !*self.ready.borrow() && self.writer.table().load().is_synced() {
                tracing::info!("the index is synced");
                self.ready.send_replace(true);
            }
        }
    }

    fn on_shards(
        &mut self,
        event: Event<ShardObject>,
        identity: &watch::Receiver<Option<Arc<str>>>,
        news: &mpsc::Sender<News>,
    ) {
        match event {
            Event::Replaced { items, .. } => {
                let present: FxHashSet<Arc<str>> =
                    items.iter().map(|shard| Arc::clone(shard.name())).collect();
                let gone: Vec<_> =
                    self.followed.keys().filter(|name| !present.contains(*name)).cloned().collect();
                gone.iter().for_each(|name| self.forget(name));
                for shard in items {
                    self.follow(shard.into_spec(), identity, news);
                }
                self.writer.shards_listed();
            }
            Event::Applied(shard) => self.follow(shard.into_spec(), identity, news),
            Event::Deleted(shard) => self.forget(shard.name()),
            Event::Progress(_) => {}
        }
    }

    /// Makes a shard known and follows it; a shard that moved to another URL keeps its entries meanwhile.
    fn follow(
        &mut self,
        spec: ShardSpec,
        identity: &watch::Receiver<Option<Arc<str>>>,
        news: &mpsc::Sender<News>,
    ) {
        let (name, url) = (Arc::clone(&spec.name), Arc::clone(&spec.url));
        let client = match self.clients.of(&url) {
            Ok(client) => client,
            Err(error) => {
                tracing::warn!(shard = %name, %error, "a shard without a usable base URL is not followed");
                return self.forget(&name);
            }
        };
        let Some(shard) = self.writer.put_shard(spec) else {
            tracing::error!(shard = %name, "too many shards; this one is not followed");
            return;
        };
        if let Some(followed) = self.followed.get(&name) {
            if followed.url == url {
                return;
            }
            tracing::info!(shard = %name, url = %url, "the shard has a new base URL");
            followed.task.abort();
        } else {
            tracing::info!(shard = %name, url = %url, "following a shard");
        }
        self.next_follower += 1;
        let follower = Follower::new(
            shard,
            self.next_follower,
            &client,
            self.options.reflector.clone(),
            identity.clone(),
            news.clone(),
        );
        self.report.shards.lock().insert(shard, follower.mirrors());
        let task = self.followers.spawn(follower.run());
        self.followed.insert(name, Followed { shard, follower: self.next_follower, url, task });
    }

    fn forget(&mut self, name: &str) {
        let Some(followed) = self.followed.remove(name) else {
            return;
        };
        tracing::info!(shard = %name, "the shard is gone");
        followed.task.abort();
        self.report.shards.lock().remove(&followed.shard);
        self.writer.remove_shard(followed.shard);
    }

    fn on_news(&mut self, batch: &mut Vec<News>) {
        // Followers that ended are reaped here, where there is something to do anyway.
        while self.followers.try_join_next().is_some() {}
        let current: FxHashSet<u64> = self.followed.values().map(|followed| followed.follower).collect();
        let mut placed = Vec::new();
        let mut changes = Vec::with_capacity(batch.len());
        for news in batch.drain(..) {
            if current.contains(&news.follower) {
                placed.extend(news.placed);
                changes.push((news.shard, news.change));
            }
        }
        let touched = self.writer.apply(changes);
        self.router.appeared(&touched);
        self.picker.placed(placed.iter().map(|uid| &**uid));
    }
}

/// Reads the identity of the export that serves workspaces, again and again until it is there, then now and then.
async fn read_identity(root: Client, identity: watch::Sender<Option<Arc<str>>>) {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
    loop {
        let answer = root.get("/apis/apis.kcp.io/v1alpha2/apiexports/tenancy.kcp.io").await;
        let hash = answer.map(|answer| serde_json::from_slice::<ExportIdentity>(&answer.body));
        let delay = match hash {
            Ok(Ok(export)) => match export.into_hash() {
                Some(hash) => {
                    identity.send_if_modified(|known| {
                        let changed = known.as_deref() != Some(hash.as_str());
                        *known = Some(hash.into());
                        changed
                    });
                    IDENTITY_CHECK
                }
                None => backoff.next_delay(),
            },
            Ok(Err(error)) => {
                tracing::warn!(%error, "the export of workspaces does not decode");
                backoff.next_delay()
            }
            Err(error) => {
                tracing::debug!(%error, "the export of workspaces cannot be read");
                backoff.next_delay()
            }
        };
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = identity.closed() => return,
        }
    }
}
