//! Labels the objects that permission claims cover, and refuses other claim labels.

use fairlead_apiserver::AdmissionRequest;
use fairlead_process::Status;
use serde_json::Value;

use super::{ShardAdmission, forbidden};

impl ShardAdmission {
    /// Sets the claim labels of the object. Called after webhooks and policies, whose labels the selectors of claims may select. The
    /// labels have no field manager, and depend on nothing in the request, so that equal writes stay equal.
    pub(super) fn set_claim_labels(
        &self,
        write: &AdmissionRequest<'_>,
        object: &mut Value,
    ) -> Result<(), Status> {
        if write.subresource.is_none() {
            let resource = (&write.resource.name, &write.resource.origin);
            self.authorizer()?.definitions().claims().label(write.scope.as_str(), resource, object);
        }
        Ok(())
    }

    /// Refuses an object whose claim labels differ from those of the claims.
    pub(super) fn validate_claim_labels(
        &self,
        write: &AdmissionRequest<'_>,
        object: &Value,
    ) -> Result<(), Status> {
        if write.subresource.is_some() {
            return Ok(());
        }
        let resource = (&write.resource.name, &write.resource.origin);
        let claims = self.authorizer()?.definitions().claims();
        match claims.difference(write.scope.as_str(), resource, object) {
            Some(difference) => Err(forbidden(write, difference)),
            None => Ok(()),
        }
    }
}
