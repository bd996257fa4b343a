//! Resolves workspace references, with a bounded wait for records that the index does not have yet.
//!
//! A client that has just seen its workspace become Ready may be faster than the index. A miss that may be about to
//! appear therefore waits for the index for a bounded time; the batch that adds the record wakes it. A key that did not
//! appear is cached as a miss and waits less the next time. The number of waiters is bounded, so that probing for names
//! stays cheap.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use fairlead_process::network_of;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::request::Reference;
use crate::request::decision_log::{DecisionLog, Stage, StageResult};
use crate::routing::table::{Missing, Resolution, RoutingTable, ShardIndex, TableKey};

/// Limits on waiting for a missing record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MissWaitPolicy {
    /// Maximum wait for a miss.
    pub(crate) wait: Duration,
    /// Lifetime of a cached miss after a wait without success.
    pub(crate) miss_ttl: Duration,
    /// Maximum wait for a cached miss. Not zero: the workspace may have been created since.
    pub(crate) wait_after_miss: Duration,
    /// Maximum number of requests that wait at the same time.
    pub(crate) waiters: usize,
    /// Maximum number of waiting requests per address (IPv6: per /64). Credentials are not verified yet, so one client
    /// with made-up tokens could otherwise use up the limit.
    pub(crate) waiters_per_address: usize,
}

impl Default for MissWaitPolicy {
    fn default() -> Self {
        Self {
            wait: Duration::from_millis(500),
            miss_ttl: Duration::from_millis(1000),
            wait_after_miss: Duration::from_millis(100),
            waiters: 4096,
            waiters_per_address: 256,
        }
    }
}

/// The target of a request; owned, so that it stays valid while the table changes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Route {
    /// A logical cluster on a shard.
    Shard {
        /// The shard.
        index: ShardIndex,
        /// Its name.
        name: Arc<str>,
        /// Its base URL.
        url: Arc<str>,
        /// The id of the logical cluster.
        cluster: Arc<str>,
        /// The type of its workspace, `path:name`.
        workspace_type: Option<Arc<str>>,
        /// Whether another shard owned it recently: see [`resumes_from_revision`](crate::request::resume::resumes_from_revision).
        recently_relocated: bool,
    },
    /// A server with this URL.
    Mount(Box<str>),
    /// The workspace exists but is unavailable through this path: 503.
    Unavailable,
    /// Not all shards have been read yet: 503, the client may retry.
    NotSynced,
    /// Not found: 403.
    NotFound,
    /// Not found, and too many requests are waiting already: 503, the client may retry.
    TooManyWaiters,
}

/// Treatment of labels behind a mount: `root:a:mount:x`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LabelsBehindMounts {
    /// They name a workspace that does not exist: 403.
    Refused,
    /// They are ignored and the mount is the target, as in kcp.
    Ignored,
}

/// The kind of caller, which determines whether a miss waits for the index.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CallerKind {
    /// A client at this address with a certificate or token that is not verified yet.
    WithCredentials(IpAddr),
    /// The gateway itself, when it looks up the logical cluster of a verified token.
    Gateway,
    /// A client without credentials: no wait.
    Anonymous,
}

/// Reports whether the index is up to date.
pub(crate) trait IndexStatus: Send + Sync {
    /// True if the watches of a shard are open; of all shards for `None`.
    fn is_watching(&self, shard: Option<ShardIndex>) -> bool;
}

/// Resolves workspace references.
pub(crate) struct WorkspaceResolver {
    table: Arc<RoutingTable>,
    index_status: Arc<dyn IndexStatus>,
    miss_policy: ArcSwap<MissWaitPolicy>,
    ignores_behind_mounts: AtomicBool,
    waiting: AtomicUsize,
    waiting_by_address: Mutex<FxHashMap<IpAddr, usize>>,
    misses: Mutex<FxHashMap<TableKey, Miss>>,
}

/// A key that was looked up and is not in the table.
#[derive(Debug)]
struct Miss {
    appeared: Arc<Notify>,
    waiters: usize,
    cached_until: Option<Instant>,
}

