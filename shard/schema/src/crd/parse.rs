//! Parses the JSON of a `spec` into a [`CrdSpec`] and collects its errors.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use super::scale::ScalePaths;
use super::{CrdNames, CrdSpec, CrdVersion, SelectableField, conversion, rules};
use crate::field::{FieldError, FieldPath};
use crate::jsonpath::JsonPath;
use crate::metadata::Scope;
use crate::names;
use crate::printer_column::{ColumnType, PrinterColumn};
use crate::structural::{CompileOptions, Schema, check_structural};
use crate::version_order::version_priority;

/// The formats that a printer column may have.
const COLUMN_FORMATS: [&str; 9] =
    ["int32", "int64", "float", "double", "byte", "date", "date-time", "password", "binary"];

/// Maximum number of selectable fields of a version.
const MAX_SELECTABLE_FIELDS: usize = 8;

/// Where the errors of a field appear that has the same value in all versions.
#[derive(Clone, Copy)]
pub(super) enum CommonErrors {
    /// Once, at a field of the `spec`, as in CustomResourceDefinitions.
    InSpec,
    /// In each version, as in APIResourceSchemas.
    InVersions,
}

/// Parses a `spec`. Returns `None` only if it adds errors.
pub(super) fn spec(
    spec: &Value,
    path: &FieldPath,
    common_errors: CommonErrors,
    errors: &mut Vec<FieldError>,
) -> Option<CrdSpec> {
    let group = text(spec, "group").to_owned();
    rules::group(&group, &path.child("group"), errors);
    let scope = scope(spec, &path.child("scope"), errors);
    let mut common = Vec::new();
    let common_fields = match common_errors {
        CommonErrors::InSpec => CommonFields::of(version_list(spec)),
        CommonErrors::InVersions => CommonFields::none(),
    };
    let versions = versions(spec, &path.child("versions"), &common_fields, errors, &mut common);
    let names = CrdNames::read(spec.get("names").unwrap_or(&Value::Null));
    rules::required_names(&names, &path.child("names"), errors);
    rules::names(&names, &path.child("names"), errors);
    errors.append(&mut common);
    let conversion = conversion::parse(spec.get("conversion"), &path.child("conversion"), errors);
    let mut versions = versions?;
    let current: Vec<String> = versions
        .iter()
        .filter(|version| version.served && version.deprecation_warning.is_none())
        .map(|version| version.name.clone())
        .collect();
    for version in &mut versions {
        if let Some(warning) = version.deprecation_warning.as_mut().filter(|warning| warning.is_empty()) {
            *warning = format!("{group}/{} {} is deprecated", version.name, names.kind);
            let better =
                current.iter().filter(|name| version_priority(name) < version_priority(&version.name));
            if let Some(best) = better.min_by_key(|name| version_priority(name)) {
                warning.push_str(&format!("; use {group}/{best} {}", names.kind));
            }
        }
    }
    Some(CrdSpec { group, names, scope: scope?, versions, conversion: conversion? })
}

fn scope(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) -> Option<Scope> {
    match text(spec, "scope") {
        "Namespaced" => Some(Scope::Namespaced),
        "Cluster" => Some(Scope::Cluster),
        "" => {
            errors.push(FieldError::required(path.clone(), ""));
            None
        }
        other => {
            let known = ["Cluster", "Namespaced"];
            errors.push(FieldError::not_supported(path.clone(), &Value::from(other), &known));
            None
        }
    }
}

/// Parses the versions. `common` gets the errors that Kubernetes reports for the `spec`, after those of the names.
fn versions(
    spec: &Value,
    path: &FieldPath,
    common_fields: &CommonFields,
    errors: &mut Vec<FieldError>,
    common: &mut Vec<FieldError>,
) -> Option<Vec<CrdVersion>> {
    let list = spec.get("versions").unwrap_or(&Value::Null);
    let items = version_list(spec);
    let mut parsed = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let mut findings = Vec::new();
        parsed.push(version(item, &path.index(index), &mut findings));
        for finding in findings {
            match common_fields.place(finding, index, path) {
                Place::Version(error) => errors.push(error),
                Place::Spec(error) if index == 0 => common.push(error),
                Place::Spec(_) => {}
            }
        }
    }
    let mut names = HashSet::new();
    let unique = items.iter().all(|item| names.insert(text(item, "name")));
    if !unique {
        errors.push(FieldError::invalid(path.clone(), list, "must contain unique version names"));
    }
    let stored = items.iter().filter(|item| is_true(item, "storage")).count();
    if stored != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid(path.clone(), list, detail));
    }
    parsed.into_iter().collect()
}

