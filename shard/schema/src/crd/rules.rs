//! Validation of names, stored versions, API approval and updates.

use serde_json::Value;

use super::{CrdNames, CrdSpec};
use crate::field::{FieldError, FieldPath};
use crate::metadata::IMMUTABLE;
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
    for (index, name) in names.short_names.iter().enumerate() {
        check(path.child("shortNames").index(index), name);
    }
    for (index, name) in names.categories.iter().enumerate() {
        check(path.child("categories").index(index), name);
    }
    for (field, kind) in [("kind", &names.kind), ("listKind", &names.list_kind)] {
        let findings = names::dns1035_label(&kind.to_lowercase());
        if !kind.is_empty() && !findings.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", findings.join(","));
            errors.push(FieldError::invalid_str(path.child(field), kind, &detail));
        }
    }
    // A client could not tell a list from an item.
    if !names.kind.is_empty() && names.kind == names.list_kind {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid_str(path.child("listKind"), &names.list_kind, detail));
    }
}

pub(super) fn deprecation_warning(
    deprecated: bool,
    warning: Option<&str>,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let Some(warning) = warning else { return };
    if !deprecated {
        let detail = "can only be set for deprecated versions";
        errors.push(FieldError::invalid_str(path.clone(), warning, detail));
    }
    if warning.is_empty() {
        errors.push(FieldError::invalid_str(path.clone(), warning, "must not be an empty string"));
    }
    if warning.len() > MAX_DEPRECATION_WARNING {
        let detail = format!("must be <= {MAX_DEPRECATION_WARNING} characters long");
        errors.push(FieldError::invalid_str(path.clone(), warning, &detail));
    }
    if warning.chars().any(char::is_control) {
        let detail = "must only contain printable UTF-8 characters; non-printable characters found";
        errors.push(FieldError::invalid_str(path.clone(), warning, detail));
    }
}

/// `status.storedVersions` after a write of the spec: the storage version is added to the previous ones.
pub fn next_stored_versions(spec: &CrdSpec, stored: &[String]) -> Vec<String> {
    let mut versions = stored.to_vec();
    if let Some(version) = spec.storage_version().filter(|version| !stored.contains(&version.name)) {
        versions.push(version.name.clone());
    }
    versions
}

/// A version in which objects may still be stored cannot be removed from the spec, and the storage version must be a
/// stored version.
pub fn validate_stored_versions(spec: &CrdSpec, stored: &[String]) -> Vec<FieldError> {
    let path = FieldPath::new("status.storedVersions");
    if stored.is_empty() {
        return vec![FieldError::invalid(path, &Value::Null, "must have at least one stored version")];
    }
    let mut errors = Vec::new();
    for (index, name) in stored.iter().enumerate() {
        if !spec.versions.iter().any(|version| version.name == *name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            errors.push(FieldError::invalid_str(path.index(index), name, &detail));
        }
    }
    if let Some(storage) = spec.storage_version().filter(|version| !stored.contains(&version.name)) {
        let detail = format!("must have the storage version {}", storage.name);
        errors.push(FieldError::invalid(path, &Value::from(stored.to_vec()), &detail));
    }
    errors
}

/// Validates the immutable fields of an update: group and plural always, scope and kind once the definition is
/// established.
pub fn validate_update(spec: &CrdSpec, old: &CrdSpec, established: bool) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    let mut errors = Vec::new();
    let mut immutable = |changed: bool, path: FieldPath, value: &str| {
        if changed {
            errors.push(FieldError::invalid_str(path, value, IMMUTABLE));
        }
    };
    if established {
        let scope = match spec.scope {
            crate::metadata::Scope::Namespaced => "Namespaced",
            crate::metadata::Scope::Cluster => "Cluster",
        };
        immutable(spec.scope != old.scope, path.child("scope"), scope);
        immutable(spec.names.kind != old.names.kind, path.child("names").child("kind"), &spec.names.kind);
    }
    immutable(spec.group != old.group, path.child("group"), &spec.group);
    let plural_changed = spec.names.plural != old.names.plural;
    immutable(plural_changed, path.child("names").child("plural"), &spec.names.plural);
    errors
}
