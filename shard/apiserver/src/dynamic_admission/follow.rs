//! Follows the objects of a resource in all scopes.

use std::sync::Arc;

use fairlead_names::{Origin, ResourceName};
use fairlead_process::Status;
use serde_json::Value;

use crate::hub::{Hub, ObjectChange, ObjectEvent};
use crate::object::EncodedObject;
use crate::registry::{ObjectStore, StoredObject};
use crate::scope::{Scope, ScopeSelector};

/// Receives the state of objects, by scope and name; `None` for a deleted one.
pub(super) type Receiver = dyn Fn(&str, &str, Option<&Value>) + Send + Sync;

/// Reads all objects of a built-in resource and follows their events. To be called before the hub runs.
pub(super) fn follow(
    objects: &ObjectStore,
    hub: &Hub,
    resource: ResourceName,
    receiver: Arc<Receiver>,
) -> Result<(), Status> {
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
    let objects = objects.clone();
    hub.observe(resource, Box::new(move |event: &ObjectEvent| observe(&objects, event, &*receiver)));
    Ok(())
}

fn observe(objects: &ObjectStore, event: &ObjectEvent, receiver: &Receiver) {
    let object = match &event.change {
        ObjectChange::Deleted(_) => return receiver(&event.scope, &event.name, None),
        ObjectChange::Created(object) | ObjectChange::Updated { object, .. } => object.clone(),
    };
    let stored = StoredObject { object, revision: event.revision, scope: Scope::new(&event.scope) };
    match objects.tree(&stored) {
        Ok(object) => receiver(&event.scope, &event.name, Some(&object)),
        Err(status) => {
            let (resource, scope, name) = (&event.resource, &event.scope, &event.name);
            tracing::error!(%resource, %scope, %name, error = %status.message, "skipped a malformed object");
        }
    }
}
