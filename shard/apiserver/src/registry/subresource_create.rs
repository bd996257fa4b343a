//! Creates of subresources whose objects are not stored, such as tokens of service accounts.

use fairlead_process::{Status, StatusReason};
use serde_json::Value;

use super::admission::{Admission, AdmissionOptions, AdmissionRequest, ReviewedManagedFields};
use super::managed_fields::{managed_fields_of, set_managed_fields, take_managed_fields};
use super::ownership::{Ownership, admitted};
use super::write::admission_request;
use super::{StoreRegistry, Target, WriteResult};
use crate::object::ScopeAnnotations;
use crate::request::WriteOptions;
use crate::resource::Verb;

/// A create of a subresource of an object. The creator calls the admission, because only it knows when the new object is
/// complete.
pub struct SubresourceCreate<'c> {
    admission: &'c dyn Admission,
    annotations: ScopeAnnotations,
    target: &'c Target,
    options: &'c WriteOptions,
}

impl<'c> SubresourceCreate<'c> {
    /// A create with the target and the options of its request.
    fn new(
        admission: &'c dyn Admission,
        annotations: ScopeAnnotations,
        target: &'c Target,
        options: &'c WriteOptions,
    ) -> Self {
        Self { admission, annotations, target, options }
    }

    /// The subresource.
    pub fn target(&self) -> &'c Target {
        self.target
    }

    /// Lets mutating admission change the object, which then has the namespace of the request and managedFields.
    ///
    /// # Errors
    /// The refusal.
    pub async fn mutate(&self, object: &mut Value) -> Result<(), Status> {
        let given = &object["metadata"]["namespace"];
        if let Some(namespace) = &self.target.namespace
            && given.as_str().is_none_or(str::is_empty)
        {
            object["metadata"]["namespace"] = (**namespace).into();
        }
        let requested = take_managed_fields(object);
        let ownership = Ownership::new(self.target, self.options.manager(), self.annotations);
        let owners = ownership.of_created(requested.as_ref(), object);
        let managed_fields = ReviewedManagedFields { new: &owners, old: b"" };
        let request = AdmissionRequest { managed_fields, ..self.request()? };
        // Nothing is committed, so mutations of other objects do not apply.
        self.admission.mutate(&request, object, None).await?;
        let owners = admitted(&owners, object, &self.options.warnings);
        set_managed_fields(object, managed_fields_of(&owners)?);
        Ok(())
    }

    /// Asks validating admission.
    ///
    /// # Errors
    /// The refusal.
    pub async fn validate(&self, object: &Value) -> Result<(), Status> {
        self.admission.validate(&self.request()?, Some(object), None).await?;
        Ok(())
    }

    fn request(&self) -> Result<AdmissionRequest<'c>, Status> {
        let name = self.target.name.as_deref().unwrap_or_default();
        let options = AdmissionOptions::Write(self.options);
        Ok(admission_request(self.target, self.target.scope()?, name, Verb::Create, options))
    }
}

impl StoreRegistry {
    /// Subresources such as tokens and evictions are not objects of the resource.
    pub(super) async fn create_subresource(
        &self,
        target: &Target,
        subresource: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        if let Some(creator) = &self.subresources {
            let create =
                SubresourceCreate::new(&*self.admission, self.objects.annotations(), target, options);
            if let Some(response) = creator.create(&create, object).await? {
                return Ok(WriteResult::NotStored(response));
            }
        }
        let message =
            format!("creating {}/{subresource} is not supported yet", target.resource.name.resource);
        Err(Status::new(501, StatusReason::Unknown, message))
    }
}
