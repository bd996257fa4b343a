//! Admission of APIExports: claims and schemas, in both versions.

use std::collections::HashSet;

use fairlead_api::claimable_built_in;
use fairlead_apiserver::AdmissionRequest;
use fairlead_process::Status;
use fairlead_schema::{FieldError, FieldPath};
use serde_json::Value;

use super::conversion_annotations::{ConvertedVersion, claim_key, saved_list};
use super::forbidden;

const SAVED_RESOURCES: &str = "apis.v1alpha2.kcp.io/resource-schemas";
const SAVED_CLAIMS: &str = "apis.v1alpha2.kcp.io/permission-claims";

/// Refuses an invalid export with its first error, as kcp does. A v1alpha1 export is also validated in v1alpha2: its
/// annotations may have anything that v1alpha1 cannot express.
pub(super) fn validate(write: &AdmissionRequest<'_>, object: &Value) -> Result<(), Status> {
    if write.subresource.is_some() {
        return Ok(());
    }
    if write.version != "v1alpha1" {
        if let Some(error) = spec_error(object) {
            return Err(forbidden(write, error));
        }
        return Ok(());
    }
    if let Some(error) = annotation_error(object) {
        return Err(forbidden(write, error));
    }
    let converted = ConvertedVersion::of(write, object)?;
    if let Some(error) = spec_error(&converted.object) {
        return Err(forbidden(write, error));
    }
    converted.validate(write)
}

/// The first error of the `spec` of a v1alpha2 export.
fn spec_error(export: &Value) -> Option<FieldError> {
    let spec = FieldPath::new("spec");
    let claims = list(&export["spec"]["permissionClaims"]).iter().enumerate();
    let claim_error = claims.filter(|(_, claim)| !is_identified(claim)).map(|(index, _)| {
        let path = spec.child("permissionClaims").index(index).child("identityHash");
        FieldError::invalid_str(path, "", "identityHash is required for API types that are not built-in")
    });
    let resources = list(&export["spec"]["resources"]).iter().enumerate();
    let resource_error = resources.filter_map(|(index, resource)| {
        let group = if text(resource, "group").is_empty() { "core" } else { text(resource, "group") };
        let suffix = format!(".{}.{group}", text(resource, "name"));
        let schema = text(resource, "schema");
        let path = spec.child("resources").index(index).child("schema");
        let detail = format!("must end in {suffix}");
        (!schema.ends_with(&suffix)).then(|| FieldError::invalid_str(path, schema, &detail))
    });
    claim_error.chain(resource_error).next()
}

/// Whether a claim names its resource completely. A resource of another export is named by the export's identity.
fn is_identified(claim: &Value) -> bool {
    let group = text(claim, "group");
    !text(claim, "identityHash").is_empty()
        || group == "apis.kcp.io"
        || claimable_built_in(group, text(claim, "resource")).is_some()
}

/// The first error of the annotations that save what v1alpha1 cannot express.
fn annotation_error(export: &Value) -> Option<FieldError> {
    resources_error(export).or_else(|| claims_error(export))
}

fn resources_error(export: &Value) -> Option<FieldError> {
    let saved = saved_list(export, SAVED_RESOURCES)?;
    let Some(saved_resources) = &saved.items else {
        return Some(saved.error("failed to decode overhanging resource schemas"));
    };
    let of_spec = list(&export["spec"]["latestResourceSchemas"]).iter().filter_map(Value::as_str);
    let mut names = HashSet::new();
    let mut all = saved_resources.iter().map(|resource| text(resource, "schema")).chain(of_spec);
    all.any(|name| !names.insert(name)).then(|| saved.error("duplicate resource schema"))
}

