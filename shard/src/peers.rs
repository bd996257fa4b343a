//! The other shards: creates, watches and deletes logical clusters there for workspaces of this shard.
//!
//! One watch per peer reports all logical clusters there that belong to workspaces of this shard. They are created and
//! deleted by requests to the peer with the credential of the logical cluster administrator. A shard of kcp refuses that
//! credential the watch: there, the logical cluster of a workspace is read until the workspace is ready, as kcp does.

use std::sync::Arc;
use std::time::Duration;

use fairlead_api::{LOGICAL_CLUSTER_NAME, Phase, annotation};
use fairlead_client::{
    Client, ClientError, ClientOptions, Credentials, DeleteOptions, Endpoint, Event, ListWatch, Reflector,
    ReflectorOptions, WriteOptions,
};
use fairlead_process::{Shutdown, Status};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::controller_runtime::Queue;
use crate::placement::{Placement, ShardInfo};
use crate::workspace_owner::{WorkspaceKey, WorkspaceOwner, owner_key};

/// Label of a logical cluster: the shard of its workspace, if that is another one. The watch of that shard selects by
/// it.
pub(crate) const OWNER_SHARD: &str = "fairlead.dev/owner-shard";

/// The first pause after a failed watch of a peer.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);

/// Clients and watches of the other shards.
pub(crate) struct Peers {
    own: String,
    credentials: Option<Arc<arc_swap::ArcSwap<Credentials>>>,
    clients: RwLock<FxHashMap<String, Client>>,
    states: RwLock<FxHashMap<String, PeerState>>,
}

#[derive(Default)]
struct PeerState {
    is_synced: bool,
    clusters: FxHashMap<String, RemoteCluster>,
}

#[derive(Clone)]
struct RemoteCluster {
    phase: Option<Phase>,
    initializers: Vec<String>,
    terminators: Vec<String>,
}

/// The known state of a logical cluster on another shard.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RemoteState {
    Known { phase: Option<Phase>, initializers: Vec<String>, terminators: Vec<String> },
    Missing,
    NotSynced,
}

/// The result of the creation of a logical cluster on a peer.
pub(crate) enum CreateOutcome {
    /// The logical cluster exists and belongs to the workspace.
    Created,
    /// The name belongs to another workspace.
    NameTaken,
}

impl Peers {
    /// Creates the peers of shard `own`, which authenticates to them with `credentials`.
    pub(crate) fn new(own: String, credentials: Option<Arc<arc_swap::ArcSwap<Credentials>>>) -> Self {
        Self { own, credentials, clients: RwLock::default(), states: RwLock::default() }
    }

    /// Creates a logical cluster on a peer. It is idempotent.
    ///
    /// # Errors
    /// 503 with the error of the peer or of the connection; a retry helps.
    pub(crate) async fn create(
        &self,
        shard: &ShardInfo,
        cluster: &str,
        object: &Value,
    ) -> Result<CreateOutcome, Status> {
        let client = self.client(shard)?;
        let path = format!("/clusters/{cluster}/apis/core.kcp.io/v1alpha1/logicalclusters");
        let created: Result<Value, ClientError> =
            client.create(&path, object, &WriteOptions::default()).await;
        match created {
            Ok(_) => Ok(CreateOutcome::Created),
            Err(error) if error.is_already_exists() => {
                let found: Value = client
                    .get_json(&format!("{path}/{LOGICAL_CLUSTER_NAME}"))
                    .await
                    .map_err(|error| peer_unreachable(&error))?;
                let ours = found["spec"]["owner"] == object["spec"]["owner"];
                Ok(if ours { CreateOutcome::Created } else { CreateOutcome::NameTaken })
            }
            Err(error) => Err(peer_unreachable(&error)),
        }
    }

