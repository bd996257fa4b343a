//! Reads of bound schemas. The objects are not those of the requested logical cluster, so the store's registry cannot list them.

use core::task::{Context, Poll};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::hub::Backlog;
use fairlead_apiserver::registry::{
    ListCursor, ListEnd, ListedObject, OpenWatch, Registry, Selection, ServedResource, StoredObject, Target,
    Visitor, WatchEnd,
};
use fairlead_apiserver::request::{InitialEvents, LabelSelector, LabelTerm, ListOptions, Operator};
use fairlead_process::{GroupResource, Status};
use fairlead_store::Revision;

use super::source::BoundSchemas;

/// The schemas that the logical cluster of a request has bound.
pub(super) struct SchemaRegistry {
    /// The APIResourceSchemas of the shard.
    pub(super) inner: Arc<ServedResource>,
    pub(super) schemas: Arc<dyn BoundSchemas>,
}

impl SchemaRegistry {
    fn selected(&self, target: &Target, options: &ListOptions) -> Result<Vec<StoredObject>, Status> {
        let selection = Selection::of(target, options)?;
        let mut found = Vec::new();
        for (name, cluster) in self.schemas.bound(target.scope()?)? {
            let schema = self.schemas.schema(&cluster, &name)?;
            found.extend(schema.filter(|schema| selection.selects(schema.object.as_object())));
        }
        Ok(found)
    }

    /// The revision of the shard, by an empty list of its own schemas.
    async fn revision(&self, target: &Target) -> Result<Revision, Status> {
        let latest = ListOptions { labels: nothing(), ..ListOptions::default() };
        Ok(self.inner.registry.list(&self.inner_target(target), &latest).await?.revision())
    }

    fn inner_target(&self, target: &Target) -> Target {
        Target { resource: Arc::clone(&self.inner), ..target.clone() }
    }
}

#[async_trait]
impl Registry for SchemaRegistry {
    async fn get(
        &self,
        target: &Target,
        name: &str,
        _at_least: Option<Revision>,
    ) -> Result<StoredObject, Status> {
        let bound = self.schemas.bound(target.scope()?)?;
        let found = match bound.get(name) {
            Some(cluster) => self.schemas.schema(cluster, name)?,
            None => None,
        };
        found.ok_or_else(|| Status::not_found(group_resource(target), name))
    }

    /// All schemas in one page: a logical cluster has bound few.
    async fn list(&self, target: &Target, options: &ListOptions) -> Result<Box<dyn ListCursor>, Status> {
        let objects = self.selected(target, options)?;
        let revision = self.revision(target).await?;
        Ok(Box::new(SnapshotCursor { revision, objects: objects.into_iter() }))
    }

    /// The initial state, and then no events, as in kcp: schemas never change.
    async fn watch(
        &self,
        target: &Target,
        options: &ListOptions,
        until: WatchEnd,
    ) -> Result<OpenWatch, Status> {
        let wants_state = match options.initial_events {
            Some(InitialEvents::Send) => true,
            Some(InitialEvents::Skip) => false,
            None => options.resource_version.is_none_or(|version| version.0 == 0),
        };
        let objects = if wants_state { self.selected(target, options)? } else { Vec::new() };
        // A subscription to the consumer's own schemas, of which none is selected, carries bookmarks and ends the watch.
        let silent = ListOptions {
            labels: nothing(),
            initial_events: None,
            resource_version: None,
            version_match: None,
            ..options.clone()
        };
        let inner = self.inner.registry.watch(&self.inner_target(target), &silent, until).await?;
        let revision = inner.after;
        let initial: Option<Box<dyn ListCursor>> = match wants_state {
            true => Some(Box::new(SnapshotCursor { revision, objects: objects.into_iter() })),
            false => None,
        };
        Ok(OpenWatch { initial, backlog: Backlog::default(), selection: Some(Box::new(silent)), ..inner })
    }
}

/// A list of objects that are in memory.
struct SnapshotCursor {
    revision: Revision,
    objects: std::vec::IntoIter<StoredObject>,
}

impl ListCursor for SnapshotCursor {
    fn revision(&self) -> Revision {
        self.revision
    }

    fn poll_step(
        &mut self,
        _context: &mut Context<'_>,
        visit: &mut Visitor<'_>,
    ) -> Poll<Result<Option<ListEnd>, Status>> {
        for stored in self.objects.by_ref() {
            let object = stored.object.as_object();
            let listed = ListedObject { object, revision: stored.revision, scope: stored.scope.as_str() };
            if let ControlFlow::Break(()) = visit(listed) {
                return Poll::Ready(Ok(None));
            }
        }
        Poll::Ready(Ok(Some(ListEnd { revision: self.revision, continue_token: None, remaining: None })))
    }
}

/// A selector that selects no object.
fn nothing() -> LabelSelector {
    LabelSelector::of(vec![LabelTerm {
        key: "kcp.io/none".to_owned(),
        operator: Operator::In,
        values: BTreeSet::new(),
    }])
}

fn group_resource(target: &Target) -> GroupResource<'_> {
    let name = &target.resource.name;
    GroupResource::new(&name.group, &name.resource)
}
