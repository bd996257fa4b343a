//! Marks the objects that other shards need from a logical cluster with exports or workspace types: the LogicalCluster
//! itself, and the roles and bindings that grant access to them.
//!
//! Unlike kcp, it marks nothing in other logical clusters. No other shard needs objects from there, and a binding for
//! each workspace would be copied to every shard.

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_api::{LOGICAL_CLUSTER_NAME, annotation};
use fairlead_apiserver::authz::{Binding, Role, RoleKind};
use fairlead_apiserver::hub::{Hub, ObjectEvent};
use fairlead_apiserver::object::{ObjectBytes, ObjectMetaRef};
use fairlead_apiserver::registry::{ListedObject, ObjectStore, StoredObject};
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_names::{Origin, ResourceName};
use fairlead_process::{Shutdown, Status};
use fairlead_store::{CommitError, Mutation};
use futures_util::future::{join, join_all};
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use serde_json::{Map, Value};

use super::reasons::Reasons;
use super::sources::Source;
use crate::controller_runtime::{Controller, Queue, ReconcileOutcome, drive, feed};
use crate::index::Identities;
use crate::names::{
    API_EXPORTS, BUILT_IN, CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CUSTOM, LOGICAL_CLUSTERS, SYSTEM_ADMIN,
    WORKSPACE_TYPES,
};

/// Controller of the marks on a shard's objects.
pub(super) struct Marks {
    objects: ObjectStore,
    hub: Hub,
    /// The origin of WorkspaceTypes, if it is known.
    types: Option<Origin>,
    queue: Arc<Queue<Arc<str>>>,
    /// The logical clusters with exports or workspace types.
    publishing: Mutex<FxHashSet<Arc<str>>>,
}

/// The role of a resource in replication.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Kind {
    /// Its objects are published to other shards: exports and workspace types.
    Published,
    /// Its objects are marked if they belong to published ones.
    Markable,
}

impl Marks {
    pub(super) fn new(objects: ObjectStore, hub: Hub, identities: &Identities) -> Self {
        let export = fairlead_api::root_export_of(&WORKSPACE_TYPES.group, &WORKSPACE_TYPES.resource);
        let types = export.and_then(|export| identities.get(export)).cloned().map(Origin::Identity);
        Self { objects, hub, types, queue: Arc::new(Queue::new()), publishing: Mutex::default() }
    }

    /// Maintains the marks until the process drains.
    pub(super) async fn run(self: Arc<Self>, shutdown: Shutdown) {
        let followed = self.watched_resources().into_iter().map(|(resource, origin, kind)| {
            let (marks, resync_marks) = (Arc::clone(&self), Arc::clone(&self));
            let all = (resource.clone(), origin.clone());
            let resync = move || resync_marks.add_all(&all, kind);
            let changed = move |event: &ObjectEvent| marks.add(event, kind);
            feed(self.hub.clone(), resource, Some(origin), shutdown.clone(), resync, changed)
        });
        let followed = join_all(followed.collect::<Vec<_>>());
        join(drive(Arc::clone(&self), Arc::clone(&self.queue), shutdown.clone()), followed).await;
    }

    fn watched_resources(&self) -> Vec<(ResourceName, Origin, Kind)> {
        let mut followed = vec![
            (API_EXPORTS.clone(), CUSTOM, Kind::Published),
            (LOGICAL_CLUSTERS.clone(), CUSTOM, Kind::Markable),
            (CLUSTER_ROLES.clone(), BUILT_IN, Kind::Markable),
            (CLUSTER_ROLE_BINDINGS.clone(), BUILT_IN, Kind::Markable),
        ];
        followed.extend(
            self.types.iter().map(|origin| (WORKSPACE_TYPES.clone(), origin.clone(), Kind::Published)),
        );
        followed
    }

    /// Adds the logical cluster of a relevant change. If the logical cluster publishes nothing, only changes of
    /// published objects, and of objects that are or were marked, are relevant.
    fn add(&self, event: &ObjectEvent, kind: Kind) {
        let is_relevant = || {
            kind == Kind::Published
                || self.publishing.lock().contains(&event.scope)
                || is_marked(event.object())
                || event.change.previous().is_some_and(|previous| is_marked(previous.as_object()))
        };
        if Source::covers(&event.scope) && is_relevant() {
            self.queue.add(event.scope.clone());
        }
    }

