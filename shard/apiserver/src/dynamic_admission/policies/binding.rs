//! Bindings of policies.

use serde_json::Value;

use super::super::matching::MatchConstraints;
use crate::request::LabelSelector;

/// A binding, parsed once per change.
#[derive(Debug)]
pub(super) struct Binding {
    pub(super) name: Box<str>,
    pub(super) policy: Box<str>,
    /// `None`: all writes that the policy reviews.
    pub(super) constraints: Option<MatchConstraints>,
    pub(super) params: Option<ParamReference>,
    pub(super) actions: Vec<ValidationAction>,
}

/// `paramRef`.
#[derive(Debug)]
pub(super) struct ParamReference {
    /// The namespace of a namespaced parameter; `None`: that of the written object.
    pub(super) namespace: Option<Box<str>>,
    pub(super) selection: ParamSelection,
    /// `parameterNotFoundAction: Deny`.
    pub(super) denies_missing: bool,
}

#[derive(Debug)]
pub(super) enum ParamSelection {
    Name(Box<str>),
    Labels(LabelSelector),
}

/// The consequence of a validation that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValidationAction {
    Audit,
    Deny,
    Warn,
}

impl ValidationAction {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Audit => "Audit",
            Self::Deny => "Deny",
            Self::Warn => "Warn",
        }
    }
}

impl Binding {
    /// A stored binding, which has been validated.
    pub(super) fn parse(name: &str, binding: &Value) -> Self {
        let spec = &binding["spec"];
        let actions = spec["validationActions"].as_array().into_iter().flatten();
        let resources = &spec["matchResources"];
        Self {
            name: name.into(),
            policy: spec["policyName"].as_str().unwrap_or_default().into(),
            constraints: resources.is_object().then(|| MatchConstraints::parse(resources)),
            params: spec["paramRef"].is_object().then(|| ParamReference::parse(&spec["paramRef"])),
            actions: actions
                .filter_map(|action| match action.as_str()? {
                    "Audit" => Some(ValidationAction::Audit),
                    "Warn" => Some(ValidationAction::Warn),
                    "Deny" => Some(ValidationAction::Deny),
                    _ => None,
                })
                .collect(),
        }
    }
}

impl ParamReference {
    fn parse(reference: &Value) -> Self {
        let text = |field: &str| reference[field].as_str().filter(|text| !text.is_empty());
        Self {
            namespace: text("namespace").map(Into::into),
            selection: match text("name") {
                Some(name) => ParamSelection::Name(name.into()),
                None => ParamSelection::Labels(
                    LabelSelector::of_object(&reference["selector"]).unwrap_or_default(),
                ),
            },
            denies_missing: reference["parameterNotFoundAction"] == "Deny",
        }
    }
}
