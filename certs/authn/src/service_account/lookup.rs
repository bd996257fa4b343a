//! Questions about the objects that a token depends on, which whoever knows the shards answers.

use std::{fmt, pin::Pin, time::SystemTime};

use base64::{Engine, engine::general_purpose::STANDARD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Finds objects, by asking the shard that owns their logical cluster.
pub trait ServiceAccountLookup: Send + Sync {
    /// The object as it is now; `None` if there is none, or no such logical cluster. Every answer is
    /// remembered for a while, and those who ask the same at the same time ask once; so it need not be done
    /// again. It should have a deadline of its own, and 10 s are the longest that is waited.
    fn find<'a>(
        &'a self,
        object: &'a ObjectReference,
    ) -> Pin<Box<dyn Future<Output = Result<Option<FoundObject>, LookupFailed>> + Send + 'a>>;
}

/// An object that a token depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectReference {
    /// Its logical cluster; a token of a plain Kubernetes names none.
    pub cluster: Option<String>,
    /// Its resource.
    pub kind: ReferencedKind,
    /// Its namespace; empty for a node.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Kinds of objects that a token may depend on, all of the core group's v1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names of Kubernetes say it")]
pub enum ReferencedKind {
    ServiceAccount,
    Secret,
    Pod,
    Node,
}

/// What matters of an object that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundObject {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.deletionTimestamp`.
    pub deleted: Option<SystemTime>,
    /// SHA-256 of the token that a secret holds.
    pub token: Option<[u8; 32]>,
}

/// Nobody could say whether the object exists. A retry may help.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("cannot look up {what}: {why}")]
pub struct LookupFailed {
    /// The object.
    pub what: String,
    /// What went wrong.
    pub why: String,
}

/// An answer that is no object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the answer is not an object of Kubernetes")]
pub struct MalformedObject;

impl ObjectReference {
    /// Where an API server has it, below the path of the logical cluster: `/api/v1/namespaces/..`.
    #[must_use]
    pub fn path(&self) -> String {
        let escape = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let name = escape(&self.name);
        let resource = match self.kind {
            ReferencedKind::Node => return format!("/api/v1/nodes/{name}"),
            ReferencedKind::ServiceAccount => "serviceaccounts",
            ReferencedKind::Secret => "secrets",
            ReferencedKind::Pod => "pods",
        };
        format!("/api/v1/namespaces/{}/{resource}/{name}", escape(&self.namespace))
    }

    /// The digest under which the answer is remembered.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for part in
            [self.cluster.as_deref().unwrap_or_default(), &self.kind.to_string(), &self.namespace, &self.name]
        {
            // With its length, so that no two questions look alike.
            digest.update(part.len().to_be_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }
}

impl FoundObject {
    /// Reads an API server's answer, in JSON.
    pub fn from_json(object: &[u8]) -> Result<Self, MalformedObject> {
        #[derive(Deserialize)]
        struct Object {
            metadata: Metadata,
            data: Option<Data>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            uid: String,
            deletion_timestamp: Option<String>,
        }
        #[derive(Deserialize)]
        struct Data {
            token: Option<String>,
        }
        let Object { metadata, data } = serde_json::from_slice(object).map_err(|_| MalformedObject)?;
        let token = data
            .and_then(|data| data.token)
            .map(|token| STANDARD.decode(token).map(|token| Sha256::digest(token).into()))
            .transpose()
            .map_err(|_| MalformedObject)?;
        let deleted = metadata
            .deletion_timestamp
            .map(|time| time.parse::<jiff::Timestamp>().map(SystemTime::from))
            .transpose()
            .map_err(|_| MalformedObject)?;
        Ok(Self { uid: metadata.uid, deleted, token })
    }
}

impl LookupFailed {
    /// The question and what went wrong with it.
    pub fn new(object: &ObjectReference, why: impl fmt::Display) -> Self {
        Self { what: object.to_string(), why: why.to_string() }
    }
}

impl fmt::Display for ReferencedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ServiceAccount => "service account",
            Self::Secret => "secret",
            Self::Pod => "pod",
            Self::Node => "node",
        })
    }
}

impl fmt::Display for ObjectReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, kind, namespace, name } = self;
        write!(f, "{kind} {namespace}/{name} of {}", cluster.as_deref().unwrap_or("no logical cluster"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn objects_are_found_by_their_path() {
        let path = |kind, namespace: &str, name: &str| {
            let (namespace, name) = (namespace.to_owned(), name.to_owned());
            ObjectReference { cluster: None, kind, namespace, name }.path()
        };
        assert_eq!(path(ReferencedKind::Node, "", "n1"), "/api/v1/nodes/n1");
        assert_eq!(path(ReferencedKind::Secret, "default", "t"), "/api/v1/namespaces/default/secrets/t");
        assert_eq!(
            path(ReferencedKind::ServiceAccount, "../kube", "a/b?c"),
            "/api/v1/namespaces/%2E%2E%2Fkube/serviceaccounts/a%2Fb%3Fc"
        );
    }

    #[test]
    fn objects_are_read_from_json() {
        let found = FoundObject::from_json(
            br#"{"metadata":{"name":"t","uid":"7","deletionTimestamp":"1970-01-01T00:01:40Z"},
                 "data":{"token":"c2VjcmV0","ca.crt":"eA=="}}"#,
        );
        let expected = FoundObject {
            uid: "7".to_owned(),
            deleted: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(100)),
            token: Some(Sha256::digest("secret").into()),
        };
        assert_eq!(found, Ok(expected));
        for text in ["", "{}", r#"{"metadata":{}}"#, r#"{"metadata":{"uid":"7"},"data":{"token":"?"}}"#] {
            assert_eq!(FoundObject::from_json(text.as_bytes()), Err(MalformedObject), "{text}");
        }
    }
}
