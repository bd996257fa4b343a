//! Admission of APIExportEndpointSlices: checks the permission to bind the export.

use fairlead_apiserver::AdmissionRequest;
use fairlead_process::Status;
use serde_json::Value;

use super::{ShardAdmission, forbidden};

impl ShardAdmission {
    /// Requires the verb `bind` on the export of a new slice, in the export's logical cluster. All failures have the same
    /// message, so that it does not reveal which exports exist. As in kcp, an export of the slice's own logical cluster may
    /// be created after the slice.
    pub(super) async fn validate_api_export_endpoint_slice(
        &self,
        write: &AdmissionRequest<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if old.is_some_and(|old| old["spec"]["export"] == object["spec"]["export"]) {
            return Ok(());
        }
        let reference = &object["spec"]["export"];
        let export = reference["name"].as_str().unwrap_or_default();
        let path = reference["path"].as_str().unwrap_or_default();
        let shown = if path.is_empty() { export.to_owned() } else { format!("{path}:{export}") };
        let refused = || {
            let message =
                format!("unable to create APIExportEndpointSlice: no permission to bind to export {shown}");
            forbidden(write, message)
        };
        let cluster = match path {
            "" => Some(write.scope.as_str().into()),
            path => self.exports.find(path, export)?.map(|export| export.cluster.clone()),
        };
        let Some(cluster): Option<Box<str>> = cluster else { return Err(refused()) };
        if self.permits_bind(write.user, &cluster, export).await? { Ok(()) } else { Err(refused()) }
    }
}
