//! The options of a request, in its query.

use std::borrow::Cow;
use std::time::Duration;

use fairlead_store::Revision;

use super::{AuditAnnotations, FieldSelector, Guard, LabelSelector, SelectorError, Warnings};

/// The query of a request, decoded. Unknown parameters are ignored, as in Kubernetes.
#[derive(Clone, Debug, Default)]
pub struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    /// Splits a raw query. kube-rs sends queries that begin with `&`; empty parts are skipped.
    pub fn parse(raw: &'a str) -> Self {
        let decode = |text: &'a str| -> Cow<'a, str> {
            if text.contains('+') {
                let spaced = text.replace('+', " ");
                percent_encoding::percent_decode_str(&spaced).decode_utf8_lossy().into_owned().into()
            } else {
                percent_encoding::percent_decode_str(text).decode_utf8_lossy()
            }
        };
        let parts = raw.split('&').filter(|part| !part.is_empty());
        Self(
            parts
                .map(|part| part.split_once('=').unwrap_or((part, "")))
                .map(|(k, v)| (decode(k), decode(v)))
                .collect(),
        )
    }

    /// The first value of a parameter that is present and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| &**value)
    }

    /// All values of a parameter.
    pub fn all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| &**value)
    }

    /// Whether a parameter is present, with any value.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(key, _)| key == name)
    }

    /// A boolean parameter: absent and `false`, `0`, `f` are false, as Kubernetes decodes it.
    pub fn flag(&self, name: &str) -> bool {
        self.0
            .iter()
            .any(|(key, value)| key == name && !matches!(&*value.to_ascii_lowercase(), "false" | "0" | "f"))
    }
}

/// The options of a list, watch or deletecollection.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// `labelSelector`.
    pub labels: LabelSelector,
    /// `fieldSelector`.
    pub fields: FieldSelector,
    /// `resourceVersion`; `Some(0)` means any.
    pub resource_version: Option<Revision>,
    /// `resourceVersionMatch`.
    pub version_match: Option<VersionMatch>,
    /// `limit`.
    pub limit: Option<usize>,
    /// `continue`.
    pub continue_token: Option<String>,
    /// `timeoutSeconds`.
    pub timeout: Option<Duration>,
    /// `allowWatchBookmarks`.
    pub allows_bookmarks: bool,
    /// `sendInitialEvents`.
    pub initial_events: Option<InitialEvents>,
    /// Whether only objects that are being deleted are selected. Set by views, not by queries.
    pub only_deleting: bool,
}

/// `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum VersionMatch {
    /// Exactly that version.
    Exact,
    /// That version or a later one.
    NotOlderThan,
}

/// `sendInitialEvents` (KEP-3157).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum InitialEvents {
    /// Send the state as ADDED events, then a bookmark that ends it.
    Send,
    /// Send no state.
    Skip,
}

impl ListOptions {
    /// The options for objects that are selected after a conversion: a webhook may change everything but their identity.
    #[must_use]
    pub fn before_conversion(&self) -> Self {
        Self { labels: LabelSelector::default(), fields: self.fields.of_identity(), ..self.clone() }
    }

