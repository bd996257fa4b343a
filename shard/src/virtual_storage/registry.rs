//! Serves copies as objects of the logical cluster of a request.

use core::task::{Context, Poll};
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::registry::{
    ListCursor, ListEnd, ListedObject, OpenWatch, Registry, ServedResource, StoredObject, Target, Visitor,
    WatchEnd,
};
use fairlead_apiserver::request::ListOptions;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_process::Status;
use fairlead_store::Revision;

use super::changes::SourceChanges;
use super::copies::{PublishedCopies, Reader};
use super::sources::{CopyReference, CopySource, SourceLookup, unresolved};
use crate::global::GlobalView;
use crate::index::virtual_resource;

/// The storage of bound resources whose objects are copies.
#[derive(Clone)]
pub(crate) struct VirtualStorage {
    lookup: Arc<SourceLookup>,
    copies: Arc<PublishedCopies>,
    changes: Arc<SourceChanges>,
}

impl VirtualStorage {
    pub(crate) fn new(lookup: SourceLookup, copies: Arc<PublishedCopies>, global: &GlobalView) -> Self {
        let changes = Arc::<SourceChanges>::default();
        changes.follow(&lookup.bindings, global);
        Self { lookup: Arc::new(lookup), copies, changes }
    }

    pub(crate) fn lookup(&self) -> &SourceLookup {
        &self.lookup
    }

    /// The registry of bound resources, in the logical clusters of their consumers.
    pub(crate) fn registry(&self) -> Arc<dyn Registry> {
        Arc::new(CopyRegistry { storage: self.clone(), slice: None })
    }

    /// The resource of an endpoint slice, by logical cluster and name of the slice.
    pub(crate) fn of_slice(&self, resource: &ServedResource, slice: (&str, &str)) -> Arc<ServedResource> {
        let slice = Some((slice.0.into(), slice.1.into()));
        virtual_resource(resource, Arc::new(CopyRegistry { storage: self.clone(), slice }))
    }
}

/// Reads the copies behind a bound resource or a slice.
struct CopyRegistry {
    storage: VirtualStorage,
    /// `None`: the slice of the export that the logical cluster of the request has bound.
    slice: Option<(Box<str>, Box<str>)>,
}

/// The copies of a request.
struct OpenCopies {
    /// The request to the mirror.
    target: Target,
    consumer: Scope,
    reference: CopyReference,
    source: CopySource,
    /// The logical clusters whose objects determine the source.
    clusters: Vec<Box<str>>,
    reader: Reader,
}

impl CopyRegistry {
    async fn open(&self, target: &Target) -> Result<OpenCopies, Status> {
        let consumer = match &target.scopes {
            ScopeSelector::One(consumer) => consumer.clone(),
            ScopeSelector::Every { .. } => return Err(Status::bad_request("Wildcard request not supported")),
        };
        let resource = target.resource.name.clone();
        let reference = match &self.slice {
            None => CopyReference::Bound { consumer: consumer.clone(), resource },
            Some((cluster, name)) => {
                CopyReference::Slice { cluster: cluster.clone(), name: name.clone(), resource }
            }
        };
        let (source, clusters) = self.storage.lookup.find(&reference)?;
        if target.resource.version(&source.version).is_none() {
            return Err(unresolved(&target.resource.name));
        }
        let reader = self.storage.copies.open(&source).await?;
        let (scope, origin) = reader.location();
        let target = Target {
            resource: Arc::new(ServedResource { origin, ..(*target.resource).clone() }),
            scopes: ScopeSelector::One(scope),
            spans_origins: false,
            ..target.clone()
        };
        Ok(OpenCopies { target, consumer, reference, source, clusters, reader })
    }
}

impl OpenCopies {
    /// Completes when the consumer may not read these copies any more.
    fn ended(self, storage: &VirtualStorage) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let storage = storage.clone();
        Box::pin(async move {
            // The mirror lives as long as its watches.
            let _reader = self.reader;
            let mut changes = storage.changes.subscribe(self.clusters.iter().map(|cluster| &**cluster));
            // Checked first: something may have changed before the subscription.
            while storage.lookup.find(&self.reference).is_ok_and(|(source, _)| source == self.source) {
                changes.next().await;
            }
        })
    }
}

#[async_trait]
impl Registry for CopyRegistry {
    async fn get(
        &self,
        target: &Target,
        name: &str,
        at_least: Option<Revision>,
    ) -> Result<StoredObject, Status> {
        let open = self.open(target).await?;
        let found = self.storage.copies.registry.get(&open.target, name, at_least).await?;
        Ok(StoredObject { scope: open.consumer, ..found })
    }

    async fn list(&self, target: &Target, options: &ListOptions) -> Result<Box<dyn ListCursor>, Status> {
        let open = self.open(target).await?;
        let inner = self.storage.copies.registry.list(&open.target, options).await?;
        Ok(Box::new(ShownCursor { inner, consumer: open.consumer, _reader: open.reader }))
    }

    async fn watch(
        &self,
        target: &Target,
        options: &ListOptions,
        until: WatchEnd,
    ) -> Result<OpenWatch, Status> {
        let open = self.open(target).await?;
        let mut watch = self.storage.copies.registry.watch(&open.target, options, until).await?;
        watch.shown_scope = Some(open.consumer.clone());
        watch.ended = Some(open.ended(&self.storage));
        Ok(watch)
    }
}

/// A list of copies that show the logical cluster of the request.
struct ShownCursor {
    inner: Box<dyn ListCursor>,
    consumer: Scope,
    _reader: Reader,
}

impl ListCursor for ShownCursor {
    fn revision(&self) -> Revision {
        self.inner.revision()
    }

    fn poll_step(
        &mut self,
        context: &mut Context<'_>,
        visit: &mut Visitor<'_>,
    ) -> Poll<Result<Option<ListEnd>, Status>> {
        let Self { inner, consumer, .. } = self;
        inner.poll_step(context, &mut |listed: ListedObject<'_>| {
            visit(ListedObject { scope: consumer.as_str(), ..listed })
        })
    }
}
