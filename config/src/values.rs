//! Types of single values: files, URLs, levels.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::setting::{Meaning, Setting, inline_json, plain_settings};
use crate::units::{UnitError, as_text};

/// A file that a process reads; after loading, absolute or relative to the working directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InputFile(PathBuf);

/// A file with a private key, token or password. Its path may be shown, its content never.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretFile(PathBuf);

/// A file or folder that the process itself creates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OwnPath(PathBuf);

macro_rules! path_setting {
    ($($type:ident $meaning:expr),*) => {$(
        impl<T: Into<PathBuf>> From<T> for $type {
            fn from(path: T) -> Self {
                Self(path.into())
            }
        }

        impl Deref for $type {
            type Target = Path;

            fn deref(&self) -> &Path {
                &self.0
            }
        }

        impl AsRef<Path> for $type {
            fn as_ref(&self) -> &Path {
                &self.0
            }
        }

        impl Setting for $type {
            fn meaning(&self) -> Meaning<'_> {
                let meaning: fn(&Path) -> Meaning<'_> = $meaning;
                meaning(&self.0)
            }

            fn resolve_paths(&mut self, base: &Path) {
                self.0 = base.join(&self.0);
            }

            fn inline(&self) -> String {
                inline_json(self)
            }
        }
    )*};
}

path_setting!(
    InputFile | path | Meaning::ReadFile(path),
    SecretFile | path | Meaning::SecretFile(path),
    OwnPath | _ | Meaning::Plain
);

/// An `https://host[:port][/path]` address without a trailing slash, query or credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpsUrl(String);

impl HttpsUrl {
    /// The address as text, without a trailing slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The host with its port, as written.
    pub fn authority(&self) -> &str {
        let rest = self.0.strip_prefix("https://").unwrap_or(&self.0);
        rest.split('/').next().unwrap_or(rest)
    }

    /// The URL of a listener for clients on the same machine: its address, or localhost if it listens on all addresses.
    pub fn of_listener(address: SocketAddr) -> Self {
        if address.ip().is_unspecified() {
            Self(format!("https://localhost:{}", address.port()))
        } else {
            Self(format!("https://{address}"))
        }
    }
}

impl FromStr for HttpsUrl {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let malformed = || UnitError::new(text, "an https URL such as \"https://kcp.example.com:6443\"");
        let rest = text.strip_prefix("https://").ok_or_else(malformed)?;
        let authority = rest.split('/').next().unwrap_or_default();
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                port.parse::<u16>().map_err(|_| malformed())?;
                host
            }
            _ => authority,
        };
        let is_forbidden =
            |c: char| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#' | '@' | '"' | '\\');
        if host.is_empty() || rest.contains(is_forbidden) {
            return Err(malformed());
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
}

impl fmt::Display for HttpsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a shard: one DNS label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardName(String);

impl ShardName {
    /// The root shard's name.
    pub fn root() -> Self {
        Self("root".to_owned())
    }

    /// Whether this is the root shard.
    pub fn is_root(&self) -> bool {
        self.0 == "root"
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ShardName {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wanted = "a shard name: lower-case letters, digits and '-', at most 63";
        if fairlead_names::is_dns_label(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(UnitError::new(text, wanted))
        }
    }
}

impl fmt::Display for ShardName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

as_text!(HttpsUrl, ShardName);
plain_settings!(
    HttpsUrl,
    ShardName,
    LogFormat,
    TokenPolicy,
    Battery,
    ServicesPolicy,
    TlsVersion,
    KcpBehaviour
);

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Policy for bearer tokens that a listener cannot verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TokenPolicy {
    /// Pass it to the shard, which verifies it.
    PassThrough,
    /// Respond with 401.
    Refuse,
}

/// Destination of requests for virtual workspaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServicesPolicy {
    /// On the shard of the logical cluster that the path names.
    OwningShard,
    /// On the root shard, as in kcp's usual mapping file.
    RootShard,
    /// None: 404.
    Refuse,
}

/// Oldest TLS version of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlsVersion {
    /// RFC 5246, with authenticated encryption only.
    #[serde(rename = "1.2")]
    Tls12,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    Tls13,
}

/// Behaviour of kcp-front-proxy that `kcpCompatibility` restores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KcpBehaviour {
    /// Ready as soon as the list of shards was read, not when their workspaces were.
    Readiness,
    /// 403, not 503, for an unknown workspace while the index is not synced.
    Unsynced,
    /// The plain words "Not available." for a workspace in phase Unavailable, not a `Status`.
    UnavailableBody,
    /// An empty 502, not a 503 or 502 `Status`, for a shard that cannot be reached or disconnects before it responds.
    Unreachable,
    /// Path labels behind a mount are ignored, not unknown.
    MountLabels,
    /// No request is sent to a shard twice.
    Retries,
    /// A webhook or a structured authentication configuration alone does not make a credential necessary.
    AuthenticationMethods,
    /// Connections to shards get no pings.
    Pings,
    /// A draining process stays ready, and aborts all watches at the end of the window.
    Drain,
    /// Of the files of listeners, shards and mapped paths only serving certificates and client authorities are reloaded.
    Reloads,
    /// The workspaces of a shard whose base URL changes are unknown until the process starts again.
    BaseUrls,
    /// A workspace whose mount was removed is still forwarded to the former target.
    ClearedMounts,
    /// Identity headers are set before the fields named by the client's `Connection` header are removed, so a client can remove
    /// them.
    IdentityHeadersFirst,
    /// A client's own `X-Remote-Uid` is passed on.
    RemoteUid,
    /// A request without a credential to a workspace with issuers of its own is an internal error, not unauthorized.
    NoCredential,
    /// A flag's list of groups in one pair of quotes is one group. Has an effect only with kcp's flags.
    QuotedGroups,
    /// A mapping file with `/` beside `/clusters/` cannot be used.
    RootPath,
}

impl KcpBehaviour {
    /// The security hole that it opens, if any.
    pub fn hole(self) -> Option<&'static str> {
        Some(match self {
            Self::IdentityHeadersFirst => "clients can remove the identity headers that shards receive",
            Self::RemoteUid => "clients can set the UID that shards receive",
            Self::QuotedGroups => "groups that are to be dropped may reach shards",
            Self::ClearedMounts => "requests are forwarded to servers that their workspaces no longer name",
            _ => return None,
        })
    }
}

/// Optional content of a new installation (kcp's `--batteries-included`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Battery {
    /// RBAC of the administrator's group in the root workspace.
    Admin,
    /// A user without rights of its own in the administrators' kubeconfig.
    User,
    /// The workspace types organization and team.
    WorkspaceTypes,
    /// A service account in root that may read metrics.
    MetricsViewer,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn urls_are_https_with_a_host() {
        for (text, kept, authority) in [
            ("https://a", "https://a", "a"),
            ("https://a:6443/", "https://a:6443", "a:6443"),
            ("https://[::1]:6443/x/y", "https://[::1]:6443/x/y", "[::1]:6443"),
            ("https://[::1]", "https://[::1]", "[::1]"),
        ] {
            let url: HttpsUrl = text.parse().unwrap();
            assert_eq!((url.as_str(), url.authority()), (kept, authority));
        }
        for text in [
            "",
            "a",
            "http://a",
            "https://",
            "https://:1",
            "https://a:x",
            "https://u@a",
            "https://a?b",
            "https://a b",
        ] {
            assert!(text.parse::<HttpsUrl>().is_err(), "{text:?}");
        }
    }
}
