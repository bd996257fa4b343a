//! Objects in a store, by name. Registries and controllers read and write through this.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use fairlead_names::{KeyCodec, Origin, ResourceName};
use fairlead_process::Status;
use fairlead_store::{Expect, Mutation, Range, ReadError, Record, Revision, Store};
use serde_json::Value;

use super::ListedObject;
use super::managed_fields::{managed_fields_of, set_managed_fields};
use crate::object::{EncodedObject, MalformedObject, ObjectBytes, ScopeAnnotations};
use crate::scope::{Scope, ScopeSelector};

/// An object with its revision and scope.
#[derive(Clone, Debug)]
pub struct StoredObject {
    /// The object.
    pub object: EncodedObject,
    /// The commit that last changed it: its resourceVersion.
    pub revision: Revision,
    /// Its scope.
    pub scope: Scope,
}

/// Reads and writes a store as objects. Cheap to clone.
#[derive(Clone)]
pub struct ObjectStore {
    store: Arc<dyn Store>,
    codec: KeyCodec,
    annotations: ScopeAnnotations,
}

impl ObjectStore {
    /// Objects in `store` with keys of `codec`; responses have `annotations` for the scope.
    pub fn new(store: Arc<dyn Store>, codec: KeyCodec, annotations: ScopeAnnotations) -> Self {
        debug_assert_eq!(codec.scope_segments(), annotations.len());
        Self { store, codec, annotations }
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The key layout.
    pub fn codec(&self) -> &KeyCodec {
        &self.codec
    }

    /// The annotations that carry the scope.
    pub fn annotations(&self) -> ScopeAnnotations {
        self.annotations
    }

    /// The key of an object.
    pub fn key(
        &self,
        resource: &ResourceName,
        origin: &Origin,
        scope: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Bytes {
        self.codec.object(resource, origin, scope, namespace, name).into()
    }

    /// Reads an object; `None` if it does not exist.
    ///
    /// # Errors
    /// 500 when the store cannot be read.
    pub fn get(
        &self,
        resource: &ResourceName,
        origin: &Origin,
        scope: &Scope,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<StoredObject>, Status> {
        let key = self.codec.object(resource, origin, scope.as_str(), namespace, name);
        self.get_by_key(key.as_bytes(), scope)
    }

    /// Reads an object by its key; `None` if it does not exist.
    ///
    /// # Errors
    /// 500 when the store cannot be read.
    pub fn get_by_key(&self, key: &[u8], scope: &Scope) -> Result<Option<StoredObject>, Status> {
        let record = self.store.get(key).map_err(|error| read_status(&error))?;
        record.map(|record| Self::object_of(record, scope.clone())).transpose()
    }

    /// Visits a range of keys at a revision, selected scopes only. Returns the revision read.
    ///
    /// # Errors
    /// The [`ReadError`] of the store; see [`read_status`].
    pub(crate) fn visit(
        &self,
        range: &Range,
        scopes: &ScopeSelector,
        at: Option<Revision>,
        visit: &mut dyn FnMut(&[u8], ListedObject<'_>) -> ControlFlow<()>,
    ) -> Result<Revision, ReadError> {
        self.store.scan(range, at, &mut |record| {
            let Ok(object) = ObjectBytes::parse(record.value) else {
                tracing::error!(key = %String::from_utf8_lossy(record.key), "skipped a malformed stored object");
                return ControlFlow::Continue(());
            };
            let Ok(key) = self.codec.decode(record.key) else {
                return ControlFlow::Continue(());
            };
            if !scopes.selects(key.scope) {
                return ControlFlow::Continue(());
            }
            visit(record.key, ListedObject { object, revision: record.modified, scope: key.scope })
        })
    }

    /// All objects of a resource in the selected scopes (and one namespace), copied.
    ///
    /// # Errors
    /// 500 when the store cannot be read.
    pub fn list(
        &self,
        resource: &ResourceName,
        origin: &Origin,
        scopes: &ScopeSelector,
        namespace: Option<&str>,
    ) -> Result<Vec<StoredObject>, Status> {
        let prefix = self.codec.range(resource, origin, scopes.leading(), namespace);
        let mut objects = Vec::new();
        let mut collect = StoredObject::collect_into(&mut objects);
        self.visit(&Range::prefix(prefix), scopes, None, &mut |_, listed| collect(listed))
            .map_err(|error| read_status(&error))?;
        drop(collect);
        Ok(objects)
    }

    /// Visits the latest state of all objects of a resource in the selected scopes, without copying them. The
    /// visitor must be short: it is called under a read transaction.
    ///
    /// # Errors
    /// 500 when the store cannot be read.
    pub fn for_each(
        &self,
        resource: &ResourceName,
        origin: &Origin,
        scopes: &ScopeSelector,
        visit: &mut dyn FnMut(ListedObject<'_>),
    ) -> Result<(), Status> {
        let range = Range::prefix(self.codec.range(resource, origin, scopes.leading(), None));
        let mut visit = |_: &[u8], listed: ListedObject<'_>| {
            visit(listed);
            ControlFlow::Continue(())
        };
        self.visit(&range, scopes, None, &mut visit).map(drop).map_err(|error| read_status(&error))
    }

    /// Encodes a tree for a mutation that creates or replaces it.
    ///
    /// # Errors
    /// 500 when it is no object.
    pub fn encode(&self, object: Value, schema_hash: u64) -> Result<EncodedObject, Status> {
        self.encode_managed(object, schema_hash, b"")
    }

    /// [`encode`](Self::encode) with `metadata.managedFields`, as JSON. A writer that does not track them passes those of
    /// the object that it replaces.
    ///
    /// # Errors
    /// 500 when it is no object.
    pub fn encode_managed(
        &self,
        mut object: Value,
        schema_hash: u64,
        managed_fields: &[u8],
    ) -> Result<EncodedObject, Status> {
        EncodedObject::strip(&mut object, self.annotations);
        crate::object::encode_managed(&object, schema_hash, managed_fields)
            .map_err(|error| malformed_status(&error))
    }

    /// A stored object as a tree with resourceVersion and scope annotations.
    ///
    /// # Errors
    /// 500 when it is malformed.
    pub fn tree(&self, stored: &StoredObject) -> Result<Value, Status> {
        let object = stored.object.as_object();
        object
            .to_value(stored.revision, stored.scope.as_str(), self.annotations)
            .map_err(|error| malformed_status(&error))
    }

    /// A stored object as [`tree`](Self::tree) and with its `metadata.managedFields`.
    ///
    /// # Errors
    /// 500 when it is malformed.
    pub fn tree_with_managed_fields(&self, stored: &StoredObject) -> Result<Value, Status> {
        let mut tree = self.tree(stored)?;
        set_managed_fields(&mut tree, managed_fields_of(stored.object.as_object().managed_fields())?);
        Ok(tree)
    }

    fn object_of(record: Record, scope: Scope) -> Result<StoredObject, Status> {
        let object = EncodedObject::parse(record.value).map_err(|error| malformed_status(&error))?;
        Ok(StoredObject { object, revision: record.modified, scope })
    }
}

/// A mutation that writes an object at a key.
pub(crate) fn put(key: Bytes, expect: Expect, object: &EncodedObject) -> Mutation {
    Mutation { key, expect, change: fairlead_store::Change::Put(object.stored().clone()) }
}

/// The `Status` of a failed read.
pub(crate) fn read_status(error: &ReadError) -> Status {
    match error {
        ReadError::Compacted { oldest } => {
            Status::expired(format!("the requested history is gone; the oldest revision is {oldest}"))
        }
        ReadError::Future { current } => Status::internal(format!("the store is only at revision {current}")),
        // Another replica can serve it, or this one after it has been started again.
        ReadError::Unavailable(_) => Status::service_unavailable("the store is not available", 1),
        ReadError::Io(cause) | ReadError::Corrupt(cause) => Status::internal(cause),
    }
}

pub(crate) fn malformed_status(error: &MalformedObject) -> Status {
    Status::internal(error)
}
