//! The interface for looking up the objects that a token is bound to.

use std::{fmt, pin::Pin, time::SystemTime};

use base64::{Engine, engine::general_purpose::STANDARD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Looks up objects at the shard that owns their logical cluster.
pub trait ServiceAccountLookup: Send + Sync {
    /// The current object; `None` if it, or its logical cluster, does not exist. The caller caches results and shares
    /// concurrent calls for one object, and stops waiting after 10 s; an implementation should have a deadline of its own.
    fn find<'a>(
        &'a self,
        object: &'a ObjectReference,
    ) -> Pin<Box<dyn Future<Output = Result<Option<FoundObject>, LookupError>> + Send + 'a>>;
}

/// A reference to an object that a token is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectReference {
    /// Its logical cluster; a token of plain Kubernetes has none.
    pub cluster: Option<String>,
    /// Its resource.
    pub kind: ReferencedKind,
    /// Its namespace; empty for a node.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Kinds of objects that a token may be bound to, all of the core group's v1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names of Kubernetes say it")]
pub enum ReferencedKind {
    ServiceAccount,
    Secret,
    Pod,
    Node,
}

/// The checked fields of an existing object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundObject {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.deletionTimestamp`.
    pub deleted: Option<SystemTime>,
    /// SHA-256 of the token in a secret.
    pub token: Option<[u8; 32]>,
}

/// The look-up failed, so it is not known whether the object exists. A retry may help.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("cannot look up {object}: {reason}")]
pub struct LookupError {
    /// The object.
    pub object: String,
    /// The cause.
    pub reason: String,
}

/// A response that is not an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the response is not a Kubernetes object")]
pub struct MalformedObject;

impl ObjectReference {
    /// The object's path in an API server, below the path of the logical cluster: `/api/v1/namespaces/..`.
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

    /// The digest of the reference and of the UID that is expected, the key of the cache. An object that replaces another
    /// one of its name is looked up anew.
    pub(crate) fn digest(&self, uid: &str) -> [u8; 32] {
        let mut digest = Sha256::new();
        for part in [
            self.cluster.as_deref().unwrap_or_default(),
            &self.kind.to_string(),
            &self.namespace,
            &self.name,
            uid,
        ] {
            // With its length, so that different references have different digests.
            digest.update(part.len().to_be_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }
}

impl FoundObject {
    /// Reads the JSON response of an API server.
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

impl LookupError {
    /// The failed look-up of an object.
    pub fn new(object: &ObjectReference, reason: impl fmt::Display) -> Self {
        Self { object: object.to_string(), reason: reason.to_string() }
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
