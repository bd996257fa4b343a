//! The index keeps the routing table up to date. It watches the list of shards, and on each shard its logical clusters and
//! workspaces.
//!
//! One task owns the table's writer and applies the changes of all followers in batches. When a connection breaks, the
//! reflector resumes its watch and the table stays as it is. With a snapshot on disk, a gateway starts with the records of its
//! predecessor: known workspaces are routed, others get 503 until their shard has been read.
//!
//! A gateway is ready when every shard has been read once, when it started from a snapshot, or, if it has the list of shards,
//! after 30 s. It stays ready: a shard that cannot be reached only makes its own records older
//! (`fairlead_gateway_index_age_seconds`).

mod authentication;
mod discover;
mod follow;
mod identity;
mod objects;
mod report;
mod select;
mod snapshot;
mod snapshot_writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use fairlead_client::{Client, Credentials, Endpoint, EndpointError, ReflectorOptions};
use fairlead_config::KcpBehaviour;
use fairlead_process::Shutdown;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::routing::placement::Scheduler;
use crate::routing::resolver::WorkspaceResolver;
use crate::routing::table::{ShardIndex, ShardSpec, TableView, TableWriter};
use crate::upstream::Upstreams;
use authentication::AuthenticationFollower;
use discover::{ShardList, ShardListChange, ShardSource};
use follow::{Ack, EventQueue, Follower, ShardEvent};
use identity::read_identity;
use snapshot::SnapshotFile;
use snapshot_writer::SnapshotWriter;

pub(crate) use authentication::WorkspaceAuthentication;
pub(crate) use report::IndexReport;
pub(crate) use select::ShardSelection;

/// Maximum number of changes applied at once.
const MAX_BATCH: usize = 4096;

/// Settings of the index.
#[derive(Clone, Debug)]
pub(crate) struct IndexOptions {
    /// Settings of the reflectors.
    pub(crate) reflector: ReflectorOptions,
    /// Maximum time for which an unreadable shard delays readiness.
    pub(crate) sync_deadline: Duration,
    /// The shards to follow.
    pub(crate) selection: ShardSelection,
    /// Path of the snapshot file.
    pub(crate) snapshot: Option<PathBuf>,
    /// Minimum interval between writes of the snapshot.
    pub(crate) snapshot_interval: Duration,
}

impl Default for IndexOptions {
    fn default() -> Self {
        // Short backoffs: all shards may start together with the gateway, and a stale table costs 503s.
        // Large pages: fewer requests, and only one page at a time is in memory.
        let reflector = ReflectorOptions {
            page_size: 2000,
            initial_backoff: Duration::from_millis(50),
            longest_backoff: Duration::from_secs(1),
            ..ReflectorOptions::default()
        };
        Self {
            reflector,
            sync_deadline: Duration::from_secs(30),
            selection: ShardSelection::default(),
            snapshot: None,
            snapshot_interval: Duration::from_secs(10),
        }
    }
}

/// Clients for shards. The root shard has its own client; the others share credentials.
#[derive(Clone)]
pub(crate) struct ShardClients {
    /// The root shard, without a logical cluster.
    pub(crate) root: Client,
    /// The credentials for every shard, replaced on rotation.
    pub(crate) credentials: Arc<ArcSwap<Credentials>>,
    /// Credentials of shards that have their own, by name.
    pub(crate) own: FxHashMap<Arc<str>, Arc<ArcSwap<Credentials>>>,
    /// Peers from which the list of shards is read instead of the root shard.
    pub(crate) peers: Option<PeerClients>,
}

/// Clients for reading the list of shards from any shard.
#[derive(Clone)]
pub(crate) struct PeerClients {
    /// The first peer, without a logical cluster.
    pub(crate) first: Client,
    /// Further peers.
    pub(crate) others: Vec<Client>,
    /// Credentials for peers that are discovered.
    pub(crate) credentials: Arc<ArcSwap<Credentials>>,
}

impl ShardClients {
    /// A client for a shard at its base URL.
    ///
    /// # Errors
    /// If the text is not a URL.
    pub(crate) fn of(&self, shard: &str, url: &str) -> Result<Client, EndpointError> {
        let endpoint = Endpoint::parse(url)?;
        let credentials = self.own.get(shard).unwrap_or(&self.credentials);
        Ok(Client::with_credentials(endpoint, Arc::clone(credentials), self.root.options().clone()))
    }

