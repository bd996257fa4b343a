//! Identities of APIExports and ClusterCachedResources: the hash of a key in a Secret.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use fairlead_api::{Condition, Severity, condition_type};
use fairlead_apiserver::Scope;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_process::Status;
use serde_json::Value;

use crate::names::{BUILT_IN, SECRETS};

/// The key in the Secret of an identity.
pub(super) enum IdentityKey {
    /// There is no such Secret.
    Missing,
    /// The Secret has no key.
    Empty,
    Known(Vec<u8>),
}

impl IdentityKey {
    /// Reads the key of a Secret.
    ///
    /// # Errors
    /// 500 if the store cannot be read.
    pub(super) fn read(
        objects: &ObjectStore,
        scope: &Scope,
        namespace: &str,
        name: &str,
    ) -> Result<Self, Status> {
        let Some(secret) = objects.get(&SECRETS, &BUILT_IN, scope, Some(namespace), name)? else {
            return Ok(Self::Missing);
        };
        let secret = objects.tree(&secret)?;
        let key = secret["data"]["key"].as_str().and_then(|encoded| STANDARD.decode(encoded).ok());
        Ok(key.filter(|key| !key.is_empty()).map_or(Self::Empty, Self::Known))
    }
}

/// Namespace and name of the Secret that `spec.identity` of an object refers to.
pub(super) fn secret_reference(object: &Value) -> Option<(String, String)> {
    let reference = &object["spec"]["identity"]["secretRef"];
    let text = |field: &str| reference[field].as_str().unwrap_or_default().to_owned();
    reference.is_object().then(|| (text("namespace"), text("name")))
}

/// The identity hash of an object by its key. `new_key` is the key of an object that refers to no Secret and has none.
///
/// # Errors
/// The message for clients: there is no key, or the object has another identity already.
pub(super) fn verify(object: &Value, key: &IdentityKey, new_key: Option<&[u8]>) -> Result<String, String> {
    let key = match (key, new_key) {
        (IdentityKey::Known(key), _) => &**key,
        (_, Some(key)) => key,
        (IdentityKey::Empty, None) => return Err("secret is missing data.key".to_owned()),
        (IdentityKey::Missing, None) => {
            let (_, secret) = secret_reference(object).unwrap_or_default();
            return Err(format!("secret {secret:?} not found"));
        }
    };
    let hash = fairlead_names::hex_sha256(key);
    match object["status"]["identityHash"].as_str() {
        Some(known) if !known.is_empty() && known != hash => Err(format!(
            "hash mismatch: identity secret hash {hash:?} must match status.identityHash {known:?}"
        )),
        _ => Ok(hash),
    }
}

/// The condition of an object whose identity cannot be verified.
pub(super) fn unverified(message: String) -> Condition {
    let reason = "IdentityVerificationFailed";
    Condition::unmet(condition_type::IDENTITY_VALID, Severity::Error, reason, message)
}

/// A key of 32 random bytes, as a text.
pub(super) fn random_key() -> Result<Vec<u8>, Status> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(Status::internal)?;
    Ok(URL_SAFE_NO_PAD.encode(random).into_bytes())
}
