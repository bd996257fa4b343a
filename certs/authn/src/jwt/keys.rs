//! Public keys that verify signatures.

use aws_lc_rs::signature::{ParsedPublicKey, RsaPublicKeyComponents};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Algorithm, CompactToken, KeyError,
    algorithm::Curve,
    pem::{self, PublicKeyInfo},
};

/// Limit for the keys of one set: each may have to be tried for a token without a key ID.
const MAX_KEYS: usize = 100;

/// A set of public keys. `Debug` shows their IDs.
#[derive(Default)]
pub struct VerificationKeys {
    keys: Vec<VerificationKey>,
}

/// The keys that are tried for a token whose key ID is not in the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyChoice {
    /// No key.
    ByName,
    /// All keys, because signer and verifier may name keys differently.
    AnyIfUnknown,
}

/// The reason why no key verifies a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VerificationError {
    /// The set has no key for the token; a newer set may have one.
    NoSuchKey,
    /// The keys for the token do not verify its signature.
    WrongSignature,
}

struct VerificationKey {
    id: Option<String>,
    /// The only algorithm of the key.
    only: Option<Algorithm>,
    material: KeyMaterial,
}

enum KeyMaterial {
    /// Big-endian, without leading zeros.
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
    EllipticCurve {
        curve: Curve,
        key: ParsedPublicKey,
        /// Uncompressed: 4, x, y.
        point: Vec<u8>,
    },
}

impl VerificationKeys {
    /// Reads PEM: public keys, the public halves of private keys, and the keys of certificates. Keys get the IDs that
    /// Kubernetes gives its service-account keys.
    pub fn from_pem(text: &[u8]) -> Result<Self, KeyError> {
        let keys = pem::public_keys(text)?
            .into_iter()
            .map(|found| {
                let id = Some(found.key.id());
                let material = KeyMaterial::of(&found.key).ok_or(KeyError::Block {
                    position: found.position,
                    label: found.label,
                    problem: "neither RSA with 2048 to 8192 bits nor P-256, P-384 or P-521",
                })?;
                Ok(VerificationKey { id, only: None, material })
            })
            .collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() { Err(KeyError::NoKey) } else { Ok(Self { keys }) }
    }

    /// Reads a JSON Web Key Set (RFC 7517). Keys that are not for signatures, or of an unknown type, are skipped as the RFC
    /// requires.
    pub fn from_jwks(json: &[u8]) -> Result<Self, KeyError> {
        #[derive(Deserialize)]
        struct KeySet {
            keys: Vec<Value>,
        }
        let KeySet { keys } = serde_json::from_slice(json).map_err(|_| KeyError::NotAKeySet)?;
        let keys = keys
            .into_iter()
            .filter_map(|key| serde_json::from_value::<Jwk>(key).ok()?.into_key())
            .take(MAX_KEYS)
            .collect();
        Ok(Self { keys })
    }

    /// The JSON Web Key Set (RFC 7517), in the form of Kubernetes' `/openid/v1/jwks`.
    #[must_use]
    pub fn to_jwks(&self) -> Value {
        let keys: Vec<Value> = self.keys.iter().map(VerificationKey::to_jwk).collect();
        json!({"keys": keys})
    }

    /// Adds the keys of another set. A key with the ID of a known one is the same key in another file.
    pub fn extend(&mut self, others: Self) {
        for key in others.keys {
            let is_known = key.id.is_some() && self.keys.iter().any(|own| own.id == key.id);
            if !is_known {
                self.keys.push(key);
            }
        }
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Verifies a token's signature; 40 to 60 µs per key that is tried.
    pub(crate) fn verify(
        &self,
        token: &CompactToken<'_>,
        choice: KeyChoice,
    ) -> Result<(), VerificationError> {
        let named = |key: &VerificationKey| token.key_id.is_some() && key.id == token.key_id;
        let any =
            token.key_id.is_none() || (choice == KeyChoice::AnyIfUnknown && !self.keys.iter().any(named));
        let mut result = Err(VerificationError::NoSuchKey);
        for key in self.keys.iter().filter(|key| any || named(key)).take(MAX_KEYS) {
            match key.verify(token) {
                Some(true) => return Ok(()),
                Some(false) => result = Err(VerificationError::WrongSignature),
                None => {}
            }
        }
        result
    }
}

impl VerificationKey {
    fn to_jwk(&self) -> Value {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut jwk = match &self.material {
            KeyMaterial::Rsa(key) => {
                let alg = self.only.unwrap_or(Algorithm::Rs256).as_str();
                json!({"kty": "RSA", "alg": alg, "n": encode(&key.n), "e": encode(&key.e)})
            }
            KeyMaterial::EllipticCurve { curve, point, .. } => {
                let (x, y) = point[1..].split_at(curve.coordinate());
                json!({
                    "kty": "EC", "alg": curve.algorithm().as_str(), "crv": curve.name(), "x": encode(x), "y": encode(y),
                })
            }
        };
        jwk["use"] = "sig".into();
        if let Some(id) = &self.id {
            jwk["kid"] = (**id).into();
        }
        jwk
    }

    /// `None` if the key is not for the token's algorithm.
    fn verify(&self, token: &CompactToken<'_>) -> Option<bool> {
        if self.only.is_some_and(|only| only != token.algorithm) {
            return None;
        }
        let message = token.signed.as_bytes();
        let verified = match &self.material {
            KeyMaterial::Rsa(key) => key.verify(token.algorithm.rsa()?, message, &token.signature),
            KeyMaterial::EllipticCurve { curve, key, .. } if curve.algorithm() == token.algorithm => {
                key.verify_sig(message, &token.signature)
            }
            KeyMaterial::EllipticCurve { .. } => return None,
        };
        Some(verified.is_ok())
    }
}

impl KeyMaterial {
    fn of(key: &PublicKeyInfo) -> Option<Self> {
        match key {
            PublicKeyInfo::Rsa { modulus, exponent, .. } => Self::rsa(modulus, exponent),
            PublicKeyInfo::EllipticCurve { point, .. } => {
                Curve::ALL.into_iter().find_map(|curve| Self::elliptic_curve(curve, point))
            }
        }
    }

