//! Admission of CustomResourceDefinitions: validates, accepts the names and establishes the definition in the same
//! write.
//!
//! One server has no peers that must observe a definition first, so the definition is served when the create returns.

use fairlead_apiserver::{AdmissionRequest, ScopeSelector};
use fairlead_process::{Status, StatusCause};
use fairlead_schema::FieldError;
use fairlead_schema::crd::{CrdNames, CrdSpec, accepted_names, apply_defaults, next_stored_versions};
use fairlead_schema::crd::{validate_approval, validate_stored_versions};
use serde_json::{Value, json};

use super::ShardAdmission;
use crate::names::{BUILT_IN, CLEANUP_FINALIZER, CUSTOM_RESOURCE_DEFINITIONS};

impl ShardAdmission {
    /// Applies defaults, validates the spec, and sets the status that follows from it.
    pub(super) fn mutate_definition(
        &self,
        write: &AdmissionRequest<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        apply_defaults(object);
        let spec = CrdSpec::parse(object).map_err(|errors| invalid(write, &errors))?;
        let unsupported = spec.unsupported();
        if !unsupported.is_empty() {
            return Err(invalid(write, &unsupported));
        }
        let unapproved = validate_approval(&spec, object, old);
        if !unapproved.is_empty() {
            return Err(invalid(write, &unapproved));
        }
        if let Some(old) = old {
            let established = condition(old, "Established").is_some_and(|one| one["status"] == "True");
            // If the stored definition no longer parses, only the new one is validated.
            if let Ok(before) = CrdSpec::parse(old) {
                let errors = fairlead_schema::crd::validate_update(&spec, &before, established);
                if !errors.is_empty() {
                    return Err(invalid(write, &errors));
                }
            }
        }
        if write.subresource.is_some() {
            let errors = validate_stored_versions(&spec, &stored_versions(&object["status"]));
            return if errors.is_empty() { Ok(()) } else { Err(invalid(write, &errors)) };
        }
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
    ) -> Result<(), Status> {
        let scope = ScopeSelector::One(write.scope.clone());
        let mut others = Vec::new();
        for stored in self.objects.list(&CUSTOM_RESOURCE_DEFINITIONS, &BUILT_IN, &scope, None)? {
            let other = self.objects.tree(&stored)?;
            if other["metadata"]["name"] != write.name && other["spec"]["group"] == spec.group.as_str() {
                others.push(CrdNames::read(&other["status"]["acceptedNames"]));
            }
        }
        let before = old.map_or(&Value::Null, |old| &old["status"]);
        let established = old
            .and_then(|old| condition(old, "Established"))
            .is_some_and(|condition| condition["status"] == "True");
        let accepted = CrdNames::read(&before["acceptedNames"]);
        let naming = accepted_names(&spec.names, &accepted, established, &others);
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut conditions: Vec<Value> = before["conditions"].as_array().cloned().unwrap_or_default();
        for decided in &naming.conditions {
            let status = if decided.is_true { "True" } else { "False" };
            let known = conditions.iter_mut().find(|one| one["type"] == decided.condition_type);
            let since = known
                .as_ref()
                .filter(|one| one["status"] == status)
                .map(|one| one["lastTransitionTime"].clone());
            let value = json!({
                "type": decided.condition_type,
                "status": status,
                "lastTransitionTime": since.unwrap_or_else(|| now.clone().into()),
                "reason": decided.reason,
                "message": decided.message,
            });
            match known {
                Some(known) => *known = value,
                None => conditions.push(value),
            }
        }
        let stored = next_stored_versions(spec, &stored_versions(before));
        let errors = validate_stored_versions(spec, &stored);
        if !errors.is_empty() {
            return Err(invalid(write, &errors));
        }
        object["status"] = json!({
            "acceptedNames": naming.accepted.to_json(),
            "conditions": conditions,
            "storedVersions": stored,
        });
        Ok(())
    }
}

fn stored_versions(status: &Value) -> Vec<String> {
    let listed = status["storedVersions"].as_array().into_iter().flatten();
    listed.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn condition<'v>(object: &'v Value, name: &str) -> Option<&'v Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == name)
}

fn invalid(write: &AdmissionRequest<'_>, errors: &[FieldError]) -> Status {
    let causes = errors
        .iter()
        .map(|error| StatusCause::field(error.reason(), error.path.as_str(), error.message.clone()))
        .collect();
    Status::invalid("apiextensions.k8s.io", "CustomResourceDefinition", write.name, causes)
}
