//! Admission of CustomResourceDefinitions: validates, accepts the names and establishes the definition in the same
//! write.
//!
//! One server has no peers that must observe a definition first, so the definition is served when the create returns.

use fairlead_apiserver::AdmissionRequest;
use fairlead_process::{Status, StatusCause};
use fairlead_schema::FieldError;
use fairlead_schema::crd::{CrdSpec, apply_defaults, approval_condition, next_stored_versions};
use fairlead_schema::crd::{validate_create, validate_status, validate_update};
use fairlead_store::Mutation;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::ShardAdmission;
use crate::definition_names::{NamedDefinition, decide_names, write_conditions, write_names};
use crate::names::CLEANUP_FINALIZER;

impl ShardAdmission {
    /// Applies defaults, validates the spec, and sets the status that follows from it. Returns the mutations under which the
    /// names in the status are free.
    pub(super) fn mutate_definition(
        &self,
        write: &AdmissionRequest<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<Vec<Mutation>, Status> {
        if write.subresource.is_some() {
            let errors = validate_status(object);
            return if errors.is_empty() { Ok(Vec::new()) } else { Err(invalid(write, &errors)) };
        }
        apply_defaults(object);
        let validated = match old {
            Some(old) => validate_update(object, old),
            None => validate_create(object),
        };
        let spec = validated.map_err(|errors| invalid(write, &errors))?;
        let finalizers = &mut object["metadata"]["finalizers"];
        let deleting = old.is_some_and(|old| old["metadata"]["deletionTimestamp"].is_string());
        let has = finalizers.as_array().is_some_and(|all| all.iter().any(|one| one == CLEANUP_FINALIZER));
        match finalizers.as_array_mut() {
            _ if has || deleting => {}
            Some(all) => all.push(CLEANUP_FINALIZER.into()),
            None => *finalizers = json!([CLEANUP_FINALIZER]),
        }
        self.write_status(write, object, old, &spec)
    }

    fn write_status(
        &self,
        write: &AdmissionRequest<'_>,
        object: &mut Value,
        old: Option<&Value>,
        spec: &CrdSpec,
    ) -> Result<Vec<Mutation>, Status> {
        let definition = NamedDefinition {
            scope: write.scope,
            name: write.name,
            group: &spec.group,
            requested: &spec.names,
            old,
        };
        let decision = decide_names(&self.objects, self.authorizer()?.definitions(), &definition)?;
        let before = old.map_or(&Value::Null, |old| &old["status"]);
        let stored = next_stored_versions(object, old);
        object["status"] = json!({
            "acceptedNames": null,
            "conditions": before["conditions"].as_array().cloned().unwrap_or_default(),
            "storedVersions": stored,
        });
        let approval = approval_condition(spec, object);
        write_names(&mut object["status"], &decision.names, Timestamp::now());
        write_conditions(&mut object["status"], approval.as_slice(), Timestamp::now());
        Ok(decision.mutations)
    }
}

fn invalid(write: &AdmissionRequest<'_>, errors: &[FieldError]) -> Status {
    let causes = errors
        .iter()
        .map(|error| StatusCause::field(error.reason(), error.path.as_str(), error.message.clone()))
        .collect();
    Status::invalid("apiextensions.k8s.io", "CustomResourceDefinition", write.name, causes)
}
