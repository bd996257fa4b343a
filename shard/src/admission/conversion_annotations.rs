//! v1alpha1 objects of `apis.kcp.io` in v1alpha2, in which they are stored. Annotations save what v1alpha1 cannot express, and
//! clients may write anything into them.

use fairlead_api::apis_to_v1alpha2;
use fairlead_apiserver::AdmissionRequest;
use fairlead_apiserver::resource::Shape;
use fairlead_names::ResourceName;
use fairlead_process::Status;
use fairlead_schema::{FieldError, FieldPath, Schema};
use serde_json::Value;

use super::invalid;

/// A v1alpha1 object as it will be stored.
pub(super) struct ConvertedVersion {
    pub(super) object: Value,
}

impl ConvertedVersion {
    /// Converts an object.
    ///
    /// # Errors
    /// 400 if it cannot be expressed in v1alpha2.
    pub(super) fn of(write: &AdmissionRequest<'_>, object: &Value) -> Result<Self, Status> {
        let object = apis_to_v1alpha2(object.clone()).map_err(|error| {
            let kind = &write.resource.kind;
            Status::bad_request(format!("failed to convert v1alpha1 {kind} to v1alpha2: {error}"))
        })?;
        Ok(Self { object })
    }

    /// Validates the object by the schema and the rules of v1alpha2. Two fields of v1alpha1 may become the same entry, and
    /// annotations are not validated otherwise.
    ///
    /// # Errors
    /// 422.
    pub(super) fn validate(&self, write: &AdmissionRequest<'_>) -> Result<(), Status> {
        let Shape::Structural(schema) = &write.resource.versions.storage.shape else { return Ok(()) };
        let errors = self.errors(&write.resource.name, schema);
        if errors.is_empty() { Ok(()) } else { Err(invalid(write, &errors)) }
    }

    fn errors(&self, name: &ResourceName, schema: &Schema) -> Vec<FieldError> {
        let mut errors = schema.validate(&self.object);
        let definition = fairlead_api::resource(&name.group, &name.resource);
        let violations = definition.map(|known| known.validate_rules("v1alpha2", None, &self.object));
        errors.extend(violations.into_iter().flatten().map(|violation| {
            FieldError::invalid(FieldPath::new(violation.path), &violation.value, &violation.message)
        }));
        errors
    }
}

/// An annotation with a list.
pub(super) struct SavedList<'o> {
    key: &'static str,
    text: &'o str,
    /// `None` if the text is not a list of objects.
    pub(super) items: Option<Vec<Value>>,
}

impl SavedList<'_> {
    /// The error of the annotation.
    pub(super) fn error(&self, detail: &str) -> FieldError {
        let path = FieldPath::new("metadata").child("annotations").key(self.key);
        FieldError::invalid_str(path, self.text, detail)
    }
}

/// The list in an annotation; `None` if there is none.
pub(super) fn saved_list<'o>(object: &'o Value, key: &'static str) -> Option<SavedList<'o>> {
    let text = object["metadata"]["annotations"][key].as_str()?;
    let items: Option<Vec<Value>> = serde_json::from_str(text).ok();
    Some(SavedList { key, text, items: items.filter(|items| items.iter().all(Value::is_object)) })
}

/// Group, resource and identity of a claim, which identify it.
pub(super) fn claim_key(claim: &Value) -> [&str; 3] {
    ["group", "resource", "identityHash"].map(|field| claim[field].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use fairlead_schema::CompileOptions;
    use serde_json::json;

    #[test]
    fn what_annotations_add_is_validated() {
        let saved =
            |key: &str, value: Value| json!({format!("apis.v1alpha2.kcp.io/{key}"): value.to_string()});
        let virtual_storage =
            json!({"virtual": {"identityHash": "x", "reference": {"kind": "K", "name": "n"}}});
        let resource = |storage: &Value| json!([{"group": "b.io", "name": "a", "schema": "v1.a.b.io", "storage": storage}]);
        let claims = json!([{"resource": "secrets", "all": true, "state": "Accepted"}]);
        let reference = json!({"export": {"path": "root", "name": "a"}});
        let cases: Vec<(&str, Value, Value, Option<&str>)> = vec![
            ("APIExport", json!({}), json!({"latestResourceSchemas": ["v1.a.b.io", "v1.c.b.io"]}), None),
            (
                "APIExport",
                json!({}),
                json!({"latestResourceSchemas": ["v1.a.b.io", "v2.a.b.io"]}),
                Some("spec.resources[1]: Duplicate value"),
            ),
            ("APIExport", saved("resource-schemas", resource(&virtual_storage)), json!({}), None),
            (
                "APIExport",
                saved("resource-schemas", resource(&json!({}))),
                json!({}),
                Some("spec.resources[0].storage: Invalid value"),
            ),
            (
                "APIExport",
                saved("resource-schemas", json!([{"group": 5}])),
                json!({}),
                Some("spec.resources[0].name: Required value"),
            ),
            (
                "APIBinding",
                saved(
                    "acceptable-permission-claims",
                    json!([{"resource": "secrets", "verbs": ["get"], "selector": {"matchAll": true}}]),
                ),
                json!({"reference": reference, "permissionClaims": claims}),
                None,
            ),
            (
                "APIBinding",
                saved("acceptable-permission-claims", json!([{"resource": "secrets", "verbs": [5]}])),
                json!({"reference": reference, "permissionClaims": claims}),
                Some("spec.permissionClaims[0].verbs[0]: Invalid value"),
            ),
        ];
        for (kind, annotations, spec, expected) in cases {
            let object = json!({
                "apiVersion": "apis.kcp.io/v1alpha1", "kind": kind,
                "metadata": {"name": "a", "annotations": annotations}, "spec": spec,
            });
            let converted = ConvertedVersion { object: apis_to_v1alpha2(object).unwrap() };
            let name = ResourceName::new("apis.kcp.io", &format!("{}s", kind.to_lowercase()));
            let definition = fairlead_api::resource(&name.group, &name.resource).unwrap();
            let version = definition.storage_version().unwrap();
            let schema = Schema::compile(&version.schema, &CompileOptions::structural()).unwrap();
            let found: Vec<String> =
                converted.errors(&name, &schema).iter().map(ToString::to_string).collect();
            match expected {
                None => assert_eq!(found, Vec::<String>::new(), "{}", converted.object),
                Some(expected) => assert!(found.iter().any(|text| text.starts_with(expected)), "{found:?}"),
            }
        }
    }
}
