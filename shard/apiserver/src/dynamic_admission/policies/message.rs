//! Refusals by policies, in the words of Kubernetes.

use fairlead_process::{GroupResource, Status, StatusCause, StatusDetails, StatusReason};

use crate::registry::AdmissionRequest;

/// A refusal of a ValidatingAdmissionPolicy: the code follows from the reason.
pub(super) fn validation_refusal(
    write: &AdmissionRequest<'_>,
    policy: &str,
    binding: Option<&str>,
    message: &str,
    reason: StatusReason,
) -> Status {
    let message = match binding {
        Some(binding) => {
            format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}")
        }
        None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {message}"),
    };
    let code = match reason {
        StatusReason::Forbidden => 403,
        StatusReason::Unauthorized => 401,
        StatusReason::RequestEntityTooLarge => 413,
        _ => 422,
    };
    let text = forbidden_text(write, &message);
    Status::new(code, reason, text).with_details(details(write, vec![cause(message)]))
}

/// The refusal for failed MutatingAdmissionPolicies. `messages` is not empty.
pub(super) fn mutation_refusal(
    write: &AdmissionRequest<'_>,
    messages: Vec<String>,
    reason: StatusReason,
) -> Status {
    let message = messages.first().cloned().unwrap_or_default();
    let causes = messages.into_iter().map(cause).collect();
    Status::new(403, reason, message).with_details(details(write, causes))
}

/// The message of a failed MutatingAdmissionPolicy.
pub(super) fn mutation_message(policy: &str, binding: Option<&str>, message: &str) -> String {
    match binding {
        Some(binding) => format!("policy '{policy}' with binding '{binding}' denied request: {message}"),
        None => format!("policy {policy:?} denied request: {message}"),
    }
}

fn forbidden_text(write: &AdmissionRequest<'_>, message: &str) -> String {
    let name = &write.resource.name;
    Status::forbidden(GroupResource::new(&name.group, &name.resource), object_name(write), message).message
}

fn details(write: &AdmissionRequest<'_>, causes: Vec<StatusCause>) -> StatusDetails {
    let name = &write.resource.name;
    StatusDetails {
        name: object_name(write).to_owned(),
        group: name.group.to_string(),
        kind: name.resource.to_string(),
        causes,
        ..StatusDetails::default()
    }
}

fn cause(message: String) -> StatusCause {
    StatusCause { reason: "".into(), message, field: String::new() }
}

fn object_name<'w>(write: &AdmissionRequest<'w>) -> &'w str {
    if write.name.is_empty() { "Unknown" } else { write.name }
}
