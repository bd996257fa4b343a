//! Deletes the content of namespaces through admission, in logical clusters that have webhooks or policies.
//!
//! Such a deletion may wait for webhooks. So it has workers of its own, a logical cluster uses few of them at a time, and
//! the deletion of a resource ends after [`MAX_DELETION`]: a webhook that hangs delays no other logical cluster.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fairlead_apiserver::registry::{ServedResource, Target};
use fairlead_apiserver::request::{DeleteOptions, ListOptions, Propagation, RequestFlags};
use fairlead_apiserver::resource::Verb;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_authn::{AuthenticationMethod, Identity, UserInfo};
use fairlead_names::{Origin, ResourceName};
use fairlead_process::Status;
use futures_util::StreamExt as _;
use futures_util::stream;
use jiff::Timestamp;
use parking_lot::Mutex;

use super::super::deletion::{FoundObject, Sweep, commit_sweep, origin_of, visit_all, visit_resource};
use super::{NamespaceKey, Namespaces, plan};
use crate::controller_runtime::{Controller, Queue, ReconcileOutcome};
use crate::writes::Writes;

/// The longest time that a deletion of the objects of one resource takes.
const MAX_DELETION: Duration = Duration::from_secs(30);
/// Resources of a namespace whose objects are deleted at the same time.
const CONCURRENT_RESOURCES: usize = 8;
/// Namespaces of a logical cluster whose content is deleted at the same time.
const MAX_OF_CLUSTER: usize = 4;
/// Pause before a namespace is tried again whose logical cluster has [`MAX_OF_CLUSTER`] others.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// The namespaces whose content is deleted through admission.
pub(crate) struct ReviewQueue {
    queue: Arc<Queue<NamespaceKey>>,
    /// Namespaces that are queued or processed. An event of one does not queue it again, because each step writes its
    /// conditions, and that event would shorten the pause before the next step.
    pending: Mutex<HashSet<NamespaceKey>>,
}

impl ReviewQueue {
    pub(crate) fn new() -> Arc<Self> {
        let queue = Queue::with_groups(|(cluster, _): &NamespaceKey| cluster);
        Arc::new(Self { queue: Arc::new(queue), pending: Mutex::default() })
    }

    /// The queue of the workers.
    pub(crate) fn queue(&self) -> Arc<Queue<NamespaceKey>> {
        self.queue.clone()
    }

    pub(super) fn add(&self, key: &NamespaceKey) {
        if self.pending.lock().insert(key.clone()) {
            self.queue.add(key.clone());
        }
    }

    fn forget(&self, key: &NamespaceKey) {
        self.pending.lock().remove(key);
    }
}

/// Controller of terminating namespaces in logical clusters with webhooks or policies.
pub(crate) struct ReviewedNamespaces {
    namespaces: Arc<Namespaces>,
    identity: Arc<Identity>,
    /// Number of namespaces that are processed, by logical cluster.
    in_progress: Mutex<HashMap<Box<str>, usize>>,
}

impl ReviewedNamespaces {
    pub(crate) fn new(namespaces: Arc<Namespaces>) -> Self {
        // The user of the controllers of kcp.
        let user = UserInfo {
            name: "system:apiserver".to_owned(),
            groups: vec![fairlead_api::group::MASTERS.to_owned()],
            ..UserInfo::default()
        };
        let identity = Arc::new(Identity::new(user, AuthenticationMethod::ClientCertificate, None));
        Self { namespaces, identity, in_progress: Mutex::default() }
    }

