//! `spec.conversion`: how objects get from one version to another.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::field::{FieldError, FieldPath};
use crate::names::dns1035_label;
use crate::webhook_client::validate_client_config;

/// The conversion of objects between versions.
#[derive(Clone, Debug, PartialEq)]
pub enum Conversion {
    /// Only `apiVersion` changes.
    None,
    /// A webhook converts the objects.
    Webhook(WebhookClient),
}

/// `spec.conversion.webhook`.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookClient {
    /// The `clientConfig`: an address and a CA bundle.
    pub config: Value,
    /// The version of the reviews that the webhook gets: the first one that it lists and the server knows.
    pub review_version: ReviewVersion,
}

/// A version of ConversionReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `apiextensions.k8s.io/v1`.
    V1,
    /// `apiextensions.k8s.io/v1beta1`.
    V1beta1,
}

impl ReviewVersion {
    /// The `apiVersion` of a review.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "apiextensions.k8s.io/v1",
            Self::V1beta1 => "apiextensions.k8s.io/v1beta1",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        match name {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1beta1),
            _ => None,
        }
    }
}

/// Parses `spec.conversion`. Returns `None` only if it adds errors. They name the fields of Kubernetes' internal type, which
/// has no `webhook`.
pub(super) fn parse(
    value: Option<&Value>,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) -> Option<Conversion> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Some(Conversion::None);
    };
    let webhook = &value["webhook"];
    match value["strategy"].as_str().unwrap_or_default() {
        "None" => none(webhook, path, errors),
        "Webhook" => self::webhook(webhook, path, errors).map(Conversion::Webhook),
        "" => {
            errors.push(FieldError::required(path.child("strategy"), ""));
            None
        }
        other => {
            let known = ["None", "Webhook"];
            errors.push(FieldError::not_supported(path.child("strategy"), &Value::from(other), &known));
            None
        }
    }
}

fn none(webhook: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) -> Option<Conversion> {
    const DETAIL: &str = "should not be set when strategy is not set to Webhook";
    let before = errors.len();
    if !webhook["clientConfig"].is_null() {
        errors.push(FieldError::forbidden(path.child("webhookClientConfig"), DETAIL));
    }
    if webhook["conversionReviewVersions"].as_array().is_some_and(|versions| !versions.is_empty()) {
        errors.push(FieldError::forbidden(path.child("conversionReviewVersions"), DETAIL));
    }
    (errors.len() == before).then_some(Conversion::None)
}

fn webhook(webhook: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) -> Option<WebhookClient> {
    let before = errors.len();
    let config = &webhook["clientConfig"];
    let path_of_config = path.child("webhookClientConfig");
    if config.is_null() {
        let detail = "required when strategy is set to Webhook";
        errors.push(FieldError::required(path_of_config, detail));
    } else {
        validate_client_config(config, &path_of_config, errors);
    }
    let versions = &webhook["conversionReviewVersions"];
    let review_version = review_version(versions, &path.child("conversionReviewVersions"), errors)?;
    (errors.len() == before).then(|| WebhookClient { config: config.clone(), review_version })
}

fn review_version(versions: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) -> Option<ReviewVersion> {
    let listed = versions.as_array().map_or(&[][..], Vec::as_slice);
    if listed.is_empty() {
        errors.push(FieldError::required(path.clone(), ""));
        return None;
    }
    let mut seen = BTreeSet::new();
    for (index, version) in listed.iter().filter_map(Value::as_str).enumerate() {
        if !seen.insert(version) {
            errors.push(FieldError::invalid_str(path.index(index), version, "duplicate version"));
            continue;
        }
        let problems = dns1035_label(version);
        errors.extend(
            problems.iter().map(|problem| FieldError::invalid_str(path.index(index), version, problem)),
        );
    }
    let known = listed.iter().filter_map(Value::as_str).find_map(ReviewVersion::parse);
    if known.is_none() {
        let detail = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(path.clone(), versions, detail));
    }
    known
}