    /// Deletes a logical cluster on a peer if it has this owner. Returns its state while its content is being deleted, and
    /// `None` once it does not exist.
    ///
    /// # Errors
    /// 503 with the error of the peer or of the connection; a retry helps.
    pub(crate) async fn delete(
        &self,
        shard: &ShardInfo,
        cluster: &str,
        owner: &WorkspaceOwner,
    ) -> Result<Option<Value>, Status> {
        let client = self.client(shard)?;
        let path =
            format!("/clusters/{cluster}/apis/core.kcp.io/v1alpha1/logicalclusters/{LOGICAL_CLUSTER_NAME}");
        match client.get_json::<Value>(&path).await {
            Ok(found) if !owner.owns(&found) => {
                tracing::warn!(shard = %shard.name, cluster, "a workspace names a logical cluster of another owner");
                return Ok(None);
            }
            Ok(_) => {}
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(peer_unreachable(&error)),
        }
        match client.delete(&path, &DeleteOptions::default()).await {
            Ok(()) => {}
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(peer_unreachable(&error)),
        }
        match client.get_json::<Value>(&path).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(peer_unreachable(&error)),
        }
    }

    /// The state of a logical cluster as last reported by the watch of its peer.
    pub(crate) fn state(&self, shard: &str, cluster: &str) -> RemoteState {
        let states = self.states.read();
        let Some(state) = states.get(shard).filter(|state| state.is_synced) else {
            return RemoteState::NotSynced;
        };
        match state.clusters.get(cluster) {
            Some(known) => known.clone().into(),
            None => RemoteState::Missing,
        }
    }

    /// The state of a logical cluster, by a request to its peer.
    ///
    /// # Errors
    /// 503 with the error of the peer or of the connection; a retry helps.
    pub(crate) async fn read(&self, shard: &ShardInfo, cluster: &str) -> Result<RemoteState, Status> {
        let client = self.client(shard)?;
        let path =
            format!("/clusters/{cluster}/apis/core.kcp.io/v1alpha1/logicalclusters/{LOGICAL_CLUSTER_NAME}");
        match client.get_json::<Value>(&path).await {
            Ok(found) => Ok(RemoteCluster::state_of(&found).into()),
            Err(error) if error.is_not_found() => Ok(RemoteState::Missing),
            Err(error) => Err(peer_unreachable(&error)),
        }
    }

    /// Watches all peers until the process drains; each change requeues the workspace that it belongs to.
    pub(crate) async fn run(
        self: Arc<Self>,
        placement: Arc<Placement>,
        mut shards_changed: tokio::sync::watch::Receiver<u64>,
        queue: Arc<Queue<WorkspaceKey>>,
        shutdown: Shutdown,
    ) {
        let mut watches: FxHashMap<String, (ShardInfo, tokio::task::AbortHandle)> = FxHashMap::default();
        let mut tasks = JoinSet::new();
        if self.credentials.is_none() {
            return shutdown.draining().await;
        }
        loop {
            let shards = placement.shards();
            watches.retain(|name, (info, task)| {
                let stays = shards.iter().any(|shard| shard.name == *name && shard.base_url == info.base_url);
                if !stays {
                    task.abort();
                    self.clients.write().remove(name);
                }
                stays
            });
            for shard in shards {
                if shard.name == self.own || watches.contains_key(&shard.name) {
                    continue;
                }
                let task = tasks.spawn(self.clone().watch(shard.clone(), queue.clone()));
                watches.insert(shard.name.clone(), (shard, task));
            }
            tokio::select! {
                () = shutdown.draining() => return,
                changed = shards_changed.changed() => if changed.is_err() { return },
                Some(_) = tasks.join_next(), if !tasks.is_empty() => {
                    watches.retain(|_, (_, task)| !task.is_finished());
                }
            }
        }
    }

    async fn watch(self: Arc<Self>, shard: ShardInfo, queue: Arc<Queue<WorkspaceKey>>) {
        let Ok(client) = self.client(&shard) else { return };
        let source = ListWatch::new("/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters")
            .labels(format!("{OWNER_SHARD}={}", self.own));
        let options = ReflectorOptions { initial_backoff: FIRST_BACKOFF, ..ReflectorOptions::default() };
        let mut reflector = Reflector::<Value>::new(client, source, options);
        loop {
            let changed: Vec<Value> = match reflector.next().await {
                Event::Replaced { items, .. } => {
                    let mut states = self.states.write();
                    let state = states.entry(shard.name.clone()).or_default();
                    let previous: Vec<String> = state.clusters.drain().map(|(cluster, _)| cluster).collect();
                    state.is_synced = true;
                    for item in &items {
                        if let Some((cluster, remote)) = RemoteCluster::read(item) {
                            state.clusters.insert(cluster, remote);
                        }
                    }
                    tracing::debug!(
                        peer = shard.name,
                        here = items.len(),
                        before = previous.len(),
                        "listed the logical clusters of a peer"
                    );
                    items
                }
                Event::Applied(item) => {
                    if let Some((cluster, remote)) = RemoteCluster::read(&item) {
                        self.states
                            .write()
                            .entry(shard.name.clone())
                            .or_default()
                            .clusters
                            .insert(cluster, remote);
                    }
                    vec![item]
                }
                Event::Deleted(item) => {
                    if let Some((cluster, _)) = RemoteCluster::read(&item)
                        && let Some(state) = self.states.write().get_mut(&shard.name)
                    {
                        state.clusters.remove(&cluster);
                    }
                    vec![item]
                }
                Event::Progress(_) => continue,
            };
            for key in changed.iter().filter_map(owner_key) {
                queue.add(key);
            }
        }
    }

    fn client(&self, shard: &ShardInfo) -> Result<Client, Status> {
        if let Some(client) = self.clients.read().get(&shard.name) {
            return Ok(client.clone());
        }
        let Some(credentials) = &self.credentials else {
            let message =
                format!("no credential for shard {}: set logicalClusterAdminKubeconfig", shard.name);
            return Err(Status::service_unavailable(message, 1));
        };
        let endpoint = Endpoint::parse(&shard.base_url)
            .map_err(|error| Status::service_unavailable(format!("shard {}: {error}", shard.name), 1))?;
        let client = Client::with_credentials(endpoint, credentials.clone(), ClientOptions::default());
        self.clients.write().insert(shard.name.clone(), client.clone());
        Ok(client)
    }
}

