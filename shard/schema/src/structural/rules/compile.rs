//! Compiles the rules of a schema and checks what Kubernetes checks when a CRD is written.

use std::sync::{Arc, LazyLock};

use fairlead_cel::{CompileError, DeclKind, DeclType, Environment, FieldType, Program, Type, Variable};
use rustc_hash::FxHashMap;
use serde_json::{Map, Value};

use super::cost::{self, Cardinality, TotalCost};
use super::declaration::Declaration;
use super::{NodeRules, Reason, Rule, Rules, field_path};
use crate::field::{FieldError, FieldPath};
use crate::structural::{Additional, Inner, NodeId};

/// Without variables. Building it costs more than compiling a rule, so all rules share it.
static BASE: LazyLock<Environment> = LazyLock::new(Environment::default);

/// The name of the type of `self`. Kubernetes appends a random number.
const SELF_TYPE: &str = "selfType0";

const KEYWORD: &str = "x-kubernetes-validations";

/// Compiles all rules of a valid structural schema, whose arena is `inner`, at `path` in its definition. Returns `None`
/// if there are no rules.
///
/// Costs some 20 µs per rule. The types are derived once for all rules.
pub(in crate::structural) fn compile(
    schema: &Value,
    inner: &Inner,
    path: &FieldPath,
) -> Result<Option<Rules>, Vec<FieldError>> {
    let Some(fields) = schema.as_object().filter(|_| has_keyword(schema)) else {
        return Ok(None);
    };
    let mut compiler = Compiler {
        inner,
        environment: BASE.clone().with_shared_patterns(),
        rules: Rules {
            by_node: FxHashMap::default(),
            has_rules: vec![false; inner.nodes.len()].into_boxed_slice(),
        },
        total: TotalCost::default(),
        declaration_errors: Vec::new(),
        errors: Vec::new(),
    };
    let declared = DeclType::from_schema(schema, SELF_TYPE, true).map(Arc::new);
    if let Some(declared) = &declared {
        // Registers the types of the whole schema, which the rules at all places share.
        compiler.environment =
            compiler.environment.with_variable("self", Variable::Json(Arc::clone(declared)));
    }
    let place = Place { path, declared, cardinality: Some(1), uncorrelatable: None };
    compiler.node(fields, inner.root, &place);
    let Compiler { rules, total, mut declaration_errors, errors, .. } = compiler;
    declaration_errors.extend(errors);
    declaration_errors.extend(total.check(path));
    if declaration_errors.is_empty() { Ok(Some(rules)) } else { Err(declaration_errors) }
}

/// The errors of rules that do not depend on their expressions, for a schema that has other errors.
pub(in crate::structural) fn check_declarations(schema: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(fields) = schema.as_object().filter(|_| has_keyword(schema)) {
        declarations_below(fields, path, &mut errors);
    }
    errors
}

fn declarations_below(fields: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (index, rule) in rules_of(fields) {
        errors.extend(Declaration::read(rule).check(fields, &path.child(KEYWORD).index(index)));
    }
    for (child, name) in children(fields) {
        if let Some(child) = child.as_object() {
            declarations_below(child, &name.path(path), errors);
        }
    }
}

fn has_keyword(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => {
            fields.get(KEYWORD).is_some_and(|rules| rules.as_array().is_some_and(|rules| !rules.is_empty()))
                || fields.values().any(has_keyword)
        }
        Value::Array(items) => items.iter().any(has_keyword),
        _ => false,
    }
}

fn rules_of(fields: &Map<String, Value>) -> impl Iterator<Item = (usize, &Value)> {
    fields.get(KEYWORD).and_then(Value::as_array).into_iter().flatten().enumerate()
}

/// The keyword by which a schema contains another one.
#[derive(Clone, Copy)]
enum ChildName<'s> {
    Property(&'s str),
    Items,
    AdditionalProperties,
}

impl ChildName<'_> {
    fn path(self, parent: &FieldPath) -> FieldPath {
        match self {
            Self::Property(name) => parent.child("properties").key(name),
            Self::Items => parent.child("items"),
            Self::AdditionalProperties => parent.child("additionalProperties"),
        }
    }
}

/// The schemas within a schema. `allOf` and its kin cannot have rules.
fn children(fields: &Map<String, Value>) -> impl Iterator<Item = (&Value, ChildName<'_>)> {
    let named = |name: &str, child| Some((fields.get(name)?, child));
    let properties = fields.get("properties").and_then(Value::as_object).into_iter().flatten();
    properties
        .map(|(name, schema)| (schema, ChildName::Property(name.as_str())))
        .chain(named("items", ChildName::Items))
        .chain(named("additionalProperties", ChildName::AdditionalProperties))
}

