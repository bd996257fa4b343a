//! The file of `--authentication-config`: `AuthenticationConfiguration` of `apiserver.config.k8s.io`.

use std::{
    collections::BTreeSet,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;
use thiserror::Error;

use super::{
    fields::{FieldError, FieldErrors, UnknownFields},
    settings::JwtSettings,
    yaml_lines::YamlLines,
};

const VERSIONS: [&str; 3] =
    ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1", "apiserver.config.k8s.io/v1alpha1"];

/// The same limit as in Kubernetes.
const MAX_ISSUERS: usize = 64;

/// The contents of the file.
#[derive(Debug)]
pub struct AuthenticationConfiguration {
    /// The issuers of tokens.
    pub issuers: Vec<JwtSettings>,
    /// Whether requests without credentials are admitted; `None` if the file does not configure it.
    pub anonymous: Option<AnonymousAccess>,
}

/// The requests without credentials that are admitted as the anonymous user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnonymousAccess {
    enabled: bool,
    /// Exact paths; all paths if empty.
    paths: Vec<String>,
}

/// A file that cannot be used; its author has to correct it. The configuration in use should stay in use.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is not YAML.
    #[error("{path}{line}: it is not valid YAML")]
    Yaml {
        /// The file.
        path: PathBuf,
        /// The line where the parser stopped.
        line: LineNumber,
    },
    /// Fields are invalid. The text shows the first error and the number of others.
    #[error("{path}{}: {}", .errors[0].0, FirstOf(.errors))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// All errors with their places; at least one.
        errors: Vec<(LineNumber, FieldError)>,
    },
}

/// A line of a file, written `:7`; empty if it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineNumber(pub Option<u64>);

struct FirstOf<'a>(&'a [(LineNumber, FieldError)]);

impl AuthenticationConfiguration {
    /// Reads a file. `reserved` are the issuers of service accounts, which must not be configured here.
    pub fn load(path: &Path, reserved: &[String]) -> Result<Self, ConfigurationError> {
        let text = fs::read_to_string(path)
            .map_err(|source| ConfigurationError::Io { path: path.to_owned(), source })?;
        Self::parse(&text, path, reserved)
    }

    /// Reads YAML or JSON; `path` is for messages.
    pub fn parse(text: &str, path: &Path, reserved: &[String]) -> Result<Self, ConfigurationError> {
        let tree: Value = serde_saphyr::from_str(text).map_err(|error| ConfigurationError::Yaml {
            path: path.to_owned(),
            line: LineNumber(error.location().map(|location| location.line())),
        })?;
        let errors = FieldErrors::new(UnknownFields::Refuse);
        let configuration = Self::read(&errors, &tree, reserved);
        let errors = errors.into_vec();
        if errors.is_empty() {
            return Ok(configuration);
        }
        let lines = YamlLines::of(text);
        let errors = errors.into_iter().map(|fault| (LineNumber(lines.line(&fault.path)), fault)).collect();
        Err(ConfigurationError::Invalid { path: path.to_owned(), errors })
    }

    fn read(errors: &FieldErrors, tree: &Value, reserved: &[String]) -> Self {
        let root = errors.root(tree);
        root.allow_only(&["apiVersion", "kind", "jwt", "anonymous"]);
        let version = root.required("apiVersion");
        if !version.is_empty() && !VERSIONS.contains(&version) {
            root.add("apiVersion", format!("is not one of {}", VERSIONS.join(", ")));
        }
        let kind = root.required("kind");
        if !kind.is_empty() && kind != "AuthenticationConfiguration" {
            root.add("kind", "is not AuthenticationConfiguration");
        }
        let elements = root.children("jwt");
        if elements.len() > MAX_ISSUERS {
            root.add("jwt", format!("has more than {MAX_ISSUERS} elements"));
        }
        let mut issuers: Vec<JwtSettings> = Vec::new();
        let mut seen = BTreeSet::new();
        for element in elements {
            let Some(settings) = JwtSettings::read(&element) else { continue };
            let issuer = element.child("issuer");
            if reserved.contains(&settings.issuer) {
                issuer.add("url", "is the issuer of service accounts");
            }
            if !seen.insert(settings.issuer.clone()) {
                issuer.add("url", "is a duplicate");
            }
            let same = |other: &JwtSettings| other.discovery_url == settings.discovery_url;
            if settings.discovery_url.is_some() && issuers.iter().any(same) {
                issuer.add("discoveryURL", "is a duplicate");
            }
            issuers.push(settings);
        }
        let anonymous = root.has("anonymous").then(|| {
            let fields = root.child("anonymous");
            fields.allow_only(&["enabled", "conditions"]);
            let conditions = fields.children("conditions");
            let enabled = fields.flag("enabled");
            if !enabled && !conditions.is_empty() {
                fields.add("conditions", "must not be set if anonymous access is not enabled");
            }
            let paths = conditions.iter().map(|condition| {
                condition.allow_only(&["path"]);
                condition.required("path").to_owned()
            });
            AnonymousAccess { enabled, paths: paths.collect() }
        });
        Self { issuers, anonymous }
    }
}

impl AnonymousAccess {
    /// Whether a request without credentials for this path is admitted as the anonymous user.
    #[must_use]
    pub fn admits(&self, path: &str) -> bool {
        self.enabled && (self.paths.is_empty() || self.paths.iter().any(|admitted| admitted == path))
    }
}

impl fmt::Display for LineNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(line) => write!(f, ":{line}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for FirstOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(((_, first), rest)) = self.0.split_first() else { return Ok(()) };
        write!(f, "{first}")?;
        match rest.len() {
            0 => Ok(()),
            more => write!(f, " (and {more} more)"),
        }
    }
}
