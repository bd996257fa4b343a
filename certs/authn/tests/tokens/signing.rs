//! Keys of all kinds, and tokens signed with them.

use std::sync::LazyLock;

use aws_lc_rs::{
    encoding::{AsDer, PublicKeyX509Der},
    rand::SystemRandom,
    rsa,
    signature::{
        self, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
        ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair, RsaEncoding,
    },
};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use serde_json::{Value, json};

/// Signs tokens with one key.
pub(crate) struct Signer {
    pub(crate) id: Option<String>,
    key: Key,
}

enum Key {
    Rsa(rsa::KeyPair),
    EllipticCurve(EcdsaKeyPair, &'static str),
}

/// Generated once, because that is slow.
static RSA_KEYS: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| {
    [(); 2].map(|()| {
        let pair = rsa::KeyPair::generate(rsa::KeySize::Rsa2048).unwrap();
        AsDer::<aws_lc_rs::encoding::Pkcs8V1Der<'_>>::as_der(&pair).unwrap().as_ref().to_vec()
    })
});

impl Signer {
    /// One of two RSA keys.
    pub(crate) fn rsa(number: usize, id: &str) -> Self {
        let key = Key::Rsa(rsa::KeyPair::from_pkcs8(&RSA_KEYS[number]).unwrap());
        Self { id: Some(id.to_owned()).filter(|id| !id.is_empty()), key }
    }

    /// A new key on `P-256`, `P-384` or `P-521`.
    pub(crate) fn elliptic_curve(curve: &'static str, id: &str) -> Self {
        let algorithm: &'static EcdsaSigningAlgorithm = match curve {
            "P-256" => &ECDSA_P256_SHA256_FIXED_SIGNING,
            "P-384" => &ECDSA_P384_SHA384_FIXED_SIGNING,
            "P-521" => &ECDSA_P521_SHA512_FIXED_SIGNING,
            other => panic!("no curve {other}"),
        };
        let key = Key::EllipticCurve(EcdsaKeyPair::generate(algorithm).unwrap(), curve);
        Self { id: Some(id.to_owned()).filter(|id| !id.is_empty()), key }
    }

    /// A token signed with the usual algorithm of the key.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let algorithm = match &self.key {
            Key::Rsa(_) => "RS256",
            Key::EllipticCurve(_, "P-256") => "ES256",
            Key::EllipticCurve(_, "P-384") => "ES384",
            Key::EllipticCurve(..) => "ES512",
        };
        self.sign_as(algorithm, claims)
    }

    pub(crate) fn sign_as(&self, algorithm: &str, claims: &Value) -> String {
        let header = match &self.id {
            Some(id) => json!({ "alg": algorithm, "kid": id, "typ": "JWT" }),
            None => json!({ "alg": algorithm }),
        };
        self.sign_with(&header, claims)
    }

    /// A token with an arbitrary header; its `alg` is used if the key supports it.
    pub(crate) fn sign_with(&self, header: &Value, claims: &Value) -> String {
        let signed = unsigned(header, claims);
        let random = SystemRandom::new();
        let signature = match &self.key {
            Key::EllipticCurve(pair, _) => pair.sign(&random, signed.as_bytes()).unwrap().as_ref().to_vec(),
            Key::Rsa(pair) => {
                let encoding: &'static dyn RsaEncoding = match header["alg"].as_str() {
                    Some("RS384") => &signature::RSA_PKCS1_SHA384,
                    Some("RS512") => &signature::RSA_PKCS1_SHA512,
                    Some("PS256") => &signature::RSA_PSS_SHA256,
                    Some("PS384") => &signature::RSA_PSS_SHA384,
                    Some("PS512") => &signature::RSA_PSS_SHA512,
                    _ => &signature::RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(encoding, &random, signed.as_bytes(), &mut signature).unwrap();
                signature
            }
        };
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// The public key, SubjectPublicKeyInfo.
    pub(crate) fn public_der(&self) -> Vec<u8> {
        let der: PublicKeyX509Der<'static> = match &self.key {
            Key::Rsa(pair) => pair.public_key().as_der().unwrap(),
            Key::EllipticCurve(pair, _) => pair.public_key().as_der().unwrap(),
        };
        der.as_ref().to_vec()
    }

    /// The private key, PKCS#8.
    pub(crate) fn private_der(&self) -> Vec<u8> {
        match &self.key {
            Key::Rsa(pair) => {
                AsDer::<aws_lc_rs::encoding::Pkcs8V1Der<'_>>::as_der(pair).unwrap().as_ref().to_vec()
            }
            Key::EllipticCurve(pair, _) => pair.to_pkcs8v1().unwrap().as_ref().to_vec(),
        }
    }

    /// The public key as a JSON Web Key.
    pub(crate) fn jwk(&self) -> Value {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut jwk = match &self.key {
            Key::Rsa(pair) => {
                let key = pair.public_key();
                json!({
                    "kty": "RSA", "use": "sig", "alg": "RS256",
                    "n": encode(key.modulus().big_endian_without_leading_zero()),
                    "e": encode(key.exponent().big_endian_without_leading_zero()),
                })
            }
            Key::EllipticCurve(pair, curve) => {
                let point = pair.public_key().as_ref();
                let (x, y) = point[1..].split_at(point.len() / 2);
                json!({ "kty": "EC", "use": "sig", "crv": curve, "x": encode(x), "y": encode(y) })
            }
        };
        if let Some(id) = &self.id {
            jwk["kid"] = json!(id);
        }
        jwk
    }
}

/// The signing input of a token: header and payload.
pub(crate) fn unsigned(header: &Value, claims: &Value) -> String {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", encode(header), encode(claims))
}

pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

/// A token with an HMAC that uses the public key as the shared secret (algorithm confusion).
pub(crate) fn hmac_with_public_key(public_key: &[u8], claims: &Value) -> String {
    let signed = unsigned(&json!({ "alg": "HS256" }), claims);
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, public_key);
    let tag = aws_lc_rs::hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
}
