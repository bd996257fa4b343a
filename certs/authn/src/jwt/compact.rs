//! The three parts of a token in the compact serialization.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{
    Deserialize,
    de::{Deserializer, IgnoredAny},
};

use super::{Algorithm, Claims, TokenError};

/// Longer tokens are not decoded. The limit for the headers of a request is lower anyway.
const MAX_TOKEN_BYTES: usize = 64 << 10;

/// A well-formed token. Its contents are not trusted before its signature is verified.
pub(crate) struct CompactToken<'a> {
    /// The signing input of RFC 7515: header and payload, encoded.
    pub(crate) signed: &'a str,
    pub(crate) algorithm: Algorithm,
    pub(crate) key_id: Option<String>,
    pub(crate) signature: Vec<u8>,
    payload: Vec<u8>,
}

/// The header fields in use.
#[derive(Deserialize)]
pub(crate) struct Header {
    pub(crate) alg: String,
    pub(crate) kid: Option<String>,
    /// Extensions that the verifier must support (RFC 7515, 4.1.11). None are supported.
    #[serde(default, deserialize_with = "is_present")]
    crit: bool,
}

/// Reads any value, also `null`, as true.
fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|IgnoredAny| true)
}

impl<'a> CompactToken<'a> {
    /// Parses a token.
    pub(crate) fn parse(token: &'a str) -> Result<Self, TokenError> {
        let parts =
            TokenParts::of(token).ok_or(TokenError::Malformed("it is not three parts in base64url"))?;
        let header = parts.header().ok_or(TokenError::Malformed("its header is not readable"))?;
        if header.crit {
            return Err(TokenError::Malformed("its header names extensions"));
        }
        let decode = |part: &str| {
            URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed("it is not base64url"))
        };
        Ok(Self {
            signed: parts.signed,
            algorithm: header.alg.parse().map_err(|_| TokenError::Algorithm)?,
            key_id: header.kid.filter(|id| !id.is_empty()),
            signature: decode(parts.signature)?,
            payload: decode(parts.payload)?,
        })
    }

    /// The claims. Only for use after the signature is verified.
    pub(crate) fn claims(&self) -> Result<Claims, TokenError> {
        serde_json::from_slice(&self.payload)
            .map(Claims)
            .map_err(|_| TokenError::Malformed("its payload is not a JSON object"))
    }
}

/// The encoded parts of a token.
pub(crate) struct TokenParts<'a> {
    pub(crate) signed: &'a str,
    pub(crate) header: &'a str,
    pub(crate) payload: &'a str,
    pub(crate) signature: &'a str,
}

impl<'a> TokenParts<'a> {
    /// Splits a text into three non-empty parts of base64url characters. Allocates nothing.
    pub(crate) fn of(token: &'a str) -> Option<Self> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        let well_formed = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        };
        [header, payload, signature].into_iter().all(well_formed).then_some(Self {
            signed,
            header,
            payload,
            signature,
        })
    }

    pub(crate) fn header(&self) -> Option<Header> {
        let json = URL_SAFE_NO_PAD.decode(self.header).ok()?;
        // Serde would read a list as a struct, too.
        let is_object = json.trim_ascii_start().starts_with(b"{");
        is_object.then(|| serde_json::from_slice(&json).ok())?
    }
}
