//! Compares published objects with their copies, and writes the copies.

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_api::group;
use fairlead_apiserver::hub::{Delivery, Hub, Interest, ObjectEvent, ProgressNotifications, SubscriptionEnd};
use fairlead_apiserver::object::ObjectMetaRef;
use fairlead_apiserver::registry::{ListedObject, ObjectStore, Target};
use fairlead_apiserver::request::RequestFlags;
use fairlead_apiserver::resource::Verb;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_authn::{AuthenticationMethod, Identity, UserInfo};
use fairlead_client::Client;
use fairlead_process::{Shutdown, Status};
use futures_util::StreamExt as _;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use tokio::sync::mpsc;

use super::publication::{Publication, Publications};
use super::{COUNT_PAUSE, CachedResourceKey};
use crate::controller_runtime::{Controller, Queue, ReconcileOutcome};
use crate::global::{Mirror, MirrorEvent};
use crate::replication::{ObjectLocation, ReplicaTarget, plan};

/// Logical cluster and name of a ClusterCachedResource, and name of an object.
pub(super) type CopyKey = (Box<str>, Box<str>, Arc<str>);

/// The user of the reads.
const USER: &str = "system:apiserver";

/// Controller of the copies of published objects.
pub(super) struct Copies {
    pub(super) objects: ObjectStore,
    pub(super) publications: Arc<Publications>,
    /// A client of the cache server.
    pub(super) cache: Client,
    pub(super) shard: String,
    pub(super) queue: Arc<Queue<CopyKey>>,
    /// ClusterCachedResources whose number of objects changed.
    pub(super) counts: Arc<Queue<CachedResourceKey>>,
}

#[async_trait]
impl Controller for Copies {
    type Key = CopyKey;

    const NAME: &'static str = "clustercachedresource-copies";
    const WORKERS: usize = 16;

    async fn reconcile(&self, key: &CopyKey) -> Result<ReconcileOutcome, Status> {
        let (cluster, name, object) = key;
        let Some(publication) = self.publications.get(&(cluster.clone(), name.clone())) else {
            return Ok(ReconcileOutcome::Done);
        };
        let Some(_write) = publication.begin_write() else { return Ok(ReconcileOutcome::Done) };
        let location: ObjectLocation = (Arc::from(&**cluster), object.clone());
        // Nothing can be compared before the first list, which adds all keys again.
        let Some(known) = publication.replicas.get(&location) else { return Ok(ReconcileOutcome::Done) };
        let origin = self.origin(&publication, object).await?;
        let plan = plan(&self.shard, origin, known.replica.as_ref());
        let (resource, replicas) = (&publication.target, &publication.replicas);
        let target = ReplicaTarget { client: &self.cache, shard: &self.shard, resource, replicas };
        match target.execute(&location, known.lists, plan).await {
            Ok(write) => {
                if write.is_some() {
                    self.counts.add_later(publication.key.clone(), COUNT_PAUSE);
                }
                if write.is_some_and(|write| write.is_removal()) {
                    self.queue.add(key.clone());
                }
                Ok(ReconcileOutcome::Done)
            }
            Err(error) => {
                // The cache server serves the resource as soon as it has the ClusterCachedResource.
                tracing::debug!(%cluster, %name, %object, %error, "a copy cannot be written now");
                Ok(ReconcileOutcome::Retry)
            }
        }
    }
}

