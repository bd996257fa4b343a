//! The fields of a rule in a schema, and the errors that do not depend on its expressions.

use serde_json::{Map, Value};

use super::field_path;
use crate::field::{FieldError, FieldPath, go_json_text};

/// The values of `reason`.
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// A rule as its author wrote it.
pub(super) struct Declaration<'s> {
    pub(super) rule: &'s str,
    pub(super) message: &'s str,
    pub(super) message_expression: &'s str,
    pub(super) reason: Option<&'s str>,
    pub(super) field_path: &'s str,
    pub(super) optional_old_self: Option<bool>,
}

impl<'s> Declaration<'s> {
    pub(super) fn read(rule: &'s Value) -> Self {
        let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
        Self {
            rule: text("rule"),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: rule.get("reason").and_then(Value::as_str),
            field_path: text("fieldPath"),
            optional_old_self: rule.get("optionalOldSelf").and_then(Value::as_bool),
        }
    }

    /// The name of the rule in errors of its evaluation.
    pub(super) fn label(&self) -> &'s str {
        if self.message.is_empty() { self.rule.trim() } else { self.message.trim() }
    }

    /// The errors of the rule at `path`; `schema` is the schema around it.
    pub(super) fn check(&self, schema: &Map<String, Value>, path: &FieldPath) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let message = self.message.trim();
        if self.rule.trim().is_empty() {
            errors.push(FieldError::required(path.child("rule"), "rule is not specified"));
        } else if !self.message.is_empty() && message.is_empty() {
            let path = path.child("message");
            errors.push(FieldError::invalid_str(path, self.message, "must be non-empty if specified"));
        } else if has_line_breaks(message) {
            let path = path.child("message");
            errors.push(FieldError::invalid_str(path, self.message, "must not contain line breaks"));
        } else if has_line_breaks(self.rule.trim()) && message.is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(path.child("message"), detail));
        }
        if !self.message_expression.is_empty() && self.message_expression.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(path.child("messageExpression"), detail));
        }
        if let Some(reason) = self.reason.filter(|reason| !REASONS.contains(reason)) {
            errors.push(FieldError::not_supported(path.child("reason"), &Value::from(reason), &REASONS));
        }
        if !self.field_path.is_empty() {
            let mut refuse = |detail: &str| {
                errors.push(FieldError::invalid_str(path.child("fieldPath"), self.field_path, detail));
            };
            if self.field_path.trim().is_empty() {
                refuse("must be non-empty if specified");
            }
            if has_line_breaks(self.field_path) {
                refuse("must not contain line breaks");
            }
            if field_path::normalize(self.field_path, schema).is_none() {
                refuse("must be a valid path");
            }
        }
        errors
    }

    /// `Invalid value: <rule>: detail`. Kubernetes quotes the rule in its internal form.
    pub(super) fn invalid(&self, path: FieldPath, detail: &str) -> FieldError {
        let text = go_json_text;
        let reason = self.reason.map_or_else(|| "null".to_owned(), text);
        let optional = self.optional_old_self.map_or_else(|| "null".to_owned(), |value| value.to_string());
        let quoted = format!(
            "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{reason},\"FieldPath\":{},\
             \"OptionalOldSelf\":{optional}}}",
            text(self.rule),
            text(self.message),
            text(self.message_expression),
            text(self.field_path),
        );
        FieldError::invalid_quoted(path, &quoted, detail)
    }
}

fn has_line_breaks(text: &str) -> bool {
    text.contains(['\n', '\r'])
}
