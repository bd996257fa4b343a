//! Approval of CRDs in groups of the Kubernetes community (KEP-1111).

use serde_json::Value;

use super::{CrdCondition, CrdSpec};
use crate::field::{FieldError, FieldPath};

const ANNOTATION: &str = "api-approved.kubernetes.io";
const PROPOSAL: &str = "https://github.com/kubernetes/enhancements/pull/1111";

/// The approval in the annotation of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Approval<'a> {
    Missing,
    /// It is no URL and does not begin with `unapproved`.
    Invalid,
    Unapproved(&'a str),
    Approved(&'a str),
}

impl<'a> Approval<'a> {
    fn of(definition: &'a Value) -> Self {
        match definition["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or_default() {
            "" => Self::Missing,
            text if text.starts_with("unapproved") => Self::Unapproved(text),
            text if is_url(text) => Self::Approved(text),
            _ => Self::Invalid,
        }
    }

    fn message(self) -> String {
        match self {
            Self::Missing => {
                format!("protected groups must have approval annotation {ANNOTATION:?}, see {PROPOSAL}")
            }
            Self::Invalid => format!(
                "protected groups must have approval annotation {ANNOTATION:?} with either a URL or a reason starting \
                 with \"unapproved\", see {PROPOSAL}"
            ),
            Self::Unapproved(text) => format!("not approved: {}", crate::field::go_quote(text)),
            Self::Approved(text) => format!("approved in {text}"),
        }
    }
}

/// The errors of the approval of a definition. An existing definition may stay as it is.
pub(super) fn validate(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let group = object["spec"]["group"].as_str().unwrap_or_default();
    let approval = Approval::of(object);
    let is_unchanged = old
        .map(Approval::of)
        .is_some_and(|old| core::mem::discriminant(&old) == core::mem::discriminant(&approval));
    if !is_protected(group) || is_unchanged {
        return Vec::new();
    }
    let path = FieldPath::new(format!("metadata.annotations[{ANNOTATION}]"));
    match approval {
        Approval::Missing => vec![FieldError::required(path, &approval.message())],
        Approval::Invalid => {
            let text = object["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or_default();
            vec![FieldError::invalid_str(path, text, &approval.message())]
        }
        Approval::Unapproved(_) | Approval::Approved(_) => Vec::new(),
    }
}

/// The errors of the approval of a definition or an APIResourceSchema, whatever it was before.
pub fn validate_approval(object: &Value) -> Vec<FieldError> {
    validate(object, None)
}

/// The condition `KubernetesAPIApprovalPolicyConformant`; `None` for groups outside of the Kubernetes community.
pub fn approval_condition(spec: &CrdSpec, definition: &Value) -> Option<CrdCondition> {
    let approval = Approval::of(definition);
    let reason = match approval {
        Approval::Missing => "MissingAnnotation",
        Approval::Invalid => "InvalidAnnotation",
        Approval::Unapproved(_) => "UnapprovedAnnotation",
        Approval::Approved(_) => "ApprovedAnnotation",
    };
    is_protected(&spec.group).then(|| CrdCondition {
        condition_type: "KubernetesAPIApprovalPolicyConformant",
        is_true: matches!(approval, Approval::Approved(_)),
        reason,
        message: approval.message(),
    })
}

fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

/// Whether the text is an absolute URL with a host.
fn is_url(text: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|one| one.is_ascii_alphanumeric() || "+-.".contains(one))
    };
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    is_scheme(scheme) && !host.is_empty() && !text.contains(char::is_whitespace)
}
