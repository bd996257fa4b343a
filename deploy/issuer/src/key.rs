//! The signing key: created once, and stored in a file with mode 0600.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use jsonwebtoken::jwk::{Jwk, PublicKeyUse, ThumbprintHash};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A P-256 key pair. Signing costs some 30 µs. It does not implement `Debug`, because it is secret.
pub(crate) struct SigningKey {
    private: EncodingKey,
    public: DecodingKey,
    jwk: Jwk,
    id: String,
}

/// Errors of the signing key. The operator has to act.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read or written.
    #[error("cannot {attempt} {}: {source}", file.display())]
    Io {
        /// The operation.
        attempt: &'static str,
        /// Path of the key.
        file: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Other users can read the file.
    #[error("{} is secret, but other users can read it (mode {mode:04o})", file.display())]
    Exposed {
        /// Path of the key.
        file: PathBuf,
        /// Mode of the file.
        mode: u32,
    },
    /// The file has no P-256 key.
    #[error("{} has no private key on P-256", file.display())]
    Unusable {
        /// Path of the key.
        file: PathBuf,
    },
    /// A key cannot be generated.
    #[error("a key cannot be generated: {0}")]
    Generate(String),
}

impl SigningKey {
    /// Loads the key, or generates one if there is no file.
    pub(crate) fn load_or_create(file: &Path) -> Result<Self, KeyError> {
        let pem = match Self::read(file)? {
            Some(pem) => pem,
            None => {
                write(file, &generate()?)?;
                // Another process may have created the file first, so its key is loaded.
                Self::read(file)?.unwrap_or_default()
            }
        };
        Self::of_pem(&pem).ok_or_else(|| KeyError::Unusable { file: file.to_owned() })
    }

    fn read(file: &Path) -> Result<Option<String>, KeyError> {
        let io = |source| KeyError::Io { attempt: "read", file: file.to_owned(), source };
        let pem = match fs::read_to_string(file) {
            Ok(pem) => pem,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(error)),
        };
        let mode = fs::metadata(file).map_err(io)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyError::Exposed { file: file.to_owned(), mode });
        }
        Ok(Some(pem))
    }

    fn of_pem(pem: &str) -> Option<Self> {
        let private = EncodingKey::from_ec_pem(pem.as_bytes()).ok()?;
        let mut jwk = Jwk::from_encoding_key(&private, Algorithm::ES256).ok()?;
        let id = jwk.thumbprint(ThumbprintHash::SHA256).ok()?;
        jwk.common.key_id = Some(id.clone());
        jwk.common.public_key_use = Some(PublicKeyUse::Signature);
        let public = DecodingKey::from_jwk(&jwk).ok()?;
        let key = Self { private, public, jwk, id };
        // A key on another curve fails here rather than at the first sign-in.
        let probe = key.sign("JWT", &serde_json::json!({}))?;
        key.verify::<serde_json::Value>("JWT", &probe).map(|_| key)
    }

    /// Signs a token with these claims. `None` if the claims are not an object.
    pub(crate) fn sign<T: Serialize>(&self, kind: &str, claims: &T) -> Option<String> {
        let mut header = Header::new(Algorithm::ES256);
        header.typ = Some(kind.to_owned());
        header.kid = Some(self.id.clone());
        encode(&header, claims, &self.private).ok()
    }

    /// Verifies signature and kind of a token and returns its claims. Expiry and audience are not checked here.
    pub(crate) fn verify<T: DeserializeOwned + Clone>(&self, kind: &str, token: &str) -> Option<T> {
        let mut validation = Validation::new(Algorithm::ES256);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_aud = false;
        let data = decode::<T>(token, &self.public, &validation).ok()?;
        (data.header.typ.as_deref() == Some(kind)).then_some(data.claims)
    }

    /// The public key that verifies tokens.
    pub(crate) fn jwk(&self) -> &Jwk {
        &self.jwk
    }
}

fn generate() -> Result<String, KeyError> {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256);
    Ok(pair.map_err(|error| KeyError::Generate(error.to_string()))?.serialize_pem())
}

/// Creates the complete file atomically, unless it exists.
fn write(file: &Path, pem: &str) -> Result<(), KeyError> {
    let new_file = file.with_extension("new");
    let write = || -> io::Result<()> {
        // A crash may have left this file.
        match fs::remove_file(&new_file) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new_file)?;
        out.write_all(pem.as_bytes())?;
        out.sync_all()?;
        match fs::hard_link(&new_file, file) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        fs::remove_file(&new_file)
    };
    write().map_err(|source| KeyError::Io { attempt: "write", file: file.to_owned(), source })
}

#[cfg(test)]
impl SigningKey {
    pub(crate) fn for_tests() -> Self {
        #[allow(clippy::unwrap_used, reason = "tests")]
        Self::of_pem(&generate().unwrap()).unwrap()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_key_is_created_once_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("signing.key");
        let first = SigningKey::load_or_create(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let again = SigningKey::load_or_create(&file).unwrap();
        assert_eq!(first.jwk(), again.jwk());
        let token = first.sign("JWT", &json!({"a": 1})).unwrap();
        assert_eq!(again.verify::<Value>("JWT", &token), Some(json!({"a": 1})));
        assert_eq!(again.verify::<Value>("other+jwt", &token), None, "the kind differs");
        assert_eq!(SigningKey::for_tests().verify::<Value>("JWT", &token), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is left");
        let jwk = serde_json::to_value(first.jwk()).unwrap();
        assert_eq!(jwk["kty"], "EC");
        assert!(jwk["d"].is_null(), "the private key is not published: {jwk}");
    }

    #[test]
    fn an_exposed_or_unusable_key_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("signing.key");
        SigningKey::load_or_create(&file).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(SigningKey::load_or_create(&file), Err(KeyError::Exposed { mode: 0o640, .. })));
        let p384 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap().serialize_pem();
        for text in ["", "nonsense", p384.as_str()] {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            assert!(matches!(SigningKey::load_or_create(&file), Err(KeyError::Unusable { .. })), "{text}");
        }
    }
}
