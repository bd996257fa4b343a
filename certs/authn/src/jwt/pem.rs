//! Public keys from PEM, in all forms that Kubernetes accepts.

use aws_lc_rs::{
    encoding::{AsDer, PublicKeyX509Der},
    rsa,
    signature::{EcdsaKeyPair, KeyPair},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};
use x509_parser::{
    certificate::X509Certificate, pem::Pem, prelude::FromDer, public_key::PublicKey,
    x509::SubjectPublicKeyInfo,
};

use super::{KeyError, algorithm::Curve};

/// A key and its PEM block.
pub(crate) struct PemKey {
    pub(crate) position: usize,
    pub(crate) label: String,
    pub(crate) key: PublicKeyInfo,
}

/// A public key with the SHA-256 digest of its DER form (SubjectPublicKeyInfo).
pub(crate) enum PublicKeyInfo {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8>, digest: [u8; 32] },
    EllipticCurve { point: Vec<u8>, digest: [u8; 32] },
}

/// The keys of a text in their order. Blocks of curve parameters are skipped.
pub(crate) fn public_keys(text: &[u8]) -> Result<Vec<PemKey>, KeyError> {
    let mut keys = Vec::new();
    for (index, block) in Pem::iter_from_buffer(text).enumerate() {
        let Pem { label, contents } = block.map_err(|_| KeyError::NotPem)?;
        if label == "EC PARAMETERS" {
            continue;
        }
        let key = match label.as_str() {
            "CERTIFICATE" => of_certificate(&contents),
            "PUBLIC KEY" | "RSA PUBLIC KEY" => PublicKeyInfo::parse(&contents),
            "PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY" => of_private_key(&contents),
            _ => None,
        };
        let position = index + 1;
        match key {
            Some(key) => keys.push(PemKey { position, label, key }),
            None => {
                let problem = "it is no certificate and no RSA or EC key";
                return Err(KeyError::Block { position, label, problem });
            }
        }
    }
    Ok(keys)
}

impl PublicKeyInfo {
    /// The ID that Kubernetes gives the key.
    pub(crate) fn id(&self) -> String {
        match self {
            Self::Rsa { digest, .. } | Self::EllipticCurve { digest, .. } => URL_SAFE_NO_PAD.encode(digest),
        }
    }

    fn parse(der: &[u8]) -> Option<Self> {
        let (rest, info) = SubjectPublicKeyInfo::from_der(der).ok()?;
        let digest = Sha256::digest(der).into();
        if !rest.is_empty() {
            return None;
        }
        match info.parsed().ok()? {
            PublicKey::RSA(key) => {
                Some(Self::Rsa { modulus: key.modulus.to_vec(), exponent: key.exponent.to_vec(), digest })
            }
            PublicKey::EC(point) => Some(Self::EllipticCurve { point: point.data().to_vec(), digest }),
            _ => None,
        }
    }
}

fn of_certificate(der: &[u8]) -> Option<PublicKeyInfo> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    PublicKeyInfo::parse(certificate.public_key().raw)
}

/// The public half of a private key in PKCS#8, PKCS#1 or SEC 1 form.
fn of_private_key(der: &[u8]) -> Option<PublicKeyInfo> {
    let info: Option<PublicKeyX509Der<'static>> = rsa::KeyPair::from_pkcs8(der)
        .or_else(|_| rsa::KeyPair::from_der(der))
        .ok()
        .and_then(|pair| pair.public_key().as_der().ok())
        .or_else(|| {
            let pair = Curve::ALL.into_iter().find_map(|curve| {
                EcdsaKeyPair::from_pkcs8(curve.signing(), der)
                    .or_else(|_| EcdsaKeyPair::from_private_key_der(curve.signing(), der))
                    .ok()
            })?;
            pair.public_key().as_der().ok()
        });
    PublicKeyInfo::parse(info?.as_ref())
}
