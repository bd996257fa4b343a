//! Names of logical clusters, workspace paths, and the cluster reference of a request path.

use core::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha224};

use crate::hash::{base36_padded, home_cluster_name};

/// The flat name of one logical cluster: `root`, `2hzqkbz7v4xk1d0q`, `system:admin`.
///
/// Cheap to clone (a shared string).
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ClusterName(Arc<str>);

impl ClusterName {
    /// Parses a flat name: one DNS label, or `system:` followed by labels.
    ///
    /// # Errors
    /// [`NameError`] when the text has several segments (a path) or is malformed.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        match ClusterReference::parse(text)? {
            ClusterReference::Name(name) => Ok(name),
            ClusterReference::Wildcard | ClusterReference::Path(_) => Err(NameError(text.into())),
        }
    }

    /// The logical cluster at the top of the workspace tree.
    pub fn root() -> Self {
        Self("root".into())
    }

    /// A fresh random name: 16 base-36 characters of a SHA-224 over 32 random bytes, as in kcp.
    ///
    /// # Errors
    /// When the operating system provides no random bytes.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        let mut text = base36_padded(&Sha224::digest(seed));
        text.truncate(16);
        Ok(Self(text.into()))
    }

    /// The home logical cluster of a user.
    pub fn home_of(user: &str) -> Self {
        Self(home_cluster_name(user).into())
    }

    /// Whether the name is reserved for a system logical cluster (`system:…`).
    pub fn is_system(&self) -> bool {
        self.0.starts_with("system:")
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for ClusterName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for ClusterName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, formatter)
    }
}

/// A workspace path of at least one label: `root:org:team`.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct WorkspacePath(Arc<str>);

impl WorkspacePath {
    /// Parses colon-joined labels.
    ///
    /// # Errors
    /// [`NameError`] on an empty label, upper case, dots, or a label of more than 63 characters.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.split(':').all(is_dns_label) { Ok(Self(text.into())) } else { Err(NameError(text.into())) }
    }

    /// The labels from the top.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.0.split(':')
    }

    /// The path one level up; `None` at the top.
    pub fn parent(&self) -> Option<Self> {
        self.0.rsplit_once(':').map(|(parent, _)| Self(parent.into()))
    }

    /// The last label.
    pub fn base(&self) -> &str {
        self.0.rsplit(':').next().unwrap_or(&self.0)
    }

    /// This path with one more label.
    pub fn join(&self, label: &str) -> Self {
        Self(format!("{}:{label}", self.0).into())
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkspacePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The part of a request path after `/clusters/`, percent-decoded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ClusterReference {
    /// `*`: all logical clusters of a shard.
    Wildcard,
    /// A flat name, used as it is.
    Name(ClusterName),
    /// Several labels, to be resolved through an index. `user:<name>` has already become the home
    /// cluster's name, so the first label is always a logical cluster.
    Path(WorkspacePath),
}

impl ClusterReference {
    /// Parses a reference. Costs one allocation; no look-up is done.
    ///
    /// # Errors
    /// [`NameError`] when the text matches none of the forms.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text == "*" {
            return Ok(Self::Wildcard);
        }
        if !text.split(':').all(is_dns_label) {
            return Err(NameError(text.into()));
        }
        let Some((first, rest)) = text.split_once(':') else {
            return Ok(Self::Name(ClusterName(text.into())));
        };
        match first {
            "system" => Ok(Self::Name(ClusterName(text.into()))),
            "user" => {
                let (user, below) =
                    rest.split_once(':').map_or((rest, None), |(user, below)| (user, Some(below)));
                let home = ClusterName::home_of(user);
                Ok(match below {
                    None => Self::Name(home),
                    Some(below) => Self::Path(WorkspacePath(format!("{home}:{below}").into())),
                })
            }
            _ => Ok(Self::Path(WorkspacePath(text.into()))),
        }
    }
}

/// Text that is neither a logical cluster name nor a workspace path. A client error; a retry does
/// not help.
#[derive(Debug, thiserror::Error)]
#[error("invalid cluster: {0:?} does not match the regex")]
pub struct NameError(String);

/// Whether `label` is a DNS label: 1–63 characters, lower case letters, digits and inner dashes (RFC 1123).
pub fn is_dns_label(label: &str) -> bool {
    let bytes = label.as_bytes();
    let word = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    matches!(bytes, [first, ..] if word(first))
        && matches!(bytes, [.., last] if word(last))
        && bytes.len() <= 63
        && bytes.iter().all(|byte| word(byte) || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_parsed_by_their_form() {
        let name = |text: &str| ClusterReference::Name(ClusterName(text.into()));
        let path = |text: &str| ClusterReference::Path(WorkspacePath(text.into()));
        for (text, expected) in [
            ("*", ClusterReference::Wildcard),
            ("root", name("root")),
            ("2f8a", name("2f8a")),
            ("system:admin", name("system:admin")),
            ("system:cache:server", name("system:cache:server")),
            ("root:org", path("root:org")),
            ("user", name("user")),
            ("user:alice", name("v1u4alow0iv9")),
            ("user:alice:a:b", path("v1u4alow0iv9:a:b")),
        ] {
            assert_eq!(ClusterReference::parse(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn malformed_references_are_refused() {
        let long = "a".repeat(64);
        for text in
            ["", "Root", "a.b", "a::b", ":a", "a:", "-a", "a-", "a/b", "..", "a:*", "a b", "ä", long.as_str()]
        {
            assert!(ClusterReference::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn random_names_are_flat_names() {
        let (one, two) = (ClusterName::random().unwrap(), ClusterName::random().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.as_str().len(), 16);
        assert_eq!(ClusterName::parse(one.as_str()).unwrap(), one);
    }

    #[test]
    fn a_path_has_a_parent_and_a_base() {
        let path = WorkspacePath::parse("root:org:team").unwrap();
        assert_eq!(path.parent().unwrap().as_str(), "root:org");
        assert_eq!(path.base(), "team");
        assert_eq!(path.parent().unwrap().join("x").as_str(), "root:org:x");
        assert_eq!(WorkspacePath::parse("root").unwrap().parent(), None);
    }
}
