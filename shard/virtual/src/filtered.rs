//! A resource of which a view shows and writes only some objects.

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::object::{ObjectBytes, ObjectMetaRef};
use fairlead_apiserver::registry::{
    AppliedConfiguration, Change, DeleteResult, DeletedCollection, ListCursor, OpenWatch, Registry,
    ServedResource, StoredObject, Target, WatchEnd, WriteResult,
};
use fairlead_apiserver::request::{
    DeleteOptions, Guard, LabelSelector, ListOptions, WriteGuard, WriteOptions,
};
use fairlead_apiserver::resource::Verbs;
use fairlead_authn::Identity;
use fairlead_process::{GroupResource, Status};
use fairlead_store::Revision;
use serde_json::Value;

/// The rules of a view for one resource.
pub trait ViewRules: Send + Sync + 'static {
    /// The labels of the objects that the view has. The first `key=value` term is the one by which the hub indexes watches.
    fn labels(&self) -> &LabelSelector;

    /// Whether the view has only objects that are being deleted.
    fn only_deleting(&self) -> bool {
        false
    }

    /// The resource in the logical clusters of a request. `None`: the one that was given to [`filtered`].
    ///
    /// # Errors
    /// 404 if the logical cluster does not serve it.
    fn resource(&self, _target: &Target) -> Result<Option<Arc<ServedResource>>, Status> {
        Ok(None)
    }

    /// The identity under which the registry carries out a request; that of the client by default.
    fn identity(&self, target: &Target) -> Arc<Identity> {
        Arc::clone(&target.identity)
    }

    /// Checks the new state of an object that the view has, and may amend it. `old` is `None` for a create. Called in each attempt of
    /// the write.
    ///
    /// # Errors
    /// The refusal.
    fn change(
        &self,
        _target: &Target,
        _name: &str,
        _old: Option<&Value>,
        _new: &mut Value,
    ) -> Result<(), Status> {
        Ok(())
    }

    /// Checks the delete of an object that the view has.
    ///
    /// # Errors
    /// The refusal.
    fn delete(&self, _target: &Target, _name: &str, _old: &Value) -> Result<(), Status> {
        Ok(())
    }
}

/// A selector is a rule by itself: the view has the objects that it selects, and permits every change of them that its verbs do.
impl ViewRules for LabelSelector {
    fn labels(&self) -> &LabelSelector {
        self
    }
}

/// A resource with these verbs, restricted by rules. `subresource` returns the verbs of its subresources by name; `None`: the view does
/// not have it.
pub fn filtered(
    inner: Arc<ServedResource>,
    verbs: Verbs,
    subresource: impl Fn(&str) -> Option<Verbs>,
    rules: Arc<dyn ViewRules>,
) -> ServedResource {
    let registry = Filtered { inner: Arc::clone(&inner), rules };
    inner.view(verbs, subresource, Arc::new(registry))
}

/// The registry of a filtered resource.
struct Filtered {
    inner: Arc<ServedResource>,
    rules: Arc<dyn ViewRules>,
}

impl Filtered {
    /// The request to the unfiltered resource. A view shows one origin, also to clients that request only metadata.
    fn inner_target(&self, target: &Target) -> Result<Target, Status> {
        let own = self.rules.resource(target)?;
        Ok(Target {
            resource: own.unwrap_or_else(|| Arc::clone(&self.inner)),
            identity: self.rules.identity(target),
            spans_origins: false,
            ..target.clone()
        })
    }

    fn narrowed(&self, options: &ListOptions) -> ListOptions {
        ListOptions {
            labels: self.rules.labels().and(&options.labels),
            only_deleting: options.only_deleting || self.rules.only_deleting(),
            ..options.clone()
        }
    }

    fn guard(&self, target: &Target, outer: &Guard) -> Guard {
        let rules = Arc::clone(&self.rules);
        Guard::new(Arc::new(FilterGuard { rules, target: target.clone(), outer: outer.clone() }))
    }

    fn guarded(&self, target: &Target, options: &WriteOptions) -> WriteOptions {
        WriteOptions { guard: self.guard(target, &options.guard), ..options.clone() }
    }
}

