//! Discovery: which groups, versions and resources a scope serves, in both wire forms.
//!
//! The documents depend on the catalog alone, so they are kept by its hash: scopes that serve the same
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

use crate::registry::Catalog;

pub use order::version_priority;

/// Catalogs whose documents are kept.
const CACHED_CATALOGS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(127);

/// Makes and keeps discovery documents.
pub(crate) struct Discovery {
    address: String,
    documents: Mutex<LruCache<(u64, Document), TaggedDocument>>,
}

/// A document and its hash. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct TaggedDocument {
    pub(crate) json: Bytes,
    pub(crate) hash: Arc<str>,
}

/// Which document of a catalog.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Document {
    /// `/api` and `/apis` in the aggregated form; the group is core or not.
    Aggregated {
        /// `/api` rather than `/apis`.
        core: bool,
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
    /// `address` is what the documents say the server's address is.
    pub(crate) fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), documents: Mutex::new(LruCache::new(CACHED_CATALOGS)) }
    }

    /// A document; `None` when the catalog has no such group or version. A look-up when it was asked for
    /// before.
    pub(crate) fn document(&self, catalog: &Arc<Catalog>, document: Document) -> Option<TaggedDocument> {
        let key = (catalog.hash, document);
        if let Some(found) = self.documents.lock().get(&key) {
            return Some(found.clone());
        }
        let value: Value = match &key.1 {
            Document::Aggregated { core, version } => aggregated::groups(catalog, *core, version),
            Document::Group(group) => legacy::group(catalog, group)?,
            Document::Groups => legacy::groups(catalog, &self.address),
            Document::Resources { group, version } => legacy::resources(catalog, group, version)?,
            Document::Versions => legacy::versions(&self.address),
        };
        let json = Bytes::from(format!("{value}\n"));
        let made = TaggedDocument { hash: crate::response::content_hash(&json), json };
        self.documents.lock().put(key, made.clone());
        Some(made)
    }
}