/// Maximum number of cached misses; further misses are not cached.
const MAX_MISSES: usize = 16_384;

impl WorkspaceResolver {
    /// A resolver for a table.
    pub(crate) fn new(
        table: Arc<RoutingTable>,
        index_status: Arc<dyn IndexStatus>,
        miss_policy: MissWaitPolicy,
    ) -> Self {
        Self {
            table,
            index_status,
            miss_policy: ArcSwap::from_pointee(miss_policy),
            ignores_behind_mounts: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            waiting_by_address: Mutex::default(),
            misses: Mutex::default(),
        }
    }

    /// Sets the treatment of labels behind mounts.
    pub(crate) fn set_labels_behind_mounts(&self, behind_mounts: LabelsBehindMounts) {
        self.ignores_behind_mounts.store(behind_mounts == LabelsBehindMounts::Ignored, Ordering::Relaxed);
    }

    /// Sets the limits on waiting.
    pub(crate) fn set_miss_wait_policy(&self, miss_policy: MissWaitPolicy) {
        self.miss_policy.store(Arc::new(miss_policy));
    }

    /// Resolves a reference. A hit costs a look-up and the copy of the cluster's id.
    pub(crate) fn route<'r>(
        &'r self,
        reference: &'r Reference<'_>,
        caller: CallerKind,
    ) -> impl Future<Output = Route> + Send + 'r {
        self.route_with_trace(reference, caller, None)
    }

    /// As [`WorkspaceResolver::route`], with a trace of the steps. A traced miss is not cached.
    pub(crate) async fn route_with_trace(
        &self,
        reference: &Reference<'_>,
        caller: CallerKind,
        trace: Option<&DecisionLog>,
    ) -> Route {
        let began = Instant::now();
        if let Some(trace) = trace {
            self.trace_lookup(reference, trace);
        }
        loop {
            let missing = match self.resolve(reference) {
                Ok(route) => return route,
                Err(missing) => missing,
            };
            let may_appear = missing.is_parent_known || reference.is_id_shaped();
            if caller == CallerKind::Anonymous || !may_appear {
                if let Some(trace) = trace {
                    trace.record(Stage::Workspace, StageResult::Info, || no_wait_message(caller));
                }
                return self.final_miss(missing);
            }
            let miss_policy = self.miss_policy.load();
            let is_cached_miss = self.is_cached_miss(missing.key);
            let wait = if is_cached_miss { miss_policy.wait_after_miss } else { miss_policy.wait };
            drop(miss_policy);
            if let Some(trace) = trace {
                trace.record(Stage::Workspace, StageResult::Info, || wait_message(wait, is_cached_miss));
            }
            let Some(waiter) = Waiter::register(self, missing.key, caller.address()) else {
                return Route::TooManyWaiters;
            };
            let appeared = waiter.appeared.notified();
            tokio::pin!(appeared);
            appeared.as_mut().enable();
            // The record may have been added between the look-up and the registration.
            match self.resolve(reference) {
                Ok(route) => return route,
                Err(now_missing) if now_missing.key != missing.key => continue,
                Err(_) => {}
            }
            if timeout_at(began + wait, appeared).await.is_err() {
                return match self.resolve(reference) {
                    Ok(route) => route,
                    Err(missing) => {
                        if trace.is_none() {
                            self.cache_miss(missing.key);
                        }
                        self.final_miss(missing)
                    }
                };
            }
        }
    }

    /// A miss is final only while the watches that would report the record are open.
    fn final_miss(&self, missing: Missing) -> Route {
        if self.index_status.is_watching(missing.shard) { Route::NotFound } else { Route::NotSynced }
    }

    /// Wakes the waiters for these keys and removes the keys from the cached misses. The index calls it after
    /// each batch; it costs one uncontended lock while there are no misses.
    pub(crate) fn wake_waiters(&self, keys: &[TableKey]) {
        let mut misses = self.misses.lock();
        if misses.is_empty() {
            return;
        }
        for key in keys {
            let Some(miss) = misses.get_mut(key) else { continue };
            miss.cached_until = None;
            miss.appeared.notify_waiters();
            if miss.waiters == 0 {
                misses.remove(key);
            }
        }
    }

    fn resolve(&self, reference: &Reference<'_>) -> Result<Route, Missing> {
        let view = self.table.load();
        Ok(match view.resolve(reference) {
            // A shard that lost its URL, with kcp's behaviour enabled.
            Resolution::Found(found) if found.shard.spec.url.is_empty() => Route::NotFound,
            Resolution::Found(found) => Route::Shard {
                index: found.shard.index,
                name: Arc::clone(&found.shard.spec.name),
                url: Arc::clone(&found.shard.spec.url),
                cluster: found.cluster.into(),
                workspace_type: found.workspace_type.cloned(),
                recently_relocated: found.recently_relocated,
            },
            Resolution::Mount(mount) => match mount.missing_behind {
                Some(missing) if !self.ignores_behind_mounts.load(Ordering::Relaxed) => return Err(missing),
                _ if mount.unavailable => Route::Unavailable,
                _ => Route::Mount(mount.url.into()),
            },
            Resolution::Unavailable => Route::Unavailable,
            Resolution::NotSynced => Route::NotSynced,
            Resolution::NotFound(missing) => return Err(missing),
        })
    }

    /// Adds the steps of the look-up on the current view to the trace.
    fn trace_lookup(&self, reference: &Reference<'_>, trace: &DecisionLog) {
        let view = self.table.load();
        let resolution = view.resolve_with_trace(reference, &mut |step| {
            trace.record(Stage::Workspace, StageResult::Passed, || step.to_string());
        });
        match resolution {
            Resolution::Found(found) if found.recently_relocated => {
                trace.record(Stage::Workspace, StageResult::Info, || {
                    "the logical cluster was relocated from another shard recently: watches have to list again".to_owned()
                });
            }
            Resolution::Found(_) => {}
            Resolution::Mount(mount) => {
                let missing_behind = mount.missing_behind.map_or("", |_| "; no workspaces exist behind a mount");
                let state = if mount.unavailable { "the mount or a workspace above it is not ready" } else { "ready" };
                let outcome = if mount.unavailable || mount.missing_behind.is_some() { StageResult::Refused } else { StageResult::Passed };
                trace.record(Stage::Mount, outcome, || format!("mounted from {}: {state}{missing_behind}", mount.url));
            }
            Resolution::Unavailable => trace.record(Stage::Workspace, StageResult::Refused, || {
                "a workspace of this path is Unavailable, and so is everything below it; by its id it can be reached"
                    .to_owned()
            }),
            Resolution::NotSynced => trace.record(Stage::Workspace, StageResult::Refused, || {
                "the workspace is not in the index, but not all shards are listed yet".to_owned()
            }),
            Resolution::NotFound(missing) => trace.record(Stage::Workspace, StageResult::Refused, || match missing.shard {
                Some(_) => "the logical cluster has no workspace of that name".to_owned(),
                None => "no shard has a logical cluster of that id".to_owned(),
            }),
        }
    }

    fn is_cached_miss(&self, key: TableKey) -> bool {
        let misses = self.misses.lock();
        misses.get(&key).and_then(|miss| miss.cached_until).is_some_and(|until| Instant::now() < until)
    }

    fn cache_miss(&self, key: TableKey) {
        let now = Instant::now();
        let mut misses = self.misses.lock();
        if misses.len() >= MAX_MISSES {
            misses.retain(|_, miss| miss.waiters > 0 || miss.cached_until.is_some_and(|until| now < until));
        }
        if misses.len() < MAX_MISSES
            && let Some(miss) = misses.get_mut(&key)
        {
            miss.cached_until = Some(now + self.miss_policy.load().miss_ttl);
        }
    }
}