    fn source(&self) -> ShardSource {
        let Some(PeerClients { first, others, credentials }) = self.peers.clone() else {
            return ShardSource::Root(self.root.with_prefix("/clusters/root"));
        };
        let options = self.root.options().clone();
        let client = move |url: &str| {
            let endpoint = Endpoint::parse(url).ok()?;
            Some(Client::with_credentials(endpoint, Arc::clone(&credentials), options.clone()))
        };
        ShardSource::Peers { first, others, client: Arc::new(client) }
    }
}

/// Dependencies of the index.
pub(crate) struct IndexParts {
    /// The writer of the table.
    pub(crate) writer: TableWriter,
    /// Receives the keys that have appeared.
    pub(crate) resolver: Arc<WorkspaceResolver>,
    /// Receives the workspaces that were placed.
    pub(crate) scheduler: Arc<Scheduler>,
    /// Receives the shards that were removed.
    pub(crate) upstreams: Arc<Upstreams>,
    /// Clients for shards.
    pub(crate) clients: ShardClients,
    /// Settings of the index.
    pub(crate) options: IndexOptions,
    /// Set once the gateway can serve.
    pub(crate) ready: watch::Sender<bool>,
    /// Receives the state of the index.
    pub(crate) report: Arc<IndexReport>,
    /// Receives authentication configurations, if workspace authentication is enabled.
    pub(crate) authentication: Option<Arc<WorkspaceAuthentication>>,
    /// kcp behaviours that the configuration enables.
    pub(crate) kcp_compatibility: Arc<ArcSwap<Vec<KcpBehaviour>>>,
}

/// The index; [`Index::run`] is its task.
pub(crate) struct Index {
    parts: IndexParts,
    identity: watch::Receiver<Option<Arc<str>>>,
    event_queue: EventQueue,
    followed: FxHashMap<Arc<str>, FollowedShard>,
    /// Shards whose URL kcp would have lost after a change.
    lost_urls: FxHashSet<Arc<str>>,
    followers: JoinSet<()>,
    next_follower: u64,
    /// Whether this process has read the list of shards.
    listed: bool,
    synced: bool,
}

struct FollowedShard {
    shard: ShardIndex,
    follower: u64,
    url: Arc<str>,
    tasks: Vec<AbortHandle>,
}

/// Runs the index until the process drains.
pub(crate) async fn run(parts: IndexParts, shutdown: Shutdown) {
    let (event_queue, mut inbox) = EventQueue::new();
    let (known, identity) = watch::channel(None);
    let mut index = Index {
        parts,
        identity,
        event_queue,
        followed: FxHashMap::default(),
        lost_urls: FxHashSet::default(),
        followers: JoinSet::new(),
        next_follower: 0,
        listed: false,
        synced: false,
    };
    index.restore(&known).await;
    let snapshot_writer =
        index.snapshot_writer().map(|snapshot_writer| tokio::spawn(snapshot_writer.run(shutdown.clone())));
    index.followers.spawn(read_identity(index.identity_candidates(), known));
    let options = &index.parts.options;
    let mut shards = ShardList::new(index.parts.clients.source(), options.reflector.clone());
    let deadline = tokio::time::sleep(options.sync_deadline);
    tokio::pin!(deadline);
    let authentication = index.parts.authentication.clone();
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            () = shutdown.draining() => break,
            event = shards.next() => index.on_shard_list_change(event),
            _ = inbox.recv_many(&mut batch, MAX_BATCH) => index.on_shard_events(&mut batch),
            () = until(index.parts.writer.next_expiry()) => index.parts.writer.expire_relocations(),
            // Readiness may wait for this change only.
            () = authentication_changed(authentication.as_deref()), if !index.synced => {}
            () = &mut deadline, if !index.is_ready() => {
                // Without the list of shards no request can be routed; with it, the records read so far can be used.
                if index.view().is_listed() {
                    tracing::warn!("not all shards could be read in time; the workspaces of the others are served");
                    index.parts.ready.send_replace(true);
                } else {
                    deadline.as_mut().reset(Instant::now() + Duration::from_secs(1));
                }
            }
        }
        index.update_readiness();
    }
    if let Some(snapshot_writer) = snapshot_writer {
        // The snapshot writer writes once more.
        let _ = snapshot_writer.await;
    }
}

async fn authentication_changed(authentication: Option<&WorkspaceAuthentication>) {
    match authentication {
        Some(authentication) => authentication.changed().await,
        None => std::future::pending().await,
    }
}

