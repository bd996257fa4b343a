//! What a token says about itself before anybody has verified it: good for routing, and for nothing else.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, header::AUTHORIZATION};
use serde::Deserialize;

use super::compact::Parts;

/// The claims by which the right authenticator, or the right workspace, is found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct UnverifiedClaims {
    /// Who says to have issued it.
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
    /// Reads a token; `None` if it is not a signed JWT. One pass over the payload that keeps nothing else.
    pub(crate) fn read(token: &str) -> Option<Self> {
        let parts = Parts::of(token)?;
        parts.header()?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts.payload).ok()?).ok()
    }

    /// The logical cluster that a service account says to be of.
    pub(crate) fn cluster(self) -> Option<String> {
        let bound = self.bound.and_then(|claims| claims.cluster);
        bound.or(self.legacy_cluster).filter(|cluster| !cluster.is_empty())
    }
}

/// The logical cluster that the bearer token of a request claims to be of: where a client goes that knows
/// host and port only, as those inside a pod do. As in kcp, the scheme is `Bearer` in exactly this case, and
/// nobody has verified the token: the claim picks a path, never an identity. It may be any text, so the
/// resulting path has to be matched from scratch.
///
/// Costs nothing without such a header, else two Base64 decodings and one pass over the claims (6 µs).
#[must_use]
pub fn in_cluster_claim(headers: &HeaderMap) -> Option<String> {
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
    fn service_accounts_say_where_they_are_from() {
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
            assert_eq!(in_cluster_claim(&headers).as_deref(), expected, "{payload}");
        }
    }

    #[test]
    fn other_credentials_say_nothing() {
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
            assert_eq!(in_cluster_claim(&headers), None, "{value}");
        }
        assert_eq!(in_cluster_claim(&HeaderMap::new()), None);
    }
}