    /// Reads and checks the options.
    ///
    /// # Errors
    /// [`OptionsError`]: a client error.
    pub fn parse(query: &Query<'_>, watch: bool) -> Result<Self, OptionsError> {
        let number = |name: &'static str| -> Result<Option<u64>, OptionsError> {
            let text = query.get(name);
            text.map(|text| text.parse().map_err(|_| OptionsError::Number { name, text: text.to_owned() }))
                .transpose()
        };
        let options = Self {
            labels: LabelSelector::parse(query.get("labelSelector").unwrap_or_default())?,
            fields: FieldSelector::parse(query.get("fieldSelector").unwrap_or_default())?,
            resource_version: number("resourceVersion")?.map(Revision),
            version_match: match query.get("resourceVersionMatch") {
                None => None,
                Some("Exact") => Some(VersionMatch::Exact),
                Some("NotOlderThan") => Some(VersionMatch::NotOlderThan),
                Some(other) => return Err(OptionsError::unsupported_match(other)),
            },
            // A negative limit means no limit, as in Kubernetes.
            limit: (if query.get("limit").is_some_and(is_negative) { None } else { number("limit")? })
                .filter(|limit| *limit > 0)
                .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
            continue_token: query.get("continue").map(str::to_owned),
            timeout: number("timeoutSeconds")?.filter(|seconds| *seconds > 0).map(Duration::from_secs),
            allows_bookmarks: query.flag("allowWatchBookmarks"),
            initial_events: query.get("sendInitialEvents").map(|_| {
                if query.flag("sendInitialEvents") { InitialEvents::Send } else { InitialEvents::Skip }
            }),
            only_deleting: false,
        };
        options.check(watch)?;
        Ok(options)
    }

    fn check(&self, watch: bool) -> Result<(), OptionsError> {
        let forbidden = |field, message| Err(OptionsError::Forbidden { field, message });
        if watch {
            match (self.initial_events, self.version_match) {
                (Some(_), Some(VersionMatch::NotOlderThan)) | (None, None) => {}
                (Some(_), _) => {
                    return forbidden(
                        "resourceVersionMatch",
                        "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                    );
                }
                (None, Some(_)) => {
                    return forbidden(
                        "resourceVersionMatch",
                        "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                    );
                }
            }
            return Ok(());
        }
        if self.initial_events.is_some() {
            return forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
        if let Some(version_match) = self.version_match {
            if self.continue_token.is_some() {
                return forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden when continue is provided",
                );
            }
            match self.resource_version {
                None => {
                    return forbidden(
                        "resourceVersionMatch",
                        "resourceVersionMatch is forbidden unless resourceVersion is provided",
                    );
                }
                Some(Revision(0)) if version_match == VersionMatch::Exact => {
                    return forbidden(
                        "resourceVersionMatch",
                        "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                    );
                }
                Some(_) => {}
            }
        }
        if self.continue_token.is_some() && self.resource_version.is_some_and(|version| version.0 > 0) {
            return Err(OptionsError::VersionWithContinue);
        }
        Ok(())
    }
}

fn is_negative(number: &str) -> bool {
    number.strip_prefix('-').is_some_and(|digits| digits.parse::<u64>().is_ok())
}

/// The options of a create, update or patch.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// `dryRun`.
    pub dry_run: DryRun,
    /// `fieldValidation`; `None`: the default.
    pub field_validation: Option<FieldValidation>,
    /// `force` of an apply patch.
    pub force: bool,
    /// `fieldManager`; empty: none.
    pub field_manager: String,
    /// The program in the User-Agent, which manages the changed fields if there is no `fieldManager`. Empty: unknown.
    pub program: String,
    /// Whether a change reads or writes `metadata.managedFields`.
    pub uses_managed_fields: bool,
    /// `metadata.resourceVersion` of the body: the state of the object on which the client bases the write.
    pub base: Option<Revision>,
    /// Receives what the registry has to tell the client.
    pub warnings: Warnings,
    /// Receives the audit annotations of admission.
    pub audit_annotations: AuditAnnotations,
    /// Restricts the write to what a view permits.
    pub guard: Guard,
}

/// Whether a write is committed (`dryRun`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum DryRun {
    /// All stages except the commit.
    All,
    /// The write is committed.
    #[default]
    Off,
}

/// The treatment of unknown and duplicate fields (KEP-2885).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FieldValidation {
    /// Drops the fields.
    Ignore,
    /// Refuses the request.
    Strict,
    /// Drops the fields with a warning.
    #[default]
    Warn,
}

impl FieldValidation {
    /// Its name in requests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ignore => "Ignore",
            Self::Strict => "Strict",
            Self::Warn => "Warn",
        }
    }
}

