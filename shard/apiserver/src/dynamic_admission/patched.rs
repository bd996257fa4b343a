//! Accepts an object that a webhook or policy has changed.

use fairlead_process::Status;
use serde_json::Value;

use crate::object::ScopeAnnotations;
use crate::registry::{AdmissionRequest, to_version};
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
        let Some(metadata) = self.after["metadata"].as_object_mut() else { return Ok(()) };
        for field in SERVER_FIELDS {
            match self.before["metadata"].get(field) {
                Some(value) => metadata.insert(field.to_owned(), value.clone()),
                None => metadata.remove(field),
            };
        }
        Ok(())
    }

    /// The object in the requested version, without the annotations of its scope, and with defaults.
    pub(super) async fn into_requested(
        mut self,
        annotations: ScopeAnnotations,
        write: &AdmissionRequest<'_>,
    ) -> Result<Value, Status> {
        for annotation in annotations {
            if let Some(own) = self.after["metadata"]["annotations"].as_object_mut() {
                own.remove(*annotation);
                if own.is_empty()
                    && let Some(metadata) = self.after["metadata"].as_object_mut()
                {
                    metadata.remove("annotations");
                }
            }
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
