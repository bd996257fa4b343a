//! Admission of APIBindings: sets the label of the export and the finalizer, and checks the permission to bind.

use fairlead_api::{finalizer, label};
use fairlead_apiserver::AdmissionRequest;
use fairlead_process::Status;
use serde_json::{Value, json};

use super::{ShardAdmission, forbidden};

impl ShardAdmission {
    /// Adds the finalizer and the label by which the bindings of an export are found.
    pub(super) fn mutate_api_binding(
        &self,
        write: &AdmissionRequest<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(export) = object["spec"]["reference"]["export"]["name"].as_str().map(str::to_owned) else {
            return Ok(());
        };
        let reference = &object["spec"]["reference"];
        let known = old.filter(|old| old["spec"]["reference"] == *reference);
        let known =
            known.and_then(|old| old["metadata"]["labels"][label::EXPORT].as_str().map(str::to_owned));
        let hash = match (known, self.export_cluster(write, object)?) {
            (Some(known), _) => Some(known),
            (None, Some(cluster)) => Some(fairlead_names::export_hash(&cluster, &export)),
            // Validation refuses the binding.
            (None, None) => None,
        };
        if let Some(hash) = hash {
            object["metadata"]["labels"][label::EXPORT] = hash.into();
        }
        if object["metadata"]["deletionTimestamp"].is_null() {
            let finalizers = &mut object["metadata"]["finalizers"];
            let present =
                finalizers.as_array().is_some_and(|all| all.iter().any(|one| one == finalizer::API_BINDING));
            match finalizers.as_array_mut() {
                _ if present => {}
                Some(all) => all.push(finalizer::API_BINDING.into()),
                None => *finalizers = json!([finalizer::API_BINDING]),
            }
        }
        Ok(())
    }

    /// Requires the verb `bind` on the export, in the export's logical cluster. All failures have the same message, so
    /// that it does not reveal which exports exist.
    pub(super) async fn validate_api_binding(
        &self,
        write: &AdmissionRequest<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if write.subresource.is_some()
            || old.is_some_and(|old| old["spec"]["reference"] == object["spec"]["reference"])
        {
            return Ok(());
        }
        let reference = &object["spec"]["reference"]["export"];
        let export = reference["name"].as_str().unwrap_or_default();
        let path = reference["path"].as_str().unwrap_or_default();
        let action = if old.is_some() { "update" } else { "create" };
        let refused = || {
            let shown = if path.is_empty() { export.to_owned() } else { format!("{path}:{export}") };
            forbidden(
                write,
                format!("unable to {action} APIBinding: no permission to bind to export {shown}"),
            )
        };
        let Some(cluster) = self.export_cluster(write, object)? else { return Err(refused()) };
        // The export may have appeared after the mutation.
        if !has_label(object, &cluster, export) {
            return Err(refused());
        }
        if self.permits_bind(write.user, &cluster, export).await? { Ok(()) } else { Err(refused()) }
    }

    /// The logical cluster of the export that a binding refers to; an empty path means the logical cluster of the binding. `None` if
    /// there is no such export.
    fn export_cluster(
        &self,
        write: &AdmissionRequest<'_>,
        binding: &Value,
    ) -> Result<Option<Box<str>>, Status> {
        let reference = &binding["spec"]["reference"]["export"];
        let path = reference["path"].as_str().filter(|path| !path.is_empty());
        let path = path.unwrap_or(write.scope.as_str());
        let export = self.exports.find(path, reference["name"].as_str().unwrap_or_default())?;
        Ok(export.map(|export| export.cluster.clone()))
    }
}

/// Whether a binding has the label of its export, by which controllers find it. The mutation sets the label if it finds the export;
/// otherwise the label is missing, or is one that the client made up.
fn has_label(binding: &Value, cluster: &str, export: &str) -> bool {
    binding["metadata"]["labels"][label::EXPORT] == fairlead_names::export_hash(cluster, export)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_has_the_label_of_its_export_only() {
        let labelled = |hash: Option<String>| match hash {
            Some(hash) => json!({"metadata": {"name": "b", "labels": {label::EXPORT: hash}}}),
            None => json!({"metadata": {"name": "b"}}),
        };
        let hash = fairlead_names::export_hash;
        for (label, expected) in [
            (Some(hash("provider", "e")), true),
            (Some(hash("provider", "f")), false),
            (Some(hash("other", "e")), false),
            (Some("made-up".to_owned()), false),
            (None, false),
        ] {
            assert_eq!(has_label(&labelled(label.clone()), "provider", "e"), expected, "{label:?}");
        }
    }
}
