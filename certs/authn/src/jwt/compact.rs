//! The three parts of a token.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;

use super::{Algorithm, Claims, TokenFault};

/// More than a request's headers may have anyway. Whatever is longer is not even decoded.
const LONGEST: usize = 64 << 10;

/// A token that is well formed. Nothing in it is to be believed before its signature is verified.
pub(crate) struct CompactToken<'a> {
    /// Header and payload, encoded: what the signature is about.
    pub(crate) signed: &'a str,
    pub(crate) algorithm: Algorithm,
    pub(crate) key_id: Option<String>,
    pub(crate) signature: Vec<u8>,
    payload: Vec<u8>,
}

/// The fields of a header that mean something to us.
#[derive(Deserialize)]
pub(crate) struct Header {
    pub(crate) alg: String,
    pub(crate) kid: Option<String>,
    /// Extensions that whoever verifies must understand. We know none.
    crit: Option<serde::de::IgnoredAny>,
}

impl<'a> CompactToken<'a> {
    /// Takes a token apart.
    pub(crate) fn parse(token: &'a str) -> Result<Self, TokenFault> {
        let parts = Parts::of(token).ok_or(TokenFault::Malformed("it is not three parts in base64url"))?;
        let header = parts.header().ok_or(TokenFault::Malformed("its header is not readable"))?;
        if header.crit.is_some() {
            return Err(TokenFault::Malformed("its header names extensions"));
        }
        let decode = |part: &str| {
            URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenFault::Malformed("it is not base64url"))
        };
        Ok(Self {
            signed: parts.signed,
            algorithm: header.alg.parse().map_err(|_| TokenFault::Algorithm)?,
            key_id: header.kid.filter(|id| !id.is_empty()),
            signature: decode(parts.signature)?,
            payload: decode(parts.payload)?,
        })
    }

    /// What it claims. Only for those who have verified its signature.
    pub(crate) fn claims(&self) -> Result<Claims, TokenFault> {
        serde_json::from_slice(&self.payload)
            .map(Claims)
            .map_err(|_| TokenFault::Malformed("its payload is not a JSON object"))
    }
}

/// The parts as text.
pub(crate) struct Parts<'a> {
    pub(crate) signed: &'a str,
    pub(crate) header: &'a str,
    pub(crate) payload: &'a str,
    pub(crate) signature: &'a str,
}

impl<'a> Parts<'a> {
    /// The parts of what might be a token: three, none empty, of the right characters. Allocates nothing.
    pub(crate) fn of(token: &'a str) -> Option<Self> {
        if token.len() > LONGEST {
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
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(self.header).ok()?).ok()
    }
}
