//! Verification of ID tokens (OpenID Connect Core 1.0, 3.1.3.7).

use jsonwebtoken::jwk::{Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::Value;

/// Verifies the ID tokens of one issuer for one client.
#[derive(Debug)]
pub(super) struct IdTokenVerifier {
    issuer: String,
    client_id: String,
    /// Algorithms that the issuer announces; without any, RS256 (OpenID Connect Discovery 1.0, 3).
    algorithms: Vec<Algorithm>,
    keys: Vec<Jwk>,
}

/// Claims of a verified ID token.
#[derive(Debug, Deserialize)]
pub(super) struct IdTokenClaims {
    /// Expiry, in seconds since 1970.
    pub(super) exp: i64,
    /// Id of the user at the issuer.
    pub(super) sub: String,
    nonce: Option<String>,
    aud: Audience,
}

/// An ID token is invalid.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidIdToken {
    #[error("it is signed with {0:?}, which the issuer does not announce")]
    Algorithm(Algorithm),
    #[error("the issuer has no key for it")]
    NoKey,
    #[error("it is also for other clients")]
    OtherAudience,
    #[error("it belongs to another sign-in: its nonce differs")]
    Nonce,
    #[error("{0}")]
    Token(#[from] jsonwebtoken::errors::Error),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl IdTokenVerifier {
    /// A verifier with the keys of a JWK set. Keys of unknown types, and keys that are not for signatures, are skipped.
    pub(super) fn new(
        issuer: String,
        client_id: String,
        algorithms: &[String],
        keys: impl IntoIterator<Item = Value>,
    ) -> Self {
        let known = algorithms.iter().filter_map(|name| name.parse().ok());
        let mut algorithms: Vec<Algorithm> = known.filter(|algorithm| !is_symmetric(*algorithm)).collect();
        if algorithms.is_empty() {
            algorithms.push(Algorithm::RS256);
        }
        let keys =
            keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).filter(is_for_signatures);
        Self { issuer, client_id, algorithms, keys: keys.collect() }
    }

    /// Verifies signature, issuer, audience, expiry and, where the request had one, the nonce.
    pub(super) fn verify(&self, token: &str, nonce: Option<&str>) -> Result<IdTokenClaims, InvalidIdToken> {
        let header = decode_header(token)?;
        if !self.algorithms.contains(&header.alg) {
            return Err(InvalidIdToken::Algorithm(header.alg));
        }
        let mut validation = Validation::new(header.alg);
        validation.leeway = 0;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.client_id]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        let candidates = self.keys.iter().filter(|key| match (&header.kid, &key.common.key_id) {
            (Some(wanted), Some(id)) => wanted == id,
            _ => true,
        });
        let mut result = Err(InvalidIdToken::NoKey);
        for key in candidates {
            let Ok(key) = DecodingKey::from_jwk(key) else { continue };
            result = decode::<IdTokenClaims>(token, &key, &validation).map_err(InvalidIdToken::from);
            if result.is_ok() {
                break;
            }
        }
        let claims = result?.claims;
        // The library accepts a token that is also for other clients, which are not trusted here.
        if !claims.aud.is_only(&self.client_id) {
            return Err(InvalidIdToken::OtherAudience);
        }
        if nonce.is_some_and(|nonce| claims.nonce.as_deref() != Some(nonce)) {
            return Err(InvalidIdToken::Nonce);
        }
        Ok(claims)
    }
}

impl Audience {
    fn is_only(&self, client_id: &str) -> bool {
        match self {
            Self::One(one) => one == client_id,
            Self::Many(all) => all.iter().all(|one| one == client_id),
        }
    }
}

/// HMAC would need a secret, which a client on a user's machine cannot keep.
fn is_symmetric(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512)
}