impl Copies {
    /// Follows all publications until the process drains.
    pub(super) async fn follow(
        self: Arc<Self>,
        hub: Hub,
        mut started: mpsc::UnboundedReceiver<Arc<Publication>>,
        shutdown: Shutdown,
    ) {
        let mut followed = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                () = shutdown.draining() => return,
                Some(publication) = started.recv() => {
                    let (copies, hub) = (self.clone(), hub.clone());
                    followed.push(async move {
                        tokio::select! {
                            () = publication.stopped() => {}
                            _ = join(copies.follow_objects(&publication, &hub), copies.follow_copies(&publication)) => {}
                        }
                    });
                }
                Some(()) = followed.next(), if !followed.is_empty() => {}
            }
        }
    }

    async fn follow_objects(&self, publication: &Publication, hub: &Hub) {
        let source = &publication.source;
        let label = publication.labels().equality_term().map(|(key, value)| (key.into(), value.into()));
        loop {
            let interest = Interest {
                resource: source.name.clone(),
                origin: Some(source.origin.clone()),
                scopes: ScopeSelector::One(Scope::new(&publication.key.0)),
                namespace: None,
                label: label.clone(),
            };
            let subscription = hub.subscribe(interest, ProgressNotifications::Off, None);
            self.add_all(publication);
            let end = loop {
                match subscription.next().await {
                    Ok(Delivery::Event(event)) => self.add_changed(publication, &event),
                    Ok(Delivery::Progress(_)) => {}
                    Err(end) => break end,
                }
            };
            if end == SubscriptionEnd::Shutdown {
                return;
            }
        }
    }

    async fn follow_copies(&self, publication: &Publication) {
        let collection = publication.target.collection(&self.shard, &publication.key.0);
        let mut mirror = Mirror::<Value>::open(self.cache.clone(), collection).await;
        let replicas = &publication.replicas;
        loop {
            let changed = match mirror.next().await {
                MirrorEvent::Replaced { items: copies, .. } => {
                    let changed = replicas.replace(&copies);
                    self.add_all(publication);
                    self.counts.add_later(publication.key.clone(), COUNT_PAUSE);
                    changed
                }
                MirrorEvent::Applied(copy) => replicas.applied(&copy).into_iter().collect(),
                MirrorEvent::Deleted(copy) => replicas.deleted(&copy).into_iter().collect(),
                MirrorEvent::Reopened => {
                    self.add_all(publication);
                    Vec::new()
                }
            };
            for (_, name) in changed {
                self.add(publication, name);
            }
        }
    }

    /// Adds all objects that are published.
    fn add_all(&self, publication: &Publication) {
        let mut visit = |listed: ListedObject<'_>| {
            if let Ok(meta) = ObjectMetaRef::parse(listed.object)
                && publication.selects(&meta)
            {
                self.queue.add(copy_key(publication, (*meta.name).into()));
            }
        };
        let one = ScopeSelector::One(Scope::new(&publication.key.0));
        let origin = &publication.source.origin;
        if let Err(status) = self.objects.for_each(&publication.source.name, origin, &one, &mut visit) {
            tracing::error!(cluster = %publication.key.0, %status, "published objects cannot be listed");
        }
    }

    fn add_changed(&self, publication: &Publication, event: &ObjectEvent) {
        let is_published = |object| ObjectMetaRef::parse(object).is_ok_and(|meta| publication.selects(&meta));
        let before = event.change.previous();
        if is_published(event.object()) || before.is_some_and(|before| is_published(before.as_object())) {
            self.add(publication, (*event.name).into());
        }
    }

    fn add(&self, publication: &Publication, name: Arc<str>) {
        self.queue.add(copy_key(publication, name));
        self.counts.add_later(publication.key.clone(), COUNT_PAUSE);
    }

    /// The current object in the published version, if it is published.
    async fn origin(&self, publication: &Publication, name: &str) -> Result<Option<Value>, Status> {
        let source = &publication.source;
        let user = UserInfo {
            name: USER.to_owned(),
            groups: vec![group::MASTERS.to_owned()],
            ..UserInfo::default()
        };
        let target = Target {
            resource: source.clone(),
            version: publication.version().into(),
            scopes: ScopeSelector::One(Scope::new(&publication.key.0)),
            namespace: None,
            name: Some(name.into()),
            subresource: None,
            verb: Verb::Get,
            identity: Arc::new(Identity::new(user, AuthenticationMethod::ClientCertificate, None)),
            spans_origins: false,
            flags: RequestFlags::default(),
        };
        let stored = match source.registry.get(&target, name, None).await {
            Ok(stored) => stored,
            Err(status) if status.code == 404 => return Ok(None),
            Err(status) => return Err(status),
        };
        let is_published =
            ObjectMetaRef::parse(stored.object.as_object()).is_ok_and(|meta| publication.selects(&meta));
        if !is_published {
            return Ok(None);
        }
        let tree = self.objects.tree_with_managed_fields(&stored)?;
        source.in_version(publication.version(), tree).map(Some)
    }
}

fn copy_key(publication: &Publication, name: Arc<str>) -> CopyKey {
    let (cluster, own) = publication.key.clone();
    (cluster, own, name)
}
