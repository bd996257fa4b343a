//! Refuses creates in a namespace that is missing or terminating.

use fairlead_names::{Origin, ResourceName};
use fairlead_process::{GroupResource, Status, StatusCause, StatusDetails};
use fairlead_store::{Expect, Mutation};

use super::ObjectStore;
use super::admission::AdmissionRequest;
use crate::object::ObjectMetaRef;
use crate::resource::Verb;

/// The admission plugin NamespaceLifecycle of Kubernetes.
#[derive(Clone)]
pub struct NamespaceLifecycle {
    objects: ObjectStore,
    namespaces: ResourceName,
}

impl NamespaceLifecycle {
    /// Looks namespaces up in `objects`.
    pub fn new(objects: ObjectStore) -> Self {
        Self { objects, namespaces: ResourceName::new("", "namespaces") }
    }

    /// Refuses a create in a missing or terminating namespace. Otherwise returns a fence on the namespace,
    /// so that no object is created in a namespace that is being deleted. Costs one read.
    ///
    /// # Errors
    /// 404 or 403.
    pub fn validate(&self, write: &AdmissionRequest<'_>) -> Result<Option<Mutation>, Status> {
        let (Verb::Create, Some(namespace)) = (write.verb, write.namespace) else {
            return Ok(None);
        };
        let found = self.objects.get(&self.namespaces, &Origin::BuiltIn, write.scope, None, namespace)?;
        let Some(found) = found else {
            return Err(Status::not_found(GroupResource::new("", "namespaces"), namespace));
        };
        let meta = ObjectMetaRef::parse(found.object.as_object()).map_err(Status::internal)?;
        if meta.deletion_timestamp.is_some() {
            let name = &write.resource.name;
            let reason = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            let status =
                Status::forbidden(GroupResource::new(&name.group, &name.resource), write.name, reason);
            let details = StatusDetails {
                name: write.name.to_owned(),
                group: name.group.to_string(),
                kind: name.resource.to_string(),
                causes: vec![StatusCause::field(
                    "NamespaceTerminating",
                    "metadata.namespace",
                    format!("namespace {namespace} is being terminated"),
                )],
                ..StatusDetails::default()
            };
            return Err(status.with_details(details));
        }
        let key = self.objects.key(&self.namespaces, &Origin::BuiltIn, write.scope.as_str(), None, namespace);
        Ok(Some(Mutation::fence(key, Expect::At(found.revision))))
    }
}