fn is_for_signatures(key: &Jwk) -> bool {
    matches!(key.common.public_key_use, None | Some(PublicKeyUse::Signature))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use jsonwebtoken::{EncodingKey, Header, encode, get_current_timestamp};
    use serde_json::json;

    use super::*;

    /// A P-256 key pair of this test only: PKCS#8 in PEM, and the public point.
    fn key() -> (EncodingKey, Value) {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        // An uncompressed point: 0x04, x, y.
        let point = pair.public_key_raw();
        let jwk = json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "kid": "a",
            "x": base64_url(&point[1..33]), "y": base64_url(&point[33..65]),
        });
        (EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).unwrap(), jwk)
    }

    fn base64_url(bytes: &[u8]) -> String {
        use base64::Engine as _;
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
    }

    #[test]
    fn only_tokens_of_the_issuer_for_this_client_and_sign_in_are_accepted() {
        let ((key_a, jwk), (other, _)) = (key(), key());
        let hmac = json!({"kty": "oct", "k": "c2VjcmV0", "kid": "h"});
        let unknown = json!({"kty": "future"});
        let encryption =
            json!({"use": "enc", "kty": jwk["kty"], "crv": "P-256", "x": jwk["x"], "y": jwk["y"]});
        let verifier = IdTokenVerifier::new(
            "https://issuer.example".to_owned(),
            "cli".to_owned(),
            &["ES256".to_owned(), "HS256".to_owned(), "none".to_owned()],
            [hmac, unknown, encryption, jwk],
        );
        let now = get_current_timestamp();
        let claims = |change: Value| {
            let mut claims = json!({
                "iss": "https://issuer.example", "aud": "cli", "sub": "u", "exp": now + 60, "nonce": "n",
            });
            for (name, value) in change.as_object().unwrap() {
                claims[name] = value.clone();
            }
            claims
        };
        let token = |claims: &Value, key: &EncodingKey, kid: Option<&str>| {
            let mut header = Header::new(Algorithm::ES256);
            header.kid = kid.map(str::to_owned);
            encode(&header, claims, key).unwrap()
        };
        let good = token(&claims(json!({})), &key_a, Some("a"));
        let verified = verifier.verify(&good, Some("n")).unwrap();
        assert_eq!((verified.sub.as_str(), verified.exp), ("u", now as i64 + 60));
        assert!(verifier.verify(&token(&claims(json!({"aud": ["cli"]})), &key_a, None), None).is_ok());
        for (change, nonce) in [
            (json!({"iss": "https://other.example"}), None),
            (json!({"aud": "other"}), None),
            (json!({"aud": ["cli", "other"]}), None),
            (json!({"exp": now - 1}), None),
            (json!({"nbf": now + 3600}), None),
            (json!({"nonce": "m"}), Some("n")),
            (json!({"nonce": null}), Some("n")),
            (json!({"sub": null}), None),
        ] {
            let token = token(&claims(change.clone()), &key_a, Some("a"));
            assert!(verifier.verify(&token, nonce).is_err(), "{change}");
        }
        assert!(verifier.verify(&token(&claims(json!({})), &other, Some("a")), None).is_err(), "another key");
        assert!(
            verifier.verify(&token(&claims(json!({})), &key_a, Some("b")), None).is_err(),
            "another key id"
        );
        let secret = EncodingKey::from_secret(b"secret");
        let symmetric = encode(&Header::new(Algorithm::HS256), &claims(json!({})), &secret).unwrap();
        assert!(matches!(verifier.verify(&symmetric, None), Err(InvalidIdToken::Algorithm(_))));
        let (_, payload) = good.split_once('.').unwrap();
        let unsigned =
            format!("{}.{}.", base64_url(b"{\"alg\":\"none\"}"), payload.split_once('.').unwrap().0);
        assert!(verifier.verify(&unsigned, None).is_err(), "no signature");
        for broken in ["", "a", "a.b", "a.b.c", &good[..good.len() - 2]] {
            assert!(verifier.verify(broken, None).is_err(), "{broken}");
        }
    }
}