impl WriteOptions {
    /// Reads and checks the options.
    ///
    /// # Errors
    /// [`OptionsError`]: a client error.
    pub fn parse(query: &Query<'_>) -> Result<Self, OptionsError> {
        let field_validation = match query.get("fieldValidation") {
            None => None,
            Some("Warn") => Some(FieldValidation::Warn),
            Some("Ignore") => Some(FieldValidation::Ignore),
            Some("Strict") => Some(FieldValidation::Strict),
            Some(other) => {
                return Err(OptionsError::NotSupported {
                    field: "fieldValidation",
                    value: format!("{other:?}"),
                    supported: "\"\", \"Ignore\", \"Strict\", \"Warn\"",
                });
            }
        };
        let field_manager = query.get("fieldManager").unwrap_or_default();
        if field_manager.len() > MAX_FIELD_MANAGER {
            return Err(OptionsError::FieldManager);
        }
        if let Some((position, _)) = field_manager.char_indices().find(|(_, one)| !is_printable(*one)) {
            return Err(OptionsError::UnprintableManager { value: field_manager.to_owned(), position });
        }
        Ok(Self {
            dry_run: DryRun::parse(query.all("dryRun"))?,
            field_validation,
            force: query.flag("force"),
            field_manager: field_manager.to_owned(),
            program: String::new(),
            uses_managed_fields: false,
            base: None,
            guard: Guard::default(),
            warnings: Warnings::default(),
            audit_annotations: AuditAnnotations::default(),
        })
    }

    /// These options with the manager that a User-Agent names, unless the client has named one.
    #[must_use]
    pub fn with_user_agent(mut self, user_agent: &str) -> Self {
        if self.field_manager.is_empty() {
            for character in user_agent.split('/').next().unwrap_or_default().chars() {
                if self.program.len() + character.len_utf8() > MAX_FIELD_MANAGER {
                    break;
                }
                if is_printable(character) {
                    self.program.push(character);
                }
            }
        }
        self
    }

    /// The manager of the fields that the write changes. Empty: unknown.
    pub fn manager(&self) -> &str {
        if self.field_manager.is_empty() { &self.program } else { &self.field_manager }
    }
}

/// The longest name of a field manager, in bytes.
const MAX_FIELD_MANAGER: usize = 128;

/// Whether a character may be in the name of a field manager. The only space is U+0020.
fn is_printable(character: char) -> bool {
    character == ' ' || (!character.is_control() && !character.is_whitespace())
}

impl DryRun {
    pub(super) fn parse<'q>(values: impl Iterator<Item = &'q str>) -> Result<Self, OptionsError> {
        let mut dry_run = Self::Off;
        for value in values.filter(|value| !value.is_empty()) {
            if value != "All" {
                return Err(OptionsError::NotSupported {
                    field: "dryRun",
                    value: format!("[{value:?}]"),
                    supported: "\"All\"",
                });
            }
            dry_run = Self::All;
        }
        Ok(dry_run)
    }
}

