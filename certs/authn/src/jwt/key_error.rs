//! Errors of key files and key sets.

use thiserror::Error;

/// Keys that cannot be read; their author has to correct them. Never quotes a key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is not PEM.
    #[error("it is not readable PEM")]
    NotPem,
    /// The PEM text contains no key.
    #[error("it contains no RSA or EC key")]
    NoKey,
    /// A key cannot be used.
    #[error("its PEM block {position} ({label}) cannot be used: {problem}")]
    Block {
        /// The position of the block, counted from 1.
        position: usize,
        /// The label of the block.
        label: String,
        /// The problem.
        problem: &'static str,
    },
    /// The text is not a JSON Web Key Set.
    #[error("it is not a JSON Web Key Set")]
    NotAKeySet,
}
