//! Compiles the JSON of a schema into the arena of a [`Schema`].

use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;
use serde_json::{Map, Number, Value};

use super::enumeration::Enumeration;
use super::hash::hash_of;
use super::options::{CompileOptions, Dialect};
use super::pattern::{Pattern, PatternBudget};
use super::{
    Additional, Bound, Checks, DefaultValue, Inner, ListType, Node, NodeId, Property, Schema, TypeSet,
    formats, prune,
};
use crate::field::{FieldError, FieldPath};

pub(super) fn compile(schema: &Value, options: &CompileOptions<'_>) -> Result<Schema, Vec<FieldError>> {
    let mut compiler = Compiler {
        options: *options,
        nodes: Vec::new(),
        references: FxHashMap::default(),
        patterns: FxHashMap::default(),
        pattern_budget: PatternBudget::default(),
        errors: Vec::new(),
    };
    let root = compiler.compile_property("", schema, &FieldPath::root()).node;
    if !compiler.errors.is_empty() {
        return Err(compiler.errors);
    }
    let has_embedded_resources = compiler.nodes.iter().any(|node| node.embedded_resource);
    let mut inner = Inner {
        nodes: compiler.nodes,
        root,
        dialect: options.dialect,
        hash: hash_of(schema, options.dialect),
        has_embedded_resources,
        merge_types: OnceLock::new(),
    };
    if options.dialect == Dialect::Structural {
        prune::prune_defaults(&mut inner);
    }
    Ok(Schema { inner: Arc::new(inner), rules: None })
}

/// Maximum number of nodes in a schema. It bounds the memory of a small text such as `allOf: [{},{},…]`.
const MAX_NODES: usize = 100_000;

/// Maximum length of a chain of definitions that consist of a `$ref` only; it stops cycles.
const MAX_ALIASES: usize = 16;

struct Compiler<'a> {
    options: CompileOptions<'a>,
    nodes: Vec<Node>,
    /// The node of each `$ref`. A node is added before it is compiled, because schemas can be recursive.
    references: FxHashMap<String, NodeId>,
    /// The compiled patterns: the same pattern often occurs several times.
    patterns: FxHashMap<String, Pattern>,
    pattern_budget: PatternBudget,
    errors: Vec<FieldError>,
}

impl<'a> Compiler<'a> {
    /// Compiles a schema at one place of use.
    fn compile_property(&mut self, name: &str, schema: &Value, path: &FieldPath) -> Property {
        let mut property = Property {
            name: name.into(),
            node: 0,
            default: default_of(schema),
            nullable: flag(schema, "nullable"),
        };
        let Some(reference) = reference_of(schema) else {
            property.node = self.reserve();
            self.fill(property.node, schema, path);
            return property;
        };
        let Some((reference, target)) = self.resolve_reference(reference) else {
            self.errors.push(FieldError::invalid_str(path.child("$ref"), reference, "cannot be resolved"));
            return property;
        };
        if property.default.is_none() {
            property.default = default_of(target);
        }
        property.nullable |= flag(target, "nullable");
        property.node = match self.references.get(reference) {
            Some(known) => *known,
            None => {
                let node = self.reserve();
                self.references.insert(reference.to_owned(), node);
                self.fill(node, target, path);
                node
            }
        };
        property
    }