/// A place in the schema.
struct Place<'p> {
    path: &'p FieldPath,
    /// `None` if expressions cannot use values of this place.
    declared: Option<Arc<DeclType>>,
    cardinality: Cardinality,
    /// The nearest schema above whose items have no identity, so that there is no old value.
    uncorrelatable: Option<&'p FieldPath>,
}

struct Compiler<'i> {
    inner: &'i Inner,
    environment: Environment,
    rules: Rules,
    total: TotalCost,
    /// Errors that do not depend on expressions. Kubernetes lists them first.
    declaration_errors: Vec<FieldError>,
    errors: Vec<FieldError>,
}

/// The findings about a schema and those below it.
#[derive(Clone, Copy, Default)]
struct Outcome {
    has_rules: bool,
    /// Expressions above are not checked then, as in Kubernetes.
    has_declaration_errors: bool,
}

impl Compiler<'_> {
    fn node(&mut self, fields: &Map<String, Value>, id: NodeId, place: &Place<'_>) -> Outcome {
        let mut outcome = Outcome::default();
        for (schema, name) in children(fields) {
            let (Some(child), Some(child_fields)) = (self.child(id, name), schema.as_object()) else {
                continue;
            };
            let declared = declared_child(place.declared.as_deref(), name).or_else(|| {
                // Below a schema without a type.
                let declare = || DeclType::from_schema(schema, &format!("selfType{child}"), false);
                if has_keyword(schema) { declare().map(Arc::new) } else { None }
            });
            let is_map_list = fields.get("x-kubernetes-list-type").and_then(Value::as_str) == Some("map");
            let found = self.node(
                child_fields,
                child,
                &Place {
                    path: &name.path(place.path),
                    declared,
                    cardinality: cost::below(place.cardinality, fields),
                    uncorrelatable: match name {
                        ChildName::Items if !is_map_list => Some(place.path),
                        _ => place.uncorrelatable,
                    },
                },
            );
            outcome.has_rules |= found.has_rules;
            outcome.has_declaration_errors |= found.has_declaration_errors;
        }
        let path = place.path.child(KEYWORD);
        let declarations: Vec<Declaration<'_>> =
            rules_of(fields).map(|(_, rule)| Declaration::read(rule)).collect();
        for (index, declaration) in declarations.iter().enumerate() {
            let errors = declaration.check(fields, &path.index(index));
            outcome.has_declaration_errors |= !errors.is_empty();
            self.declaration_errors.extend(errors);
        }
        if !declarations.is_empty() && !outcome.has_declaration_errors {
            self.rules_of_node(fields, id, place, &declarations, &path);
        }
        outcome.has_rules |= !declarations.is_empty();
        if let Some(has_rules) = self.rules.has_rules.get_mut(id as usize) {
            *has_rules = outcome.has_rules;
        }
        outcome
    }

    fn child(&self, id: NodeId, name: ChildName<'_>) -> Option<NodeId> {
        let node = self.inner.node(id);
        match name {
            ChildName::Property(name) => node.property(name).map(|property| property.node),
            ChildName::Items => node.items.as_ref().map(|property| property.node),
            ChildName::AdditionalProperties => match &node.additional {
                Additional::Schema(property) => Some(property.node),
                _ => None,
            },
        }
    }

    fn rules_of_node(
        &mut self,
        fields: &Map<String, Value>,
        id: NodeId,
        place: &Place<'_>,
        declarations: &[Declaration<'_>],
        path: &FieldPath,
    ) {
        let Some(declared) = &place.declared else {
            let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: \
                          unable to convert structural schema to CEL declarations";
            self.errors.push(FieldError::internal(path.clone(), detail));
            return;
        };
        let with_old = |old: Variable| {
            let environment =
                self.environment.clone().with_variable("self", Variable::Json(declared.clone()));
            environment.with_variable("oldSelf", old)
        };
        let environment = with_old(Variable::Json(declared.clone()));
        let optional_environment = with_old(Variable::OptionalJson(declared.clone()));
        let mut rules = Vec::with_capacity(declarations.len());
        for (index, declaration) in declarations.iter().enumerate() {
            let has_optional_old = declaration.optional_old_self == Some(true);
            let environment = if has_optional_old { &optional_environment } else { &environment };
            rules.extend(self.rule(fields, place, declaration, environment, &path.index(index)));
        }
        self.rules.by_node.insert(id, NodeRules { environment, optional_environment, rules });
    }

    /// Compiles one rule, or adds its errors.
    fn rule(
        &mut self,
        fields: &Map<String, Value>,
        place: &Place<'_>,
        declaration: &Declaration<'_>,
        environment: &Environment,
        path: &FieldPath,
    ) -> Option<Rule> {
        let declared = place.declared.as_deref()?;
        let rule_path = path.child("rule");
        let program = match compile_as(environment, declaration.rule, declared, &Type::Bool) {
            Ok(program) => program,
            Err(fault) => {
                let detail = match &fault {
                    Fault::Compile(error) => error,
                    Fault::Type => "cel expression must evaluate to a bool",
                };
                self.errors.push(declaration.invalid(rule_path, detail));
                self.errors.extend(needless_optional(declaration, path));
                return None;
            }
        };
        let cardinality = place.cardinality.unwrap_or_else(|| declared.max_cardinality());
        let cost = program.estimate().max.saturating_mul(cardinality);
        self.errors.extend(cost::check("estimated rule cost", cost, &rule_path));
        self.total.add(cost, &rule_path);
        let message_expression = self.message_expression(declaration, declared, environment, path);
        let is_transition = program.uses("oldSelf");
        if let (true, Some(uncorrelatable)) = (is_transition, place.uncorrelatable) {
            let detail = format!(
                "oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}"
            );
            self.errors.push(FieldError::invalid_str(rule_path, declaration.rule, &detail));
        } else if !is_transition {
            self.errors.extend(needless_optional(declaration, path));
        }
        let label: Box<str> = declaration.label().into();
        let field_path = Some(declaration.field_path).filter(|path| !path.is_empty());
        Some(Rule {
            program,
            is_transition,
            has_optional_old: declaration.optional_old_self == Some(true),
            message: match declaration.message {
                "" => format!("failed rule: {label}").into(),
                message => message.trim().into(),
            },
            label,
            message_expression,
            field_path: field_path.and_then(|path| field_path::normalize(path, fields)).map(Into::into),
            reason: match declaration.reason {
                Some("FieldValueRequired") => Reason::Required,
                Some("FieldValueForbidden") => Reason::Forbidden,
                Some("FieldValueDuplicate") => Reason::Duplicate,
                _ => Reason::Invalid,
            },
        })
    }

    fn message_expression(
        &mut self,
        declaration: &Declaration<'_>,
        declared: &DeclType,
        environment: &Environment,
        path: &FieldPath,
    ) -> Option<(Program, Box<str>)> {
        let source = Some(declaration.message_expression).filter(|source| !source.is_empty())?;
        let path = path.child("messageExpression");
        match compile_as(environment, source, declared, &Type::String) {
            Ok(program) => {
                let cost = program.estimate().max;
                self.errors.extend(cost::check("estimated messageExpression cost", cost, &path));
                self.total.add(cost, &path);
                Some((program, source.into()))
            }
            Err(Fault::Compile(error)) => {
                let error = error.replacen("program instantiation", "instantiation", 1);
                self.errors.push(declaration.invalid(path, &format!("messageExpression {error}")));
                None
            }
            Err(Fault::Type) => {
                let detail = "messageExpression must evaluate to a string";
                self.errors.push(declaration.invalid(path, detail));
                None
            }
        }
    }
}

