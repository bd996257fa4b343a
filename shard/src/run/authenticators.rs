//! The authenticators of a shard, built from files and rebuilt when the files change.

use std::path::PathBuf;
use std::sync::Arc;

use fairlead_authn::{
    BundleError, CertificateAuthorities, Chain, ClientCertificateAuthenticator, RequestHeaderAuthenticator,
    RequestHeaderNames, SharedAuthorities, TokenFile, TokenFileError, TrustPurpose,
};
use fairlead_config::ShardConfig;
use fairlead_process::{LoadError, Reloadable, Reloads};

/// The authenticators of a shard, in kcp's order.
pub(super) fn chain(config: &ShardConfig, reloads: &Reloads) -> Result<Arc<Reloadable<Chain>>, LoadError> {
    let client_ca = config.trust.client_ca.as_ref().map(|file| file.to_path_buf());
    let request_header_ca = config.trust.request_header_ca.as_ref().map(|file| file.to_path_buf());
    let names = config.trust.request_header_allowed_names.clone();
    let token_file = config.token_file.as_ref().map(|file| file.to_path_buf());
    let files =
        [&client_ca, &request_header_ca, &token_file].into_iter().flatten().cloned().collect::<Vec<_>>();
    reloads.register("authentication", files, move || {
        let mut authorities = CertificateAuthorities::none();
        for (file, purpose) in
            [(&client_ca, TrustPurpose::Client), (&request_header_ca, TrustPurpose::RequestHeader)]
        {
            if let Some(file) = file {
                let pem = std::fs::read(file)
                    .map_err(|source| AuthenticatorError::Read { file: file.clone(), source })?;
                authorities = authorities.with(purpose, &pem)?;
            }
        }
        let shared = SharedAuthorities::new(authorities);
        let mut chain = Chain::builder();
        if request_header_ca.is_some() {
            let proxies =
                RequestHeaderAuthenticator::new(shared.clone(), names.clone(), RequestHeaderNames::default());
            chain = chain.with(proxies);
        }
        if client_ca.is_some() {
            chain = chain.with(ClientCertificateAuthenticator::new(shared));
        }
        if let Some(file) = &token_file {
            chain = chain.with(TokenFile::load(file)?);
        }
        Ok::<_, AuthenticatorError>(chain.build())
    })
}

/// A credentials file that cannot be used; the operator has to act.
#[derive(Debug, thiserror::Error)]
enum AuthenticatorError {
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error("{} cannot be read", file.display())]
    Read {
        file: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
}
