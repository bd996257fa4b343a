//! Continue tokens of paged lists.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fairlead_store::Revision;
use serde::{Deserialize, Serialize};

/// The start of the next page of a list: base64 of JSON, as in Kubernetes.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Continuation {
    #[serde(rename = "v")]
    version: String,
    /// The revision of the first page; -1 for "the latest", in the token of an expired list.
    #[serde(rename = "rv")]
    revision: i64,
    /// The key to start from, relative to the prefix of the list, so that a token cannot leave the list.
    start: String,
    /// The number of objects from `start` on; counted once, on the first page.
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
}

impl Continuation {
    /// The page after `last_key` of the list below `prefix`, with `remaining` objects left.
    pub(super) fn after(
        last_key: &[u8],
        prefix: &str,
        revision: Option<Revision>,
        remaining: Option<u64>,
    ) -> Self {
        let relative = last_key.strip_prefix(prefix.as_bytes()).unwrap_or_default();
        let start = format!("{}\0", String::from_utf8_lossy(relative));
        let revision = revision.map_or(-1, |revision| i64::try_from(revision.0).unwrap_or(i64::MAX));
        Self { version: "meta.k8s.io/v1".into(), revision, start, remaining }
    }

    /// Parses a token; `None` if it is malformed.
    pub(crate) fn parse(token: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).ok()?;
        let continuation: Self = serde_json::from_slice(&bytes).ok()?;
        // A start with `..` or a leading slash could leave the range of the list, and its logical cluster.
        let contained =
            !continuation.start.starts_with('/') && !continuation.start.split('/').any(|part| part == "..");
        (continuation.version == "meta.k8s.io/v1" && contained && !continuation.start.is_empty())
            .then_some(continuation)
    }

    /// The token.
    pub(crate) fn token(&self) -> String {
        // This struct always serializes.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// The key to start from.
    pub(crate) fn start_key(&self, prefix: &str) -> String {
        format!("{prefix}{}", self.start)
    }

    /// The revision to read at; `None` for the latest.
    pub(super) fn revision(&self) -> Option<Revision> {
        u64::try_from(self.revision).ok().map(Revision)
    }

    /// The number of remaining objects, if they were counted.
    pub(super) fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// The token with which a client can continue an expired list at the latest revision.
    pub(super) fn inconsistent(&self) -> Self {
        Self { revision: -1, remaining: None, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_round_trip() {
        let page = Continuation::after(
            b"/registry/core/configmaps/root/n/a",
            "/registry/core/configmaps/root/",
            Some(Revision(9)),
            Some(3),
        );
        let parsed = Continuation::parse(&page.token()).unwrap();
        assert_eq!(parsed, page);
        assert_eq!(parsed.start_key("/p/"), "/p/n/a\0");
        assert_eq!((parsed.revision(), parsed.remaining()), (Some(Revision(9)), Some(3)));
        assert_eq!(parsed.inconsistent().revision(), None);
    }

    #[test]
    fn tokens_cannot_leave_their_list() {
        for start in ["/x", "../other/x", "a/../../x", ""] {
            let forged = Continuation {
                version: "meta.k8s.io/v1".into(),
                revision: 1,
                start: start.into(),
                remaining: None,
            };
            assert_eq!(Continuation::parse(&forged.token()), None, "{start}");
        }
        assert_eq!(Continuation::parse("%%%"), None);
    }
}