    /// Reserves the processing of one namespace of a logical cluster, unless it has too many.
    fn begin(&self, cluster: &str) -> Option<InProgress<'_>> {
        let mut in_progress = self.in_progress.lock();
        let count = in_progress.entry(cluster.into()).or_default();
        if *count == MAX_OF_CLUSTER {
            return None;
        }
        *count += 1;
        Some(InProgress { all: &self.in_progress, cluster: cluster.into() })
    }

    /// Deletes what admission permits, and records in the namespace what remains.
    async fn step(&self, (cluster, name): &NamespaceKey) -> Result<ReconcileOutcome, Status> {
        let all = &*self.namespaces;
        let Some((stored, namespace)) = all.terminating(cluster, name)? else {
            return Ok(ReconcileOutcome::Done);
        };
        if !all.admission.has_configurations(&stored.scope) {
            return all.sweep(name, &stored, &namespace).await;
        }
        let served = self.served_content(&stored.scope, name).await?;
        let failures = self.delete_content(&served, &stored.scope, name).await;
        let served: HashSet<_> = served.iter().map(|served| (&served.name, &served.origin)).collect();
        let mut rest = Sweep::within(all.objects.store().limits());
        visit_all(&all.objects, (&all.definitions, &all.hub), cluster, Some(name), &mut |found| {
            let resource = ResourceName::new(found.parts.group, found.parts.resource);
            if served.contains(&(&resource, &origin_of(&found.parts))) {
                rest.add_remaining(found);
                return ControlFlow::Continue(());
            }
            // No registry deletes the objects of a resource that is not served any more.
            rest.add(&all.objects, found)
        })
        .await?;
        let plan = plan(&namespace, &rest, &failures, Timestamp::now());
        let writes = Writes::new(&all.objects, &all.definitions);
        let done = commit_sweep(writes, rest, (&stored, &namespace), plan.namespace).await?;
        Ok(if done.is_some() { plan.next } else { ReconcileOutcome::Retry })
    }

    /// The served resources that have objects in a namespace.
    async fn served_content(
        &self,
        scope: &Scope,
        namespace: &str,
    ) -> Result<Vec<Arc<ServedResource>>, Status> {
        let all = &*self.namespaces;
        let cluster = scope.as_str();
        let mut found: HashSet<(ResourceName, Origin)> = HashSet::new();
        for (resource, origin) in all.definitions.stored_resources(&all.hub, cluster).await {
            let mut any = |_: &FoundObject<'_>| ControlFlow::Break(());
            let flow =
                visit_resource(&all.objects, &resource, &origin, cluster, Some(namespace), &mut any).await?;
            if flow.is_break() {
                found.insert((resource, origin));
            }
        }
        let catalog = all.definitions.catalog(scope)?;
        let served = catalog.resources.iter();
        let served = served.filter(|served| found.contains(&(served.name.clone(), served.origin.clone())));
        Ok(served.cloned().collect())
    }

    /// Deletes the objects of a namespace, as far as admission permits. Returns the messages of the failures.
    async fn delete_content(
        &self,
        resources: &[Arc<ServedResource>],
        scope: &Scope,
        namespace: &str,
    ) -> Vec<String> {
        let deletions = stream::iter(0..resources.len())
            .map(|index| self.delete_all(&resources[index], scope, namespace));
        let mut deletions = deletions.buffer_unordered(CONCURRENT_RESOURCES);
        let mut failures = Vec::new();
        while let Some(failure) = deletions.next().await {
            failures.extend(failure);
        }
        failures.sort();
        failures
    }

    /// Deletes the objects of one resource. Returns the message of a failure.
    async fn delete_all(
        &self,
        resource: &Arc<ServedResource>,
        scope: &Scope,
        namespace: &str,
    ) -> Option<String> {
        let version = resource.versions.served.first().unwrap_or(&resource.versions.storage);
        let target = Target {
            version: version.name.clone(),
            resource: resource.clone(),
            scopes: ScopeSelector::One(scope.clone()),
            namespace: Some(namespace.into()),
            name: None,
            subresource: None,
            verb: Verb::DeleteCollection,
            identity: self.identity.clone(),
            spans_origins: false,
            flags: RequestFlags::default(),
        };
        let options =
            DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        let selection = ListOptions::default();
        let deletion = resource.registry.delete_collection(&target, &selection, &options);
        match tokio::time::timeout(MAX_DELETION, deletion).await {
            Ok(deleted) => deleted.err().map(|status| status.message),
            Err(_) => Some(format!(
                "the deletion of {} did not end within {} s",
                resource.name,
                MAX_DELETION.as_secs()
            )),
        }
    }
}

#[async_trait]
impl Controller for ReviewedNamespaces {
    type Key = NamespaceKey;

    const NAME: &'static str = "namespace-content";
    const WORKERS: usize = 256;

    async fn reconcile(&self, key: &NamespaceKey) -> Result<ReconcileOutcome, Status> {
        let Some(_in_progress) = self.begin(&key.0) else {
            return Ok(ReconcileOutcome::RequeueAfter(BUSY_PAUSE));
        };
        let next = self.step(key).await?;
        if next == ReconcileOutcome::Done {
            let reviews = &self.namespaces.reviews;
            reviews.forget(key);
            // An event before that was ignored.
            if self.namespaces.terminating(&key.0, &key.1)?.is_some() {
                reviews.add(key);
            }
        }
        Ok(next)
    }
}

/// The processing of one namespace of a logical cluster.
struct InProgress<'c> {
    all: &'c Mutex<HashMap<Box<str>, usize>>,
    cluster: Box<str>,
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        if let Some(count) = all.get_mut(&self.cluster) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.cluster);
            }
        }
    }
}

#[cfg(test)]
mod tests;
