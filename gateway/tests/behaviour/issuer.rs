//! An issuer of tokens as a server and as a signer: that of the tests of `fairlead-authn`.

#[path = "../../../certs/authn/tests/tokens/server.rs"]
#[allow(dead_code, reason = "shared")]
pub mod server;
#[path = "../../../certs/authn/tests/tokens/signing.rs"]
#[allow(dead_code, reason = "shared")]
pub mod signing;