    fn rsa(modulus: &[u8], exponent: &[u8]) -> Option<Self> {
        let trim = |bytes: &[u8]| bytes.iter().copied().skip_while(|byte| *byte == 0).collect::<Vec<_>>();
        let key = RsaPublicKeyComponents { n: trim(modulus), e: trim(exponent) };
        let large_enough = (256..=1024).contains(&key.n.len());
        (large_enough && !key.e.is_empty()).then_some(Self::Rsa(key))
    }

    /// `point` is uncompressed: 4, x, y.
    fn elliptic_curve(curve: Curve, point: &[u8]) -> Option<Self> {
        if point.len() != 1 + 2 * curve.coordinate() {
            return None;
        }
        let key = ParsedPublicKey::new(curve.verification(), point).ok()?;
        Some(Self::EllipticCurve { curve, key, point: point.to_vec() })
    }
}

/// The used fields of a JSON Web Key.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
    n: Option<String>,
    e: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Jwk {
    fn into_key(self) -> Option<VerificationKey> {
        if self.usage.as_deref().is_some_and(|usage| usage != "sig") {
            return None;
        }
        // A key for an unknown algorithm must not be used with a known one.
        let only = self.alg.as_deref().map(str::parse).transpose().ok()?;
        let decode =
            |field: &Option<String>| URL_SAFE_NO_PAD.decode(field.as_deref()?.trim_end_matches('=')).ok();
        let material = match self.kty.as_str() {
            "RSA" => KeyMaterial::rsa(&decode(&self.n)?, &decode(&self.e)?)?,
            "EC" => {
                let curve = Curve::by_name(self.crv.as_deref()?)?;
                let mut point = vec![4];
                for field in [&self.x, &self.y] {
                    let coordinate = decode(field)?;
                    // Some writers omit leading zeros.
                    point.resize(point.len() + curve.coordinate().checked_sub(coordinate.len())?, 0);
                    point.extend(coordinate);
                }
                KeyMaterial::elliptic_curve(curve, &point)?
            }
            _ => return None,
        };
        Some(VerificationKey { id: self.kid.filter(|id| !id.is_empty()), only, material })
    }
}

impl std::fmt::Debug for VerificationKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|key| &key.id)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verify(jwk: &str, token: &str) -> Result<(), VerificationError> {
        let keys = VerificationKeys::from_jwks(format!("{{\"keys\":[{jwk}]}}").as_bytes()).unwrap();
        keys.verify(&CompactToken::parse(token).unwrap(), KeyChoice::ByName)
    }

    /// The payload of the examples in RFC 7515.
    const PAYLOAD: &str =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";

    /// RFC 7515, A.2.
    const RSA: &str = r#"{"kty":"RSA","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ","e":"AQAB"}"#;
    const RSA_SIGNATURE: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";

    /// RFC 7515, A.3.
    const EC: &str = r#"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#;
    const EC_SIGNATURE: &str =
        "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";

    #[test]
    fn the_examples_of_rfc_7515_are_verified() {
        let rsa = format!("eyJhbGciOiJSUzI1NiJ9.{PAYLOAD}.{RSA_SIGNATURE}");
        let curve = format!("eyJhbGciOiJFUzI1NiJ9.{PAYLOAD}.{EC_SIGNATURE}");
        assert_eq!(verify(RSA, &rsa), Ok(()));
        assert_eq!(verify(EC, &curve), Ok(()));
        assert_eq!(verify(EC, &rsa), Err(VerificationError::NoSuchKey));
        assert_eq!(verify(RSA, &curve), Err(VerificationError::NoSuchKey));
        assert_eq!(
            verify(RSA, &format!("{}AA", &rsa[..rsa.len() - 2])),
            Err(VerificationError::WrongSignature)
        );
    }

    #[test]
    fn keys_for_other_purposes_are_skipped() {
        let with = |field: &str| EC.replacen('{', &format!("{{{field},"), 1);
        let cases = [
            (EC.to_owned(), 1),
            (with(r#""use":"sig","alg":"ES256""#), 1),
            (with(r#""use":"enc""#), 0),
            (with(r#""alg":"ECDH-ES""#), 0),
            (EC.replace("P-256", "P-384"), 0),
            (EC.replace("P-256", "secp256k1"), 0),
            // Not on the curve.
            (EC.replace("f83O", "f83P"), 0),
            (RSA.replace("ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAk", ""), 0),
            (r#"{"kty":"oct","k":"c2VjcmV0"}"#.to_owned(), 0),
            (
                r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#
                    .to_owned(),
                0,
            ),
            (r#""a string""#.to_owned(), 0),
        ];
        for (jwk, expected) in cases {
            let keys = VerificationKeys::from_jwks(format!("{{\"keys\":[{jwk}]}}").as_bytes()).unwrap();
            assert_eq!(keys.len(), expected, "{jwk}");
        }
        for text in ["", "[]", "{}", r#"{"keys":{}}"#] {
            assert_eq!(
                VerificationKeys::from_jwks(text.as_bytes()).unwrap_err(),
                KeyError::NotAKeySet,
                "{text}"
            );
        }
    }
}