impl Index {
    /// Restores the table from the snapshot of the previous process.
    async fn restore(&mut self, identity: &watch::Sender<Option<Arc<str>>>) {
        let options = &self.parts.options;
        let Some(file) = options.snapshot.as_ref().map(SnapshotFile::new) else {
            return;
        };
        let (empty, selection) = (self.parts.writer.restoration(), options.selection.to_string());
        let path = file.path().to_owned();
        let began = Instant::now();
        let (header, restoration) = match tokio::task::spawn_blocking(move || file.read(empty, &selection))
            .await
        {
            Ok(Ok(Some(found))) => found,
            Ok(Ok(None)) => return,
            Ok(Err(error)) => {
                return tracing::warn!(file = %path.display(), %error, "the snapshot of the index cannot be used");
            }
            Err(error) => return tracing::error!(%error, "reading the snapshot of the index was aborted"),
        };
        self.parts.writer.restore(restoration);
        let age = SystemTime::now().duration_since(header.written_at).unwrap_or_default();
        self.parts.report.restored(age);
        identity.send_replace(header.identity);
        let shards: Vec<ShardSpec> = self.view().shards().map(|shard| shard.spec.clone()).collect();
        let count = shards.len();
        shards.into_iter().for_each(|shard| self.follow(shard));
        tracing::info!(shards = count, age = ?age, took = ?began.elapsed(), "the index was restored from its snapshot");
        if count > 0 {
            self.parts.ready.send_replace(true);
        }
    }

    fn snapshot_writer(&self) -> Option<SnapshotWriter> {
        let options = &self.parts.options;
        Some(SnapshotWriter {
            file: SnapshotFile::new(options.snapshot.as_ref()?),
            interval: options.snapshot_interval,
            selection: options.selection.to_string(),
            table: self.parts.writer.table(),
            identity: self.identity.clone(),
            ready: self.parts.ready.subscribe(),
        })
    }

