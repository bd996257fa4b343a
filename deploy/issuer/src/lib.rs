//! The development issuer: a small OpenID provider without passwords, for the machine that it runs on.
//!
//! Every client that can connect can sign in as any user, so the issuer listens on a loopback address only. Otherwise it is as
//! strict as a production issuer: OpenID Connect Core 1.0 with the code flow and PKCE (RFC 7636, S256, required), the device
//! grant (RFC 8628), refresh tokens, errors of RFC 6749. Clients are programs on this machine (RFC 8252).
//!
//! The crate is independent of the servers and of the rights of users: RBAC grants rights, as to users of any issuer.
//!
//! `/metrics` needs no authentication: responses by endpoint (`fairlead_issuer_responses_total`) and tokens by grant
//! (`fairlead_issuer_tokens_total`).
//!
//! The state (codes and devices) is bounded and expires within minutes. Tokens are signed and not stored. The key is in a
//! file, so tokens stay valid after a restart.

mod authorization;
mod clock;
mod devices;
mod expiring_map;
mod form;
mod key;
mod oauth_error;
mod page;
mod process;
mod provider;
mod redirect;
mod secret;
mod service;
mod tokens;
mod users;

pub use process::{StartError, main};
