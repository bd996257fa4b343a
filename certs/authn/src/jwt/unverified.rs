//! Unverified claims of a token: for routing only.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, header::AUTHORIZATION};
use serde::Deserialize;

use super::compact::TokenParts;

/// The claims that select an authenticator or a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct UnverifiedClaims {
    /// The claimed issuer.
    #[serde(rename = "iss")]
    pub(crate) issuer: Option<String>,
    /// The claims of a bound service-account token.
    #[serde(rename = "kubernetes.io")]
    bound: Option<BoundClaims>,
    /// The claim of a legacy service-account token.
    #[serde(rename = "kubernetes.io/serviceaccount/clusterName")]
    legacy_cluster: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct BoundClaims {
    #[serde(rename = "clusterName")]
    cluster: Option<String>,
}

impl UnverifiedClaims {
    /// Reads the claims of a token; `None` if it is not a signed JWT. One pass over the payload.
    pub(crate) fn read(token: &str) -> Option<Self> {
        let parts = TokenParts::of(token)?;
        parts.header()?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts.payload).ok()?).ok()
    }

    /// The claimed logical cluster of a service account.
    pub(crate) fn cluster(self) -> Option<String> {
        let bound = self.bound.and_then(|claims| claims.cluster);
        bound.or(self.legacy_cluster).filter(|cluster| !cluster.is_empty())
    }
}

/// The claimed logical cluster of a request's bearer token. It routes requests of clients that know host and port only, such
/// as clients in a pod. As in kcp, the scheme must be `Bearer` in exactly this case. The token is not verified: the claim
/// selects a path, never an identity. It may be any text, so the resulting path has to be parsed like one of a client.
///
/// Costs nothing without such a header, else two base64 decodings and one pass over the claims (6 µs).
#[must_use]
pub fn unverified_cluster_claim(headers: &HeaderMap) -> Option<String> {
    let token = headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")?;
    UnverifiedClaims::read(token.trim())?.cluster()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn token(payload: &str) -> String {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        format!("{}.{}.c2ln", encode(r#"{"alg":"RS256"}"#), encode(payload))
    }

    #[test]
    fn the_logical_cluster_of_a_service_account_is_found() {
        let cases = [
            (r#"{"kubernetes.io":{"clusterName":"abc","namespace":"default"}}"#, Some("abc")),
            (r#"{"kubernetes.io/serviceaccount/clusterName":"def"}"#, Some("def")),
            (
                r#"{"kubernetes.io/serviceaccount/clusterName":"def","kubernetes.io":{"clusterName":"abc"}}"#,
                Some("abc"),
            ),
            (r#"{"kubernetes.io":{"namespace":"default"}}"#, None),
            (r#"{"kubernetes.io":{"clusterName":""}}"#, None),
            (r#"{"kubernetes.io":{"clusterName":7}}"#, None),
            (r#"{"kubernetes.io":{"clusterName":"a"},"kubernetes.io":{"clusterName":"b"}}"#, None),
            (r#"{"sub":"ann"}"#, None),
            ("[]", None),
            ("nonsense", None),
        ];
        for (payload, expected) in cases {
            let mut headers = HeaderMap::new();
            let value = format!("Bearer {}", token(payload));
            headers.insert(AUTHORIZATION, HeaderValue::try_from(value).unwrap());
            assert_eq!(unverified_cluster_claim(&headers).as_deref(), expected, "{payload}");
        }
    }

    #[test]
    fn other_credentials_have_no_cluster_claim() {
        let good = token(r#"{"kubernetes.io":{"clusterName":"abc"}}"#);
        let (unsigned, _) = good.rsplit_once('.').unwrap();
        let cases = [
            format!("bearer {good}"),
            format!("Basic {good}"),
            format!("Bearer {unsigned}"),
            format!("Bearer {unsigned}."),
            format!("Bearer {good}.x"),
            "Bearer opaque".to_owned(),
            "Bearer ".to_owned(),
        ];
        for value in cases {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::try_from(value.as_str()).unwrap());
            assert_eq!(unverified_cluster_claim(&headers), None, "{value}");
        }
        assert_eq!(unverified_cluster_claim(&HeaderMap::new()), None);
    }
}