    /// The schema that a reference leads to, through definitions that are references themselves.
    fn resolve_reference<'r>(&self, reference: &'r str) -> Option<(&'r str, &'r Value)>
    where
        'a: 'r,
    {
        let mut reference = reference;
        for _ in 0..MAX_ALIASES {
            let target = self.options.definitions.resolve(reference)?;
            match reference_of(target) {
                Some(next) => reference = next,
                None => return Some((reference, target)),
            }
        }
        None
    }

    fn reserve(&mut self) -> NodeId {
        self.nodes.push(Node::default());
        (self.nodes.len() - 1) as NodeId
    }

    fn fill(&mut self, id: NodeId, schema: &Value, path: &FieldPath) {
        if self.nodes.len() > MAX_NODES {
            if self.nodes.len() == MAX_NODES + 1 {
                let detail = format!("must not have more than {MAX_NODES} schemas in it");
                self.errors.push(FieldError::forbidden(FieldPath::root(), &detail));
            }
            return;
        }
        let Some(fields) = schema.as_object() else {
            self.errors.push(FieldError::invalid(path.clone(), schema, "must be a schema object"));
            return;
        };
        let types = self.types(fields, path);
        let mut node = Node {
            types,
            nullable: flag(schema, "nullable"),
            preserve_unknown: flag(schema, "x-kubernetes-preserve-unknown-fields"),
            embedded_resource: flag(schema, "x-kubernetes-embedded-resource"),
            properties: self.properties(fields, path),
            additional: self.additional(fields, path),
            items: None,
            list_type: self.list_type(fields),
            is_atomic_map: fields.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic"),
            checks: None,
        };
        if let Some(items) = fields.get("items") {
            node.items = Some(self.compile_property("", items, &path.child("items")));
        }
        if self.options.dialect == Dialect::OpenApi && is_free_form(&node) {
            node.preserve_unknown = true;
        }
        node.checks = self.checks(fields, types, path).map(Box::new);
        self.nodes[id as usize] = node;
    }

    fn types(&mut self, fields: &Map<String, Value>, path: &FieldPath) -> TypeSet {
        let int_or_string = match self.options.dialect {
            Dialect::StructuralDefaults => false,
            Dialect::Structural => fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)),
            Dialect::OpenApi => {
                fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true))
                    || fields.get("format").and_then(Value::as_str) == Some("int-or-string")
            }
        };
        if int_or_string {
            return TypeSet::INT_OR_STRING;
        }
        match fields.get("type") {
            None => TypeSet::default(),
            Some(Value::String(name)) if name.is_empty() => TypeSet::default(),
            Some(Value::String(name)) => match TypeSet::parse(name) {
                Some(types) => types,
                // The keywords of the schema have been checked.
                None if self.options.dialect == Dialect::StructuralDefaults => TypeSet::default(),
                None => {
                    let known = TypeSet::NAMES.map(|(_, name)| name);
                    let error =
                        FieldError::not_supported(path.child("type"), &Value::from(name.as_str()), &known);
                    self.errors.push(error);
                    TypeSet::default()
                }
            },
            Some(other) => {
                self.errors.push(FieldError::invalid(path.child("type"), other, "must be a string"));
                TypeSet::default()
            }
        }
    }

    fn properties(&mut self, fields: &Map<String, Value>, path: &FieldPath) -> Box<[Property]> {
        let Some(Value::Object(properties)) = fields.get("properties") else {
            return Box::default();
        };
        let path = path.child("properties");
        let mut compiled: Vec<Property> = properties
            .iter()
            .map(|(name, schema)| self.compile_property(name, schema, &path.key(name)))
            .collect();
        compiled.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        compiled.into()
    }

    fn additional(&mut self, fields: &Map<String, Value>, path: &FieldPath) -> Additional {
        match fields.get("additionalProperties") {
            None | Some(Value::Null) => Additional::Unspecified,
            Some(Value::Bool(true)) => Additional::Any,
            Some(Value::Bool(false)) => Additional::Refused,
            Some(schema) => {
                Additional::Schema(self.compile_property("", schema, &path.child("additionalProperties")))
            }
        }
    }

    fn list_type(&self, fields: &Map<String, Value>) -> ListType {
        match fields.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => ListType::Set,
            Some("map") => {
                let keys = fields.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
                let keys = keys.into_iter().flatten().filter_map(Value::as_str).map(Box::from).collect();
                ListType::Map { keys }
            }
            _ => ListType::Atomic,
        }
    }

    fn checks(&mut self, fields: &Map<String, Value>, types: TypeSet, path: &FieldPath) -> Option<Checks> {
        let format = fields.get("format").and_then(Value::as_str).filter(|name| !name.is_empty());
        let format = format
            .filter(|name| self.options.dialect != Dialect::Structural || formats::is_supported(name, types));
        let required = fields.get("required").and_then(Value::as_array);
        let checks = Checks {
            required: required.into_iter().flatten().filter_map(Value::as_str).map(Box::from).collect(),
            enumeration: enumeration(fields),
            pattern: self.pattern(fields, path),
            has_text_format: format.is_some_and(formats::is_text_format),
            format: format.map(Box::from),
            min_length: self.count(fields, "minLength", path),
            max_length: self.count(fields, "maxLength", path),
            min_items: self.count(fields, "minItems", path),
            max_items: self.count(fields, "maxItems", path),
            min_properties: self.count(fields, "minProperties", path),
            max_properties: self.count(fields, "maxProperties", path),
            minimum: self.bound(fields, "minimum", "exclusiveMinimum", path),
            maximum: self.bound(fields, "maximum", "exclusiveMaximum", path),
            multiple_of: self.number(fields, "multipleOf", path).and_then(|number| number.as_f64()),
            all_of: self.nested_list(fields, "allOf", path),
            any_of: self.nested_list(fields, "anyOf", path),
            one_of: self.nested_list(fields, "oneOf", path),
            not: fields.get("not").map(|schema| self.compile_property("", schema, &path.child("not")).node),
        };
        checks.is_needed().then_some(checks)
    }

    fn pattern(&mut self, fields: &Map<String, Value>, path: &FieldPath) -> Option<Pattern> {
        let source = fields.get("pattern").and_then(Value::as_str).filter(|source| !source.is_empty())?;
        if let Some(known) = self.patterns.get(source) {
            return Some(known.clone());
        }
        match self.pattern_budget.compile(source) {
            Ok(pattern) => {
                self.patterns.insert(source.to_owned(), pattern.clone());
                Some(pattern)
            }
            Err(error) => {
                let detail = format!("must be a valid regular expression, but isn't: {error}");
                self.errors.push(FieldError::invalid_str(path.child("pattern"), source, &detail));
                None
            }
        }
    }

    fn count(&mut self, fields: &Map<String, Value>, name: &str, path: &FieldPath) -> Option<usize> {
        let number = self.number(fields, name, path)?;
        let count = number.as_u64().and_then(|count| usize::try_from(count).ok());
        if count.is_none() {
            let value = Value::Number(number);
            self.errors.push(FieldError::invalid(path.child(name), &value, "must be a non-negative integer"));
        }
        count
    }

    fn bound(
        &mut self,
        fields: &Map<String, Value>,
        name: &str,
        exclusive: &str,
        path: &FieldPath,
    ) -> Option<Bound> {
        // Go holds bounds as floats.
        let value = self.number(fields, name, path)?;
        let value = value.as_f64().and_then(Number::from_f64).unwrap_or(value);
        Some(Bound { value, exclusive: fields.get(exclusive) == Some(&Value::Bool(true)) })
    }

    fn number(&mut self, fields: &Map<String, Value>, name: &str, path: &FieldPath) -> Option<Number> {
        match fields.get(name)? {
            Value::Null => None,
            Value::Number(number) => Some(number.clone()),
            other => {
                self.errors.push(FieldError::invalid(path.child(name), other, "must be a number"));
                None
            }
        }
    }

    fn nested_list(&mut self, fields: &Map<String, Value>, name: &str, path: &FieldPath) -> Box<[NodeId]> {
        let Some(schemas) = fields.get(name).and_then(Value::as_array) else {
            return Box::default();
        };
        let path = path.child(name);
        let nodes = schemas.iter().enumerate();
        nodes.map(|(index, schema)| self.compile_property("", schema, &path.index(index)).node).collect()
    }
}

