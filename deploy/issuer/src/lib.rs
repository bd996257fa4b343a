//! The development issuer: a small OpenID provider without passwords, for the machine that it runs on.
//!
//! Whoever reaches it signs in as whom he likes, so it listens on a loopback address and nowhere else. In everything
//! else it is as strict as a real one: OpenID Connect Core 1.0 with the code flow and PKCE (RFC 7636, S256, required),
//! the device grant (RFC 8628), refresh tokens, errors as in RFC 6749; clients are programs on this machine (RFC 8252).
//!
//! It must not know the servers, nor what its tokens open: rights are given where they are given to anybody else.
//!
//! `/metrics` is for everybody here: answers by endpoint (`fairlead_issuer_answers_total`) and tokens by grant
//! (`fairlead_issuer_tokens_total`).
//!
//! What it remembers is bounded and forgotten soon: codes and devices. Tokens are signed and not remembered; the key is
//! kept in a file, so they outlive a restart.

mod devices;
mod expiring;
mod form;
mod key;
mod moment;
mod page;
mod process;
mod provider;
mod redirect;
mod refusal;
mod secret;
mod service;
mod sign_in;
mod tokens;
mod users;

pub use process::{StartError, main};
