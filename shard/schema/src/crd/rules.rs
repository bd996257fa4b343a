//! Validation of the fields of a definition: group, names, deprecation warnings.

use serde_json::Value;

use super::CrdNames;
use crate::field::{FieldError, FieldPath};
use crate::names;

const MAX_DEPRECATION_WARNING: usize = 256;

/// `metadata.name` must be `<plural>.<group>`.
pub(super) fn definition_name(definition: &Value) -> Vec<FieldError> {
    let at = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let name = at("/metadata/name");
    if name.is_empty() || name == definition_name_of(at("/spec/names/plural"), at("/spec/group")) {
        return Vec::new();
    }
    let path = FieldPath::new("metadata.name");
    vec![FieldError::invalid_str(path, name, "must be spec.names.plural+\".\"+spec.group")]
}

/// The name of a definition. It spells out the core group, which kcp allows.
pub(super) fn definition_name_of(plural: &str, group: &str) -> String {
    format!("{plural}.{}", if group.is_empty() { "core" } else { group })
}

/// Groups of Kubernetes whose kinds kcp does not serve itself, so that CRDs may define them.
const KUBERNETES_GROUPS: [&str; 6] = ["", "apps", "autoscaling", "batch", "extensions", "policy"];

pub(super) fn group(group: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if KUBERNETES_GROUPS.contains(&group) {
        return;
    }
    let findings = names::dns1123_subdomain(group);
    if !findings.is_empty() {
        errors.push(FieldError::invalid_str(path.clone(), group, &findings.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid_str(path.clone(), group, "should be a domain with at least one dot"));
    }
}

pub(super) fn required_names(names: &CrdNames, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (field, name) in [
        ("plural", &names.plural),
        ("singular", &names.singular),
        ("kind", &names.kind),
        ("listKind", &names.list_kind),
    ] {
        if name.is_empty() {
            errors.push(FieldError::required(path.child(field), ""));
        }
    }
}

pub(super) fn names(names: &CrdNames, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut check = |path: FieldPath, name: &str| {
        let findings = names::dns1035_label(name);
        if !name.is_empty() && !findings.is_empty() {
            errors.push(FieldError::invalid_str(path, name, &findings.join(",")));
        }
    };
    check(path.child("plural"), &names.plural);
    check(path.child("singular"), &names.singular);
    for (field, kind) in [("kind", &names.kind), ("listKind", &names.list_kind)] {
        let findings = names::dns1035_label(&kind.to_lowercase());
        if !kind.is_empty() && !findings.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", findings.join(","));
            errors.push(FieldError::invalid_str(path.child(field), kind, &detail));
        }
    }
    listed_names(&names.short_names, &path.child("shortNames"), errors);
    // A client could not tell a list from an item.
    if !names.kind.is_empty() && names.kind == names.list_kind {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid_str(path.child("listKind"), &names.list_kind, detail));
    }
    listed_names(&names.categories, &path.child("categories"), errors);
}

fn listed_names(list: &[String], path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (index, name) in list.iter().enumerate() {
        let findings = names::dns1035_label(name);
        if !findings.is_empty() {
            errors.push(FieldError::invalid_str(path.index(index), name, &findings.join(",")));
        }
    }
}

pub(super) fn deprecation_warning(
    deprecated: bool,
    warning: Option<&str>,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let Some(warning) = warning else { return };
    let mut refuse = |detail: &str| errors.push(FieldError::invalid_str(path.clone(), warning, detail));
    if !deprecated {
        return refuse("can only be set for deprecated versions");
    }
    if warning.len() > MAX_DEPRECATION_WARNING {
        refuse(&format!("must be <= {MAX_DEPRECATION_WARNING} characters long"));
    }
    if warning.is_empty() {
        refuse("must not be an empty string");
    }
    if let Some((index, _)) = warning.char_indices().find(|(_, character)| character.is_control()) {
        refuse(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {index}"
        ));
    }
}
