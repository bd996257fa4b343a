//! Options for the compilation of a schema: the dialect and the definitions for `$ref`.

use serde_json::{Map, Value};

/// Options for the compilation of a schema.
#[derive(Clone, Copy, Debug)]
pub struct CompileOptions<'a> {
    /// The rules that apply.
    pub dialect: Dialect,
    /// The targets of `$ref`; without them, a `$ref` is an error.
    pub definitions: Definitions<'a>,
}

impl CompileOptions<'static> {
    /// Options for the schema of a custom resource.
    pub const fn structural() -> Self {
        Self { dialect: Dialect::Structural, definitions: Definitions::none() }
    }

    /// Options for the schema of a custom resource that its own defaults are compared with.
    pub(super) const fn defaults() -> Self {
        Self { dialect: Dialect::StructuralDefaults, definitions: Definitions::none() }
    }
}

impl<'a> CompileOptions<'a> {
    /// Options for a component of an OpenAPI v3 document whose components are `schemas`.
    pub const fn open_api(schemas: &'a Map<String, Value>) -> Self {
        Self { dialect: Dialect::OpenApi, definitions: Definitions(Some(schemas)) }
    }
}

/// The set of rules that applies to a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// A CRD's structural schema: unspecified fields are pruned.
    Structural,
    /// The same, for the defaults in it. Kubernetes applies other rules to them than to objects: formats that it does
    /// not support are types that no value has, and an int-or-string has any type.
    StructuralDefaults,
    /// The OpenAPI schema of a built-in type: an object without properties is free-form, and a schema without a type
    /// accepts any value.
    OpenApi,
}

/// The schemas that `$ref` can name, by component name.
#[derive(Clone, Copy, Debug)]
pub struct Definitions<'a>(Option<&'a Map<String, Value>>);

impl<'a> Definitions<'a> {
    /// No definitions: every `$ref` is an error.
    pub const fn none() -> Self {
        Self(None)
    }

    /// The `components.schemas` of an OpenAPI v3 document.
    pub const fn of(schemas: &'a Map<String, Value>) -> Self {
        Self(Some(schemas))
    }

    /// Resolves `#/components/schemas/<name>` and `#/definitions/<name>`.
    pub(super) fn resolve(self, reference: &str) -> Option<&'a Value> {
        let name = reference
            .strip_prefix("#/components/schemas/")
            .or_else(|| reference.strip_prefix("#/definitions/"))?;
        self.0?.get(name)
    }
}
