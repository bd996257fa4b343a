//! Admission of WorkspaceTypes: reserved names, complete references, and the permission to bind default exports.

use fairlead_apiserver::AdmissionRequest;
use fairlead_process::Status;
use serde_json::Value;

use super::{ShardAdmission, forbidden, is_master};

impl ShardAdmission {
    /// Refuses incomplete types, and default bindings to exports that the writer may not bind.
    pub(super) async fn validate_workspace_type(
        &self,
        write: &AdmissionRequest<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if write.name == "root" && write.scope.as_str() != "root" {
            return Err(forbidden(write, "root workspace type can only be created in root"));
        }
        let spec = &object["spec"];
        let mut references = vec![("defaultChildWorkspaceType", &spec["defaultChildWorkspaceType"])];
        for limit in ["limitAllowedChildren", "limitAllowedParents"] {
            references.extend(spec[limit]["types"].as_array().into_iter().flatten().map(|one| (limit, one)));
        }
        for (field, reference) in references {
            if reference.is_object() && reference["path"].as_str().is_none_or(str::is_empty) {
                return Err(forbidden(write, format!("spec.{field}.path must be set")));
            }
        }
        if is_master(write) {
            return Ok(());
        }
        let bindings = |of: &Value| of["spec"]["defaultAPIBindings"].as_array().cloned().unwrap_or_default();
        let before = old.map(bindings).unwrap_or_default();
        for binding in bindings(object).iter().filter(|binding| !before.contains(binding)) {
            let export = binding["export"].as_str().unwrap_or_default();
            let path = binding["path"].as_str().filter(|path| !path.is_empty());
            // The export need not exist yet.
            let cluster = match path {
                None => Some(write.scope.as_str().into()),
                Some(path) => self.exports.workspace(path),
            };
            let is_permitted = match cluster {
                Some(cluster) => self.permits_bind(write.user, &cluster, export).await?,
                None => false,
            };
            if !is_permitted {
                let shown = path.map_or_else(|| export.to_owned(), |path| format!("{path}:{export}"));
                let message = format!(
                    "unable to create or update WorkspaceType: no permission to bind to export {shown}"
                );
                return Err(forbidden(write, message));
            }
        }
        Ok(())
    }
}
