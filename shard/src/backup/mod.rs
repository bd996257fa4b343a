//! Backups of the shard's store, streamed to an administrator while the shard serves.
//!
//! `/backup` has the whole store, `/clusters/<workspace>/backup` one logical cluster and what belongs to it (decision 0082).

mod body;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use fairlead_api::LOGICAL_CLUSTER_NAME;
use fairlead_apiserver::hub::Hub;
use fairlead_apiserver::registry::{ObjectStore, StoredObject};
use fairlead_apiserver::{Response, ResponseBody, Scope, content};
use fairlead_process::{GroupResource, Metrics, MetricsError, Status};
use fairlead_store::{
    Anchor, BackupContent, BackupHeader, BackupRange, Ownership, Range, RetainedRevision, RetainedRevisions,
    WriteBackupError, write_backup,
};
use http::StatusCode;
use prometheus::IntCounterVec;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::index::Definitions;
use crate::names::{
    BOUND_CRDS, BUILT_IN, CUSTOM, CUSTOM_RESOURCE_DEFINITIONS, LOGICAL_CLUSTERS, SYSTEM_SHARD, WORKSPACES,
};
use crate::workspace_owner::{WorkspaceOwner, owner_key};

const CONTENT_TYPE: &str = "application/vnd.fairlead.backup";

/// Backups at the same time. Each occupies a thread, and more would only share the time of the disk.
const MAX_BACKUPS: usize = 1;

/// Pause for a client that finds another backup, in seconds.
const RETRY_AFTER: u32 = 10;

/// Makes the backups of a shard.
pub(crate) struct Backups {
    objects: ObjectStore,
    hub: Hub,
    definitions: Arc<Definitions>,
    /// The name of the shard.
    shard: String,
    retained: RetainedRevisions,
    running: Arc<Semaphore>,
    finished: IntCounterVec,
}

/// A backup that has begun: its history is retained, and no other one runs.
struct StartedBackup {
    revision: RetainedRevision,
    _permit: OwnedSemaphorePermit,
}

impl Backups {
    /// Backups of the store of `objects`. Its compaction must respect `retained`.
    ///
    /// # Errors
    /// The metric exists already.
    pub(crate) fn new(
        objects: ObjectStore,
        hub: Hub,
        definitions: Arc<Definitions>,
        shard: &str,
        retained: RetainedRevisions,
        metrics: &Metrics,
    ) -> Result<Self, MetricsError> {
        let finished = metrics.counters(
            "fairlead_shard_backups_total",
            "Backups that were sent to a client, by outcome: complete or failed.",
            &["outcome"],
        )?;
        let (shard, running) = (shard.to_owned(), Arc::new(Semaphore::new(MAX_BACKUPS)));
        Ok(Self { objects, hub, definitions, shard, retained, running, finished })
    }

    /// A response with the whole store.
    ///
    /// # Errors
    /// 429 while another backup runs.
    pub(crate) fn whole(&self) -> Result<Response, Status> {
        let started = self.start()?;
        let everything = BackupRange { range: Range::all(), ownership: Ownership::Own };
        self.stream(started, BackupContent::Whole, vec![everything])
    }

    /// A response with a logical cluster and what belongs to it. `path` is its name for people.
    ///
    /// # Errors
    /// 404 if it does not exist, 429 while another backup runs, 500 if the store cannot be read.
    pub(crate) async fn of_cluster(&self, cluster: &str, path: Option<&str>) -> Result<Response, Status> {
        let not_found = || Status::not_found(GroupResource::new("core.kcp.io", "logicalclusters"), cluster);
        self.logical_cluster(cluster)?.ok_or_else(not_found)?;
        let started = self.start()?;
        let mut ranges = Vec::new();
        // The index has everything up to the revision of the backup. It forgets the resources of a logical cluster only with the
        // LogicalCluster, which is still there afterwards. What it has in addition was not in the store then.
        for (resource, origin) in self.definitions.stored_resources(&self.hub, cluster).await {
            let keys = self.objects.codec().range(&resource, &origin, cluster, None);
            ranges.push(BackupRange { range: Range::prefix(keys), ownership: Ownership::Own });
        }
        let logical_cluster = self.logical_cluster(cluster)?.ok_or_else(not_found)?;
        ranges.sort_by(|one, other| one.range.start.cmp(&other.range.start));
        ranges.extend(self.workspace(&logical_cluster)?);
        ranges.extend(self.bound_definitions(cluster));
        let name = path.unwrap_or(cluster).to_owned();
        self.stream(started, BackupContent::Part { name }, ranges)
    }

