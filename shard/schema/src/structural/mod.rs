//! Compiled structural schemas: pruning, defaulting and validation.
//!
//! A [`Schema`] is an arena of nodes that refer to each other by number. Recursive schemas (built-in types with
//! `$ref`) therefore need no special case, and cloning a schema clones one `Arc`.

mod check;
mod compile;
mod defaults;
mod embedded;
mod enumeration;
mod equality;
mod formats;
mod hash;
mod list_type;
mod merge_types;
mod options;
mod pattern;
mod prune;
mod rules;
mod validate;

use std::sync::{Arc, OnceLock};

use serde_json::Value;

pub use check::check_structural;
pub use hash::SchemaHash;
pub use options::{CompileOptions, Definitions, Dialect};
pub use rules::RuleFindings;

use crate::apply::{ObjectType, TypeRef, TypeTable};
use crate::field::{FieldError, FieldErrorKind, FieldPath};

/// A compiled schema. Cloning is cheap.
///
/// The order of operations on an object in a request is: prune, default, validate, validate by rules.
#[derive(Clone, Debug)]
pub struct Schema {
    inner: Arc<Inner>,
    /// Absent if the schema has none, or if the caller enforces them by other means.
    rules: Option<Arc<rules::Rules>>,
}

#[derive(Debug)]
struct Inner {
    nodes: Vec<Node>,
    root: NodeId,
    dialect: Dialect,
    hash: SchemaHash,
    has_embedded_resources: bool,
    /// The types of server-side apply; built by the first write.
    merge_types: OnceLock<(TypeTable, TypeRef)>,
}

/// Whether all defaults were filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultingResult {
    /// No default is missing.
    Complete,
    /// Defaults would make the object larger than anything that can be stored. The request must be refused as too
    /// large.
    LimitReached,
}

impl Schema {
    /// Compiles an `openAPIV3Schema` or a component of an OpenAPI v3 document.
    ///
    /// The paths of errors are relative to the schema. Costs one pass over the schema and the compilation of its
    /// patterns; callers should share the result by [`Schema::hash`].
    pub fn compile(schema: &Value, options: &CompileOptions<'_>) -> Result<Self, Vec<FieldError>> {
        compile::compile(schema, options)
    }

    /// The hash of the schema's canonical JSON and of the dialect. It has the first 128 bits of SHA-256, so that a
    /// client cannot craft a different schema with the same hash. It is the same in all processes.
    pub fn hash(&self) -> SchemaHash {
        self.inner.hash
    }

    /// The hash of a schema before it is compiled, for cache look-ups. In the OpenAPI dialect, the hash covers the
    /// schema itself, not the definitions that it refers to.
    pub fn hash_of(schema: &Value, dialect: Dialect) -> SchemaHash {
        hash::hash_of(schema, dialect)
    }

    /// Compiles the rules of the schema (`x-kubernetes-validations`), so that [`Schema::validate_rules`] evaluates them.
    /// `schema` is the source of this schema and `path` its place in the definition, which errors name.
    ///
    /// Costs some 20 µs per rule; callers should share the result like that of [`Schema::compile`].
    ///
    /// # Errors
    /// Invalid rules, rules that may cost too much, and defaults that break a rule, in the words of Kubernetes.
    pub fn with_rules(self, schema: &Value, path: &FieldPath) -> Result<Self, Vec<FieldError>> {
        let Some(compiled) = rules::compile(schema, &self.inner, path)? else { return Ok(self) };
        let errors = check::check_defaults_by_rules(&self.inner, &compiled, path);
        if errors.is_empty() { Ok(Self { rules: Some(Arc::new(compiled)), ..self }) } else { Err(errors) }
    }

