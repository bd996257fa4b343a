//! The authenticators of a shard, built from files and rebuilt when the files change.

use std::path::PathBuf;
use std::sync::Arc;

use fairlead_authn::{
    BundleError, CertificateAuthorities, Chain, ClientCertificateAuthenticator, LookupPolicy,
    RequestHeaderAuthenticator, RequestHeaderNames, ServiceAccountKeyError, ServiceAccountKeys,
    ServiceAccountSettings, ServiceAccountSigner, ServiceAccountTokens, SharedAuthorities, SharedKeys,
    TokenFile, TokenFileError, TrustPurpose, VerificationKeys,
};
use fairlead_config::{ShardConfig, ShardServiceAccountsConfig};
use fairlead_process::{LoadError, Reloadable, Reloads};

use crate::service_accounts::{LocalAccounts, TokenIssuer};

/// The authenticators of a shard, in kcp's order. `accounts` looks up the service accounts of tokens.
pub(super) fn chain(
    config: &ShardConfig,
    accounts: Arc<LocalAccounts>,
    reloads: &Reloads,
) -> Result<Arc<Reloadable<Chain>>, LoadError> {
    let client_ca = config.trust.client_ca.as_ref().map(|file| file.to_path_buf());
    let request_header_ca = config.trust.request_header_ca.as_ref().map(|file| file.to_path_buf());
    let names = config.trust.request_header_allowed_names.clone();
    let token_file = config.token_file.as_ref().map(|file| file.to_path_buf());
    let service_accounts = config.service_accounts.clone();
    let account_keys = account_keys(&service_accounts);
    let mut files =
        [&client_ca, &request_header_ca, &token_file].into_iter().flatten().cloned().collect::<Vec<_>>();
    files.extend(account_keys.iter().cloned());
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
        if !account_keys.is_empty() {
            let keys = SharedKeys::new(ServiceAccountKeys::load(&account_keys)?);
            let settings = ServiceAccountSettings {
                issuers: service_accounts.issuers.clone(),
                audiences: service_accounts.audiences.clone(),
            };
            let lookup = if service_accounts.lookup {
                LookupPolicy::All(accounts.clone())
            } else {
                LookupPolicy::Nothing
            };
            chain = chain.with(ServiceAccountTokens::new(keys, settings, lookup));
        }
        Ok::<_, AuthenticatorError>(chain.build())
    })
}

/// The issuer of service-account tokens, with keys that are loaded again when their files change.
pub(super) fn token_issuer(config: &ShardConfig, reloads: &Reloads) -> Result<TokenIssuer, LoadError> {
    let settings = &config.service_accounts;
    let key_files = account_keys(settings);
    let keys = reloads.register("service account keys", key_files.clone(), move || {
        if key_files.is_empty() {
            return Ok(VerificationKeys::default());
        }
        ServiceAccountKeys::load(&key_files)
    })?;
    let signer = settings.signing_key.as_ref().map(|file| {
        let file = file.to_path_buf();
        reloads.register("service account signing key", vec![file.clone()], move || {
            ServiceAccountSigner::load(&file)
        })
    });
    let audiences = if settings.audiences.is_empty() { &settings.issuers } else { &settings.audiences };
    Ok(TokenIssuer {
        issuers: settings.issuers.clone(),
        audiences: audiences.clone(),
        max_seconds: settings.max_validity.map(|span| span.get().as_secs()),
        keys_url: format!("{}/openid/v1/jwks", config.base_url().as_str().trim_end_matches('/')),
        signer: signer.transpose()?,
        keys,
    })
}

fn account_keys(settings: &ShardServiceAccountsConfig) -> Vec<PathBuf> {
    let files = settings.key_files.iter().map(|file| file.to_path_buf());
    settings.signing_key.iter().map(|file| file.to_path_buf()).chain(files).collect()
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
    ServiceAccounts(#[from] ServiceAccountKeyError),
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
}