/// Invalid options; a client error, a retry does not help.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// The body of a DELETE is not DeleteOptions.
    #[error("the body is not a DeleteOptions: {0}")]
    Body(String),
    /// The field manager's name is too long.
    #[error("fieldManager: Too long: may not be more than 128 bytes")]
    FieldManager,
    /// An option that is not allowed with the others.
    #[error("{field}: Forbidden: {message}")]
    Forbidden {
        /// The option.
        field: &'static str,
        /// The reason in the error.
        message: &'static str,
    },
    /// An option with a value that is not allowed with the others.
    #[error("{field}: Invalid value: {value:?}: {message}")]
    Invalid {
        /// The option.
        field: &'static str,
        /// Its value.
        value: String,
        /// The reason in the error.
        message: &'static str,
    },
    /// An option that is missing.
    #[error("{field}: Required value: {message}")]
    Required {
        /// The option.
        field: &'static str,
        /// The reason in the error.
        message: &'static str,
    },
    /// The field manager's name has characters that cannot be printed.
    #[error(
        "fieldManager: Invalid value: {value:?}: should only contain printable characters (at position {position})"
    )]
    UnprintableManager {
        /// The name.
        value: String,
        /// The position of the first such character, in bytes.
        position: usize,
    },
    /// An option with an unknown value.
    #[error("{field}: Unsupported value: {value}: supported values: {supported}")]
    NotSupported {
        /// The option.
        field: &'static str,
        /// Its value, quoted.
        value: String,
        /// The supported values.
        supported: &'static str,
    },
    /// A value that is not a number.
    #[error("{name}: Invalid value: {text:?}: must be a number")]
    Number {
        /// The option.
        name: &'static str,
        /// Its text.
        text: String,
    },
    /// A selector that does not parse.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// A continue token with a resourceVersion.
    #[error("specifying resource version is not allowed when using continue")]
    VersionWithContinue,
}

impl OptionsError {
    fn unsupported_match(value: &str) -> Self {
        Self::NotSupported {
            field: "resourceVersionMatch",
            value: format!("{value:?}"),
            supported: "\"Exact\", \"NotOlderThan\", \"\"",
        }
    }

    /// Whether the response is 422 Invalid instead of 400, as in Kubernetes.
    pub fn is_invalid(&self) -> bool {
        self.reason().is_some()
    }

    /// The machine-readable reason in the causes of a 422; `None` for a 400.
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            Self::FieldManager => Some("FieldValueTooLong"),
            Self::Forbidden { .. } => Some("FieldValueForbidden"),
            Self::Invalid { .. } | Self::UnprintableManager { .. } => Some("FieldValueInvalid"),
            Self::Required { .. } => Some("FieldValueRequired"),
            Self::NotSupported { .. } => Some("FieldValueNotSupported"),
            Self::Body(_) | Self::Number { .. } | Self::Selector(_) | Self::VersionWithContinue => None,
        }
    }

    /// The option that is wrong, for the causes of a 422.
    pub fn field(&self) -> Option<&'static str> {
        match self {
            Self::Forbidden { field, .. }
            | Self::Invalid { field, .. }
            | Self::Required { field, .. }
            | Self::NotSupported { field, .. } => Some(field),
            Self::FieldManager | Self::UnprintableManager { .. } => Some("fieldManager"),
            Self::Number { name, .. } => Some(name),
            Self::Body(_) | Self::Selector(_) | Self::VersionWithContinue => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_options_that_do_not_go_together_are_refused() {
        for (query, watch, accepted) in [
            ("limit=5", false, true),
            ("limit=-1", false, true),
            ("limit=x", false, false),
            ("resourceVersion=0&resourceVersionMatch=Exact", false, false),
            ("resourceVersion=5&resourceVersionMatch=Exact", false, true),
            ("resourceVersionMatch=Exact", false, false),
            ("continue=a&resourceVersion=5", false, false),
            ("continue=a&resourceVersion=0", false, true),
            ("resourceVersionMatch=Newest&resourceVersion=1", false, false),
            ("sendInitialEvents=true", true, false),
            ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", true, true),
            ("resourceVersionMatch=NotOlderThan", true, false),
            ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", false, false),
            ("resourceVersion=abc", true, false),
        ] {
            assert_eq!(ListOptions::parse(&Query::parse(query), watch).is_ok(), accepted, "{query}");
        }
    }

    #[test]
    fn queries_of_all_clients_parse() {
        let query = Query::parse("&watch=true&labelSelector=a%3Db%2Cc+in+%28d%29&x");
        assert_eq!(query.get("labelSelector"), Some("a=b,c in (d)"));
        assert!(query.flag("watch") && query.has("x") && query.flag("x"));
        assert!(!Query::parse("watch=0").flag("watch"));
    }
}