#[async_trait]
impl Registry for Filtered {
    async fn get(
        &self,
        target: &Target,
        name: &str,
        at_least: Option<Revision>,
    ) -> Result<StoredObject, Status> {
        let inner = self.inner_target(target)?;
        let found = inner.resource.registry.get(&inner, name, at_least).await?;
        if has(&*self.rules, found.object.as_object()) { Ok(found) } else { Err(not_found(target, name)) }
    }

    async fn list(&self, target: &Target, options: &ListOptions) -> Result<Box<dyn ListCursor>, Status> {
        let inner = self.inner_target(target)?;
        inner.resource.registry.list(&inner, &self.narrowed(options)).await
    }

    async fn watch(
        &self,
        target: &Target,
        options: &ListOptions,
        until: WatchEnd,
    ) -> Result<OpenWatch, Status> {
        let narrowed = self.narrowed(options);
        let inner = self.inner_target(target)?;
        let mut watch = inner.resource.registry.watch(&inner, &narrowed, until).await?;
        watch.selection.get_or_insert_with(|| Box::new(narrowed));
        Ok(watch)
    }

    async fn create(
        &self,
        target: &Target,
        object: Value,
        options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        let options = self.guarded(target, options);
        let inner = self.inner_target(target)?;
        inner.resource.registry.create(&inner, object, &options).await
    }

    async fn update(
        &self,
        target: &Target,
        name: &str,
        change: &Change<'_>,
        options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        let options = self.guarded(target, options);
        let inner = self.inner_target(target)?;
        inner.resource.registry.update(&inner, name, change, &options).await
    }

    async fn apply(
        &self,
        target: &Target,
        name: &str,
        configuration: &AppliedConfiguration<'_>,
        options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        let options = self.guarded(target, options);
        let inner = self.inner_target(target)?;
        inner.resource.registry.apply(&inner, name, configuration, &options).await
    }

    async fn delete(
        &self,
        target: &Target,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<DeleteResult, Status> {
        let options = DeleteOptions { guard: self.guard(target, &options.guard), ..options.clone() };
        let inner = self.inner_target(target)?;
        inner.resource.registry.delete(&inner, name, &options).await
    }

    async fn delete_collection(
        &self,
        target: &Target,
        selection: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<DeletedCollection, Status> {
        let options = DeleteOptions { guard: self.guard(target, &options.guard), ..options.clone() };
        let selection = self.narrowed(selection);
        let inner = self.inner_target(target)?;
        inner.resource.registry.delete_collection(&inner, &selection, &options).await
    }
}

/// The rules of a view for one write.
struct FilterGuard {
    rules: Arc<dyn ViewRules>,
    target: Target,
    /// The guard of a view of this view.
    outer: Guard,
}

impl WriteGuard for FilterGuard {
    fn admit(&self, name: &str, current: &Value) -> Result<(), Status> {
        let metadata = &current["metadata"];
        let is_deleting = metadata["deletionTimestamp"].is_string();
        let is_labelled = self.rules.labels().selects(|key| metadata["labels"][key].as_str());
        if !is_labelled || (self.rules.only_deleting() && !is_deleting) {
            return Err(not_found(&self.target, name));
        }
        self.outer.get().map_or(Ok(()), |outer| outer.admit(name, current))
    }

    fn change(&self, name: &str, old: Option<&Value>, new: &mut Value) -> Result<(), Status> {
        if let Some(outer) = self.outer.get() {
            outer.change(name, old, new)?;
        }
        self.rules.change(&self.target, name, old, new)
    }

    fn delete(&self, name: &str, old: &Value) -> Result<(), Status> {
        if let Some(outer) = self.outer.get() {
            outer.delete(name, old)?;
        }
        self.rules.delete(&self.target, name, old)
    }
}

fn has(rules: &dyn ViewRules, object: ObjectBytes<'_>) -> bool {
    ObjectMetaRef::parse(object).is_ok_and(|meta| {
        rules.labels().selects(|key| meta.label(key))
            && (!rules.only_deleting() || meta.deletion_timestamp.is_some())
    })
}

fn not_found(target: &Target, name: &str) -> Status {
    let resource = &target.resource.name;
    Status::not_found(GroupResource::new(&resource.group, &resource.resource), name)
}