    /// The root shard, and the shard that has the root workspace.
    fn identity_candidates(&self) -> impl Fn() -> Vec<Client> + Send + 'static {
        let (clients, table) = (self.parts.clients.clone(), self.parts.writer.table());
        move || {
            let owner = table.load().owner_of("root").map(|shard| shard.spec.clone());
            let owner = owner.and_then(|spec| clients.of(&spec.name, &spec.url).ok());
            let is_another =
                |owner: &Client| owner.endpoint().to_string() != clients.root.endpoint().to_string();
            [clients.root.clone()].into_iter().chain(owner.filter(is_another)).collect()
        }
    }

    fn view(&self) -> Arc<TableView> {
        self.parts.writer.table().load_full()
    }

    fn is_ready(&self) -> bool {
        *self.parts.ready.borrow()
    }

    fn update_readiness(&mut self) {
        if self.synced {
            return;
        }
        let view = self.view();
        let has_authentication = || {
            let names = view.shards().map(|shard| &shard.spec.name);
            self.parts.authentication.as_ref().is_none_or(|authentication| authentication.is_synced(names))
        };
        if view.is_synced() && has_authentication() {
            tracing::info!("the index is synced");
            self.synced = true;
            self.parts.ready.send_replace(true);
        }
    }

    fn on_shard_list_change(&mut self, event: ShardListChange) {
        match event {
            ShardListChange::Replaced(shards) => {
                let selection = &self.parts.options.selection;
                let present: FxHashSet<&Arc<str>> = shards
                    .iter()
                    .filter(|shard| selection.includes(shard))
                    .map(|shard| &shard.name)
                    .collect();
                let view = self.view();
                let known = view.shards().map(|shard| &shard.spec.name);
                let gone: Vec<Arc<str>> = known.filter(|name| !present.contains(name)).cloned().collect();
                self.lost_urls.retain(|name| present.contains(name));
                gone.iter().for_each(|name| self.remove_shard(name));
                shards.into_iter().for_each(|shard| self.follow(shard));
                self.parts.writer.mark_shards_listed();
                self.listed = true;
            }
            ShardListChange::Updated(shard) => self.follow(shard),
            ShardListChange::Removed(name) => {
                self.lost_urls.remove(&name);
                self.remove_shard(&name);
            }
        }
    }

    fn emulates(&self, behaviour: KcpBehaviour) -> bool {
        self.parts.kcp_compatibility.load().contains(&behaviour)
    }

    /// True if kcp would have lost the shard's URL: the URL differs from the previous one, and this process has read both.
    fn has_lost_url(&mut self, name: &Arc<str>, url: &Arc<str>) -> bool {
        if !self.emulates(KcpBehaviour::BaseUrls) {
            self.lost_urls.remove(name);
            return false;
        }
        let has_moved = || self.followed.get(name).is_some_and(|followed| followed.url != *url);
        if self.listed && has_moved() {
            tracing::warn!(shard = %name, "the shard's base URL has changed and kcpCompatibility has baseUrls: its workspaces are not served");
            self.lost_urls.insert(Arc::clone(name));
        }
        self.lost_urls.contains(name)
    }

    /// Adds a shard and follows it; a shard with a new URL keeps its records meanwhile.
    fn follow(&mut self, spec: ShardSpec) {
        let (name, url) = (Arc::clone(&spec.name), Arc::clone(&spec.url));
        if !self.parts.options.selection.includes(&spec) {
            return self.remove_shard(&name);
        }
        let client = match self.parts.clients.of(&name, &url) {
            Ok(client) => client,
            Err(error) => {
                tracing::warn!(shard = %name, %error, "a shard without a usable base URL is not followed");
                return self.remove_shard(&name);
            }
        };
        // The shard is read at its new URL, but no requests are routed there.
        let spec = match self.has_lost_url(&name, &url) {
            true => ShardSpec { url: "".into(), cordoned: true, ..spec },
            false => spec,
        };
        let Some(shard) = self.parts.writer.put_shard(spec) else {
            tracing::error!(shard = %name, "there are too many shards: the shard is not followed");
            return;
        };
        if let Some(followed) = self.followed.get(&name) {
            if followed.url == url {
                return;
            }
            tracing::info!(shard = %name, url = %url, "the shard has a new base URL");
            followed.tasks.iter().for_each(AbortHandle::abort);
        } else {
            tracing::info!(shard = %name, url = %url, "following a shard");
        }
        self.next_follower += 1;
        let (follower, reflector) = (self.next_follower, &self.parts.options.reflector);
        let shard_follower = Follower::new(
            shard,
            follower,
            &client,
            reflector.clone(),
            self.identity.clone(),
            self.event_queue.clone(),
        );
        self.parts.report.insert(shard, shard_follower.reflectors());
        let mut tasks = vec![self.followers.spawn(shard_follower.run())];
        if let Some(authentication) = &self.parts.authentication {
            let (reflector, identity) = (reflector.clone(), self.identity.clone());
            let target = Arc::clone(authentication);
            let authentication_follower =
                AuthenticationFollower::new(Arc::clone(&name), &client, reflector, identity, target);
            tasks.push(self.followers.spawn(authentication_follower.run()));
        }
        self.followed.insert(name, FollowedShard { shard, follower, url, tasks });
    }

    fn remove_shard(&mut self, name: &str) {
        if let Some(followed) = self.followed.remove(name) {
            followed.tasks.iter().for_each(AbortHandle::abort);
            self.parts.report.remove(followed.shard);
        }
        if let Some(authentication) = &self.parts.authentication {
            authentication.remove_shard(name);
        }
        let known = self.view().shards().find(|shard| &*shard.spec.name == name).map(|shard| shard.index);
        if let Some(shard) = known {
            tracing::info!(shard = %name, "the shard was removed");
            self.parts.writer.remove_shard(shard);
        }
        // Last, after the table no longer routes to it.
        self.parts.upstreams.remove_shard(name);
    }

    fn on_shard_events(&mut self, batch: &mut Vec<ShardEvent>) {
        // Join followers that have ended.
        while self.followers.try_join_next().is_some() {}
        let current: FxHashSet<u64> = self.followed.values().map(|followed| followed.follower).collect();
        let mut changes = Vec::with_capacity(batch.len());
        let mut placed = Vec::new();
        let mut acks = Vec::with_capacity(batch.len());
        let keeps_cleared_mounts = self.emulates(KcpBehaviour::ClearedMounts);
        for event in batch.drain(..).filter(|event| current.contains(&event.follower)) {
            let change =
                if keeps_cleared_mounts { event.change.keeping_cleared_mounts() } else { event.change };
            changes.push((event.shard, change));
            placed.extend(event.placed);
            acks.push(event.ack);
        }
        let touched = self.parts.writer.apply(changes);
        let lag = acks.into_iter().map(Ack::applied).max();
        self.parts.report.applied(lag.unwrap_or_default());
        self.parts.resolver.wake_waiters(&touched);
        self.parts.scheduler.placed(placed.iter().map(|uid| &**uid));
    }
}

/// The reason why the gateway is not ready, for the readiness check of the index.
pub(crate) fn describe_missing_lists(view: &TableView) -> String {
    if !view.is_listed() {
        return "the list of shards has not been read yet".to_owned();
    }
    let missing = view.shards().filter(|shard| !shard.is_synced()).map(|shard| &*shard.spec.name);
    format!("not read yet: {}", missing.collect::<Vec<_>>().join(", "))
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
