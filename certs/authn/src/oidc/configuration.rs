//! The file of `--authentication-config`: `AuthenticationConfiguration` of `apiserver.config.k8s.io`.

use std::{
    collections::BTreeSet,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;
use thiserror::Error;

use super::{
    fields::{Fault, Notes, UnknownFields},
    outline::Outline,
    settings::JwtSettings,
};

const VERSIONS: [&str; 3] =
    ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1", "apiserver.config.k8s.io/v1alpha1"];

/// As in Kubernetes.
const MOST_ISSUERS: usize = 64;

/// What the file says.
#[derive(Debug)]
pub struct AuthenticationConfiguration {
    /// The issuers of tokens.
    pub issuers: Vec<JwtSettings>,
    /// What becomes of requests without credentials; `None` if the file does not say.
    pub anonymous: Option<AnonymousAccess>,
}

/// Which requests without credentials belong to the anonymous user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnonymousAccess {
    enabled: bool,
    /// Exact paths; all if there is none.
    paths: Vec<String>,
}

/// A file that cannot be used. Its author is to blame; the configuration in use should stay in use.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// It cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It is not YAML.
    #[error("{path}{place}: it is not valid YAML")]
    Yaml {
        /// The file.
        path: PathBuf,
        /// Where the parser stopped.
        place: Place,
    },
    /// Something in it is wrong. The text shows the first fault; there may be more.
    #[error("{path}{}: {}", .faults[0].0, FirstOf(.faults))]
    Faults {
        /// The file.
        path: PathBuf,
        /// All faults with their places; at least one.
        faults: Vec<(Place, Fault)>,
    },
}

/// A line of a file, written `:7`; nothing if it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(pub Option<u64>);

struct FirstOf<'a>(&'a [(Place, Fault)]);

impl AuthenticationConfiguration {
    /// Reads a file. `reserved` are issuers that somebody else judges, those of service accounts.
    pub fn load(path: &Path, reserved: &[String]) -> Result<Self, ConfigurationError> {
        let text = fs::read_to_string(path)
            .map_err(|source| ConfigurationError::Io { path: path.to_owned(), source })?;
        Self::parse(&text, path, reserved)
    }

    /// Reads YAML or JSON; `path` is for messages.
    pub fn parse(text: &str, path: &Path, reserved: &[String]) -> Result<Self, ConfigurationError> {
        let tree: Value = serde_saphyr::from_str(text).map_err(|error| ConfigurationError::Yaml {
            path: path.to_owned(),
            place: Place(error.location().map(|location| location.line())),
        })?;
        let notes = Notes::new(UnknownFields::Refuse);
        let configuration = Self::read(&notes, &tree, reserved);
        let faults = notes.into_faults();
        if faults.is_empty() {
            return Ok(configuration);
        }
        let outline = Outline::of(text);
        let faults = faults.into_iter().map(|fault| (Place(outline.line(&fault.path)), fault)).collect();
        Err(ConfigurationError::Faults { path: path.to_owned(), faults })
    }

    fn read(notes: &Notes, tree: &Value, reserved: &[String]) -> Self {
        let root = notes.root(tree);
        root.only(&["apiVersion", "kind", "jwt", "anonymous"]);
        let version = root.required("apiVersion");
        if !version.is_empty() && !VERSIONS.contains(&version) {
            root.fault("apiVersion", format!("is not one of {}", VERSIONS.join(", ")));
        }
        let kind = root.required("kind");
        if !kind.is_empty() && kind != "AuthenticationConfiguration" {
            root.fault("kind", "is not AuthenticationConfiguration");
        }
        let elements = root.children("jwt");
        if elements.len() > MOST_ISSUERS {
            root.fault("jwt", format!("has more than {MOST_ISSUERS} elements"));
        }
        let mut issuers: Vec<JwtSettings> = Vec::new();
        let mut seen = BTreeSet::new();
        for element in elements {
            let Some(settings) = JwtSettings::read(&element) else { continue };
            let issuer = element.child("issuer");
            if reserved.contains(&settings.issuer) {
                issuer.fault("url", "is the issuer of service accounts");
            }
            if !seen.insert(settings.issuer.clone()) {
                issuer.fault("url", "is a duplicate");
            }
            let same = |other: &JwtSettings| other.discovery_url == settings.discovery_url;
            if settings.discovery_url.is_some() && issuers.iter().any(same) {
                issuer.fault("discoveryURL", "is a duplicate");
            }
            issuers.push(settings);
        }
        let anonymous = root.has("anonymous").then(|| {
            let fields = root.child("anonymous");
            fields.only(&["enabled", "conditions"]);
            let conditions = fields.children("conditions");
            let enabled = fields.flag("enabled");
            if !enabled && !conditions.is_empty() {
                fields.fault("conditions", "must not be set if anonymous access is not enabled");
            }
            let paths = conditions.iter().map(|condition| {
                condition.only(&["path"]);
                condition.required("path").to_owned()
            });
            AnonymousAccess { enabled, paths: paths.collect() }
        });
        Self { issuers, anonymous }
    }
}

impl AnonymousAccess {
    /// Whether a request without credentials for this path belongs to the anonymous user.
    #[must_use]
    pub fn admits(&self, path: &str) -> bool {
        self.enabled && (self.paths.is_empty() || self.paths.iter().any(|admitted| admitted == path))
    }
}

impl fmt::Display for Place {
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

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => write!(f, "the file {}", self.problem),
            path => write!(f, "{path} {}", self.problem),
        }
    }
}
