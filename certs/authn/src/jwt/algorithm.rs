//! Signature algorithms and elliptic curves.

use std::{fmt, str::FromStr};

use aws_lc_rs::signature::{
    self, EcdsaVerificationAlgorithm, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters,
};
use thiserror::Error;

/// A signature algorithm of RFC 7518 with a public key: all algorithms that Kubernetes accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names of RFC 7518 say it")]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    Es512,
}

/// An unknown name of a signature algorithm.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not one of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512")]
pub struct UnknownAlgorithm(String);

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 9] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::Es512,
    ];

    /// Its name in RFC 7518.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
        }
    }

    /// The parameters for an RSA key of 2048 bits or more; `None` for algorithms of elliptic curves.
    pub(crate) fn rsa(self) -> Option<&'static RsaParameters> {
        match self {
            Self::Rs256 => Some(&RSA_PKCS1_2048_8192_SHA256),
            Self::Rs384 => Some(&RSA_PKCS1_2048_8192_SHA384),
            Self::Rs512 => Some(&RSA_PKCS1_2048_8192_SHA512),
            Self::Ps256 => Some(&RSA_PSS_2048_8192_SHA256),
            Self::Ps384 => Some(&RSA_PSS_2048_8192_SHA384),
            Self::Ps512 => Some(&RSA_PSS_2048_8192_SHA512),
            Self::Es256 | Self::Es384 | Self::Es512 => None,
        }
    }
}

/// An elliptic curve; each has exactly one algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Curve {
    P256,
    P384,
    P521,
}

impl Curve {
    pub(crate) const ALL: [Self; 3] = [Self::P256, Self::P384, Self::P521];

    /// The curve with this name in JWKs.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        match name {
            "P-256" => Some(Self::P256),
            "P-384" => Some(Self::P384),
            "P-521" => Some(Self::P521),
            _ => None,
        }
    }

    /// Its name in JWKs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::P256 => "P-256",
            Self::P384 => "P-384",
            Self::P521 => "P-521",
        }
    }

    pub(crate) fn algorithm(self) -> Algorithm {
        match self {
            Self::P256 => Algorithm::Es256,
            Self::P384 => Algorithm::Es384,
            Self::P521 => Algorithm::Es512,
        }
    }

    pub(crate) fn verification(self) -> &'static EcdsaVerificationAlgorithm {
        match self {
            Self::P256 => &signature::ECDSA_P256_SHA256_FIXED,
            Self::P384 => &signature::ECDSA_P384_SHA384_FIXED,
            Self::P521 => &signature::ECDSA_P521_SHA512_FIXED,
        }
    }

    pub(crate) fn signing(self) -> &'static signature::EcdsaSigningAlgorithm {
        match self {
            Self::P256 => &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
            Self::P384 => &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
            Self::P521 => &signature::ECDSA_P521_SHA512_FIXED_SIGNING,
        }
    }

    /// Number of bytes of a coordinate.
    pub(crate) fn coordinate(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.as_str() == name)
            .ok_or_else(|| UnknownAlgorithm(name.to_owned()))
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
