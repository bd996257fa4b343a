//! Signed tokens (JWT in the compact serialization of RFC 7515): strict parsing, verification with public keys only.
//!
//! Algorithms with shared secrets (HS256, HS384, HS512) and `none` are not implemented, so a public key cannot be used as a
//! shared secret.

mod algorithm;
mod claims;
mod compact;
mod key_error;
mod keys;
mod pem;
mod unverified;
#[cfg(test)]
mod vectors;

use std::sync::Arc;

use thiserror::Error;

pub use self::algorithm::{Algorithm, UnknownAlgorithm};
pub use self::key_error::KeyError;
pub use self::keys::VerificationKeys;
pub use self::unverified::unverified_cluster_claim;
pub(crate) use self::{
    algorithm::Curve,
    claims::{Claims, Leeway},
    compact::CompactToken,
    keys::{KeyChoice, VerificationError},
    pem::public_keys,
    unverified::UnverifiedClaims,
};

/// The reason why a token is not valid. Contains nothing of the token but names of claims.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The token is not a signed JWT, or is ambiguous.
    #[error("the token is malformed: {0}")]
    Malformed(&'static str),
    /// The signature algorithm is not accepted.
    #[error("the token's algorithm is not accepted")]
    Algorithm,
    /// No key has the ID in the token.
    #[error("the token's key is not known")]
    UnknownKey,
    /// No key verifies the signature.
    #[error("the token's signature is not valid")]
    Signature,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
    /// The token is not valid yet.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// The time of issue is in the future, so its other times cannot be trusted.
    #[error("the token was issued in the future")]
    IssuedInFuture,
    /// The token is for other audiences.
    #[error("the token's audiences do not include this server")]
    Audience,
    /// A claim is missing or invalid.
    #[error("claim {name:?} {problem}")]
    Claim {
        /// The claim.
        name: Arc<str>,
        /// The problem.
        problem: &'static str,
    },
    /// A validation rule of the configuration is not satisfied.
    #[error("a rule of the configuration is not satisfied: {0}")]
    Rule(Arc<str>),
    /// An object that the token is bound to does not exist any more, or was replaced.
    #[error("the token is not valid any more: {0}")]
    Revoked(&'static str),
    /// The authenticator must not assert this user name.
    #[error("user names that begin with \"system:\" are not accepted here")]
    ReservedName,
    /// The webhook has rejected the token.
    #[error("the webhook does not accept the token")]
    RejectedByWebhook,
}

impl TokenError {
    pub(crate) fn claim(name: &str, problem: &'static str) -> Self {
        Self::Claim { name: name.into(), problem }
    }
}
