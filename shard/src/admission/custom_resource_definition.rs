//! Admission of CustomResourceDefinitions: validates, accepts the names and establishes the definition in the same
//! write.
//!
//! One server has no peers that must observe a definition first, so the definition is served when the create returns.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fairlead_apiserver::AdmissionRequest;
use fairlead_client::{Credentials, TrustRoots};
use fairlead_process::{Status, StatusCause};
use fairlead_schema::crd::{
    CrdSpec, apply_defaults, approval_condition, has_condition, next_stored_versions,
};
use fairlead_schema::crd::{validate_create, validate_status, validate_update};
use fairlead_schema::{FieldError, FieldPath};
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
        if let Some(error) = old.and_then(|old| ca_bundle_error(object, old)) {
            return Err(invalid(write, &[error]));
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

/// The error of a `caBundle` of the conversion webhook. As in Kubernetes, it is checked once the definition is established, and
/// may be invalid if it was so before: generators write a placeholder that is replaced later.
fn ca_bundle_error(definition: &Value, old: &Value) -> Option<FieldError> {
    let bundle = |definition: &Value| {
        let bundle = definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"].as_str()?;
        (!bundle.is_empty()).then(|| bundle.to_owned())
    };
    let new = bundle(definition).filter(|bundle| !is_ca_bundle(bundle))?;
    if !has_condition(old, "Established") || bundle(old).is_some_and(|old| !is_ca_bundle(&old)) {
        return None;
    }
    let path = FieldPath::new("spec").child("conversion").child("webhookClientConfig").child("caBundle");
    let detail = "unable to load root certificates: unable to parse bytes as PEM block";
    Some(FieldError::invalid_str(path, &new, detail))
}

/// Whether a text is base64 of certificates in PEM.
fn is_ca_bundle(base64: &str) -> bool {
    let pem = STANDARD.decode(base64).ok();
    pem.is_some_and(|pem| Credentials::new(TrustRoots::Pem(pem)).is_ok())
}

fn invalid(write: &AdmissionRequest<'_>, errors: &[FieldError]) -> Status {
    let causes = errors
        .iter()
        .map(|error| StatusCause::field(error.reason(), error.path.as_str(), error.message.clone()))
        .collect();
    Status::invalid("apiextensions.k8s.io", "CustomResourceDefinition", write.name, causes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_established_definition_keeps_a_valid_ca_bundle() {
        let key = rcgen::KeyPair::generate().unwrap();
        let valid = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap().pem();
        let (valid, placeholder) = (STANDARD.encode(valid), STANDARD.encode("\n"));
        let definition = |bundle: &str, established: &str| {
            json!({
                "spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}},
                "status": {"conditions": [{"type": "Established", "status": established}]},
            })
        };
        for (old, established, new, is_accepted) in [
            ("", "True", &*valid, true),
            (&valid, "True", "", true),
            ("", "True", &placeholder, false),
            (&valid, "True", &placeholder, false),
            (&valid, "False", &placeholder, true),
            (&placeholder, "True", &placeholder, true),
            (&placeholder, "True", &valid, true),
        ] {
            let error = ca_bundle_error(&definition(new, "True"), &definition(old, established));
            assert_eq!(error.is_none(), is_accepted, "{old:?} {established} {new:?}");
        }
    }
}