fn no_wait_message(caller: CallerKind) -> String {
    match caller {
        CallerKind::Anonymous => "requests without a credential do not wait for the index".to_owned(),
        CallerKind::WithCredentials(_) | CallerKind::Gateway => {
            "the first label is not a generated ID, so the request does not wait for the index".to_owned()
        }
    }
}

fn wait_message(wait: Duration, is_cached_miss: bool) -> String {
    let reason = if is_cached_miss { ", less than usual because it was not found recently" } else { "" };
    format!("the workspace may not be indexed yet: the request waits up to {} ms{reason}", wait.as_millis())
}

/// A waiting request; deregistered when dropped, also when its client has disconnected.
struct Waiter<'r> {
    resolver: &'r WorkspaceResolver,
    key: TableKey,
    appeared: Arc<Notify>,
    _permit: WaiterPermit<'r>,
}

impl<'r> Waiter<'r> {
    fn register(resolver: &'r WorkspaceResolver, key: TableKey, address: Option<IpAddr>) -> Option<Self> {
        let permit = WaiterPermit::take(resolver, address)?;
        let mut misses = resolver.misses.lock();
        let miss = misses.entry(key).or_insert_with(|| Miss {
            appeared: Arc::default(),
            waiters: 0,
            cached_until: None,
        });
        miss.waiters += 1;
        let appeared = Arc::clone(&miss.appeared);
        Some(Self { resolver, key, appeared, _permit: permit })
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut misses = self.resolver.misses.lock();
        if let Some(miss) = misses.get_mut(&self.key) {
            miss.waiters -= 1;
            if miss.waiters == 0 && miss.cached_until.is_none() {
                misses.remove(&self.key);
            }
        }
    }
}

