//! Labels the objects that permission claims cover.
//!
//! kcp's plugin compares the labels once more when it validates, and refuses a difference. It can only come from a claim that
//! has changed since, which is no fault of the client: the controller of claims labels such an object when it is stored.

use fairlead_apiserver::AdmissionRequest;
use fairlead_process::Status;
use serde_json::Value;

use super::ShardAdmission;

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
}
