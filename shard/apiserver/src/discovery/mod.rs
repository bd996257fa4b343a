//! Discovery: the groups, versions and resources of a scope, unaggregated and aggregated.
//!
//! The documents depend on the catalog alone, so they are cached by its key: scopes with equal catalogs
//! share them.

mod aggregated;
mod legacy;
mod order;

use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::Value;

use crate::registry::{Catalog, CatalogKey};

/// Number of cached documents.
const CACHED_DOCUMENTS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(127);

/// Builds and caches discovery documents.
pub(crate) struct Discovery {
    address: String,
    documents: Mutex<LruCache<(CatalogKey, Document), TaggedDocument>>,
}

/// A document and its hash. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct TaggedDocument {
    pub(crate) json: Bytes,
    pub(crate) hash: Arc<str>,
}

/// A document of a catalog.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Document {
    /// The aggregated form of `/api` or `/apis`.
    Aggregated {
        /// Whether the document is `/api` (the core group) or `/apis`.
        is_core: bool,
        /// `v2` or `v2beta1`.
        version: &'static str,
    },
    /// `/apis/<group>`.
    Group(String),
    /// `/apis`.
    Groups,
    /// `/api/v1`, `/apis/<group>/<version>`.
    Resources {
        /// The group.
        group: String,
        /// The version.
        version: String,
    },
    /// `/api`.
    Versions,
}

impl Discovery {
    /// `address` is the server address in the documents.
    pub(crate) fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), documents: Mutex::new(LruCache::new(CACHED_DOCUMENTS)) }
    }

    /// A document; `None` when the catalog has no such group or version. Built at the first request, then cached.
    pub(crate) fn document(&self, catalog: &Arc<Catalog>, document: Document) -> Option<TaggedDocument> {
        let key = (catalog.key(), document);
        if let Some(found) = self.documents.lock().get(&key) {
            return Some(found.clone());
        }
        let value: Value = match &key.1 {
            Document::Aggregated { is_core, version } => aggregated::groups(catalog, *is_core, version),
            Document::Group(group) => legacy::group(catalog, group)?,
            Document::Groups => legacy::groups(catalog, &self.address),
            Document::Resources { group, version } => legacy::resources(catalog, group, version)?,
            Document::Versions => legacy::versions(&self.address),
        };
        let json = Bytes::from(format!("{value}\n"));
        let built = TaggedDocument { hash: crate::response::content_hash(&json), json };
        self.documents.lock().put(key, built.clone());
        Some(built)
    }
}
