//! A client may only write a policy or binding if it may read the parameters: their content can appear in messages.

use fairlead_process::{Status, StatusCause};
use serde_json::Value;

use super::params::resource_of_kind;
use super::policy::{ParamKind, Policy, PolicyKind};
use super::review::PolicyReview;
use crate::host::Action;

/// Refuses a policy or binding whose parameters the client may not read.
///
/// # Errors
/// 422.
pub(in crate::dynamic_admission) fn check_permissions(
    review: &PolicyReview<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let (kind, is_binding) = match &*review.write.resource.name.resource {
        "mutatingadmissionpolicies" => (PolicyKind::Mutating, false),
        "validatingadmissionpolicies" => (PolicyKind::Validating, false),
        "mutatingadmissionpolicybindings" => (PolicyKind::Mutating, true),
        "validatingadmissionpolicybindings" => (PolicyKind::Validating, true),
        _ => return Ok(()),
    };
    if review.write.subresource.is_some() {
        return Ok(());
    }
    let fields: &[&str] = if is_binding { &["paramRef", "policyName"] } else { &["paramKind"] };
    let reference = &object["spec"][fields[0]];
    let is_unchanged =
        old.is_some_and(|old| fields.iter().all(|field| old["spec"][field] == object["spec"][field]));
    if !reference.is_object() || is_unchanged {
        return Ok(());
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if !is_binding {
        let policy = Policy::parse(name, object);
        let Some(param_kind) = &policy.param_kind else { return Ok(()) };
        let requirement = Requirement { verb: "get", namespace: Some("*"), name: Some("*") };
        if requirement.is_met(review, Some(param_kind))? {
            return Ok(());
        }
        let detail = format!(
            "user {:?} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
            review.write.user.name,
            param_kind.kind,
            reference["apiVersion"].as_str().unwrap_or_default()
        );
        return Err(refusal(review, name, "spec.paramKind", detail));
    }
    let text = |field: &str| reference[field].as_str().filter(|text| !text.is_empty());
    let verb = if text("name").is_some() { "get" } else { "list" };
    let requirement = Requirement { verb, namespace: text("namespace"), name: text("name") };
    let policy_name = object["spec"]["policyName"].as_str().unwrap_or_default();
    let policy = review.index.policy(kind, review.scope.as_str(), policy_name);
    let param_kind = policy.as_ref().and_then(|policy| policy.param_kind.as_ref());
    if requirement.is_met(review, param_kind)? {
        return Ok(());
    }
    let user = &review.write.user.name;
    let detail = match policy {
        Some(_) => {
            format!("user {user:?} does not have {verb:?} permission on the object referenced by paramRef")
        }
        None => format!(
            "unable to get policy {policy_name} to determine minimum required permissions and user {user:?} does not \
             have {verb:?} permission for all groups, versions and resources"
        ),
    };
    Err(refusal(review, name, "spec.paramRef", detail))
}

/// What the client must be allowed to do.
struct Requirement<'r> {
    verb: &'r str,
    namespace: Option<&'r str>,
    name: Option<&'r str>,
}

impl Requirement<'_> {
    /// Whether the client may do it. If the resource is unknown, it must be allowed for all of its group.
    fn is_met(&self, review: &PolicyReview<'_>, kind: Option<&ParamKind>) -> Result<bool, Status> {
        let host = review.host()?;
        let resource = match kind {
            Some(kind) => resource_of_kind(&*host.catalog(review.scope)?, kind),
            None => None,
        };
        let action = Action::Resource {
            verb: self.verb,
            group: kind.map_or("*", |kind| &*kind.group),
            version: kind.map_or("*", |kind| &*kind.version),
            resource: resource.as_ref().map_or("*", |resource| &*resource.name.resource),
            subresource: None,
            namespace: self.namespace,
            name: self.name,
        };
        Ok(host.is_allowed(review.scope, review.write.user, &action))
    }
}

fn refusal(review: &PolicyReview<'_>, name: &str, field: &str, detail: String) -> Status {
    let resource = review.write.resource;
    let cause = StatusCause::field("FieldValueForbidden", field, format!("Forbidden: {detail}"));
    Status::invalid(&resource.name.group, &resource.kind, name, vec![cause])
}
