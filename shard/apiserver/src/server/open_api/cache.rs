//! Cache of OpenAPI indexes by catalog, and of documents by a hash of their inputs.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use fairlead_schema::openapi::{DiscoveryPath, OpenApiBody, OpenApiDocument, OpenApiResource, OpenApiSchema};
use lru::LruCache;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::registry::CatalogKey;

/// Number of cached indexes, about 10 KiB each.
const CACHED_INDEXES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255);
/// Bytes of cached documents. All built-in group versions together have about 2 MB.
const CACHED_DOCUMENT_BYTES: usize = 32 * 1024 * 1024;

/// The index of a catalog.
pub(super) struct Index {
    pub(super) json: Bytes,
    pub(super) hash: Arc<str>,
    /// The documents by their path below `/openapi/v3/`.
    pub(super) documents: BTreeMap<String, IndexedDocument>,
}

/// A document of an index. The cache may have dropped the document itself.
#[derive(Clone)]
pub(super) struct IndexedDocument {
    pub(super) source: DocumentSource,
    pub(super) key: ContentKey,
    pub(super) hash: Arc<str>,
}

/// The contents of a document.
#[derive(Clone)]
pub(super) enum DocumentSource {
    /// The resources of a group version.
    GroupVersion { group: Box<str>, version: Box<str> },
    /// A path outside of group versions.
    Discovery(DiscoveryPath),
}

/// Hash of a document's inputs: equal keys mean equal documents.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub(super) struct ContentKey([u8; 32]);

impl ContentKey {
    /// The key of the document of a path outside of group versions, which does not depend on resources.
    pub(super) fn of_discovery(path: &str) -> Self {
        Self(Sha256::new().chain_update("discovery").chain_update(path).finalize().into())
    }

    /// Costs a serialization of the custom schemas; built-in ones are hashed by name.
    pub(super) fn of(group: &str, version: &str, resources: &[OpenApiResource]) -> Self {
        let mut hash = Sha256::new();
        let mut text = |part: &str| {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        };
        text(group);
        text(version);
        for resource in resources {
            text("resource");
            for part in [&resource.plural, &resource.kind, &resource.list_kind] {
                text(part);
            }
            text(if resource.namespaced { "namespaced" } else { "cluster" });
            resource.verbs.iter().for_each(|verb| text(verb));
            for subresource in &resource.subresources {
                text("subresource");
                text(&subresource.name);
                subresource.verbs.iter().for_each(|verb| text(verb));
                text(match &subresource.body {
                    None => "same",
                    Some(OpenApiBody::Scale) => "scale",
                    Some(OpenApiBody::TokenRequest) => "token",
                });
            }
            match &resource.schema {
                OpenApiSchema::Builtin(name) => {
                    text("built in");
                    text(name);
                }
                OpenApiSchema::Custom(schema) => {
                    text("custom");
                    text(&schema.to_string());
                }
            }
        }
        Self(hash.finalize().into())
    }
}

/// Drops the least recently used entries.
pub(super) struct Cache {
    indexes: Mutex<LruCache<CatalogKey, Arc<Index>>>,
    documents: Mutex<Documents>,
}

struct Documents {
    by_key: LruCache<ContentKey, OpenApiDocument>,
    bytes: usize,
}

impl Default for Cache {
    fn default() -> Self {
        let documents = Documents { by_key: LruCache::unbounded(), bytes: 0 };
        Self { indexes: Mutex::new(LruCache::new(CACHED_INDEXES)), documents: Mutex::new(documents) }
    }
}

impl Cache {
    pub(super) fn index(&self, catalog: CatalogKey) -> Option<Arc<Index>> {
        self.indexes.lock().get(&catalog).cloned()
    }

    pub(super) fn insert_index(&self, catalog: CatalogKey, index: Arc<Index>) {
        self.indexes.lock().put(catalog, index);
    }

    pub(super) fn document(&self, key: &ContentKey) -> Option<OpenApiDocument> {
        self.documents.lock().by_key.get(key).cloned()
    }

    pub(super) fn insert_document(&self, key: ContentKey, document: &OpenApiDocument) {
        self.documents.lock().insert(key, document.clone(), CACHED_DOCUMENT_BYTES);
    }
}

impl Documents {
    fn insert(&mut self, key: ContentKey, document: OpenApiDocument, limit: usize) {
        self.bytes += document.json.len();
        if let Some(replaced) = self.by_key.put(key, document) {
            self.bytes -= replaced.json.len();
        }
        while self.bytes > limit
            && let Some((_, dropped)) = self.by_key.pop_lru()
        {
            self.bytes -= dropped.json.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_kept_up_to_a_size() {
        let mut documents = Documents { by_key: LruCache::unbounded(), bytes: 0 };
        let document = |size: usize| OpenApiDocument { json: vec![b' '; size].into(), hash: "H".into() };
        for (key, size) in [(1, 40), (2, 40), (1, 50), (3, 20)] {
            documents.insert(ContentKey([key; 32]), document(size), 100);
        }
        let kept: Vec<u8> = documents.by_key.iter().map(|(key, _)| key.0[0]).collect();
        assert_eq!((kept, documents.bytes), (vec![3, 1], 70));
    }

    #[test]
    fn the_content_key_covers_the_whole_document() {
        let resource = |schema: serde_json::Value| OpenApiResource {
            group: "g".into(),
            version: "v1".into(),
            kind: "K".into(),
            list_kind: "KList".into(),
            plural: "ks".into(),
            namespaced: true,
            verbs: vec!["get".into()],
            subresources: Vec::new(),
            schema: OpenApiSchema::Custom(Arc::new(schema)),
        };
        let one = resource(serde_json::json!({"description": "a"}));
        let key = |resource: &OpenApiResource| ContentKey::of("g", "v1", std::slice::from_ref(resource)).0;
        for other in [
            resource(serde_json::json!({"description": "b"})),
            OpenApiResource { namespaced: false, ..one.clone() },
            OpenApiResource { verbs: vec!["get".into(), "list".into()], ..one.clone() },
            OpenApiResource { kind: "L".into(), ..one.clone() },
        ] {
            assert_ne!(key(&one), key(&other), "{other:?}");
        }
        assert_eq!(key(&one), key(&one.clone()));
    }
}
