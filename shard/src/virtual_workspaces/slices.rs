//! Endpoint slices of ClusterCachedResources for the virtual workspace `replication`.

use std::num::NonZeroUsize;
use std::sync::Arc;

use fairlead_apiserver::Scope;
use fairlead_process::Status;
use fairlead_virtual::{CachedSlice, CachedSlices};
use lru::LruCache;
use parking_lot::Mutex;

use crate::exports::{ExportLookup, PublishedExport};
use crate::index::Definitions;
use crate::virtual_storage::VirtualStorage;

/// The number of slices that are kept in the form of the virtual workspace.
const CACHED_SLICES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);

/// The endpoint slices of all shards, and the bindings of this one.
pub(super) struct SliceAccess {
    exports: Arc<ExportLookup>,
    definitions: Arc<Definitions>,
    storage: VirtualStorage,
    known: Mutex<LruCache<SliceKey, KnownSlice>>,
}

/// Logical cluster and name of an endpoint slice.
type SliceKey = (Box<str>, Box<str>);

/// An endpoint slice, and the export from which it was made.
struct KnownSlice {
    export: Arc<PublishedExport>,
    slice: Arc<CachedSlice>,
}

impl SliceAccess {
    pub(super) fn new(
        exports: Arc<ExportLookup>,
        definitions: Arc<Definitions>,
        storage: VirtualStorage,
    ) -> Self {
        Self { exports, definitions, storage, known: Mutex::new(LruCache::new(CACHED_SLICES)) }
    }
}

impl CachedSlices for SliceAccess {
    fn slice(&self, cluster: &Scope, name: &str) -> Result<Option<Arc<CachedSlice>>, Status> {
        let Some(published) = self.storage.lookup().slice(cluster.as_str(), name)? else { return Ok(None) };
        let export = published.export;
        let key: SliceKey = (cluster.as_str().into(), name.into());
        if let Some(known) = self.known.lock().get(&key)
            && (Arc::ptr_eq(&known.export, &export) || known.export == export)
        {
            return Ok(Some(Arc::clone(&known.slice)));
        }
        let Some(identity) = &export.identity else { return Ok(None) };
        let Some(schema) = self.exports.schema(&export.cluster, &published.schema)? else { return Ok(None) };
        let Some(resource) = self.definitions.published(&export.cluster, &schema, identity)? else {
            return Ok(None);
        };
        let resource = self.storage.of_slice(&resource, (cluster.as_str(), name));
        let slice = Arc::new(CachedSlice::new(Scope::new(&export.cluster), export.name.clone(), resource));
        self.known.lock().put(key, KnownSlice { export, slice: Arc::clone(&slice) });
        Ok(Some(slice))
    }

    fn is_bound(&self, consumer: &Scope, slice: &CachedSlice) -> bool {
        let export = (slice.export_cluster.as_str(), &*slice.export_name);
        self.storage.lookup().is_bound(consumer.as_str(), export, &slice.resource.name)
    }
}