    /// Removes unknown fields and returns their paths (`spec.ports[0].bogus`), at most 1,000, for `fieldValidation`.
    ///
    /// `apiVersion`, `kind` and `metadata` at the root are kept; `x-kubernetes-preserve-unknown-fields` and
    /// `x-kubernetes-embedded-resource` are honoured. One pass, without allocation for an object that has no unknown
    /// fields.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::prune(&self.inner, object)
    }

    /// Fills in defaults. Then removes nulls that the schema does not allow and that have no default, as Kubernetes
    /// does on every decode.
    pub fn apply_defaults(&self, object: &mut Value) -> DefaultingResult {
        defaults::apply(&self.inner, self.inner.root, object)
    }

    /// The errors of the object, in the order of the schema, at most about 1,000; empty if the object is valid.
    ///
    /// Paths are relative to the object. `metadata` at the root is validated only against the schema; see
    /// [`crate::metadata`] for its other rules.
    pub fn validate(&self, object: &Value) -> Vec<FieldError> {
        self.validate_at(object, &FieldPath::root())
    }

    /// [`Schema::validate`] for a value at `path` of a larger object.
    pub fn validate_at(&self, value: &Value, path: &FieldPath) -> Vec<FieldError> {
        self.inner.validate(self.inner.root, value, path)
    }

    /// [`Schema::validate`] for an update. Values that equal those of `old` are not validated (validation ratcheting,
    /// KEP-4008), so that a schema that became stricter does not block unrelated changes.
    pub fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let path = FieldPath::root();
        let mut errors = validate::validate(&self.inner, self.inner.root, object, Some(old), &path);
        errors.extend(embedded::validate(&self.inner, self.inner.root, object, &path));
        errors.extend(list_type::validate_update(&self.inner, object, old, &path));
        errors
    }

    /// Evaluates the rules on an object; `old` is the object before an update. `earlier` are the other errors of the object:
    /// if its shape is wrong, rules are not evaluated, and an error says so.
    ///
    /// Some µs per rule. A budget of [`fairlead_cel::RUNTIME_COST_BUDGET`] bounds the cost.
    pub fn validate_rules(
        &self,
        object: &Value,
        old: Option<&Value>,
        earlier: &[FieldError],
    ) -> RuleFindings {
        let Some(rules) = &self.rules else { return RuleFindings::default() };
        if earlier.iter().any(blocks_rules) {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing \
                          errors to complete validation";
            let error = FieldError::invalid(FieldPath::root(), &Value::Null, detail);
            return RuleFindings { errors: vec![error], warnings: Vec::new() };
        }
        rules::evaluate(&self.inner, rules, object, old)
    }

    /// The type by which server-side apply merges objects of the schema. `common` has the types of metadata. Built by the
    /// first call.
    pub(crate) fn merge_type<'s>(&'s self, common: &'s TypeTable) -> ObjectType<'s> {
        let (own, root) = self.inner.merge_types.get_or_init(|| merge_types::merge_types(&self.inner));
        ObjectType::new(own, common, *root)
    }

    /// The schema of a field by its names from the root (`["spec", "replicas"]`), or `None` if the schema does not
    /// specify it. List items and map entries cannot be named.
    pub fn field(&self, names: &[&str]) -> Option<FieldInfo<'_>> {
        let mut node = self.inner.root;
        for name in names {
            node = self.inner.node(node).property(name)?.node;
        }
        let node = self.inner.node(node);
        Some(FieldInfo {
            types: node.types,
            format: node.checks.as_ref().and_then(|checks| checks.format.as_deref()),
        })
    }
}

/// Whether an error means that rules may meet values of other types than they were compiled for.
fn blocks_rules(error: &FieldError) -> bool {
    use FieldErrorKind::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
    matches!(error.kind, NotSupported | Required | TooLong | TooMany | TypeInvalid)
}

/// Type and format of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldInfo<'a> {
    types: TypeSet,
    /// `format`, if specified.
    pub format: Option<&'a str>,
}

impl FieldInfo<'_> {
    /// Whether field selectors can select the field (KEP-4358): string, boolean or integer.
    pub fn is_selectable(&self) -> bool {
        [TypeSet::STRING, TypeSet::BOOLEAN, TypeSet::INTEGER].contains(&self.types)
    }
}

type NodeId = u32;

impl Inner {
    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    fn validate(&self, node: NodeId, value: &Value, path: &FieldPath) -> Vec<FieldError> {
        let mut errors = validate::validate(self, node, value, None, path);
        errors.extend(embedded::validate(self, node, value, path));
        errors.extend(list_type::validate(self, node, value, path));
        errors
    }
}

/// A node of the arena: one schema.
#[derive(Debug, Default)]
struct Node {
    types: TypeSet,
    nullable: bool,
    preserve_unknown: bool,
    embedded_resource: bool,
    /// The properties, sorted by name, like the keys of an object.
    properties: Box<[Property]>,
    additional: Additional,
    items: Option<Property>,
    list_type: ListType,
    /// Whether server-side apply treats the object as one value (`x-kubernetes-map-type: atomic`).
    is_atomic_map: bool,
    checks: Option<Box<Checks>>,
}

