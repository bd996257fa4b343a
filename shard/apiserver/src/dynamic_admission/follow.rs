//! Follows the objects of a resource in all scopes: those of the store, and those of other servers that the host sets.

use std::sync::Arc;

use fairlead_names::{Origin, ResourceName};
use fairlead_process::Status;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;

use crate::hub::{Hub, ObjectChange, ObjectEvent};
use crate::object::EncodedObject;
use crate::registry::{ObjectStore, StoredObject};
use crate::scope::{Scope, ScopeSelector};

/// Receives the state of objects, by scope and name; `None` for a deleted one.
pub(super) type Receiver = dyn Fn(&str, &str, Option<&Value>) + Send + Sync;

/// A built-in resource whose objects are followed.
pub(super) struct FollowedResource {
    objects: ObjectStore,
    pub(super) resource: ResourceName,
    receiver: Arc<Receiver>,
    /// The names of the objects of other servers, by scope. Locked while the receiver is called, so that the receiver gets the changes
    /// of one object in their order.
    remote: Mutex<FxHashMap<Box<str>, FxHashSet<Box<str>>>>,
}

/// Reads all objects of a built-in resource and follows their events. To be called before the hub runs.
pub(super) fn follow(
    objects: &ObjectStore,
    hub: &Hub,
    resource: ResourceName,
    receiver: Arc<Receiver>,
) -> Result<Arc<FollowedResource>, Status> {
    let mut found = Vec::new();
    objects.for_each(&resource, &Origin::BuiltIn, &ScopeSelector::all(), &mut |listed| {
        let object = EncodedObject::copied(listed.object);
        found.push(StoredObject { object, revision: listed.revision, scope: Scope::new(listed.scope) });
    })?;
    for stored in found {
        let object = objects.tree(&stored)?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        receiver(stored.scope.as_str(), name, Some(&object));
    }
    let followed = Arc::new(FollowedResource {
        objects: objects.clone(),
        resource: resource.clone(),
        receiver,
        remote: Mutex::default(),
    });
    let follower = Arc::clone(&followed);
    hub.observe(resource, Box::new(move |event: &ObjectEvent| follower.observe(event)));
    Ok(followed)
}

impl FollowedResource {
    /// Replaces the objects of other servers in a scope. An object of the store takes precedence over one with its name.
    pub(super) fn set_remote(&self, scope: &str, objects: &[Arc<Value>]) -> Result<(), Status> {
        let mut remote = self.remote.lock();
        let scope_of_objects = Scope::new(scope);
        let mut named = FxHashMap::<Box<str>, &Value>::default();
        for object in objects {
            let Some(name) = object["metadata"]["name"].as_str() else { continue };
            let stored = self.objects.get(&self.resource, &Origin::BuiltIn, &scope_of_objects, None, name)?;
            // The event of a stored object follows, if it has not come already.
            if stored.is_none() {
                named.insert(name.into(), object);
            }
        }
        for name in remote.remove(scope).unwrap_or_default() {
            if !named.contains_key(&name) {
                (self.receiver)(scope, &name, None);
            }
        }
        for (name, object) in &named {
            (self.receiver)(scope, name, Some(object));
        }
        if !named.is_empty() {
            remote.insert(scope.into(), named.into_keys().collect());
        }
        Ok(())
    }

    fn observe(&self, event: &ObjectEvent) {
        let mut remote = self.remote.lock();
        if let Some(names) = remote.get_mut(&*event.scope) {
            names.remove(&*event.name);
            if names.is_empty() {
                remote.remove(&*event.scope);
            }
        }
        let object = match &event.change {
            ObjectChange::Deleted(_) => return (self.receiver)(&event.scope, &event.name, None),
            ObjectChange::Created(object) | ObjectChange::Updated { object, .. } => object.clone(),
        };
        let stored = StoredObject { object, revision: event.revision, scope: Scope::new(&event.scope) };
        match self.objects.tree(&stored) {
            Ok(object) => (self.receiver)(&event.scope, &event.name, Some(&object)),
            Err(status) => {
                let (resource, scope, name) = (&event.resource, &event.scope, &event.name);
                tracing::error!(%resource, %scope, %name, error = %status.message, "skipped a malformed object");
            }
        }
    }
}