    /// Adds all logical clusters that may need a change of marks.
    fn add_all(&self, (resource, origin): &(ResourceName, Origin), kind: Kind) {
        let mut visit = |listed: ListedObject<'_>| {
            if Source::covers(listed.scope) && (kind == Kind::Published || is_marked(listed.object)) {
                self.queue.add(listed.scope.into());
            }
        };
        if let Err(status) = self.objects.for_each(resource, origin, &ScopeSelector::all(), &mut visit) {
            tracing::error!(%resource, %status, "objects to mark cannot be listed");
        }
    }

    /// The kinds of objects that a logical cluster publishes.
    fn published_by(&self, scope: &Scope) -> Result<Reasons, Status> {
        let any = |resource: &ResourceName, origin: &Origin| -> Result<bool, Status> {
            let mut found = false;
            let one = ScopeSelector::One(scope.clone());
            self.objects.for_each(resource, origin, &one, &mut |_| found = true)?;
            Ok(found)
        };
        let tenancy = match &self.types {
            Some(origin) => any(&WORKSPACE_TYPES, origin)?,
            None => false,
        };
        Ok(Reasons { apis: any(&API_EXPORTS, &CUSTOM)?, core: false, tenancy })
    }

    /// The mutations that update the marks of a logical cluster.
    fn changes(&self, scope: &Scope, published: Reasons) -> Result<Vec<Mutation>, Status> {
        let one = ScopeSelector::One(scope.clone());
        let mut mutations = Vec::new();
        let cluster = self.objects.get(&LOGICAL_CLUSTERS, &CUSTOM, scope, None, LOGICAL_CLUSTER_NAME)?;
        if let Some(cluster) = cluster {
            mutations.extend(self.mark_update(&LOGICAL_CLUSTERS, &CUSTOM, &cluster, published)?);
        }
        let roles = self.objects.list(&CLUSTER_ROLES, &BUILT_IN, &one, None)?;
        let bindings = self.objects.list(&CLUSTER_ROLE_BINDINGS, &BUILT_IN, &one, None)?;
        // Other shards need nothing from a logical cluster that publishes nothing.
        let limit = |reasons: Reasons| if published.is_empty() { Reasons::default() } else { reasons };
        let parsed: Vec<Binding> =
            bindings.iter().filter_map(|stored| Binding::parse(stored.object.as_object()).ok()).collect();
        for stored in &roles {
            let Ok(role) = Role::parse(stored.object.as_object()) else { continue };
            let through = parsed.iter().filter(|binding| *binding.role.name == *role.name);
            let reasons = through
                .filter(|binding| binding.role.kind == RoleKind::ClusterRole)
                .map(Reasons::of_subjects)
                .fold(Reasons::of_rules(&role.rules), Reasons::union);
            mutations.extend(self.mark_update(&CLUSTER_ROLES, &BUILT_IN, stored, limit(reasons))?);
        }
        for stored in &bindings {
            let Ok(binding) = Binding::parse(stored.object.as_object()) else { continue };
            let reasons =
                Reasons::of_subjects(&binding).union(self.reasons_of_role(&binding.role.name, &roles)?);
            mutations.extend(self.mark_update(&CLUSTER_ROLE_BINDINGS, &BUILT_IN, stored, limit(reasons))?);
        }
        Ok(mutations)
    }

    /// The reasons for replication of a role, which is one of `roles` or a global one.
    fn reasons_of_role(&self, name: &str, roles: &[StoredObject]) -> Result<Reasons, Status> {
        let role = |stored: &StoredObject| Role::parse(stored.object.as_object()).ok();
        let own = roles.iter().filter_map(role).find(|role| *role.name == *name);
        let role = match own {
            Some(role) => Some(role),
            None => {
                let system_admin = Scope::new(SYSTEM_ADMIN);
                self.objects
                    .get(&CLUSTER_ROLES, &BUILT_IN, &system_admin, None, name)?
                    .as_ref()
                    .and_then(role)
            }
        };
        Ok(role.map_or(Reasons::default(), |role| Reasons::of_rules(&role.rules)))
    }

    /// The mutation that updates the mark of an object, if it differs.
    fn mark_update(
        &self,
        resource: &ResourceName,
        origin: &Origin,
        stored: &StoredObject,
        reasons: Reasons,
    ) -> Result<Option<Mutation>, Status> {
        let meta = ObjectMetaRef::parse(stored.object.as_object()).map_err(Status::internal)?;
        let present = meta.annotation(annotation::REPLICATE);
        let desired = reasons.annotation(present);
        if desired.as_deref() == present.filter(|words| !words.is_empty()) {
            return Ok(None);
        }
        let key = self.objects.key(resource, origin, stored.scope.as_str(), None, &meta.name);
        let mut object = self.objects.tree(stored)?;
        annotate(&mut object, desired);
        let before = stored.object.as_object();
        let encoded = self.objects.encode_managed(object, before.schema_hash(), before.managed_fields())?;
        Ok(Some(Mutation::update(key, stored.revision, encoded.stored().clone())))
    }
}

fn annotate(object: &mut Value, words: Option<String>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    if let Some(annotations) = annotations.as_object_mut() {
        match words {
            Some(words) => annotations.insert(annotation::REPLICATE.into(), words.into()),
            None => annotations.remove(annotation::REPLICATE),
        };
    }
}

fn is_marked(object: ObjectBytes<'_>) -> bool {
    ObjectMetaRef::parse(object).is_ok_and(|meta| meta.annotation(annotation::REPLICATE).is_some())
}

#[async_trait]
impl Controller for Marks {
    type Key = Arc<str>;

    const NAME: &'static str = "replication marks";
    const WORKERS: usize = 4;

    async fn reconcile(&self, cluster: &Arc<str>) -> Result<ReconcileOutcome, Status> {
        let scope = Scope::new(cluster);
        let published = self.published_by(&scope)?;
        // Set before the roles are read, so that a role that is created meanwhile is added again by its event.
        if published.is_empty() {
            self.publishing.lock().remove(cluster);
        } else {
            self.publishing.lock().insert(cluster.clone());
        }
        let mutations = self.changes(&scope, published)?;
        // Each mark is correct by itself.
        match self.objects.commit_each(mutations).await {
            Ok(()) => Ok(ReconcileOutcome::Done),
            // Another writer has changed one of the objects; the next attempt plans again.
            Err(CommitError::Conflict { .. }) => Ok(ReconcileOutcome::Retry),
            Err(error) => Err(Status::internal(error)),
        }
    }
}
