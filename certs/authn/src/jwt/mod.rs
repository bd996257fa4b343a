//! Signed tokens (JWT in the compact form of RFC 7515): taken apart strictly, verified with public keys only.
//!
//! Shared secrets (HS256 and its kin) and `none` do not exist here, so no public key can be taken for a
//! secret.

mod algorithm;
mod claims;
mod compact;
mod keys;
mod pem;
mod unverified;

use std::sync::Arc;

use thiserror::Error;

pub use self::algorithm::{Algorithm, UnknownAlgorithm};
pub use self::keys::{KeyError, VerificationKeys};
pub use self::unverified::in_cluster_claim;
pub(crate) use self::{
    claims::{Claims, Leeway},
    compact::CompactToken,
    keys::{KeyChoice, Unverified},
    unverified::UnverifiedClaims,
};

/// What is wrong with a token that we are the ones to judge. Holds nothing of the token but names of claims.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TokenFault {
    /// Not a signed JWT, or one that could be read in two ways.
    #[error("the token is malformed: {0}")]
    Malformed(&'static str),
    /// Signed in a way that is not accepted.
    #[error("the token's algorithm is not accepted")]
    Algorithm,
    /// None of the keys has the ID that the token names.
    #[error("the token's key is not known")]
    UnknownKey,
    /// No key verifies the signature.
    #[error("the token's signature is not valid")]
    Signature,
    /// It is too late.
    #[error("the token has expired")]
    Expired,
    /// It is too early.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// It says to come from the future, so nothing else that it says of time can be believed.
    #[error("the token was issued in the future")]
    IssuedInFuture,
    /// It is meant for others.
    #[error("the token's audiences do not include this server")]
    Audience,
    /// A claim is missing or not what it should be.
    #[error("claim {name:?} {problem}")]
    Claim {
        /// The claim.
        name: Arc<str>,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A rule of the configuration does not hold.
    #[error("a rule of the configuration does not hold: {0}")]
    Rule(Arc<str>),
    /// What it is bound to does not exist any more, or is not the same.
    #[error("the token is not valid any more: {0}")]
    Revoked(&'static str),
    /// The user's name is one that this authenticator must not assert.
    #[error("user names that begin with \"system:\" are not accepted here")]
    ReservedName,
    /// Somebody else was asked and has refused it.
    #[error("the webhook does not accept the token")]
    Refused,
}

impl TokenFault {
    pub(crate) fn claim(name: &str, problem: &'static str) -> Self {
        Self::Claim { name: name.into(), problem }
    }
}
