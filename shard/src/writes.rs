//! Writes of the shard itself: several objects at once, directly into the store. Objects of one resource are in separate
//! commits ([`ObjectStore::commit`]).
//!
//! Admission is skipped, so callers set the fields that it would set. Shape, defaults, metadata and the labels of
//! permission claims are applied here, so that the stored bytes equal those of a client's write.

use std::sync::Arc;

use fairlead_apiserver::Scope;
use fairlead_apiserver::registry::ServedResource;
use fairlead_apiserver::registry::{ObjectStore, StoredObject};
use fairlead_process::Status;
use fairlead_store::{Change, CommitError, Expect, Mutation, Revision};
use serde_json::{Map, Value};

use crate::index::Definitions;

/// A batch of writes that are committed together. The object that the others belong to is added last.
pub(crate) struct Writes<'s> {
    objects: &'s ObjectStore,
    definitions: &'s Definitions,
    mutations: Vec<Mutation>,
    /// An expectation of each commit.
    required: Option<Mutation>,
    /// Whether [`ensure`](Self::ensure) leaves existing objects as they are.
    keeps_existing: bool,
}

impl<'s> Writes<'s> {
    pub(crate) fn new(objects: &'s ObjectStore, definitions: &'s Definitions) -> Self {
        Self { objects, definitions, mutations: Vec::new(), required: None, keeps_existing: false }
    }

    /// Requires at each commit that an object still has the revision at which it was read.
    pub(crate) fn require(&mut self, resource: &ServedResource, old: &StoredObject, object: &Value) {
        let key = self.key(resource, old.scope.as_str(), object);
        self.required = Some(Mutation::fence(key, Expect::At(old.revision)));
    }

    /// From now on, [`ensure`](Self::ensure) leaves existing objects as they are.
    pub(crate) fn keep_existing(&mut self) {
        self.keeps_existing = true;
    }