fn claims_error(export: &Value) -> Option<FieldError> {
    let saved = saved_list(export, SAVED_CLAIMS)?;
    let Some(saved_claims) = &saved.items else {
        return Some(saved.error("failed to decode overhanging permission claims"));
    };
    let of_spec: HashSet<_> = list(&export["spec"]["permissionClaims"]).iter().map(claim_key).collect();
    let detail = "permission claims defined in annotation do not match permission claims defined in spec";
    let is_unknown = saved_claims.iter().any(|claim| !of_spec.contains(&claim_key(claim)));
    is_unknown.then(|| saved.error(detail))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    use serde_json::json;

    #[test]
    fn claims_and_schemas_are_checked() {
        const IDENTITY: &str =
            "Invalid value: \"\": identityHash is required for API types that are not built-in";
        let claim = |group: &str, resource: &str, identity: &str| json!({"group": group, "resource": resource, "identityHash": identity, "verbs": ["*"]});
        let resource = |group: &str, name: &str, schema: &str| json!({"group": group, "name": name, "schema": schema, "storage": {"crd": {}}});
        let cases = [
            (json!({}), None),
            (json!({"permissionClaims": [], "resources": []}), None),
            (json!({"permissionClaims": [claim("", "configmaps", "")]}), None),
            (json!({"permissionClaims": [claim("apis.kcp.io", "apibindings", "")]}), None),
            (json!({"permissionClaims": [claim("apis.kcp.io", "anything", "")]}), None),
            (json!({"permissionClaims": [claim("some", "somethings", "abc")]}), None),
            (json!({"permissionClaims": [{"resource": "secrets", "verbs": ["get"]}]}), None),
            (
                json!({"permissionClaims": [claim("some", "somethings", "")]}),
                Some(format!("spec.permissionClaims[0].identityHash: {IDENTITY}")),
            ),
            (
                json!({"permissionClaims": [claim("a", "b", "c"), claim("imnot", "builtin", "")]}),
                Some(format!("spec.permissionClaims[1].identityHash: {IDENTITY}")),
            ),
            (
                json!({"permissionClaims": [claim("authorization.k8s.io", "selfsubjectrulesreviews", "")]}),
                Some(format!("spec.permissionClaims[0].identityHash: {IDENTITY}")),
            ),
            (json!({"resources": [resource("bar.io", "foo", "v1.foo.bar.io")]}), None),
            (json!({"resources": [resource("", "pods", "v1.pods.core")]}), None),
            (
                json!({"resources": [resource("sheriffs", "wild.wild.west", "today.wild.wild.west.sheriffs")]}),
                None,
            ),
            (
                json!({"resources": [resource("bar", "foo", "this.is.invalid")]}),
                Some(
                    "spec.resources[0].schema: Invalid value: \"this.is.invalid\": must end in .foo.bar"
                        .to_owned(),
                ),
            ),
            (
                json!({"resources": [resource("", "pods", "v1.pods.")]}),
                Some(
                    "spec.resources[0].schema: Invalid value: \"v1.pods.\": must end in .pods.core"
                        .to_owned(),
                ),
            ),
        ];
        for (spec, expected) in cases {
            let found = spec_error(&json!({"spec": spec})).map(|error| error.to_string());
            assert_eq!(found, expected, "{spec}");
        }
    }

    #[test]
    fn the_exports_of_root_are_valid() {
        let objects = fairlead_api::root_phase0();
        let exports: Vec<_> = objects.iter().filter(|object| object["kind"] == "APIExport").collect();
        assert!(!exports.is_empty());
        for export in exports {
            assert_eq!(spec_error(export).map(|error| error.to_string()), None, "{export}");
        }
    }

    #[test]
    fn annotations_of_v1alpha1_match_the_spec() {
        let schema = |name: &str| json!({"name": "test", "group": "schema", "schema": name});
        let claim = |resource: &str| json!({"group": "foo", "resource": resource, "identityHash": "baz", "verbs": ["get"]});
        let resources_refused = "failed to decode overhanging resource schemas";
        let claims_refused = "failed to decode overhanging permission claims";
        let mismatch =
            "permission claims defined in annotation do not match permission claims defined in spec";
        let cases: Vec<(&str, Option<String>, Value, Option<&str>)> = vec![
            (SAVED_RESOURCES, None, json!({}), None),
            (SAVED_RESOURCES, Some(schema("v1.test.schema").to_string()), json!({}), Some(resources_refused)),
            (SAVED_RESOURCES, Some("[]".to_owned()), json!({"latestResourceSchemas": []}), None),
            (SAVED_RESOURCES, Some("[5]".to_owned()), json!({}), Some(resources_refused)),
            (SAVED_RESOURCES, Some("invalid json".to_owned()), json!({}), Some(resources_refused)),
            (SAVED_RESOURCES, Some(json!([schema("v1.test.schema")]).to_string()), json!({}), None),
            (
                SAVED_RESOURCES,
                Some(json!([schema("v1.test.schema"), schema("v1.test.schema")]).to_string()),
                json!({}),
                Some("duplicate resource schema"),
            ),
            (
                SAVED_RESOURCES,
                Some(json!([schema("v1.test.schema")]).to_string()),
                json!({"latestResourceSchemas": ["v1.test.schema"]}),
                Some("duplicate resource schema"),
            ),
            (SAVED_CLAIMS, Some("{}".to_owned()), json!({}), Some(claims_refused)),
            (SAVED_CLAIMS, Some("invalid json".to_owned()), json!({}), Some(claims_refused)),
            (SAVED_CLAIMS, Some("[]".to_owned()), json!({"permissionClaims": []}), None),
            (
                SAVED_CLAIMS,
                Some(json!([claim("bar")]).to_string()),
                json!({"permissionClaims": [{"group": "foo", "resource": "bar", "identityHash": "baz", "all": true}]}),
                None,
            ),
            (
                SAVED_CLAIMS,
                Some(json!([claim("bar"), claim("other")]).to_string()),
                json!({"permissionClaims": [{"group": "foo", "resource": "bar", "identityHash": "baz", "all": true}]}),
                Some(mismatch),
            ),
        ];
        for (key, annotation, spec, expected) in cases {
            let mut export = json!({"metadata": {}, "spec": spec});
            if let Some(text) = &annotation {
                export["metadata"]["annotations"] = json!({key: text});
            }
            let found = annotation_error(&export).map(|error| error.to_string());
            let expected = expected.map(|detail| {
                let quoted = Value::from(annotation.clone().unwrap_or_default()).to_string();
                format!("metadata.annotations[{key}]: Invalid value: {quoted}: {detail}")
            });
            assert_eq!(found, expected, "{annotation:?} {spec}");
        }
    }
}
