//! Validation rules of custom resources (`x-kubernetes-validations`, KEP-2876): compiled with the types of the schema,
//! limited in cost, and evaluated on objects. CEL itself is in `fairlead_cel`.

mod compile;
mod correlation;
mod cost;
mod declaration;
mod evaluate;
mod field_path;

use fairlead_cel::{Environment, Program};
use rustc_hash::FxHashMap;

pub(super) use compile::{check_declarations, compile};
pub(super) use evaluate::{check_default, evaluate};

use super::NodeId;
use crate::field::FieldError;

/// The rules of a schema. Compiled once and shared by all that share the schema.
#[derive(Debug)]
pub(super) struct Rules {
    by_node: FxHashMap<NodeId, NodeRules>,
    /// Whether a node or one below it has rules, by the number of the node.
    has_rules: Box<[bool]>,
}

/// The rules of one schema node, in their order.
#[derive(Debug)]
struct NodeRules {
    /// `self` and `oldSelf`.
    environment: Environment,
    /// The same, but `oldSelf` is optional.
    optional_environment: Environment,
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    program: Program,
    /// Whether it refers to `oldSelf`: a transition rule.
    is_transition: bool,
    /// `optionalOldSelf`: evaluated without an old value, too.
    has_optional_old: bool,
    /// The name of the rule in errors of its evaluation.
    label: Box<str>,
    /// The message if there is no expression for it, or if that fails.
    message: Box<str>,
    message_expression: Option<(Program, Box<str>)>,
    /// The field that an error names, below that of the rule.
    field_path: Option<Box<str>>,
    reason: Reason,
}

/// `reason`: the kind of the error.
#[derive(Clone, Copy, Debug)]
enum Reason {
    Required,
    Forbidden,
    Invalid,
    Duplicate,
}

/// The result of all rules on an object.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RuleFindings {
    /// Violations, and rules that could not be evaluated.
    pub errors: Vec<FieldError>,
    /// Violations by values that an update does not change (KEP-4008). They do not refuse the update.
    pub warnings: Vec<FieldError>,
}
