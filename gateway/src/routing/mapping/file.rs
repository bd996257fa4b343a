//! Parser for kcp's path mapping file: a YAML or JSON list of path prefixes, each with its backend.

use std::fmt;
use std::path::{Path, PathBuf};

use http::header::HeaderName;
use http::uri::{Scheme, Uri};
use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::request::identity_headers::IdentityHeaderNames;

use crate::routing::mapping::pattern::{Pattern, PatternError};

/// Identity headers of a backend whose entry names none: user, group, prefix of extras.
const DEFAULT_NAMES: [&str; 3] = ["x-remote-user", "x-remote-group", "x-remote-extra-"];

/// One entry of the file, parsed and validated.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Location in the file, for messages.
    pub(crate) location: SourceLocation,
    /// Pattern of the paths that the entry maps.
    pub(crate) pattern: Pattern,
    /// The backend's URL; ignored for `/clusters/`.
    pub(crate) backend: BackendUrl,
    /// CA bundle that verifies the backend's certificate.
    pub(crate) server_ca: PathBuf,
    /// The client certificate for the backend.
    pub(crate) certificate: PathBuf,
    /// The private key of the client certificate.
    pub(crate) private_key: PathBuf,
    /// Names of the identity headers for the backend, if they differ from the defaults.
    pub(crate) names: Option<IdentityHeaderNames>,
}

/// A file and a position in it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SourceLocation {
    /// The file.
    pub(crate) file: PathBuf,
    /// Line and column, from 1.
    pub(crate) at: Option<(u64, u64)>,
}

/// An http or https URL of a backend.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct BackendUrl {
    origin: String,
    path: String,
    query: Option<String>,
}

/// The file cannot be used; the operator has to fix it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MappingFileError {
    /// The file cannot be read.
    #[error("the mapping file {0} cannot be read")]
    Unreadable(PathBuf, #[source] std::io::Error),
    /// The file is not a list of mappings.
    #[error("{location}: {message}")]
    Malformed {
        /// The location of the fault.
        location: SourceLocation,
        /// The parser's message.
        message: String,
    },
    /// The path of an entry cannot be used.
    #[error("{location}: {error}")]
    Pattern {
        /// The location of the path.
        location: SourceLocation,
        /// The pattern error.
        error: PatternError,
    },
    /// A value has the wrong form.
    #[error("{location}: {key}: {value:?} is not a valid {wanted}")]
    Value {
        /// The location of the value.
        location: SourceLocation,
        /// The key.
        key: &'static str,
        /// The value in the file.
        value: String,
        /// The expected form.
        wanted: &'static str,
    },
    /// Two entries match the same paths, and neither is more specific.
    #[error("{location}: the paths {one} and {other} overlap, and neither is more specific")]
    Conflict {
        /// The location of the second entry.
        location: SourceLocation,
        /// The pattern of the first entry.
        one: Pattern,
        /// The pattern of the second entry.
        other: Pattern,
    },
}

#[derive(Deserialize)]
struct MappingEntry {
    path: Spanned<String>,
    backend: Spanned<String>,
    backend_server_ca: PathBuf,
    proxy_client_cert: PathBuf,
    proxy_client_key: PathBuf,
    #[serde(default)]
    user_header: Option<Spanned<String>>,
    #[serde(default)]
    group_header: Option<Spanned<String>>,
    #[serde(default)]
    extra_header_prefix: Option<Spanned<String>>,
}

/// Reads a mapping file. Relative file names in it are relative to the working directory, as in kcp.
///
/// # Errors
/// [`MappingFileError`] with the location of the first fault.
pub(crate) fn read(file: &Path) -> Result<Vec<Entry>, MappingFileError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| MappingFileError::Unreadable(file.to_owned(), error))?;
    parse(&text, file)
}

/// Parses the text of a mapping file.
///
/// # Errors
/// [`MappingFileError`] with the location of the first fault.
pub(crate) fn parse(text: &str, file: &Path) -> Result<Vec<Entry>, MappingFileError> {
    let raw_entries: Option<Vec<Spanned<MappingEntry>>> = serde_saphyr::from_str(text).map_err(|error| {
        let error = error.without_snippet();
        let at = error.location().map(|location| (location.line(), location.column()));
        let text = error.to_string();
        let message = text[..text.rfind(" at line ").unwrap_or(text.len())].to_owned();
        MappingFileError::Malformed { location: SourceLocation { file: file.to_owned(), at }, message }
    })?;
    let mut entries: Vec<Entry> = Vec::new();
    for raw in raw_entries.unwrap_or_default() {
        let entry = Entry::parse(raw.value, file)?;
        let conflict = entries.iter().find(|other| {
            let (one, other) = (&entry.pattern, &other.pattern);
            one.overlaps(other) && one.is_within(other) == other.is_within(one)
        });
        if let Some(other) = conflict {
            let (one, other) = (other.pattern.clone(), entry.pattern);
            return Err(MappingFileError::Conflict { location: entry.location, one, other });
        }
        entries.push(entry);
    }
    Ok(entries)
}

