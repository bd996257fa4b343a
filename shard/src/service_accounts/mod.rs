//! Service accounts as an identity: issues their tokens, publishes the keys that verify them, and looks accounts up for
//! the verification.
//!
//! Knows neither the connection of a client nor permissions.

mod issuer;
mod legacy_token;
mod lookup;
mod token_request;
mod tokens;

pub(crate) use issuer::TokenIssuer;
pub(crate) use lookup::AccountLookup;
pub(crate) use tokens::ServiceAccountTokens;