impl Node {
    fn property(&self, name: &str) -> Option<&Property> {
        let found = self.properties.binary_search_by(|property| (*property.name).cmp(name));
        found.ok().map(|index| &self.properties[index])
    }

    /// The places at which the node uses other schemas for parts of a value.
    fn places(&self) -> impl Iterator<Item = &Property> {
        let additional = match &self.additional {
            Additional::Schema(property) => Some(property),
            _ => None,
        };
        self.properties.iter().chain(&self.items).chain(additional)
    }

    /// [`Node::places`] in the same order.
    fn places_mut(&mut self) -> impl Iterator<Item = &mut Property> {
        let additional = match &mut self.additional {
            Additional::Schema(property) => Some(property),
            _ => None,
        };
        self.properties.iter_mut().chain(&mut self.items).chain(additional)
    }
}

/// A place at which a schema is used. A default belongs to the place, because several places share the schema of a
/// `$ref`.
#[derive(Debug, Clone)]
struct Property {
    name: Box<str>,
    node: NodeId,
    default: Option<Arc<DefaultValue>>,
    nullable: bool,
}

#[derive(Debug)]
struct DefaultValue {
    value: Value,
    /// Length of the value as JSON.
    size: usize,
}

impl DefaultValue {
    fn new(value: Value) -> Self {
        let size = value.to_string().len();
        Self { value, size }
    }
}

#[derive(Debug, Default)]
enum Additional {
    /// Absent: in a structural schema, other fields are unknown.
    #[default]
    Unspecified,
    /// `additionalProperties: true`.
    Any,
    /// `additionalProperties: false`.
    Refused,
    /// A schema: the object is a map.
    Schema(Property),
}

#[derive(Debug, Default)]
enum ListType {
    #[default]
    Atomic,
    Set,
    Map {
        keys: Box<[Box<str>]>,
    },
}

/// Value validations of a node; most nodes have none.
#[derive(Debug, Default)]
struct Checks {
    required: Box<[Box<str>]>,
    enumeration: Option<enumeration::Enumeration>,
    pattern: Option<pattern::Pattern>,
    format: Option<Box<str>>,
    /// Whether the format is one of strings.
    has_text_format: bool,
    min_length: Option<usize>,
    max_length: Option<usize>,
    min_items: Option<usize>,
    max_items: Option<usize>,
    min_properties: Option<usize>,
    max_properties: Option<usize>,
    minimum: Option<Bound>,
    maximum: Option<Bound>,
    multiple_of: Option<f64>,
    all_of: Box<[NodeId]>,
    any_of: Box<[NodeId]>,
    one_of: Box<[NodeId]>,
    not: Option<NodeId>,
}

#[derive(Debug, Clone)]
struct Bound {
    value: serde_json::Number,
    exclusive: bool,
}

/// A set of JSON types as bits. The empty set accepts any type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TypeSet(u8);

impl TypeSet {
    const ARRAY: Self = Self(1);
    const BOOLEAN: Self = Self(1 << 1);
    const INTEGER: Self = Self(1 << 2);
    const NUMBER: Self = Self(1 << 3);
    const OBJECT: Self = Self(1 << 4);
    const STRING: Self = Self(1 << 5);
    const INT_OR_STRING: Self = Self(Self::INTEGER.0 | Self::STRING.0);

    const NAMES: [(Self, &'static str); 6] = [
        (Self::ARRAY, "array"),
        (Self::BOOLEAN, "boolean"),
        (Self::INTEGER, "integer"),
        (Self::NUMBER, "number"),
        (Self::OBJECT, "object"),
        (Self::STRING, "string"),
    ];

    fn parse(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(bit, _)| *bit)
    }

    const fn is_empty(self) -> bool {
        self.0 == 0
    }

    const fn contains(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// `integer,string`.
    fn names(self) -> String {
        let names: Vec<&str> =
            Self::NAMES.iter().filter(|(bit, _)| self.contains(*bit)).map(|(_, name)| *name).collect();
        names.join(",")
    }
}

#[cfg(test)]
mod detail_tests;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;