/// The error of `optionalOldSelf` in a rule without `oldSelf`.
fn needless_optional(declaration: &Declaration<'_>, path: &FieldPath) -> Option<FieldError> {
    let optional = Value::Bool(declaration.optional_old_self?);
    let detail = "may not be set if oldSelf is not used in rule";
    Some(FieldError::invalid(path.child("optionalOldSelf"), &optional, detail))
}

enum Fault {
    Compile(String),
    Type,
}

fn compile_as(
    environment: &Environment,
    source: &str,
    declared: &DeclType,
    expected: &Type,
) -> Result<Program, Fault> {
    let program = environment.compile(source).map_err(|error: CompileError| {
        let mut text = error.to_string();
        // Kubernetes names types by the place of the rule.
        if let DeclKind::Object(object) = declared.kind() {
            text = text.replace(&**object.name(), SELF_TYPE);
        }
        Fault::Compile(text)
    })?;
    if program.output_type() == expected { Ok(program) } else { Err(Fault::Type) }
}

/// The declaration of a part of a value.
fn declared_child(declared: Option<&DeclType>, name: ChildName<'_>) -> Option<Arc<DeclType>> {
    match (declared?.kind(), name) {
        (DeclKind::Object(object), ChildName::Property(name)) => match &object.property(name)?.type_ {
            FieldType::Declared(declared) => Some(Arc::clone(declared)),
            FieldType::Preserved => None,
        },
        (DeclKind::List { items, .. }, ChildName::Items) => Some(Arc::clone(items)),
        (DeclKind::Map(values), ChildName::AdditionalProperties) => Some(Arc::clone(values)),
        _ => None,
    }
}
