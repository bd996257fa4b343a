//! Checks expressions: resolves names, infers types and selects overloads. Knows no values.

mod checker;
mod library;
mod validators;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thiserror::Error;

pub(crate) use checker::{Checked, Reference};
pub(crate) use library::{Function, Functions, overload_arguments};

use crate::syntax::{Expr, Issues, Literal, MacroSet, Source, parse};
use crate::types::{DeclKind, DeclType, FieldType, ObjectType, Type};

/// The names that expressions can use.
#[derive(Debug, Clone)]
pub(crate) struct Declarations {
    minor: u32,
    functions: Arc<Functions>,
    macros: MacroSet,
    variables: Arc<Vec<Declared>>,
    /// The fields of the variable `variables`, with their types.
    named: Vec<(Box<str>, Type)>,
    /// Whether `Object{…}` and `JSONPatch{…}` can be written.
    has_patch_types: bool,
    /// Object types by name. Environments of one schema share them.
    objects: Arc<FxHashMap<Arc<str>, Arc<ObjectType>>>,
}

/// The variable whose fields are the named expressions, and the name of its type.
pub(crate) const NAMED: &str = "variables";
pub(crate) const NAMED_TYPE: &str = "kubernetes.variables";

/// A variable of an environment.
#[derive(Debug, Clone)]
pub(crate) struct Declared {
    pub(crate) name: Box<str>,
    pub(crate) variable: Variable,
}

/// The declaration of a variable.
#[derive(Debug, Clone)]
pub enum Variable {
    /// A JSON value.
    Json(Arc<DeclType>),
    /// A JSON value that may be absent: `optional_type(T)`.
    OptionalJson(Arc<DeclType>),
    /// A value of another type, such as `kubernetes.authorization.Authorizer`.
    Typed(Type),
}

impl Variable {
    pub(crate) fn type_(&self) -> Type {
        match self {
            Self::Json(declared) => declared.type_().clone(),
            Self::OptionalJson(declared) => Type::optional(declared.type_().clone()),
            Self::Typed(type_) => type_.clone(),
        }
    }

    /// The declaration of its JSON.
    pub(crate) fn json(&self) -> Option<&Arc<DeclType>> {
        match self {
            Self::Json(declared) | Self::OptionalJson(declared) => Some(declared),
            Self::Typed(_) => None,
        }
    }
}

/// The fault of an expression; its author can correct it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompileError {
    /// Syntax or types, in the form of cel-go: `ERROR: <input>:1:6: …`, one per line, with the source.
    #[error("compilation failed: {0}")]
    Invalid(String),
    /// A constant part cannot be evaluated.
    #[error("program instantiation failed: {0}")]
    Constant(String),
}

impl Declarations {
    /// The functions of Kubernetes 1.`minor`, without variables.
    pub(crate) fn kubernetes(minor: u32) -> Self {
        let has = |library| library::has_library(library, minor);
        let macros = MacroSet {
            optionals: has("optionals"),
            two_variables: has("two-variable-comprehensions"),
            sort_by: has("lists-3"),
            bind: false,
        };
        Self {
            minor,
            functions: Arc::new(library::functions(minor)),
            macros,
            variables: Arc::default(),
            named: Vec::new(),
            has_patch_types: false,
            objects: Arc::default(),
        }
    }

    pub(crate) fn add_bind(&mut self) {
        self.macros.bind = true;
    }

    pub(crate) fn add_patch_types(&mut self) {
        self.has_patch_types = true;
        Arc::make_mut(&mut self.functions).extend(library::functions_of("jsonpatch"));
    }

    /// As [`add_patch_types`](Self::add_patch_types), with the functions of declarations that have them.
    pub(crate) fn share_patch_types(&mut self, other: &Self) {
        self.has_patch_types = other.has_patch_types;
        self.functions = Arc::clone(&other.functions);
    }

    /// Hides a variable from expressions that are checked later. Its place remains, so that checked expressions, which
    /// refer to places, are still valid.
    pub(crate) fn hide_variable(&mut self, name: &str) {
        let variables = Arc::make_mut(&mut self.variables);
        for declared in variables.iter_mut().filter(|declared| *declared.name == *name) {
            // No expression can have an empty name.
            declared.name = Box::from("");
        }
    }

    /// Declares a field of `variables`.
    pub(crate) fn add_named(&mut self, name: &str, type_: Type) {
        self.named.push((name.into(), type_));
    }

    pub(crate) fn add_variable(&mut self, name: &str, variable: Variable) {
        if let Some(declared) = variable.json() {
            self.register(declared);
        }
        let variables = Arc::make_mut(&mut self.variables);
        variables.retain(|declared| *declared.name != *name);
        variables.push(Declared { name: name.into(), variable });
    }

