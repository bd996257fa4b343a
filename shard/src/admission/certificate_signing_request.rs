//! Admission of CertificateSigningRequests: the user of the request, and the rights to approve and to sign for a signer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fairlead_api::group;
use fairlead_apiserver::resource::Verb;
use fairlead_apiserver::{Action, AdmissionRequest};
use fairlead_process::Status;
use fairlead_schema::CertificateRequest;
use serde_json::{Value, json};

use super::{ShardAdmission, forbidden};

/// The signer of client certificates of the API server.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Sets the user of a new request, whom signers see.
pub(super) fn mutate(write: &AdmissionRequest<'_>, object: &mut Value) {
    if write.verb != Verb::Create || !object["spec"].is_object() {
        return;
    }
    let spec = &mut object["spec"];
    spec["username"] = write.user.name.clone().into();
    if let Some(uid) = &write.user.uid {
        spec["uid"] = uid.clone().into();
    }
    if !write.user.groups.is_empty() {
        spec["groups"] = json!(write.user.groups);
    }
    if !write.user.extra.is_empty() {
        spec["extra"] = json!(write.user.extra);
    }
}

impl ShardAdmission {
    /// Requires the right to approve or to sign requests for the signer, and refuses client certificates for
    /// `system:masters`.
    pub(super) async fn validate_certificate_signing_request(
        &self,
        write: &AdmissionRequest<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(old) = old else { return validate_subject(write, object) };
        let signer = old["spec"]["signerName"].as_str().unwrap_or_default();
        let verb = match write.subresource {
            Some("approval") => "approve",
            Some("status") if object["status"] != old["status"] => "sign",
            _ => return Ok(()),
        };
        let domain = signer.split('/').next().unwrap_or_default();
        for name in [signer, &format!("{domain}/*")] {
            let action = Action::Resource {
                verb,
                group: "certificates.k8s.io",
                version: "*",
                resource: "signers",
                subresource: None,
                namespace: None,
                name: Some(name),
            };
            if self.authorizer()?.permits(write.user, write.scope, &action).await {
                return Ok(());
            }
        }
        Err(forbidden(write, format!("user not permitted to {verb} requests with signerName {signer:?}")))
    }
}

fn validate_subject(write: &AdmissionRequest<'_>, object: &Value) -> Result<(), Status> {
    let spec = &object["spec"];
    if spec["signerName"] != CLIENT_SIGNER {
        return Ok(());
    }
    let request = STANDARD.decode(spec["request"].as_str().unwrap_or_default()).unwrap_or_default();
    let request = CertificateRequest::parse(&request)
        .map_err(|error| forbidden(write, format!("failed to parse CSR: {error}")))?;
    if request.organizations.iter().any(|organization| organization == group::MASTERS) {
        let message = format!("use of {CLIENT_SIGNER} signer with system:masters group is not allowed");
        return Err(forbidden(write, message));
    }
    Ok(())
}