/// A permit to wait, returned when dropped.
struct WaiterPermit<'r> {
    resolver: &'r WorkspaceResolver,
    network: Option<IpAddr>,
}

impl<'r> WaiterPermit<'r> {
    fn take(resolver: &'r WorkspaceResolver, address: Option<IpAddr>) -> Option<Self> {
        let policy = resolver.miss_policy.load();
        let mut permit = Self { resolver, network: None };
        // From here on, dropping the permit returns it.
        if resolver.waiting.fetch_add(1, Ordering::Relaxed) >= policy.waiters {
            return None;
        }
        if let Some(network) = address.map(network_of) {
            let mut waiting = resolver.waiting_by_address.lock();
            let count = waiting.entry(network).or_default();
            if *count >= policy.waiters_per_address {
                return None;
            }
            *count += 1;
            permit.network = Some(network);
        }
        Some(permit)
    }
}

impl Drop for WaiterPermit<'_> {
    fn drop(&mut self) {
        self.resolver.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Some(network) = self.network {
            let mut waiting = self.resolver.waiting_by_address.lock();
            if let Some(count) = waiting.get_mut(&network) {
                *count -= 1;
                if *count == 0 {
                    waiting.remove(&network);
                }
            }
        }
    }
}

impl CallerKind {
    fn address(self) -> Option<IpAddr> {
        match self {
            Self::WithCredentials(address) => Some(address),
            Self::Gateway | Self::Anonymous => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;
    use crate::routing::table::{
        Change, ClusterRecord, Page, ShardSpec, TableWriter, WorkspaceRecord, WorkspaceTarget,
    };

    struct World {
        writer: TableWriter,
        resolver: Arc<WorkspaceResolver>,
        shard: ShardIndex,
        watching: Arc<AtomicBool>,
    }

    impl IndexStatus for AtomicBool {
        fn is_watching(&self, _shard: Option<ShardIndex>) -> bool {
            self.load(Ordering::Relaxed)
        }
    }

    impl World {
        fn new(miss_policy: MissWaitPolicy) -> Self {
            let mut writer = TableWriter::new();
            let spec = ShardSpec {
                name: "root".into(),
                url: "https://root.example".into(),
                labels: Arc::default(),
                cordoned: false,
                constraints: crate::routing::table::PlacementConstraints::default(),
            };
            let shard = writer.put_shard(spec).unwrap();
            writer.mark_shards_listed();
            let watching = Arc::new(AtomicBool::new(true));
            let resolver = Arc::new(WorkspaceResolver::new(
                writer.table(),
                Arc::clone(&watching) as Arc<dyn IndexStatus>,
                miss_policy,
            ));
            let mut world = Self { writer, resolver, shard, watching };
            world.apply(vec![
                Change::ListClusters(Page::whole(vec![cluster("root")])),
                Change::ListWorkspaces(Page::whole(Vec::new())),
            ]);
            world
        }

        fn apply(&mut self, changes: Vec<Change>) {
            let keys = self.writer.apply(changes.into_iter().map(|change| (self.shard, change)).collect());
            self.resolver.wake_waiters(&keys);
        }

        fn route(&self, reference: &'static str) -> tokio::task::JoinHandle<String> {
            self.route_from(reference, "10.0.0.1".parse().unwrap())
        }

        fn route_from(&self, reference: &'static str, address: IpAddr) -> tokio::task::JoinHandle<String> {
            let resolver = Arc::clone(&self.resolver);
            tokio::spawn(async move {
                let reference = Reference::parse(reference).unwrap();
                outcome(resolver.route(&reference, CallerKind::WithCredentials(address)).await)
            })
        }

        async fn until_waiting(&self, count: usize) {
            while self.resolver.waiting.load(Ordering::Relaxed) < count {
                tokio::task::yield_now().await;
            }
        }
    }

    fn cluster(id: &str) -> ClusterRecord {
        ClusterRecord { id: id.into(), workspace_type: None, migrating: false }
    }

    fn workspace(parent: &str, name: &str, child: &str) -> Change {
        leading_to(parent, name, WorkspaceTarget::Cluster(child.into()))
    }

    fn leading_to(parent: &str, name: &str, target: WorkspaceTarget) -> Change {
        let (parent, name) = (parent.into(), name.into());
        Change::PutWorkspace(WorkspaceRecord { parent, name, target, unavailable: false })
    }

    fn outcome(route: Route) -> String {
        match route {
            Route::Shard { name, cluster, .. } => format!("{name}/{cluster}"),
            other => format!("{other:?}"),
        }
    }

    const ID: &str = "2hzqkbz7v4xk1d0q";

    #[tokio::test(start_paused = true)]
    async fn a_miss_waits_for_every_step_of_its_path() {
        let mut world = World::new(MissWaitPolicy::default());
        let responses: Vec<_> = (0..10).map(|_| world.route("root:new")).collect();
        world.until_waiting(10).await;
        world.apply(vec![workspace("root", "new", ID)]);
        // The workspace is there, its logical cluster is not.
        world.until_waiting(10).await;
        world.apply(vec![Change::PutCluster(cluster(ID))]);
        for response in responses {
            assert_eq!(response.await.unwrap(), format!("root/{ID}"));
        }
        assert!(world.resolver.misses.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_generated_id_waits_and_a_name_does_not() {
        let mut world = World::new(MissWaitPolicy::default());
        let start = Instant::now();
        assert_eq!(world.route("org").await.unwrap(), "NotFound");
        assert_eq!(world.route("system:admin").await.unwrap(), "NotFound");
        assert_eq!(start.elapsed(), Duration::ZERO);
        let response = world.route(ID);
        world.until_waiting(1).await;
        world.apply(vec![Change::PutCluster(cluster(ID))]);
        assert_eq!(response.await.unwrap(), format!("root/{ID}"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_miss_is_cached_until_the_workspace_appears() {
        let mut world = World::new(MissWaitPolicy::default());
        let start = Instant::now();
        assert_eq!(world.route("root:nope").await.unwrap(), "NotFound");
        assert_eq!(start.elapsed(), Duration::from_millis(500));
        assert_eq!(world.route("root:nope").await.unwrap(), "NotFound");
        assert_eq!(start.elapsed(), Duration::from_millis(600), "cached");
        // Its creation has been seen, so a request for it waits again.
        world.apply(vec![leading_to("root", "nope", WorkspaceTarget::Pending)]);
        let response = world.route("root:nope");
        world.until_waiting(1).await;
        world.apply(vec![workspace("root", "nope", ID), Change::PutCluster(cluster(ID))]);
        assert_eq!(response.await.unwrap(), format!("root/{ID}"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cached_miss_expires() {
        let world = World::new(MissWaitPolicy::default());
        assert_eq!(world.route("root:nope").await.unwrap(), "NotFound");
        tokio::time::advance(Duration::from_millis(1001)).await;
        let start = Instant::now();
        assert_eq!(world.route("root:nope").await.unwrap(), "NotFound");
        assert_eq!(start.elapsed(), Duration::from_millis(500));
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_are_bounded_and_released_on_disconnect() {
        let world = World::new(MissWaitPolicy { waiters: 2, ..MissWaitPolicy::default() });
        let first = world.route("root:a");
        let second = world.route("root:b");
        world.until_waiting(2).await;
        assert_eq!(world.route("root:c").await.unwrap(), "TooManyWaiters");
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        assert_eq!(world.resolver.waiting.load(Ordering::Relaxed), 1);
        assert_eq!(world.route("root:c").await.unwrap(), "NotFound");
        assert_eq!(second.await.unwrap(), "NotFound");
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_cannot_use_up_the_limit_of_waiters() {
        let policy = MissWaitPolicy { waiters: 4, waiters_per_address: 2, ..MissWaitPolicy::default() };
        let mut world = World::new(policy);
        let from = |address: &str| address.parse::<IpAddr>().unwrap();
        let first = world.route_from("root:a", from("2001:db8::1"));
        let second = world.route_from("root:b", from("2001:db8::2"));
        world.until_waiting(2).await;
        assert_eq!(
            world.route_from("root:c", from("2001:db8::3")).await.unwrap(),
            "TooManyWaiters",
            "the same /64"
        );
        assert_eq!(world.resolver.waiting.load(Ordering::Relaxed), 2, "a refused request takes no place");
        let other = world.route_from("root:new", from("10.0.0.2"));
        world.until_waiting(3).await;
        world.apply(vec![workspace("root", "new", ID), Change::PutCluster(cluster(ID))]);
        assert_eq!(other.await.unwrap(), format!("root/{ID}"));
        assert_eq!((first.await.unwrap(), second.await.unwrap()), ("NotFound".into(), "NotFound".into()));
        assert!(world.resolver.waiting_by_address.lock().is_empty());
        assert_eq!(world.route_from("root:c", from("2001:db8::3")).await.unwrap(), "NotFound");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_not_found_while_a_watch_is_down() {
        let world = World::new(MissWaitPolicy::default());
        world.watching.store(false, Ordering::Relaxed);
        for reference in ["root:new", ID, "name"] {
            assert_eq!(world.route(reference).await.unwrap(), "NotSynced", "{reference}");
        }
        world.watching.store(true, Ordering::Relaxed);
        assert_eq!(world.route("root:new").await.unwrap(), "NotFound");
    }

    #[tokio::test(start_paused = true)]
    async fn labels_behind_a_mount_are_a_miss_unless_they_are_ignored() {
        let url = "https://x.example/clusters/y";
        for (behind_mounts, unavailable, expected) in [
            (LabelsBehindMounts::Refused, false, ["Mount(\"https://x.example/clusters/y\")", "NotFound"]),
            (LabelsBehindMounts::Refused, true, ["Unavailable", "NotFound"]),
            (LabelsBehindMounts::Ignored, false, ["Mount(\"https://x.example/clusters/y\")"; 2]),
            (LabelsBehindMounts::Ignored, true, ["Unavailable"; 2]),
        ] {
            let mut world = World::new(MissWaitPolicy::default());
            let mount = WorkspaceRecord {
                parent: "root".into(),
                name: "m".into(),
                target: WorkspaceTarget::Mount(url.into()),
                unavailable,
            };
            world.apply(vec![Change::PutWorkspace(mount)]);
            world.resolver.set_labels_behind_mounts(behind_mounts);
            for (reference, expected) in ["root:m", "root:m:x:y"].into_iter().zip(expected) {
                assert_eq!(world.route(reference).await.unwrap(), expected, "{reference} {behind_mounts:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_anonymous_request_does_not_wait() {
        let world = World::new(MissWaitPolicy::default());
        let start = Instant::now();
        let reference = Reference::parse("root:new").unwrap();
        assert_eq!(world.resolver.route(&reference, CallerKind::Anonymous).await, Route::NotFound);
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
