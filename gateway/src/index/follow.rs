//! Follows one shard: its logical clusters and the workspaces whose parents it holds.

use std::sync::Arc;

use fairlead_client::{Client, Event, ListWatch, Phase, Reflector, ReflectorOptions, ReflectorStatus};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::objects::{LogicalClusterObject, WorkspaceObject};
use crate::table::{Change, ShardIndex};

/// Something that a shard said, on its way to the table.
#[derive(Debug)]
pub(super) struct News {
    pub(super) shard: ShardIndex,
    /// Which follower of this shard said it: what an earlier one said late does not count.
    pub(super) follower: u64,
    pub(super) change: Change,
    /// UIDs of Workspaces that are placed now.
    pub(super) placed: Vec<Box<str>>,
}

/// How the mirrors of one shard are doing.
#[derive(Clone, Debug)]
pub(super) struct Mirrors {
    pub(super) clusters: watch::Receiver<ReflectorStatus>,
    /// Not there until the identity of the export is known.
    pub(super) workspaces: Arc<Mutex<Option<watch::Receiver<ReflectorStatus>>>>,
}

impl Mirrors {
    /// Whether both watches are open.
    pub(super) fn are_watching(&self) -> bool {
        let watching = |status: &watch::Receiver<ReflectorStatus>| status.borrow().phase == Phase::Watching;
        watching(&self.clusters) && self.workspaces.lock().as_ref().is_some_and(watching)
    }
}

/// One follower; runs until it is dropped or nobody listens any more.
pub(super) struct Follower {
    shard: ShardIndex,
    number: u64,
    client: Client,
    options: ReflectorOptions,
    clusters: Reflector<LogicalClusterObject>,
    workspaces: Arc<Mutex<Option<watch::Receiver<ReflectorStatus>>>>,
    identity: watch::Receiver<Option<Arc<str>>>,
    news: mpsc::Sender<News>,
}

impl Follower {
    /// `client` addresses the shard itself, without a logical cluster.
    pub(super) fn new(
        shard: ShardIndex,
        number: u64,
        client: &Client,
        options: ReflectorOptions,
        identity: watch::Receiver<Option<Arc<str>>>,
        news: mpsc::Sender<News>,
    ) -> Self {
        let client = client.with_prefix("/clusters/*");
        let source = ListWatch::new("/apis/core.kcp.io/v1alpha1/logicalclusters");
        let clusters = Reflector::new(client.clone(), source, options.clone());
        Self { shard, number, client, options, clusters, workspaces: Arc::default(), identity, news }
    }

    pub(super) fn mirrors(&self) -> Mirrors {
        Mirrors { clusters: self.clusters.status(), workspaces: Arc::clone(&self.workspaces) }
    }

    pub(super) async fn run(mut self) {
        let mut workspaces = None;
        self.identity.mark_changed();
        loop {
            let (change, placed) = tokio::select! {
                event = self.clusters.next() => match cluster_change(event) {
                    Some(change) => change,
                    None => continue,
                },
                event = next(&mut workspaces) => match workspace_change(event) {
                    Some(change) => (change, Vec::new()),
                    None => continue,
                },
                changed = self.identity.changed() => match changed {
                    Ok(()) => {
                        let identity = self.identity.borrow_and_update().clone();
                        workspaces = identity.map(|identity| self.follow_workspaces(&identity));
                        continue;
                    }
                    Err(_) => return,
                },
            };
            let news = News { shard: self.shard, follower: self.number, change, placed };
            if self.news.send(news).await.is_err() {
                return;
            }
        }
    }

    /// Workspaces are addressed across logical clusters by the identity of the export that serves them.
    fn follow_workspaces(&self, identity: &str) -> Reflector<WorkspaceObject> {
        let source = ListWatch::new(format!("/apis/tenancy.kcp.io/v1alpha1/workspaces:{identity}"));
        let reflector = Reflector::new(self.client.clone(), source, self.options.clone());
        *self.workspaces.lock() = Some(reflector.status());
        reflector
    }
}

async fn next(reflector: &mut Option<Reflector<WorkspaceObject>>) -> Event<WorkspaceObject> {
    match reflector {
        Some(reflector) => reflector.next().await,
        None => std::future::pending().await,
    }
}

fn workspace_change(event: Event<WorkspaceObject>) -> Option<Change> {
    Some(match event {
        Event::Replaced { items, .. } => {
            Change::ReplaceWorkspaces(items.into_iter().filter_map(WorkspaceObject::into_record).collect())
        }
        Event::Applied(object) => object.into_change(),
        Event::Deleted(object) => object.into_removal(),
        Event::Progress(_) => return None,
    })
}

fn cluster_change(event: Event<LogicalClusterObject>) -> Option<(Change, Vec<Box<str>>)> {
    let uid = |object: &LogicalClusterObject| object.workspace_uid().map(Box::from);
    Some(match event {
        Event::Replaced { items, .. } => {
            let placed = items.iter().filter_map(uid).collect();
            (
                Change::ReplaceClusters(items.into_iter().map(LogicalClusterObject::into_record).collect()),
                placed,
            )
        }
        Event::Applied(object) => {
            let placed = uid(&object).into_iter().collect();
            (Change::PutCluster(object.into_record()), placed)
        }
        Event::Deleted(object) => (object.into_removal(), Vec::new()),
        Event::Progress(_) => return None,
    })
}