    fn start(&self) -> Result<StartedBackup, Status> {
        let _permit = Arc::clone(&self.running).try_acquire_owned().map_err(|_| {
            Status::too_many_requests("another backup of this shard is being made", RETRY_AFTER)
        })?;
        let revision = self.retained.retain_latest(&**self.objects.store());
        Ok(StartedBackup { revision, _permit })
    }

    fn logical_cluster(&self, cluster: &str) -> Result<Option<StoredObject>, Status> {
        self.objects.get(&LOGICAL_CLUSTERS, &CUSTOM, &Scope::new(cluster), None, LOGICAL_CLUSTER_NAME)
    }

    /// The Workspace in the parent, if the parent is on this shard. A Workspace of that name that belongs to another logical cluster is
    /// left out.
    fn workspace(&self, logical_cluster: &StoredObject) -> Result<Option<BackupRange>, Status> {
        let logical_cluster = self.objects.tree(logical_cluster)?;
        let owner = owner_key(&logical_cluster);
        let Some(((parent, name), resource)) = owner.zip(self.definitions.exported(&WORKSPACES)) else {
            return Ok(None);
        };
        let scope = Scope::new(&parent);
        if let Some(found) = self.objects.get(&WORKSPACES, &resource.origin, &scope, None, &name)?
            && !WorkspaceOwner::of(&parent, &self.objects.tree(&found)?).owns(&logical_cluster)
        {
            return Ok(None);
        }
        let key = self.objects.key(&WORKSPACES, &resource.origin, &parent, None, &name);
        Ok(Some(BackupRange { range: only(&key), ownership: Ownership::Own }))
    }

    /// The CRDs of the schemas that the logical cluster has bound. Other logical clusters use them, too.
    fn bound_definitions(&self, cluster: &str) -> Vec<BackupRange> {
        let bindings = self.definitions.bindings().of_cluster(cluster);
        let mut schemas: Vec<&str> = bindings
            .iter()
            .flat_map(|binding| binding.resources.iter().map(|resource| &*resource.schema))
            .collect();
        schemas.sort_unstable();
        schemas.dedup();
        let range = |schema: &&str| {
            let key = self.objects.key(&CUSTOM_RESOURCE_DEFINITIONS, &BUILT_IN, BOUND_CRDS, None, schema);
            BackupRange { range: only(&key), ownership: Ownership::Shared }
        };
        schemas.iter().map(range).collect()
    }

    fn stream(
        &self,
        started: StartedBackup,
        content_of_backup: BackupContent,
        ranges: Vec<BackupRange>,
    ) -> Result<Response, Status> {
        let header = BackupHeader {
            content: content_of_backup,
            source: self.shard.clone(),
            anchor: self.anchor()?,
            revision: started.revision.revision(),
            created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        };
        let (mut output, body) = body::channel();
        let (store, finished) = (Arc::clone(self.objects.store()), self.finished.clone());
        // The thread ends with the client: it cannot send any more when the body is dropped.
        tokio::task::spawn_blocking(move || {
            let written = write_backup(&*store, &header, &ranges, &mut output);
            let outcome = if written.is_ok() { "complete" } else { "failed" };
            finished.with_label_values(&[outcome]).inc();
            match written {
                Ok(records) => tracing::info!(records, revision = header.revision.0, "backup complete"),
                Err(WriteBackupError::Output(_)) => tracing::warn!("the client of a backup has left"),
                Err(WriteBackupError::Read(error)) => tracing::error!(%error, "backup failed"),
            }
            // A client that has read the end can make the next backup.
            drop(started);
            drop(output);
        });
        let mut response = content(StatusCode::OK, CONTENT_TYPE, "");
        *response.body_mut() = ResponseBody::Streamed(Box::pin(body));
        Ok(response)
    }

    /// The store is recognised by the UID of a LogicalCluster that every shard has.
    fn anchor(&self) -> Result<Option<Anchor>, Status> {
        let Some(stored) = self.logical_cluster(SYSTEM_SHARD)? else { return Ok(None) };
        let key =
            self.objects.codec().object(&LOGICAL_CLUSTERS, &CUSTOM, SYSTEM_SHARD, None, LOGICAL_CLUSTER_NAME);
        let tree = self.objects.tree(&stored)?;
        Ok(tree["metadata"]["uid"].as_str().map(|uid| Anchor { key, text: uid.to_owned() }))
    }
}

/// The range of one key.
fn only(key: &[u8]) -> Range {
    let mut end = key.to_vec();
    end.push(0);
    Range::between(key.to_vec(), end)
}