impl Checks {
    fn is_needed(&self) -> bool {
        !self.required.is_empty()
            || self.enumeration.is_some()
            || self.pattern.is_some()
            || self.format.is_some()
            || self.min_length.is_some()
            || self.max_length.is_some()
            || self.min_items.is_some()
            || self.max_items.is_some()
            || self.min_properties.is_some()
            || self.max_properties.is_some()
            || self.minimum.is_some()
            || self.maximum.is_some()
            || self.multiple_of.is_some()
            || !self.all_of.is_empty()
            || !self.any_of.is_empty()
            || !self.one_of.is_empty()
            || self.not.is_some()
    }
}

/// A schema's `$ref`, either direct or wrapped in `allOf: [{$ref}]`, by which OpenAPI adds a description or a default.
fn reference_of(schema: &Value) -> Option<&str> {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        return Some(reference);
    }
    if schema.get("type").is_some() || schema.get("properties").is_some() {
        return None;
    }
    match schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        Some([only]) => only.get("$ref").and_then(Value::as_str),
        _ => None,
    }
}

fn is_free_form(node: &Node) -> bool {
    let is_object = node.types.is_empty() || node.types.contains(TypeSet::OBJECT);
    is_object
        && node.properties.is_empty()
        && node.items.is_none()
        && matches!(node.additional, Additional::Unspecified | Additional::Any)
}

fn enumeration(fields: &Map<String, Value>) -> Option<Enumeration> {
    let values = fields.get("enum").and_then(Value::as_array)?;
    (!values.is_empty()).then(|| Enumeration::new(values.clone()))
}

fn default_of(schema: &Value) -> Option<Arc<DefaultValue>> {
    let value = schema.get("default").filter(|value| !value.is_null())?;
    Some(Arc::new(DefaultValue::new(value.clone())))
}

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}
