//! Compiles the rules of an APIConversion and checks them against the schemas of the versions.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use fairlead_cel::{CompileError, DeclType, Environment, Type, Variable};
use serde_json::Value;

use super::field_names::FieldNames;
use super::{Rule, Transformation, VersionConversion};
use crate::field::{FieldError, FieldPath, MAX_FINDINGS};

/// Without variables. Building it costs more than compiling an expression.
static BASE: LazyLock<Environment> = LazyLock::new(Environment::default);

/// Maximum number of rules of an APIConversion: compiling them takes some 20 ms.
const MAX_RULES: usize = 1_000;

const RESERVED: &str = "must not be in apiVersion, kind or metadata";

pub(super) fn compile(
    api_conversion: &Value,
    schema: &Value,
) -> Result<Vec<VersionConversion>, Vec<FieldError>> {
    let versions = schema["spec"]["versions"].as_array().into_iter().flatten();
    let schemas = versions.filter_map(|version| {
        let schema = &version["schema"];
        // In a CustomResourceDefinition it is one level deeper.
        Some((version["name"].as_str()?, schema.get("openAPIV3Schema").unwrap_or(schema)))
    });
    let mut compiler = Compiler {
        schemas: schemas.collect(),
        environment: BASE.clone().with_shared_patterns(),
        errors: Vec::new(),
    };
    let path = FieldPath::new("spec").child("conversions");
    let conversions = api_conversion["spec"]["conversions"].as_array().map_or(&[][..], Vec::as_slice);
    let rules: usize = conversions.iter().map(|conversion| list(conversion, "rules").len()).sum();
    if rules > MAX_RULES {
        return Err(vec![FieldError::too_many(path, rules, MAX_RULES)]);
    }
    let compiled = conversions.iter().enumerate();
    let compiled = compiled.filter_map(|(index, one)| compiler.conversion(one, &path.index(index))).collect();
    compiler.errors.truncate(MAX_FINDINGS);
    if compiler.errors.is_empty() { Ok(compiled) } else { Err(compiler.errors) }
}

struct Compiler<'s> {
    /// The schemas of the versions.
    schemas: HashMap<&'s str, &'s Value>,
    environment: Environment,
    errors: Vec<FieldError>,
}

/// A field in a schema.
#[derive(Clone, Copy)]
enum Place<'s> {
    Schema(&'s Value),
    /// Below `x-kubernetes-preserve-unknown-fields`.
    Unspecified,
}

impl<'s> Compiler<'s> {
    /// Compiles a conversion, or adds its errors.
    fn conversion(&mut self, conversion: &Value, path: &FieldPath) -> Option<VersionConversion> {
        let from = text(conversion, "from");
        let to = text(conversion, "to");
        let source = self.version(from, path.child("from"));
        let target = self.version(to, path.child("to"));
        let (source, target) = (source?, target?);
        if from == to {
            let detail = "must be another version than the one to convert from";
            self.errors.push(FieldError::invalid_str(path.child("to"), to, detail));
            return None;
        }
        let rules = list(conversion, "rules").iter().enumerate();
        let path_of_rules = path.child("rules");
        let rules =
            rules.filter_map(|(index, rule)| self.rule(rule, source, target, &path_of_rules.index(index)));
        let rules = rules.collect();
        let preserved = list(conversion, "preserve").iter().filter_map(Value::as_str).enumerate();
        let path_of_preserved = path.child("preserve");
        let preserved = preserved
            .filter_map(|(index, field)| self.preserved(field, source, path_of_preserved.index(index)))
            .collect();
        Some(VersionConversion { from: from.into(), to: to.into(), rules, preserved })
    }