    /// Registers the object types within a declaration, so that their fields are found by the name of the type.
    fn register(&mut self, declared: &DeclType) {
        match declared.kind() {
            DeclKind::Object(object) => {
                // A part of a declaration that is registered already.
                if self.objects.get(object.name()).is_some_and(|known| Arc::ptr_eq(known, object)) {
                    return;
                }
                let objects = Arc::make_mut(&mut self.objects);
                let known = objects.insert(Arc::clone(object.name()), Arc::clone(object));
                if known.is_none() {
                    object.declared().for_each(|field| self.register(field));
                }
            }
            DeclKind::List { items, .. } => self.register(items),
            DeclKind::Map(values) => self.register(values),
            _ => {}
        }
    }

    /// Parses and checks an expression.
    pub(crate) fn check(&self, source: &str) -> Result<Checked, CompileError> {
        let source = Source::new(source);
        let mut issues = Issues::default();
        let tree = parse(&source, self.macros, &mut issues);
        if !issues.is_empty() {
            return Err(CompileError::Invalid(issues.render(&source)));
        }
        let checked = checker::check(self, &source, tree, &mut issues);
        if issues.is_empty() {
            validators::validate(&checked, &source, &mut issues);
        }
        if issues.is_empty() { Ok(checked) } else { Err(CompileError::Invalid(issues.render(&source))) }
    }

    /// The fields of a variable that a checked expression selects. Kubernetes does not count `claims['email']`.
    pub(crate) fn selected_fields(&self, checked: &Checked, variable: &str) -> Vec<Box<str>> {
        let tree = &checked.tree;
        let is_variable = |id| match checked.reference(id) {
            Some(Reference::Variable(place)) => {
                self.variables.get(*place).is_some_and(|declared| *declared.name == *variable)
            }
            _ => false,
        };
        let mut fields = Vec::new();
        for id in tree.ids() {
            match tree.get(id) {
                Expr::Select { operand, field, .. } if is_variable(*operand) => fields.push((**field).into()),
                Expr::Call { function, arguments, .. } if &**function == "_?._" => {
                    if let [operand, field] = arguments.as_slice()
                        && is_variable(*operand)
                        && let Some(Literal::String(field)) = tree.literal(*field)
                    {
                        fields.push((**field).into());
                    }
                }
                _ => {}
            }
        }
        fields.sort();
        fields.dedup();
        fields
    }

    pub(crate) fn variable_list(&self) -> &Arc<Vec<Declared>> {
        &self.variables
    }

    pub(crate) fn variables(&self) -> &[Declared] {
        &self.variables
    }

    fn variable(&self, name: &str) -> Option<usize> {
        self.variables.iter().position(|declared| *declared.name == *name)
    }

    fn function(&self, name: &str) -> Option<&Arc<Function>> {
        self.functions.get(name.strip_prefix('.').unwrap_or(name))
    }

    /// The type that a name stands for.
    fn named_type(&self, name: &str) -> Option<Type> {
        Some(match name {
            "bool" => Type::Bool,
            "bytes" => Type::Bytes,
            "double" => Type::Double,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "string" => Type::String,
            "null_type" => Type::Null,
            "google.protobuf.Duration" => Type::Duration,
            "google.protobuf.Timestamp" => Type::Timestamp,
            "list" => Type::list(Type::Dyn),
            "map" => Type::map(Type::Dyn, Type::Dyn),
            "type" => Type::Type(None),
            "optional_type" if self.macros.optionals => Type::optional(Type::Dyn),
            "net.IP" if library::has_library("ip", self.minor) => opaque(name),
            "net.CIDR" if library::has_library("cidr", self.minor) => opaque(name),
            _ if self.is_patch_type(name) => Type::Object(name.into()),
            _ => return None,
        })
    }

    /// Whether a name is `JSONPatch` or that of an object type such as `Object.spec`.
    pub(crate) fn is_patch_type(&self, name: &str) -> bool {
        self.has_patch_types && (matches!(name, "JSONPatch" | "Object") || name.starts_with("Object."))
    }

    /// The type of a field, or `None` if the object has no such field.
    fn field_type(&self, object: &str, field: &str) -> Option<Type> {
        if object == NAMED_TYPE {
            // A later expression of the same name replaces the earlier one.
            let mut named = self.named.iter().rev();
            return named.find(|(name, _)| **name == *field).map(|(_, type_)| type_.clone());
        }
        if self.is_patch_type(object) {
            return match (object, field) {
                ("JSONPatch", "op" | "path" | "from") => Some(Type::String),
                ("JSONPatch", "value") => Some(Type::Dyn),
                ("JSONPatch", _) => None,
                _ => Some(Type::Dyn),
            };
        }
        match &self.objects.get(object)?.named_field(field)?.type_ {
            FieldType::Declared(declared) => Some(declared.type_().clone()),
            FieldType::Preserved => None,
        }
    }

    fn is_object(&self, name: &str) -> bool {
        self.objects.contains_key(name) || name == NAMED_TYPE || self.is_patch_type(name)
    }
}

fn opaque(name: &str) -> Type {
    Type::Opaque(name.into(), Arc::from([]))
}