    /// Whether the batch is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.mutations.is_empty()
    }

    /// Creates an object; the commit fails if it exists.
    ///
    /// # Errors
    /// 503 if its resource is not served yet.
    pub(crate) fn create(&mut self, cluster: &str, object: Value) -> Result<(), Status> {
        let resource = self.resource_of(&object)?;
        let mut object = with_defaults(&resource, object)?;
        self.definitions.claims().label(cluster, (&resource.name, &resource.origin), &mut object);
        let key = self.key(&resource, cluster, &object);
        let encoded = self.objects.encode(object, resource.schema_hash)?;
        self.mutations.push(Mutation::create(key, encoded.stored().clone()));
        Ok(())
    }

    /// Replaces an object that was read at a revision, unless nothing changes.
    ///
    /// # Errors
    /// 500 if `new` is not an object.
    pub(crate) fn replace(
        &mut self,
        resource: &ServedResource,
        old: &StoredObject,
        mut new: Value,
    ) -> Result<(), Status> {
        self.definitions.claims().label(old.scope.as_str(), (&resource.name, &resource.origin), &mut new);
        let key = self.key(resource, old.scope.as_str(), &new);
        // The shard itself owns no fields; those of clients keep their owners.
        let managed = old.object.as_object().managed_fields();
        let encoded = self.objects.encode_managed(new, resource.schema_hash, managed)?;
        if encoded != old.object {
            self.mutations.push(Mutation::update(key, old.revision, encoded.stored().clone()));
        }
        Ok(())
    }

    /// Replaces an object that was read at a revision. If nothing changes, the commit still requires that revision.
    ///
    /// # Errors
    /// 500 if `new` is not an object.
    pub(crate) fn replace_or_fence(
        &mut self,
        resource: &ServedResource,
        old: &StoredObject,
        new: Value,
    ) -> Result<(), Status> {
        let key = self.key(resource, old.scope.as_str(), &new);
        let before = self.mutations.len();
        self.replace(resource, old, new)?;
        if self.mutations.len() == before {
            self.mutations.push(Mutation::fence(key, Expect::At(old.revision)));
        }
        Ok(())
    }

    /// Removes an object that was read at a revision.
    pub(crate) fn remove(&mut self, resource: &ServedResource, old: &StoredObject, object: &Value) {
        let key = self.key(resource, old.scope.as_str(), object);
        self.mutations.push(Mutation::delete(key, Expect::At(old.revision)));
    }

    /// Adds mutations.
    pub(crate) fn extend(&mut self, mutations: impl IntoIterator<Item = Mutation>) {
        self.mutations.extend(mutations);
    }

    /// Requires at the commit that an object still has the revision at which it was read.
    pub(crate) fn fence(&mut self, resource: &ServedResource, old: &StoredObject, object: &Value) {
        let key = self.key(resource, old.scope.as_str(), object);
        self.mutations.push(Mutation { key, expect: Expect::At(old.revision), change: Change::Keep });
    }

    /// Creates an object, or updates an existing one to the given content. Status and added metadata of an existing
    /// object are kept.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub(crate) fn ensure(&mut self, cluster: &str, object: Value) -> Result<(), Status> {
        let resource = self.resource_of(&object)?;
        let Some(old) = self.stored(&resource, cluster, &object)? else {
            return self.create(cluster, object);
        };
        let annotations = &object["metadata"]["annotations"];
        if self.keeps_existing || !annotations[fairlead_api::annotation::CREATE_ONLY].is_null() {
            return Ok(());
        }
        let desired = with_defaults(&resource, object)?;
        let mut new = self.objects.tree(&old)?;
        let (Some(fields), Some(desired)) = (new.as_object_mut(), desired.as_object()) else { return Ok(()) };
        for (name, value) in desired {
            match name.as_str() {
                "status" | "apiVersion" | "kind" => {}
                "metadata" => merge_metadata(fields, value),
                _ => {
                    fields.insert(name.clone(), value.clone());
                }
            }
        }
        self.replace(&resource, &old, new)
    }

    /// The stored object with the namespace and name of `like`.
    ///
    /// # Errors
    /// 500 if the store cannot be read.
    pub(crate) fn stored(
        &self,
        resource: &ServedResource,
        cluster: &str,
        like: &Value,
    ) -> Result<Option<StoredObject>, Status> {
        let metadata = &like["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        let namespace = metadata["namespace"].as_str();
        self.objects.get(&resource.name, &resource.origin, &Scope::new(cluster), namespace, name)
    }

    /// A stored object as a tree.
    ///
    /// # Errors
    /// 500 if it is malformed.
    pub(crate) fn tree(&self, stored: &StoredObject) -> Result<Value, Status> {
        self.objects.tree(stored)
    }

    /// Commits all writes, as [`ObjectStore::commit`] does.
    ///
    /// # Errors
    /// [`CommitError`]. After a conflict another writer was faster, and the caller must plan again. If a resource has several
    /// objects in the batch, some of them may have been written.
    pub(crate) async fn commit(mut self) -> Result<Revision, CommitError> {
        if self.mutations.is_empty() {
            return Ok(self.objects.store().revision());
        }
        self.mutations.extend(self.required);
        self.objects.commit(self.mutations).await
    }

    /// Commits all writes, in several commits if the store's limits require it: a store on etcd accepts 127 objects at once.
    /// For writers that are repeated until they find nothing to write.
    ///
    /// # Errors
    /// As [`commit`](Self::commit); earlier parts may have been committed.
    pub(crate) async fn commit_in_parts(self) -> Result<Revision, CommitError> {
        let store = self.objects.store();
        let mut revision = store.revision();
        let mut limits = store.limits();
        if let Some(required) = &self.required {
            limits.mutations = limits.mutations.saturating_sub(1);
            limits.bytes = limits.bytes.saturating_sub(required.key.len());
        }
        for mut part in limits.parts(self.mutations) {
            part.extend(self.required.clone());
            revision = self.objects.commit(part).await?;
        }
        Ok(revision)
    }

    /// The resource of an object, by its apiVersion and kind.
    pub(crate) fn resource_of(&self, object: &Value) -> Result<Arc<ServedResource>, Status> {
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let kind = object["kind"].as_str().unwrap_or_default();
        self.definitions.resource_of_kind(group, kind).ok_or_else(|| {
            Status::service_unavailable(format!("{kind} of {api_version} is not served yet"), 1)
        })
    }

    fn key(&self, resource: &ServedResource, cluster: &str, object: &Value) -> bytes::Bytes {
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        self.objects.key(&resource.name, &resource.origin, cluster, metadata["namespace"].as_str(), name)
    }
}

fn with_defaults(resource: &ServedResource, mut object: Value) -> Result<Value, Status> {
    let status = object.get("status").cloned();
    if let Some(version) = object["apiVersion"].as_str().and_then(|text| text.rsplit('/').next())
        && let Some(version) = resource.version(version)
    {
        version.shape.admit(&mut object)?;
    }
    let strategy = &*resource.versions.storage.strategy;
    strategy.prepare_create(&mut object);
    if let (Some(status), Some(fields)) = (status, object.as_object_mut()) {
        fields.insert("status".into(), status);
    }
    if object["metadata"].is_null() {
        object["metadata"] = Value::Object(Map::new());
    }
    let metadata = &mut object["metadata"];
    if metadata["uid"].is_null() {
        metadata["uid"] = uuid::Uuid::new_v4().to_string().into();
    }
    if metadata["creationTimestamp"].is_null() {
        metadata["creationTimestamp"] = now().into();
    }
    if strategy.counts_generations() && metadata["generation"].is_null() {
        metadata["generation"] = 1.into();
    }
    Ok(object)
}

/// The current time in the format of Kubernetes.
pub(crate) fn now() -> String {
    fairlead_api::format_time(jiff::Timestamp::now())
}

fn merge_metadata(fields: &mut Map<String, Value>, desired: &Value) {
    for part in ["labels", "annotations"] {
        for (key, value) in desired[part].as_object().into_iter().flatten() {
            fields["metadata"][part][key] = value.clone();
        }
    }
}
