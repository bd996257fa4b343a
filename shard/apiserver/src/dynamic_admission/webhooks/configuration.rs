//! A webhook of a configuration, parsed once per change of the configuration.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::Value;

use super::super::expressions::MatchConditions;
use super::super::matching::{Operation, Rule, TargetSelectors, matched_version};

use crate::registry::AdmissionRequest;
use crate::webhook_client::Endpoint;

/// Whether webhooks may change objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WebhookKind {
    /// `MutatingWebhookConfiguration`.
    Mutating,
    /// `ValidatingWebhookConfiguration`.
    Validating,
}

/// A version of AdmissionReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewVersion {
    V1,
    V1beta1,
}

/// One admission webhook.
pub(super) struct Webhook {
    /// The qualified name, as errors show it.
    pub(super) name: Box<str>,
    /// The name of the configuration.
    pub(super) configuration: Box<str>,
    pub(super) kind: WebhookKind,
    pub(super) selectors: TargetSelectors,
    /// `failurePolicy: Ignore`.
    pub(super) ignores_failure: bool,
    /// `reinvocationPolicy: IfNeeded`.
    pub(super) is_reinvoked: bool,
    pub(super) timeout: Duration,
    pub(super) review_version: ReviewVersion,
    pub(super) endpoint: Endpoint,
    rules: Vec<Rule>,
    /// `matchPolicy: Equivalent`: a rule for another version of the resource matches as well.
    matches_equivalent: bool,
    /// `matchConditions`, compiled at the first write that the rules cover.
    condition_sources: Value,
    conditions: OnceLock<MatchConditions>,
}

impl Webhook {
    /// The webhooks of a stored configuration, which has been validated.
    pub(super) fn all_of(kind: WebhookKind, configuration: &Value) -> Vec<Arc<Self>> {
        let name = configuration["metadata"]["name"].as_str().unwrap_or_default();
        let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
        webhooks.map(|webhook| Arc::new(Self::parse(kind, name, webhook))).collect()
    }

    fn parse(kind: WebhookKind, configuration: &str, webhook: &Value) -> Self {
        let review_version =
            webhook["admissionReviewVersions"].as_array().into_iter().flatten().find_map(|version| {
                match version.as_str() {
                    Some("v1") => Some(ReviewVersion::V1),
                    Some("v1beta1") => Some(ReviewVersion::V1beta1),
                    _ => None,
                }
            });
        Self {
            name: webhook["name"].as_str().unwrap_or_default().into(),
            configuration: configuration.into(),
            kind,
            selectors: TargetSelectors::parse(webhook),
            ignores_failure: webhook["failurePolicy"] == "Ignore",
            is_reinvoked: webhook["reinvocationPolicy"] == "IfNeeded",
            timeout: Duration::from_secs(webhook["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30)),
            review_version: review_version.unwrap_or(ReviewVersion::V1),
            endpoint: Endpoint::new(&webhook["clientConfig"]),
            rules: webhook["rules"].as_array().into_iter().flatten().map(Rule::parse).collect(),
            matches_equivalent: webhook["matchPolicy"] != "Exact",
            condition_sources: webhook["matchConditions"].clone(),
            conditions: OnceLock::new(),
        }
    }

    /// The version in which a rule matches the write: the requested one if possible, otherwise another served one.
    pub(super) fn matched_version(
        &self,
        write: &AdmissionRequest<'_>,
        operation: Operation,
    ) -> Option<Arc<str>> {
        matched_version(&self.rules, self.matches_equivalent, write, operation)
    }

    /// The match conditions; `None` if there are none.
    pub(super) fn conditions(&self) -> Option<&MatchConditions> {
        if self.condition_sources.is_null() {
            return None;
        }
        let compile = || MatchConditions::compile(&self.condition_sources, false, self.ignores_failure);
        Some(self.conditions.get_or_init(compile)).filter(|conditions| !conditions.is_empty())
    }
}
