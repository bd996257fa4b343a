//! Policies. Their expressions are compiled at the first write that they review.

use std::sync::OnceLock;

use fairlead_cel::{ExpressionKind, PolicyEnvironments};
use fairlead_process::StatusReason;
use serde_json::Value;

use super::super::expressions::{Expression, MatchConditions};
use super::super::matching::MatchConstraints;

/// Whether policies may change objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dynamic_admission) enum PolicyKind {
    Mutating,
    Validating,
}

/// A policy, parsed once per change.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) name: Box<str>,
    pub(super) constraints: MatchConstraints,
    pub(super) param_kind: Option<ParamKind>,
    /// `failurePolicy: Ignore`.
    pub(super) ignores_failure: bool,
    /// `reinvocationPolicy: IfNeeded`.
    pub(super) is_reinvoked: bool,
    /// The source of the expressions.
    spec: Value,
    compiled: OnceLock<CompiledPolicy>,
}

/// `paramKind`.
#[derive(Debug)]
pub(super) struct ParamKind {
    pub(super) group: Box<str>,
    pub(super) version: Box<str>,
    pub(super) kind: Box<str>,
}

/// The expressions of a policy.
#[derive(Debug)]
pub(super) struct CompiledPolicy {
    pub(super) conditions: MatchConditions,
    pub(super) environments: PolicyEnvironments,
    pub(super) validations: Vec<Validation>,
    pub(super) annotations: Vec<AuditAnnotation>,
    pub(super) mutations: Vec<PolicyMutation>,
}

/// A validation.
#[derive(Debug)]
pub(super) struct Validation {
    pub(super) expression: Expression,
    pub(super) message_expression: Option<Expression>,
    /// The message if there is no expression, or it fails.
    pub(super) message: Box<str>,
    pub(super) reason: StatusReason,
}

/// An annotation of the audit event.
#[derive(Debug)]
pub(super) struct AuditAnnotation {
    pub(super) key: Box<str>,
    pub(super) value: Expression,
}

/// A change of the object.
#[derive(Debug)]
pub(super) enum PolicyMutation {
    JsonPatch(Expression),
    ApplyConfiguration(Expression),
}

impl Policy {
    /// A stored policy, which has been validated.
    pub(super) fn parse(name: &str, policy: &Value) -> Self {
        let spec = &policy["spec"];
        let param_kind = &spec["paramKind"];
        Self {
            name: name.into(),
            constraints: MatchConstraints::parse(&spec["matchConstraints"]),
            param_kind: param_kind.is_object().then(|| ParamKind::parse(param_kind)),
            ignores_failure: spec["failurePolicy"] == "Ignore",
            is_reinvoked: spec["reinvocationPolicy"] == "IfNeeded",
            spec: spec.clone(),
            compiled: OnceLock::new(),
        }
    }

    /// The expressions. The first call compiles them, which costs some 20 µs per expression.
    pub(super) fn compiled(&self) -> &CompiledPolicy {
        self.compiled.get_or_init(|| CompiledPolicy::compile(self))
    }
}

impl ParamKind {
    fn parse(kind: &Value) -> Self {
        let (group, version) = split_api_version(kind["apiVersion"].as_str().unwrap_or_default());
        let kind = kind["kind"].as_str().unwrap_or_default();
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }
}

/// Group and version of an `apiVersion`.
pub(super) fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

impl CompiledPolicy {
    fn compile(policy: &Policy) -> Self {
        let spec = &policy.spec;
        let has_params = policy.param_kind.is_some();
        let list = |field: &str| spec[field].as_array().map_or(&[][..], Vec::as_slice);
        let mut environments = PolicyEnvironments::new(has_params);
        for variable in list("variables") {
            let text = |field: &str| variable[field].as_str().unwrap_or_default();
            // Expressions that use a broken variable fail.
            let _ = environments.add_variable(text("name"), text("expression"));
        }
        let compile = |kind, source: &str| Expression::compile(&environments, kind, source);
        let validations = list("validations").iter().map(|validation| {
            let text = |field: &str| validation[field].as_str().unwrap_or_default();
            Validation {
                expression: compile(ExpressionKind::Validation, text("expression")),
                message_expression: Some(text("messageExpression"))
                    .filter(|source| !source.is_empty())
                    .map(|source| compile(ExpressionKind::Message, source)),
                message: text("message").trim().into(),
                reason: match text("reason") {
                    "Forbidden" => StatusReason::Forbidden,
                    "Unauthorized" => StatusReason::Unauthorized,
                    "RequestEntityTooLarge" => StatusReason::RequestEntityTooLarge,
                    _ => StatusReason::Invalid,
                },
            }
        });
        let annotations = list("auditAnnotations").iter().map(|annotation| AuditAnnotation {
            key: annotation["key"].as_str().unwrap_or_default().into(),
            value: compile(
                ExpressionKind::AuditAnnotation,
                annotation["valueExpression"].as_str().unwrap_or_default().trim(),
            ),
        });
        let mutations = list("mutations").iter().map(|mutation| {
            let source = |field: &str| mutation[field]["expression"].as_str().unwrap_or_default().trim();
            if mutation["patchType"] == "JSONPatch" {
                PolicyMutation::JsonPatch(compile(ExpressionKind::JsonPatch, source("jsonPatch")))
            } else {
                let source = source("applyConfiguration");
                PolicyMutation::ApplyConfiguration(compile(ExpressionKind::ApplyConfiguration, source))
            }
        });
        Self {
            conditions: MatchConditions::compile(
                &spec["matchConditions"],
                has_params,
                policy.ignores_failure,
            ),
            validations: validations.collect(),
            annotations: annotations.collect(),
            mutations: mutations.collect(),
            environments,
        }
    }
}