fn version_list(spec: &Value) -> &[Value] {
    spec.get("versions").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The fields of a version that have the same value in all versions. Kubernetes moves them to the `spec` before it
/// validates them, so their errors appear once and name a field of the `spec`.
struct CommonFields(Vec<(&'static str, &'static str)>);

impl CommonFields {
    /// Fields of a version, and those of the `spec`.
    const MOVED: [(&str, &str); 4] = [
        ("schema", "validation"),
        ("subresources", "subresources"),
        ("additionalPrinterColumns", "additionalPrinterColumns"),
        ("selectableFields", "selectableFields"),
    ];

    fn none() -> Self {
        Self(Vec::new())
    }

    fn of(versions: &[Value]) -> Self {
        let is_common = |(field, _): &(&str, &str)| {
            let mut values = versions.iter().map(|version| version.get(field).unwrap_or(&Value::Null));
            // A schema is required in each version, so its absence is an error of the version.
            let has_content = |value: &Value| {
                *field != "schema" || value.get("openAPIV3Schema").is_some_and(|schema| !schema.is_null())
            };
            values.next().is_some_and(|first| has_content(first) && values.all(|other| other == first))
        };
        Self(Self::MOVED.into_iter().filter(is_common).collect())
    }

    /// The error of version `index` in the form of Kubernetes.
    fn place(&self, error: FieldError, index: usize, versions: &FieldPath) -> Place {
        let Some(spec) = versions.as_str().strip_suffix("versions") else { return Place::Version(error) };
        for (field, field_of_spec) in &self.0 {
            let of_version = versions.index(index).child(field);
            let Some(rest) = error.path.as_str().strip_prefix(of_version.as_str()) else { continue };
            if rest.is_empty() || rest.starts_with(['.', '[']) {
                let of_spec = format!("{spec}{field_of_spec}");
                return Place::Spec(FieldError {
                    path: FieldPath::new(format!("{of_spec}{rest}")),
                    // Some messages name another place of the schema.
                    message: error.message.replace(of_version.as_str(), &of_spec),
                    ..error
                });
            }
        }
        Place::Version(error)
    }
}

/// Where an error is reported.
enum Place {
    Version(FieldError),
    /// In the `spec`, once for all versions.
    Spec(FieldError),
}

fn version(value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) -> Option<CrdVersion> {
    let before = errors.len();
    let name = text(value, "name").to_owned();
    let findings = names::dns1035_label(&name);
    if !findings.is_empty() {
        errors.push(FieldError::invalid_str(path.child("name"), &name, &findings.join(",")));
    }
    let deprecated = is_true(value, "deprecated");
    let warning = value.get("deprecationWarning").and_then(Value::as_str);
    rules::deprecation_warning(deprecated, warning, &path.child("deprecationWarning"), errors);
    let (schema, open_api_schema) = schema(value, path, errors)?;
    let subresources = value.get("subresources").unwrap_or(&Value::Null);
    let scale = subresources.get("scale").filter(|scale| !scale.is_null());
    let scale =
        scale.and_then(|scale| ScalePaths::parse(scale, &path.child("subresources").child("scale"), errors));
    let columns = columns(value, &path.child("additionalPrinterColumns"), errors);
    let selectable_fields = selectable_fields(value, &schema, &path.child("selectableFields"), errors);
    (errors.len() == before).then(|| CrdVersion {
        name,
        served: is_true(value, "served"),
        storage: is_true(value, "storage"),
        deprecation_warning: deprecated.then(|| warning.unwrap_or_default().to_owned()),
        schema,
        open_api_schema,
        has_status: subresources.get("status").is_some_and(|status| !status.is_null()),
        scale,
        columns,
        selectable_fields,
    })
}

fn schema(value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) -> Option<(Schema, Arc<Value>)> {
    let path = path.child("schema").child("openAPIV3Schema");
    let schema = value.get("schema").and_then(|schema| schema.get("openAPIV3Schema"));
    let Some(schema) = schema.filter(|schema| !schema.is_null()) else {
        errors.push(FieldError::required(path, ""));
        return None;
    };
    let findings = check_structural(schema, &path);
    let is_structural = findings.is_empty();
    errors.extend(findings);
    let compiled = match Schema::compile(schema, &CompileOptions::structural()) {
        Ok(compiled) => compiled,
        Err(findings) => {
            // The structural check has already reported the error with a better text.
            if is_structural {
                errors.extend(findings.into_iter().map(|finding| below(&path, finding)));
            }
            return None;
        }
    };
    let source = Arc::new(schema.clone());
    if !is_structural {
        return Some((compiled, source));
    }
    match compiled.clone().with_rules(schema, &path) {
        Ok(compiled) => Some((compiled, source)),
        Err(findings) => {
            errors.extend(findings);
            Some((compiled, source))
        }
    }
}

fn below(path: &FieldPath, error: FieldError) -> FieldError {
    let path = if error.path.is_root() { path.clone() } else { path.child(error.path.as_str()) };
    FieldError { path, ..error }
}

fn columns(value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) -> Vec<PrinterColumn> {
    let items =
        value.get("additionalPrinterColumns").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if items.is_empty() {
        return vec![PrinterColumn::age()];
    }
    let columns = items.iter().enumerate();
    columns.filter_map(|(index, item)| column(item, &path.index(index), errors)).collect()
}

fn column(value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) -> Option<PrinterColumn> {
    let name = text(value, "name");
    if name.is_empty() {
        errors.push(FieldError::required(path.child("name"), ""));
    }
    let type_name = text(value, "type");
    let column_type = ColumnType::parse(type_name);
    if column_type.is_none() {
        let detail = format!("must be one of {}", ColumnType::NAMES.join(","));
        errors.push(if type_name.is_empty() {
            FieldError::required(path.child("type"), &detail)
        } else {
            FieldError::invalid_str(path.child("type"), type_name, &detail)
        });
    }
    let format = text(value, "format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let mut formats = COLUMN_FORMATS;
        formats.sort_unstable();
        let detail = format!("must be one of {}", formats.join(","));
        errors.push(FieldError::invalid_str(path.child("format"), format, &detail));
    }
    let json_path = text(value, "jsonPath");
    let path_of_path = path.child("JSONPath");
    let parsed = if json_path.is_empty() {
        errors.push(FieldError::required(path_of_path, ""));
        None
    } else if !json_path.starts_with('.') {
        let detail = "must be a simple json path starting with .";
        errors.push(FieldError::invalid_str(path_of_path, json_path, detail));
        None
    } else {
        let parsed = JsonPath::parse(json_path);
        parsed
            .map_err(|error| {
                errors.push(FieldError::invalid_str(path_of_path, json_path, &error.to_string()))
            })
            .ok()
    };
    Some(PrinterColumn {
        name: name.to_owned(),
        column_type: column_type?,
        format: format.to_owned(),
        description: text(value, "description").to_owned(),
        priority: value.get("priority").and_then(Value::as_i64).unwrap_or(0),
        path: parsed?,
    })
}

fn selectable_fields(
    value: &Value,
    schema: &Schema,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) -> Vec<SelectableField> {
    let items = value.get("selectableFields").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if items.len() > MAX_SELECTABLE_FIELDS {
        errors.push(FieldError::too_many(path.clone(), items.len(), MAX_SELECTABLE_FIELDS));
        return Vec::new();
    }
    let mut fields: Vec<SelectableField> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let path = path.index(index).child("jsonPath");
        let json_path = text(item, "jsonPath");
        match selectable_field(json_path, schema) {
            Ok(field) if fields.contains(&field) => {
                errors.push(FieldError::duplicate(path, &Value::from(json_path)));
            }
            Ok(field) => fields.push(field),
            Err(_) if json_path.is_empty() => errors.push(FieldError::required(path, "")),
            Err(detail) => errors.push(FieldError::invalid_str(path, json_path, &detail)),
        }
    }
    fields
}

fn selectable_field(json_path: &str, schema: &Schema) -> Result<SelectableField, String> {
    let path = JsonPath::parse(json_path).map_err(|error| format!("is an invalid path: {error}"))?;
    let names = path.field_names().filter(|_| json_path.starts_with('.'));
    let Some(names) = names else {
        return Err("is an invalid path: must be a path of fields such as .spec.color".to_owned());
    };
    if names.first() == Some(&"metadata") {
        return Err("must not point to fields in metadata".to_owned());
    }
    let Some(field) = schema.field(&names) else {
        return Err("is an invalid path: does not refer to a valid field".to_owned());
    };
    if !field.is_selectable() {
        return Err(
            "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                    formats are allowed."
                .to_owned(),
        );
    }
    let label = json_path.trim_start_matches('.').to_owned();
    Ok(SelectableField { label, path })
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn is_true(value: &Value, field: &str) -> bool {
    value.get(field) == Some(&Value::Bool(true))
}