impl Entry {
    fn parse(raw: MappingEntry, file: &Path) -> Result<Self, MappingFileError> {
        let location = |spanned: &Spanned<String>| SourceLocation {
            file: file.to_owned(),
            at: Some((spanned.referenced.line(), spanned.referenced.column())),
        };
        let pattern = Pattern::parse(&raw.path.value)
            .map_err(|error| MappingFileError::Pattern { location: location(&raw.path), error })?;
        let backend = BackendUrl::parse(&raw.backend.value).ok_or_else(|| MappingFileError::Value {
            location: location(&raw.backend),
            key: "backend",
            value: raw.backend.value.clone(),
            wanted: "http or https URL",
        })?;
        let header = |key, given: Option<Spanned<String>>, default| match given {
            Some(name) if !name.value.is_empty() => {
                HeaderName::try_from(&name.value).map_err(|_| MappingFileError::Value {
                    location: location(&name),
                    key,
                    value: name.value,
                    wanted: "header name",
                })
            }
            _ => Ok(HeaderName::from_static(default)),
        };
        let [user, group, extra] = DEFAULT_NAMES;
        let extra = header("extra_header_prefix", raw.extra_header_prefix, extra)?;
        let names = IdentityHeaderNames {
            user: header("user_header", raw.user_header, user)?,
            group: header("group_header", raw.group_header, group)?,
            extra_prefix: extra.as_str().into(),
        };
        let is_default = [names.user.as_str(), names.group.as_str(), extra.as_str()] == DEFAULT_NAMES;
        Ok(Self {
            location: location(&raw.path),
            pattern,
            backend,
            server_ca: raw.backend_server_ca,
            certificate: raw.proxy_client_cert,
            private_key: raw.proxy_client_key,
            names: (!is_default).then_some(names),
        })
    }

    /// The files that the entry names.
    pub(crate) fn files(&self) -> [PathBuf; 3] {
        [self.server_ca.clone(), self.certificate.clone(), self.private_key.clone()]
    }
}

impl BackendUrl {
    /// `None` unless the text is an http or https URL with a host.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let scheme = uri.scheme()?;
        if *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS {
            return None;
        }
        let authority = uri.authority().filter(|authority| !authority.host().is_empty())?;
        if authority.as_str().contains('@') {
            return None;
        }
        Some(Self {
            origin: format!("{scheme}://{authority}"),
            path: uri.path().trim_end_matches('/').to_owned(),
            query: uri.query().filter(|query| !query.is_empty()).map(str::to_owned),
        })
    }
}

impl BackendUrl {
    /// Scheme, host and port: `https://host:port`.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// Prefix for the path of requests, without a trailing slash.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Prefix for the query of requests.
    pub(crate) fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.file.display())?;
        match self.at {
            Some((line, column)) => write!(formatter, ":{line}:{column}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    const FILES: &str = "backend_server_ca: ca\n  proxy_client_cert: crt\n  proxy_client_key: key\n";

    fn entry(rest: &str) -> String {
        format!("- {rest}\n  {FILES}")
    }

    #[test]
    fn mapping_files_of_kcp_are_parsed() {
        let yaml = entry("path: /clusters/\n  backend: https://root:6443")
            + &entry(
                "path: /services/\n  backend: https://vw:6444/base/?a=b\n  user_header: X-User\n  later: 1",
            );
        let entries = parse(&yaml, Path::new("m")).unwrap();
        assert!(entries[0].pattern.is_clusters());
        assert_eq!(entries[0].names, None);
        let services = &entries[1];
        let names = services.names.as_ref().unwrap();
        assert_eq!((names.user.as_str(), names.group.as_str()), ("x-user", "x-remote-group"));
        let backend = &services.backend;
        assert_eq!((backend.origin.as_str(), backend.path.as_str()), ("https://vw:6444", "/base"));
        assert_eq!(backend.query.as_deref(), Some("a=b"));
        assert_eq!(services.files(), ["ca", "crt", "key"].map(PathBuf::from));
        let json = r#"[{"path":"/","backend":"http://x","backend_server_ca":"a","proxy_client_cert":"b","proxy_client_key":"c"}]"#;
        assert_eq!(parse(json, Path::new("m")).unwrap().len(), 1);
        assert_eq!(parse("", Path::new("m")).unwrap(), []);
    }

    #[test]
    fn errors_name_the_location() {
        let good = entry("path: /a/{cluster}/\n  backend: https://x");
        for (text, expected) in [
            (entry("path: a\n  backend: https://x"), r#"m:1:9: the path "a" does not begin with a slash"#),
            (
                entry("path: /a\n  backend: ftp://x"),
                r#"m:2:12: backend: "ftp://x" is not a valid http or https URL"#,
            ),
            (
                entry("path: /a\n  backend: https://x\n  user_header: a b"),
                r#"m:3:16: user_header: "a b" is not a valid header name"#,
            ),
            (
                good + &entry("path: /{cluster}/b\n  backend: https://x"),
                "m:6:9: the paths /a/{cluster}/ and /{cluster}/b/ overlap, and neither is more specific",
            ),
            (
                entry("path: /a\n  backend: https://x") + &entry("path: /a/\n  backend: https://x"),
                "m:6:9: the paths /a/ and /a/ overlap, and neither is more specific",
            ),
        ] {
            assert_eq!(parse(&text, Path::new("m")).unwrap_err().to_string(), expected);
        }
        for text in ["a: b", "- path: /a", "- [", "- path: {}"] {
            let error = parse(text, Path::new("m")).unwrap_err().to_string();
            assert!(error.starts_with("m:1:"), "{text}: {error}");
        }
    }
}
