//! APIConversions of kcp: rules that convert objects between the versions of an APIResourceSchema, each from one field to
//! another, optionally by a CEL expression.
//!
//! A conversion starts from a copy of the object, so fields that both versions have need no rule. Fields that the other
//! version does not have are saved in an annotation (`preserve`), from which the conversion back takes them.

mod compile;
mod convert;
mod field_names;

use fairlead_cel::{Environment, Program};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use self::field_names::FieldNames;
use crate::field::FieldError;

/// The compiled rules of an APIConversion.
#[derive(Debug)]
pub struct ApiConversionRules {
    conversions: Vec<VersionConversion>,
    digest: [u8; 32],
}

/// The conversion from one version to another.
#[derive(Debug)]
struct VersionConversion {
    from: Box<str>,
    to: Box<str>,
    rules: Vec<Rule>,
    /// The fields of `from` that `to` does not have.
    preserved: Vec<FieldNames>,
}

#[derive(Debug)]
struct Rule {
    source: FieldNames,
    destination: FieldNames,
    transformation: Option<Transformation>,
}

#[derive(Debug)]
struct Transformation {
    environment: Environment,
    program: Program,
}

impl ApiConversionRules {
    /// Compiles an APIConversion for the APIResourceSchema of the same name, which has the schemas of the versions. `schema` may
    /// also be the CustomResourceDefinition that was made from it.
    ///
    /// Costs some 20 µs per expression; callers should share the result.
    ///
    /// # Errors
    /// Versions and fields that the schema does not have, invalid expressions, and results of another type than the destination.
    /// All errors at once, in the words of kcp. Costs are not estimated: most functions of texts have no estimate, and the
    /// budget of [`convert`](Self::convert) bounds them.
    pub fn compile(api_conversion: &Value, schema: &Value) -> Result<Self, Vec<FieldError>> {
        let conversions = compile::compile(api_conversion, schema)?;
        let mut hash = Sha256::new();
        for spec in [&api_conversion["spec"], &schema["spec"]["versions"]] {
            let text = spec.to_string();
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        Ok(Self { conversions, digest: hash.finalize().into() })
    }

    /// SHA-256 of the rules and of the schemas for which they were compiled.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Converts an object to another version of its kind. Fields that the other version does not have remain; callers prune
    /// them by its schema. Versions between which there are no rules differ in `apiVersion` only.
    ///
    /// Some µs per rule with an expression. A budget per object bounds the cost.
    ///
    /// # Errors
    /// The expression that failed, and why.
    pub fn convert(&self, object: Value, to_version: &str) -> Result<Value, String> {
        convert::convert(&self.conversions, object, to_version)
    }
}

#[cfg(test)]
mod tests;
