//! The defaults of a schema: they must be pruned and valid.

use serde_json::Value;

use super::super::prune::Fields;
use super::super::{
    CompileOptions, DefaultValue, Inner, NodeId, Property, Schema, embedded, prune, rules, validate,
};
use crate::field::{FieldError, FieldPath, MAX_FINDINGS};
use crate::structural::rules::Rules;

/// Validates the defaults of a schema that is structural.
pub(super) fn check(schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if schema.get("default").is_some_and(|default| !default.is_null()) {
        errors.push(FieldError::forbidden(path.child("default"), "must not be set at the root"));
    }
    if !has_default(schema) {
        return;
    }
    // The caller compiles the schema too and reports its errors.
    if let Ok(compiled) = Schema::compile(schema, &CompileOptions::defaults()) {
        let schema = &compiled.inner;
        each_property(schema, schema.root, path, &mut |owner, property, path| {
            let is_resource = owner == schema.root || schema.node(owner).embedded_resource;
            if is_resource && let Some(error) = embedded::default_of_type(property, path) {
                errors.push(error);
                return;
            }
            check_default(schema, property, path, errors);
        });
    }
}

/// The errors of defaults that break the schema's rules.
pub(super) fn check_by_rules(schema: &Inner, rules: &Rules, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut check = |_: NodeId, property: &Property, path: &FieldPath| {
        if let Some(DefaultValue { value: default, .. }) = property.default.as_deref() {
            errors.extend(rules::check_default(
                schema,
                rules,
                property.node,
                default,
                &path.child("default"),
            ));
        }
    };
    each_property(schema, schema.root, path, &mut check);
    errors
}

fn check_default(schema: &Inner, property: &Property, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if errors.len() >= MAX_FINDINGS {
        return;
    }
    let Some(DefaultValue { value: default, .. }) = property.default.as_deref() else { return };
    let path = path.child("default");
    // As in Kubernetes, the metadata of embedded resources is pruned, but may have unknown fields.
    let mut default = default.clone();
    let has_unknown_fields =
        !prune::prune_fields(schema, property.node, &mut default.clone(), Fields::OfSchema).is_empty();
    let wrong_types = embedded::wrong_types(schema, property.node, &default, &path);
    if wrong_types.is_empty() {
        prune::prune_fields(schema, property.node, &mut default, Fields::OfMetadata);
    }
    if has_unknown_fields {
        errors.push(FieldError::invalid(path.clone(), &default, "must not have unknown fields"));
    }
    // Nested defaults are not filled in, and lists may have duplicates: Kubernetes finds both in objects only. Wrong types
    // of embedded resources hide their other errors, which hide those of the schema.
    let mut findings = wrong_types;
    if findings.is_empty() {
        findings = embedded::validate(schema, property.node, &default, &path);
    }
    if findings.is_empty() {
        findings = validate::validate(schema, property.node, &default, None, &path);
    }
    errors.extend(findings);
}

/// Calls a function for each property and for items, with the nodes that have them and their paths in the schema. As in Kubernetes, schemas of map
/// entries are left out: a map entry that is absent has no default.
fn each_property(
    schema: &Inner,
    id: NodeId,
    path: &FieldPath,
    call: &mut dyn FnMut(NodeId, &Property, &FieldPath),
) {
    let node = schema.node(id);
    let mut visit = |property: &Property, path: FieldPath| {
        call(id, property, &path);
        each_property(schema, property.node, &path, call);
    };
    if let Some(items) = &node.items {
        visit(items, path.child("items"));
    }
    for property in &node.properties {
        visit(property, path.child("properties").key(&property.name));
    }
}

fn has_default(schema: &Value) -> bool {
    let Some(fields) = schema.as_object() else { return false };
    let properties = fields.get("properties").and_then(Value::as_object);
    fields.get("default").is_some_and(|default| !default.is_null())
        || fields.get("items").is_some_and(has_default)
        || properties.is_some_and(|properties| properties.values().any(has_default))
}
