//! The selectors of webhooks and policies: labels of the object, and of its namespace.

use fairlead_names::{Origin, ResourceName};
use fairlead_process::Status;
use serde_json::Value;

use crate::registry::{AdmissionRequest, ObjectStore};
use crate::request::LabelSelector;

/// Reads namespaces of the written scope.
pub(in crate::dynamic_admission) struct NamespaceReader {
    objects: ObjectStore,
    resource: ResourceName,
}

/// `namespaceSelector` and `objectSelector`.
#[derive(Debug)]
pub(in crate::dynamic_admission) struct TargetSelectors {
    namespaces: LabelSelector,
    objects: LabelSelector,
}

impl NamespaceReader {
    pub(in crate::dynamic_admission) fn new(objects: ObjectStore) -> Self {
        Self { objects, resource: ResourceName::new("", "namespaces") }
    }

    /// The namespace of the written object; `None` for cluster-scoped objects, namespaces among them, and for a missing
    /// namespace.
    pub(in crate::dynamic_admission) fn namespace_of(
        &self,
        write: &AdmissionRequest<'_>,
    ) -> Result<Option<Value>, Status> {
        let Some(namespace) = write.namespace.filter(|_| !self.is_namespace(write)) else { return Ok(None) };
        let found = self.objects.get(&self.resource, &Origin::BuiltIn, write.scope, None, namespace)?;
        found.map(|found| self.objects.tree(&found)).transpose()
    }

    fn is_namespace(&self, write: &AdmissionRequest<'_>) -> bool {
        write.resource.name == self.resource
    }
}

impl TargetSelectors {
    /// The selectors of a webhook, or of the constraints of a policy. One that cannot be parsed selects everything: a
    /// webhook is called too often rather than not at all.
    pub(in crate::dynamic_admission) fn parse(fields: &Value) -> Self {
        let selector = |field: &str| LabelSelector::of_object(&fields[field]).unwrap_or_default();
        Self { namespaces: selector("namespaceSelector"), objects: selector("objectSelector") }
    }

    /// Whether both selectors select the write: the object before or after it, and the labels of its namespace, or of the
    /// namespace that is the object. Other cluster-scoped objects are not restricted.
    pub(in crate::dynamic_admission) fn select(
        &self,
        namespaces: &NamespaceReader,
        write: &AdmissionRequest<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<bool, Status> {
        let is_selected = |value: Option<&Value>| value.is_some_and(|value| selects(&self.objects, value));
        if !self.objects.is_empty() && !is_selected(object) && !is_selected(old) {
            return Ok(false);
        }
        if self.namespaces.is_empty() {
            return Ok(true);
        }
        if namespaces.is_namespace(write) {
            return Ok(object.or(old).is_some_and(|object| selects(&self.namespaces, object)));
        }
        if write.namespace.is_none() {
            return Ok(true);
        }
        // A write in a missing namespace is refused elsewhere.
        let namespace = namespaces.namespace_of(write)?;
        Ok(namespace.is_some_and(|namespace| selects(&self.namespaces, &namespace)))
    }
}

/// Whether the selector selects the labels of the object.
fn selects(selector: &LabelSelector, object: &Value) -> bool {
    selector.selects(|key| object["metadata"]["labels"].get(key)?.as_str())
}
