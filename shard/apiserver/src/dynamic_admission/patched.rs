//! Accepts an object that a webhook or policy has changed.

use fairlead_process::Status;
use serde_json::{Map, Value};

use crate::object::ScopeAnnotations;
use crate::registry::{
    AdmissionRequest, managed_fields_of, set_managed_fields, take_managed_fields, to_version,
};
use crate::resource::WriteTarget;

/// The largest object that a patch may build by copying.
pub(super) const MAX_PATCHED: usize = 3 << 20;

/// Fields of the metadata that only the server sets.
const SERVER_FIELDS: [&str; 6] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
];

/// An object that has been reviewed and changed.
pub(super) struct PatchedObject<'p> {
    pub(super) before: &'p Value,
    pub(super) after: Value,
    /// The object before an update.
    pub(super) old: Option<&'p Value>,
}

/// The error of a change that a webhook or policy may not make.
#[derive(Debug, thiserror::Error)]
#[error("changed {field}, which identifies the object")]
pub(super) struct IdentityChanged {
    field: String,
}

impl PatchedObject<'_> {
    /// Refuses a change of the identity of the object, and restores the fields that only the server sets.
    pub(super) fn keep_identity(&mut self) -> Result<(), IdentityChanged> {
        for pointer in ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"] {
            if self.before.pointer(pointer) != self.after.pointer(pointer) {
                return Err(IdentityChanged { field: pointer.trim_start_matches('/').replace('/', ".") });
            }
        }
        let Some(metadata) = metadata_of(&mut self.after) else { return Ok(()) };
        for field in SERVER_FIELDS {
            match self.before["metadata"].get(field) {
                Some(value) => metadata.insert(field.to_owned(), value.clone()),
                None => metadata.remove(field),
            };
        }
        Ok(())
    }

    /// Removes the annotations of the scope, which the client does not see.
    pub(super) fn remove_annotations(&mut self, annotations: ScopeAnnotations) {
        let Some(metadata) = metadata_of(&mut self.after) else { return };
        let Some(own) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return };
        for annotation in annotations {
            own.remove(*annotation);
        }
        if own.is_empty() {
            metadata.remove("annotations");
        }
    }

    /// The object in the requested version, without the annotations of its scope, and with defaults. `object` is the object
    /// before; of a changed Scale, it gets the replicas. The result has managedFields only if they are not those that the
    /// write leaves.
    pub(super) async fn into_requested(
        mut self,
        annotations: ScopeAnnotations,
        write: &AdmissionRequest<'_>,
        object: &Value,
    ) -> Result<Value, Status> {
        let managed = take_managed_fields(&mut self.after);
        let mut changed = match write.scale(write.version) {
            Some(scale) => scale.apply(&self.after, object).map_err(Status::internal)?,
            None => self.into_object(annotations, write).await?,
        };
        take_managed_fields(&mut changed);
        if managed != managed_fields_of(write.managed_fields.new)? {
            let managed = managed.unwrap_or_else(|| Value::Array(Vec::new()));
            set_managed_fields(&mut changed, Some(managed));
        }
        Ok(changed)
    }

    /// An object of the written resource or subresource.
    async fn into_object(
        mut self,
        annotations: ScopeAnnotations,
        write: &AdmissionRequest<'_>,
    ) -> Result<Value, Status> {
        self.remove_annotations(annotations);
        if let Some(admitted) =
            write.subresource_of_own_kind().and_then(|subresource| subresource.admit(&mut self.after))
        {
            admitted?;
            return Ok(self.after);
        }
        let mut changed = to_version(write.resource, write.version, self.after).await?;
        if let Some(served) = write.resource.version(write.version) {
            served.shape.admit(&mut changed)?;
        }
        let strategy = write.resource.strategy(write.version);
        match self.old {
            Some(old) => {
                let target = write.subresource.map_or(WriteTarget::Main, WriteTarget::Subresource);
                strategy.prepare_update(target, old, &mut changed);
            }
            None => strategy.prepare_create(&mut changed),
        }
        Ok(changed)
    }
}

/// The metadata, which a patch may have replaced by a value of another type.
fn metadata_of(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("metadata")?.as_object_mut()
}
