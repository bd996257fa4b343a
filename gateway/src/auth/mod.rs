//! Authentication: the authenticators of listeners and of workspaces, and the identity of a request.
//!
//! May use `routing` (service accounts live in logical clusters), `policy` and `request`. Must not know rights: shards authorize.

pub(crate) mod identity;
pub(crate) mod listener_authentication;
pub(crate) mod service_accounts;
pub(crate) mod workspaces;