    fn version(&mut self, name: &str, path: FieldPath) -> Option<&'s Value> {
        let schema = self.schemas.get(name).copied();
        if schema.is_none() {
            let detail = "unable to find structural schema for version";
            self.errors.push(FieldError::invalid_str(path, name, detail));
        }
        schema
    }

    fn rule(&mut self, rule: &Value, source: &'s Value, target: &'s Value, path: &FieldPath) -> Option<Rule> {
        let (field, destination) = (text(rule, "field"), text(rule, "destination"));
        let from = self.source(field, source, path.child("field"));
        let to = self.field(destination, target, path.child("destination"));
        let ((from, from_place), (to, to_place)) = (from?, to?);
        let expression = text(rule, "transformation");
        if expression.is_empty() {
            if let (Some(from_type), Some(to_type)) = (type_of(from_place), type_of(to_place))
                && !can_be_copied(from_type, to_type)
            {
                let detail = format!("is of type {to_type}, the field {field} is of type {from_type}");
                self.errors.push(FieldError::invalid_str(path.child("destination"), destination, &detail));
                return None;
            }
            return Some(Rule { source: from, destination: to, transformation: None });
        }
        let transformation = self.transformation(expression, field, from_place, to_place, path)?;
        Some(Rule { source: from, destination: to, transformation: Some(transformation) })
    }

    fn transformation(
        &mut self,
        expression: &str,
        field: &str,
        source: Place<'s>,
        target: Place<'s>,
        path: &FieldPath,
    ) -> Option<Transformation> {
        let declared = match source {
            Place::Schema(schema) => DeclType::from_schema(schema, "selfType0", false),
            Place::Unspecified => None,
        };
        let Some(declared) = declared else {
            let detail = "error creating CEL environment: rule declared on schema that does not support validation \
                          rules type";
            self.errors.push(FieldError::invalid_str(path.child("field"), field, detail));
            return None;
        };
        let path = path.child("transformation");
        let environment = self.environment.clone().with_variable("self", Variable::Json(Arc::new(declared)));
        let program = match environment.compile(expression) {
            Ok(program) => program,
            Err(error) => {
                let detail = match error {
                    CompileError::Invalid(text) => format!("error compiling CEL program: {text}"),
                    CompileError::Constant(text) => format!("error creating CEL program: {text}"),
                };
                self.errors.push(FieldError::invalid_str(path, expression, &detail));
                return None;
            }
        };
        if let Some(expected) = type_of(target).filter(|expected| !can_be(program.output_type(), expected)) {
            let detail = format!("must evaluate to a value of type {expected}");
            self.errors.push(FieldError::invalid_str(path, expression, &detail));
            return None;
        }
        Some(Transformation { environment, program })
    }

    /// A field that a rule reads.
    fn source(&mut self, field: &str, schema: &'s Value, path: FieldPath) -> Option<(FieldNames, Place<'s>)> {
        let names = FieldNames::parse(field);
        // The annotation of preserved fields must not get into a field that is preserved itself.
        if matches!(&*names.text(), "metadata" | "metadata.annotations") {
            let detail = "must not contain the annotations of the object";
            self.errors.push(FieldError::invalid_str(path, field, detail));
            return None;
        }
        let place = self.place(&names, field, schema, path)?;
        Some((names, place))
    }

    /// A field that a rule writes, or a preserved one.
    fn field(&mut self, field: &str, schema: &'s Value, path: FieldPath) -> Option<(FieldNames, Place<'s>)> {
        let names = FieldNames::parse(field);
        if names.is_reserved() {
            self.errors.push(FieldError::invalid_str(path, field, RESERVED));
            return None;
        }
        let place = self.place(&names, field, schema, path)?;
        Some((names, place))
    }

    fn preserved(&mut self, field: &str, schema: &'s Value, path: FieldPath) -> Option<FieldNames> {
        self.field(field, schema, path).map(|(names, _)| names)
    }

    fn place(
        &mut self,
        names: &FieldNames,
        field: &str,
        schema: &'s Value,
        path: FieldPath,
    ) -> Option<Place<'s>> {
        place(names, schema)
            .map_err(|detail| self.errors.push(FieldError::invalid_str(path, field, &detail)))
            .ok()
    }
}

/// Finds a field in a schema.
fn place<'s>(names: &FieldNames, schema: &'s Value) -> Result<Place<'s>, String> {
    let mut schema = schema;
    let mut visited: Vec<&str> = Vec::new();
    for name in names.names() {
        let preserves_unknown = schema["x-kubernetes-preserve-unknown-fields"] == true;
        if schema["type"] != "object" && !(preserves_unknown && schema["type"].is_null()) {
            return Err(format!("expected field \"{}\" to be an object", visited.join(".")));
        }
        visited.push(name);
        let additional = &schema["additionalProperties"];
        if let Some(property) = schema["properties"].get(name) {
            schema = property;
        } else if additional.is_object() {
            schema = additional;
        } else if preserves_unknown || additional == &Value::Bool(true) {
            return Ok(Place::Unspecified);
        } else {
            return Err(format!("field \"{}\" doesn't exist", visited.join(".")));
        }
    }
    Ok(Place::Schema(schema))
}

/// The type of a field, if it has exactly one.
fn type_of(place: Place<'_>) -> Option<&str> {
    match place {
        Place::Schema(schema) if schema["x-kubernetes-int-or-string"] != true => schema["type"].as_str(),
        _ => None,
    }
}

fn can_be_copied(from: &str, to: &str) -> bool {
    from == to || (from, to) == ("integer", "number")
}

/// Whether a result of this type can be a value of a type of a schema.
fn can_be(result: &Type, expected: &str) -> bool {
    match result {
        Type::Bool => expected == "boolean",
        Type::Int | Type::Uint => matches!(expected, "integer" | "number"),
        Type::Double => expected == "number",
        Type::String | Type::Bytes | Type::Duration | Type::Timestamp => expected == "string",
        Type::List(_) => expected == "array",
        Type::Map(_) | Type::Object(_) => expected == "object",
        // They have no form in JSON.
        Type::Opaque(..) | Type::Type(_) => false,
        Type::Dyn | Type::Error | Type::Null | Type::Param(_) | Type::Variable(_) => true,
    }
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

fn list<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}