impl RemoteCluster {
    fn read(object: &Value) -> Option<(String, Self)> {
        let cluster = object["metadata"]["annotations"][annotation::CLUSTER].as_str()?.to_owned();
        Some((cluster, Self::state_of(object)))
    }

    fn state_of(object: &Value) -> Self {
        let texts = |field: &str| -> Vec<String> {
            let all = object["status"][field].as_array();
            all.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let phase = object["status"]["phase"].as_str().and_then(Phase::parse);
        Self { phase, initializers: texts("initializers"), terminators: texts("terminators") }
    }
}

impl From<RemoteCluster> for RemoteState {
    fn from(cluster: RemoteCluster) -> Self {
        let RemoteCluster { phase, initializers, terminators } = cluster;
        Self::Known { phase, initializers, terminators }
    }
}

fn peer_unreachable(error: &ClientError) -> Status {
    Status::service_unavailable(format!("another shard: {error}"), 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use fairlead_client::TrustRoots;
    use serde_json::json;

    use super::*;
    use crate::external_clusters::test_server::serve;

    #[tokio::test]
    async fn the_state_of_a_logical_cluster_is_read_from_its_shard() {
        let object = json!({"status": {"phase": "Initializing", "initializers": ["root:t"]}});
        let known = RemoteState::Known {
            phase: Some(Phase::Initializing),
            initializers: vec!["root:t".to_owned()],
            terminators: Vec::new(),
        };
        for (code, expected) in [(200, Some(known)), (404, Some(RemoteState::Missing)), (403, None)] {
            let (base_url, mut requests) = serve(code, object.clone()).await;
            let credentials = Credentials::new(TrustRoots::Nothing).unwrap();
            let peers =
                Peers::new("root".to_owned(), Some(Arc::new(arc_swap::ArcSwap::from_pointee(credentials))));
            let shard = ShardInfo { name: "shard-1".to_owned(), base_url, ..ShardInfo::default() };
            assert_eq!(peers.state("shard-1", "abc"), RemoteState::NotSynced);
            assert_eq!(peers.read(&shard, "abc").await.ok(), expected, "{code}");
            let (line, _) = requests.recv().await.unwrap();
            assert_eq!(line, "get /clusters/abc/apis/core.kcp.io/v1alpha1/logicalclusters/cluster");
        }
    }
}
