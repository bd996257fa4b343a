//! Marks what other shards need to know of a logical cluster that has something to offer: the LogicalCluster itself, and
//! the roles and bindings that say who may have it.
//!
//! Unlike kcp, nothing is marked in other logical clusters: there is nothing there that another shard could ask about,
//! and a binding for each workspace would be copied to every shard.

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_api::{LOGICAL_CLUSTER_NAME, annotation};
use fairlead_apiserver::authz::{Binding, Role, RoleKind};
use fairlead_apiserver::hub::{Hub, ObjectEvent};
use fairlead_apiserver::object::{Head, ObjectBytes};
use fairlead_apiserver::registry::{Listed, ObjectStore, StoredObject};
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

/// Keeps the marks of a shard's objects.
pub(super) struct Marks {
    objects: ObjectStore,
    hub: Hub,
    /// Where WorkspaceTypes are stored, if that is known.
    types: Option<Origin>,
    queue: Arc<Queue<Arc<str>>>,
    /// The logical clusters that offer something.
    publishing: Mutex<FxHashSet<Arc<str>>>,
}

/// What makes a change of an object interesting.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Kind {
    /// It is something to offer.
    Published,
    /// It may carry a mark.
    Markable,
}

impl Marks {
    pub(super) fn new(objects: ObjectStore, hub: Hub, identities: &Identities) -> Self {
        let export = fairlead_api::root_export_of(&WORKSPACE_TYPES.group, &WORKSPACE_TYPES.resource);
        let types = export.and_then(|export| identities.get(export)).cloned().map(Origin::Identity);
        Self { objects, hub, types, queue: Arc::new(Queue::new()), publishing: Mutex::default() }
    }

    /// Keeps the marks until the process drains.
    pub(super) async fn run(self: Arc<Self>, shutdown: Shutdown) {
        let followed = self.followed().into_iter().map(|(resource, origin, kind)| {
            let (marks, again) = (Arc::clone(&self), Arc::clone(&self));
            let all = (resource.clone(), origin.clone());
            let resync = move || again.add_all(&all, kind);
            let changed = move |event: &ObjectEvent| marks.add(event, kind);
            feed(self.hub.clone(), resource, Some(origin), shutdown.clone(), resync, changed)
        });
        let followed = join_all(followed.collect::<Vec<_>>());
        join(drive(Arc::clone(&self), Arc::clone(&self.queue), shutdown.clone()), followed).await;
    }

    fn followed(&self) -> Vec<(ResourceName, Origin, Kind)> {
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

    /// Adds the logical cluster of a change that may matter. In a logical cluster that published nothing, that is only
    /// one of an offer, or of something that is or was marked.
    fn add(&self, event: &ObjectEvent, kind: Kind) {
        let matters = || {
            kind == Kind::Published
                || self.publishing.lock().contains(&event.scope)
                || is_marked(event.object())
                || event.change.previous().is_some_and(|previous| is_marked(previous.as_object()))
        };
        if Source::covers(&event.scope) && matters() {
            self.queue.add(event.scope.clone());
        }
    }

    /// Adds all logical clusters where something may be to do.
    fn add_all(&self, (resource, origin): &(ResourceName, Origin), kind: Kind) {
        let mut visit = |listed: Listed<'_>| {
            if Source::covers(listed.scope) && (kind == Kind::Published || is_marked(listed.object)) {
                self.queue.add(listed.scope.into());
            }
        };
        if let Err(status) = self.objects.for_each(resource, origin, &ScopeSelector::all(), &mut visit) {
            tracing::error!(%resource, %status, "objects to mark cannot be listed");
        }
    }

    /// What a logical cluster published.
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

    /// The writes that bring the marks of a logical cluster up to date.
    fn changes(&self, scope: &Scope, published: Reasons) -> Result<Vec<Mutation>, Status> {
        let one = ScopeSelector::One(scope.clone());
        let mut mutations = Vec::new();
        let cluster = self.objects.get(&LOGICAL_CLUSTERS, &CUSTOM, scope, None, LOGICAL_CLUSTER_NAME)?;
        if let Some(cluster) = cluster {
            mutations.extend(self.mark_update(&LOGICAL_CLUSTERS, &CUSTOM, &cluster, published)?);
        }
        let roles = self.objects.list(&CLUSTER_ROLES, &BUILT_IN, &one, None)?;
        let bindings = self.objects.list(&CLUSTER_ROLE_BINDINGS, &BUILT_IN, &one, None)?;
        // Of another logical cluster nobody asks.
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

    /// Why a role matters that is among `roles`, or else one of those that count everywhere.
    fn reasons_of_role(&self, name: &str, roles: &[StoredObject]) -> Result<Reasons, Status> {
        let role = |stored: &StoredObject| Role::parse(stored.object.as_object()).ok();
        let own = roles.iter().filter_map(role).find(|role| *role.name == *name);
        let role = match own {
            Some(role) => Some(role),
            None => {
                let everywhere = Scope::new(SYSTEM_ADMIN);
                self.objects.get(&CLUSTER_ROLES, &BUILT_IN, &everywhere, None, name)?.as_ref().and_then(role)
            }
        };
        Ok(role.map_or(Reasons::default(), |role| Reasons::of_rules(&role.rules)))
    }

    /// The write that gives an object its mark, if it has another.
    fn mark_update(
        &self,
        resource: &ResourceName,
        origin: &Origin,
        stored: &StoredObject,
        reasons: Reasons,
    ) -> Result<Option<Mutation>, Status> {
        let head = Head::parse(stored.object.as_object()).map_err(Status::internal)?;
        let present = head.annotation(annotation::REPLICATE);
        let wanted = reasons.annotation(present);
        if wanted.as_deref() == present.filter(|words| !words.is_empty()) {
            return Ok(None);
        }
        let key = self.objects.key(resource, origin, stored.scope.as_str(), None, &head.name);
        let mut object = self.objects.tree(stored)?;
        annotate(&mut object, wanted);
        let encoded = self.objects.encode(object, stored.object.as_object().schema_hash())?;
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
    Head::parse(object).is_ok_and(|head| head.annotation(annotation::REPLICATE).is_some())
}

#[async_trait]
impl Controller for Marks {
    type Key = Arc<str>;

    const NAME: &'static str = "replication marks";
    const WORKERS: usize = 4;

    async fn reconcile(&self, cluster: &Arc<str>) -> Result<ReconcileOutcome, Status> {
        let scope = Scope::new(cluster);
        let published = self.published_by(&scope)?;
        // Before its roles are looked at, so that a role that comes a moment later is not overlooked.
        if published.is_empty() {
            self.publishing.lock().remove(cluster);
        } else {
            self.publishing.lock().insert(cluster.clone());
        }
        let mutations = self.changes(&scope, published)?;
        if mutations.is_empty() {
            return Ok(ReconcileOutcome::Done);
        }
        match self.objects.store().commit(mutations).await {
            Ok(_) => Ok(ReconcileOutcome::Done),
            // Another writer has changed one of them; plan again.
            Err(CommitError::Conflict { .. }) => Ok(ReconcileOutcome::Retry),
            Err(error) => Err(Status::internal(error)),
        }
    }
}
