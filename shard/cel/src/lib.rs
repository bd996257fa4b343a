//! The Common Expression Language as Kubernetes uses it: check, estimate and evaluate within a budget. It knows no
//! storage and no HTTP, and of resources only what variables of admission look like.
//!
//! [`Environment::compile`] checks an expression against declared types and reports errors in the form of cel-go.
//! [`Program::estimate`] is Kubernetes' static cost, by which CRDs are accepted. [`Program::evaluate`] reads borrowed
//! JSON and charges each operation to a [`Budget`] by Kubernetes' runtime cost model.
//!
//! The syntax is parsed by this crate and not by the crate `cel`. That parser recurses for each operator of a chain:
//! 4 KiB of `1+1+…` need more than 8 MiB of stack. It also has neither the positions nor the messages of cel-go, which
//! clients see. Both are needed for expressions of tenants.

mod admission;
mod authentication;
mod check;
mod environment;
mod estimate;
mod evaluate;
mod failure;
mod functions;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod library;
mod limits;
mod plan;
mod policy;
mod program;
mod syntax;
mod types;
mod value;
mod work;

pub use admission::AdmissionVariables;
pub use check::{CompileError, Variable};
pub use environment::Environment;
pub use estimate::CostEstimate;
pub use evaluate::{Budget, Evaluation, Inputs};
pub use failure::EvaluationError;
#[cfg(any(test, feature = "fuzzing"))]
pub use fuzzing::fuzz;
pub use library::{
    Authorizer, AuthorizerValue, Cidr, Decision, Duration, NamedFormat, Quantity, ResourceAttributes,
    SemanticVersion, Timestamp, Url, rust_pattern,
};
pub use limits::{
    MATCH_CONDITIONS_COST_BUDGET, MAX_MESSAGE_SIZE, MAX_REQUEST_SIZE, PER_CALL_LIMIT, RUNTIME_COST_BUDGET,
    STATIC_COST_LIMIT, STATIC_COST_LIMIT_PER_CRD,
};
pub use policy::{ExpressionError, ExpressionKind, PolicyEnvironments};
pub use program::{Program, Session};
pub use types::{
    DeclKind, DeclType, Field, FieldType, ListKind, ObjectType, RESERVED_WORDS, TextFormat, Type, escape,
    unescape,
};
pub use value::{Extension, List, Map, Object, OwnedMap, Text, Value};
