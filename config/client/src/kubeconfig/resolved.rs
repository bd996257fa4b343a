//! Credentials of a resolved context.

use std::path::Path;

use super::{KeyMaterial, ResolvedContext, User};
use crate::credentials::{Credentials, CredentialsError, Token, TrustRoots, UnverifiedTls};

impl ResolvedContext {
    /// Reads the files that the context names. Call it again after a rotation.
    pub fn credentials(&self, unverified: UnverifiedTls) -> Result<Credentials, CredentialsError> {
        if let Some(item) = self.user.unsupported {
            return Err(CredentialsError::Unsupported(item));
        }
        if self.cluster.proxy_url.is_some() {
            return Err(CredentialsError::Unsupported("a cluster behind a proxy-url"));
        }
        let mut credentials = Credentials::new(self.roots(unverified)?)?;
        match (&self.user.client_certificate, &self.user.client_key) {
            (None, None) => {}
            (Some(chain), Some(key)) => {
                let (chain, key) = (chain.read("client certificate")?, key.read("client key")?);
                credentials = credentials.with_certificate(&chain, &key)?;
            }
            (chain, _) => {
                let item = if chain.is_some() { "client key" } else { "client certificate" };
                return Err(CredentialsError::Pem {
                    item,
                    reason: "it is missing: a client certificate and its key belong together".to_owned(),
                });
            }
        }
        if let Some(name) = &self.cluster.tls_server_name {
            credentials = credentials.with_server_name(name)?;
        }
        if let Some(token) = &self.user.token {
            let token = token.read("token")?;
            let token = std::str::from_utf8(&token).map_err(|_| CredentialsError::Malformed("token"))?;
            credentials = credentials.with_token(Token::new(token))?;
        }
        if let Some(impersonation) = &self.user.impersonation {
            credentials = credentials.with_impersonation(impersonation.clone())?;
        }
        Ok(credentials)
    }

    /// The files that [`ResolvedContext::credentials`] reads, so that they can be watched.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let User { client_certificate, client_key, token, .. } = &self.user;
        [&self.cluster.certificate_authority, client_certificate, client_key, token].into_iter().filter_map(
            |material| match material {
                Some(KeyMaterial::File(path)) => Some(path.as_path()),
                _ => None,
            },
        )
    }

    fn roots(&self, unverified: UnverifiedTls) -> Result<TrustRoots, CredentialsError> {
        if !self.endpoint.is_tls() {
            return Ok(TrustRoots::Nothing);
        }
        if self.cluster.insecure_skip_tls_verify {
            return match unverified {
                UnverifiedTls::Refuse => Err(CredentialsError::UnverifiedTls(self.cluster_name.clone())),
                UnverifiedTls::Allow => Ok(TrustRoots::Unverified),
            };
        }
        match &self.cluster.certificate_authority {
            Some(material) => Ok(TrustRoots::Pem(material.read("certificate authority")?)),
            None => Ok(TrustRoots::System),
        }
    }
}

impl KeyMaterial {
    fn read(&self, item: &'static str) -> Result<Vec<u8>, CredentialsError> {
        match self {
            Self::Inline(content) => Ok(content.clone()),
            Self::File(path) => std::fs::read(path).map_err(|source| CredentialsError::Read {
                item,
                path: path.display().to_string(),
                source,
            }),
        }
    }
}
