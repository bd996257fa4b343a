//! Admission of Workspaces: sets owner and type, and checks the type against user and parent.

use fairlead_api::{LocatedType, TypeReference, annotation};
use fairlead_apiserver::resource::Verb;
use fairlead_apiserver::{Action, AdmissionRequest};
use fairlead_process::Status;
use serde_json::{Value, json};

use super::{ShardAdmission, forbidden, is_master};
use crate::workspace_types::type_reference;

impl ShardAdmission {
    /// Sets owner, required groups, type and the type's labels.
    pub(super) fn mutate_workspace(
        &self,
        write: &AdmissionRequest<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if old.is_some() || write.verb != Verb::Create {
            return Ok(());
        }
        let parent = self.clusters.get(write.scope.as_str());
        if !is_master(write) {
            let owner = serde_json::to_string(write.user).map_err(Status::internal)?;
            object["metadata"]["annotations"][annotation::OWNER] = owner.into();
        }
        if let Some(required) = parent.as_ref().and_then(|parent| parent.required_groups.as_deref()) {
            object["metadata"]["annotations"][annotation::REQUIRED_GROUPS] = required.into();
        }
        if !takes_type(&object["spec"]) {
            return Ok(());
        }
        let own = self.type_of(write, object)?;
        // A path in the request stays as the client wrote it, which may be the name of a logical cluster.
        let requested = object["spec"]["type"]["path"].as_str().filter(|path| !path.is_empty());
        let path = requested.unwrap_or(&own.path).to_owned();
        object["spec"]["type"] = json!({"name": own.name, "path": path});
        for (key, value) in &own.spec.additional_workspace_labels {
            let labels = &mut object["metadata"]["labels"];
            if labels[key].is_null() {
                labels[key] = value.as_str().into();
            }
        }
        Ok(())
    }

    /// Refuses changes of system fields, types that the user may not use, and types that the parent does not allow.
    pub(super) async fn validate_workspace(
        &self,
        write: &AdmissionRequest<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let system_field = |name: &str| {
            let before = old.map_or(&Value::Null, |old| &old["spec"][name]);
            let is_set = object["spec"][name].as_str().is_some_and(|text| !text.is_empty());
            object["spec"][name] != *before && (is_set || before.is_string())
        };
        for (name, shown) in [("cluster", "spec.cluster"), ("URL", "spec.URL")] {
            if system_field(name) && !is_master(write) {
                let message = if old.is_some() {
                    format!("{shown} can only be changed by system privileged users")
                } else {
                    format!("{shown} can only be set by system privileged users")
                };
                return Err(forbidden(write, message));
            }
        }
        // These annotations determine which logical cluster is deleted with the workspace.
        for key in [annotation::SHARD, annotation::SHARD_HASH, annotation::WORKSPACE_CLUSTER] {
            let before = old.map_or(&Value::Null, |old| &old["metadata"]["annotations"][key]);
            if object["metadata"]["annotations"][key] != *before && !is_master(write) {
                let message = format!("annotation {key} can only be changed by system privileged users");
                return Err(forbidden(write, message));
            }
        }
        let is_mount = object["spec"]["mount"].is_object();
        if let Some(old) = old {
            if !is_mount && object["spec"]["type"] != old["spec"]["type"] {
                return Err(forbidden(write, "spec.type is immutable"));
            }
            let leaves = old["status"]["phase"] == "Scheduling" && object["status"]["phase"] != "Scheduling";
            let placed = ["cluster", "URL"].iter().all(|name| object["spec"][*name].is_string());
            if leaves && !placed && !is_mount && object["status"]["phase"] == "Ready" {
                return Err(forbidden(write, "spec.cluster and spec.URL must be set for phase Ready"));
            }
            return Ok(());
        }
        if is_mount {
            return Err(forbidden(write, "mounts are not supported yet"));
        }
        if write.verb == Verb::Create { self.validate_type(write, object).await } else { Ok(()) }
    }

    async fn validate_type(&self, write: &AdmissionRequest<'_>, object: &Value) -> Result<(), Status> {
        let own = self.type_of(write, object)?;
        let child = self.aliases_of(write, own)?;
        for alias in &child {
            let using = Action::Resource {
                verb: "use",
                group: "tenancy.kcp.io",
                version: "v1alpha1",
                resource: "workspacetypes",
                subresource: None,
                namespace: None,
                name: Some(&alias.name),
            };
            if !self.authorizer()?.permits_deep(write.user, &alias.cluster, &using).await {
                let message = format!(
                    "unable to use workspace type {}: missing verb='use' permission on workspacetype",
                    alias.reference()
                );
                return Err(forbidden(write, message));
            }
        }
        let parent = self.clusters.get(write.scope.as_str());
        let Some(parent) = parent.as_ref().and_then(|parent| parent.type_reference.as_deref()) else {
            return Ok(());
        };
        let Some(parent) = self.types.find(&type_reference(parent))? else {
            return Err(forbidden(write, format!("workspace type {parent} cannot be resolved")));
        };
        let parent = self.aliases_of(write, parent)?;
        fairlead_api::check_parent_and_child(&parent, &child).map_err(|error| forbidden(write, error))
    }

    /// The type in the Workspace's spec, or the default type for children of its parent.
    fn type_of(&self, write: &AdmissionRequest<'_>, object: &Value) -> Result<LocatedType, Status> {
        let parent = self.clusters.get(write.scope.as_str());
        let Some(parent) = parent else {
            return Err(forbidden(
                write,
                "workspace type cannot be resolved: there is no LogicalCluster here",
            ));
        };
        let own = &object["spec"]["type"];
        let (name, path) =
            (own["name"].as_str().unwrap_or_default(), own["path"].as_str().unwrap_or_default());
        let (name, path) = if name.is_empty() {
            let parent_type = parent.type_reference.as_deref().map(type_reference);
            let parent_type = match parent_type {
                Some(parent_type) => self.types.find(&parent_type)?,
                None => None,
            };
            let default = parent_type.and_then(|parent| parent.spec.default_child_workspace_type);
            let Some(default) = default else {
                return Err(forbidden(
                    write,
                    "spec.type must be set, because the type of this workspace has no default for its children",
                ));
            };
            (default.name, default.path)
        } else {
            (name.to_owned(), path.to_owned())
        };
        let found = if path.is_empty() {
            self.types.search(parent.path.as_deref().unwrap_or(write.scope.as_str()), &name)?
        } else {
            self.types.find(&TypeReference { name: name.clone(), path: path.clone() })?
        };
        found.ok_or_else(|| {
            let shown = if path.is_empty() { name } else { format!("{path}:{name}") };
            forbidden(write, format!("workspace type {shown:?} cannot be resolved"))
        })
    }

    fn aliases_of(&self, write: &AdmissionRequest<'_>, own: LocatedType) -> Result<Vec<LocatedType>, Status> {
        self.types.aliases(own)?.map_err(|error| forbidden(write, error))
    }
}

/// Whether admission sets the type: not beside a mount, and not in a spec that is no object, which validation refuses
/// later.
fn takes_type(spec: &Value) -> bool {
    match spec {
        Value::Null => true,
        Value::Object(fields) => !fields.get("mount").is_some_and(Value::is_object),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_specs_that_can_have_a_type_get_one() {
        for (spec, expected) in [
            (json!(null), true),
            (json!({"type": "x"}), true),
            (json!({"mount": {}}), false),
            (json!("x"), false),
            (json!([{}]), false),
        ] {
            assert_eq!(takes_type(&spec), expected, "{spec}");
            let mut object = json!({"spec": spec});
            if expected {
                object["spec"]["type"] = json!({});
            }
        }
    }
}
