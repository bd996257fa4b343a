//! The authenticators of a shard, built from files and rebuilt when the files change.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use fairlead_authn::{
    Algorithm, AuthenticationConfiguration, Authenticator, BundleError, CertificateAuthorities, Chain,
    ClientCertificateAuthenticator, ConfigurationError, FieldError, GroupFilter, InvalidHeaderName,
    JwtAuthenticator, JwtSettings, LookupPolicy, OidcFlags, RequestHeaderAuthenticator, RequestHeaderNames,
    ServiceAccountKeyError, ServiceAccountKeys, ServiceAccountSettings, ServiceAccountSigner,
    ServiceAccountTokens, SharedAuthorities, SharedKeys, TokenFile, TokenFileError, TokenUnion, TokenWebhook,
    TrustPurpose, UnknownAlgorithm, UserInfo, VerificationKeys, WebhookError, WebhookSettings,
};
use fairlead_client::Kubeconfig;
use fairlead_config::{OidcConfig, ReviewVersion, ShardConfig, ShardServiceAccountsConfig, TrustConfig};
use fairlead_process::{LoadError, Reloadable, Reloads};

use crate::host::{AnonymousRequests, Authenticators};
use crate::service_accounts::{AccountLookup, TokenIssuer};

/// Groups that tokens cannot have at a shard.
const LIFECYCLE_GROUPS: [&str; 2] = ["system:kcp:initializer:*", "system:kcp:terminator:*"];

/// A user by the SHA-256 digest of its token.
pub(super) type TokenUser = ([u8; 32], UserInfo);

/// The authenticators of a shard, in kcp's order; the administrators' tokens come first. `accounts` looks up the service accounts of tokens.
pub(super) fn authenticators(
    config: &ShardConfig,
    admin_users: Vec<TokenUser>,
    accounts: Arc<AccountLookup>,
    reloads: &Reloads,
) -> Result<Arc<Reloadable<Authenticators>>, LoadError> {
    let config = config.clone();
    let files = files(&config);
    // The keys of issuers are passed to the issuers that replace them.
    let known_issuers = ArcSwapOption::<JwtAuthenticator>::empty();
    reloads.register("authentication", files, move || {
        let (tokens, issuers, anonymous) = token_authenticators(&config, &accounts, &known_issuers)?;
        let mut chain = Chain::builder();
        if !admin_users.is_empty() {
            chain = chain.with(TokenFile::of_digests(admin_users.iter().cloned()));
        }
        let authorities = SharedAuthorities::new(authorities(&config)?);
        if config.trust.request_header_ca.is_some() {
            let names = config.trust.request_header_allowed_names.clone();
            chain = chain.with(RequestHeaderAuthenticator::new(
                authorities.clone(),
                names,
                request_header_names(&config.trust)?,
            ));
        }
        if config.trust.client_ca.is_some() {
            chain = chain.with(ClientCertificateAuthenticator::new(authorities));
        }
        for authenticator in tokens {
            chain = chain.with(authenticator);
        }
        if let Some(issuers) = &issuers {
            issuers.start();
        }
        known_issuers.store(issuers);
        // The groups by which virtual workspaces pass on what they have authorized are never those of a token.
        let chain = chain.filter_token_groups(GroupFilter::new([] as [&str; 0], LIFECYCLE_GROUPS)).build();
        Ok::<_, AuthenticatorError>(Authenticators { chain, anonymous })
    })
}

type Tokens = (Vec<Arc<dyn Authenticator>>, Option<Arc<JwtAuthenticator>>, AnonymousRequests);

/// The authenticators of bearer tokens, the issuers among them, and the admitted requests without a credential.
fn token_authenticators(
    config: &ShardConfig,
    accounts: &Arc<AccountLookup>,
    known_issuers: &ArcSwapOption<JwtAuthenticator>,
) -> Result<Tokens, AuthenticatorError> {
    let mut tokens: Vec<Arc<dyn Authenticator>> = Vec::new();
    if let Some(file) = &config.token_file {
        tokens.push(Arc::new(TokenFile::load(file)?));
    }
    let service_accounts = &config.service_accounts;
    let keys = account_keys(service_accounts);
    if !keys.is_empty() {
        let settings = ServiceAccountSettings {
            issuers: service_accounts.issuers.clone(),
            audiences: service_accounts.audiences.clone(),
        };
        let lookup =
            if service_accounts.lookup { LookupPolicy::All(accounts.clone()) } else { LookupPolicy::Nothing };
        let keys = SharedKeys::new(ServiceAccountKeys::load(&keys)?);
        tokens.push(Arc::new(ServiceAccountTokens::new(keys, settings, lookup)));
    }
    let authentication = &config.authentication;
    let mut anonymous =
        if authentication.anonymous { AnonymousRequests::All } else { AnonymousRequests::None };
    let mut settings = Vec::new();
    if let Some(oidc) = &authentication.oidc {
        settings.push(issuer(oidc)?);
    }
    if let Some(file) = &authentication.configuration {
        let reserved: &[String] = if keys_are_used(config) { &service_accounts.issuers } else { &[] };
        let configuration = AuthenticationConfiguration::load(file, reserved)?;
        settings.extend(configuration.issuers);
        if let Some(access) = configuration.anonymous {
            anonymous = AnonymousRequests::Configured(access);
        }
    }
    let mut issuers = None;
    if !settings.is_empty() {
        let mut authenticator = JwtAuthenticator::new(settings);
        if let Some(known) = &*known_issuers.load() {
            authenticator = authenticator.with_keys_of(known);
        }
        let authenticator = Arc::new(authenticator);
        // The union caches accepted tokens, so that a signature is verified once in ten seconds.
        tokens.push(Arc::new(TokenUnion::new().with(authenticator.clone())));
        issuers = Some(authenticator);
    }
    if let Some(webhook) = &authentication.webhook {
        let settings = WebhookSettings {
            version: match webhook.version {
                ReviewVersion::V1beta1 => fairlead_authn::ReviewVersion::V1beta1,
                ReviewVersion::V1 => fairlead_authn::ReviewVersion::V1,
            },
            cache_ttl: webhook.cache_ttl.get(),
            audiences: service_accounts.audiences.clone(),
            ..WebhookSettings::default()
        };
        tokens.push(Arc::new(TokenWebhook::from_kubeconfig(&webhook.kubeconfig, settings)?));
    }
    Ok((tokens, issuers, anonymous))
}

fn authorities(config: &ShardConfig) -> Result<CertificateAuthorities, AuthenticatorError> {
    let mut authorities = CertificateAuthorities::none();
    for (file, purpose) in [
        (&config.trust.client_ca, TrustPurpose::Client),
        (&config.trust.request_header_ca, TrustPurpose::RequestHeader),
    ] {
        if let Some(file) = file {
            authorities = authorities.with(purpose, &read(file)?)?;
        }
    }
    Ok(authorities)
}

/// All files of the authenticators, also those that a kubeconfig among them names.
fn files(config: &ShardConfig) -> Vec<PathBuf> {
    let authentication = &config.authentication;
    let inputs = [
        config.trust.client_ca.as_deref(),
        config.trust.request_header_ca.as_deref(),
        config.token_file.as_deref(),
        authentication.configuration.as_deref(),
        authentication.oidc.as_ref().and_then(|oidc| oidc.ca_file.as_deref()),
        authentication.webhook.as_ref().map(|webhook| &*webhook.kubeconfig),
    ];
    let mut files: Vec<PathBuf> = inputs.into_iter().flatten().map(Path::to_path_buf).collect();
    files.extend(account_keys(&config.service_accounts));
    if let Some(webhook) = &authentication.webhook
        && let Ok(kubeconfig) = Kubeconfig::load(&webhook.kubeconfig)
        && let Ok(context) = kubeconfig.resolve(None)
    {
        files.extend(context.files().map(Path::to_path_buf));
    }
    files
}

fn request_header_names(trust: &TrustConfig) -> Result<RequestHeaderNames, InvalidHeaderName> {
    RequestHeaderNames::parse(
        &trust.username_headers,
        &trust.uid_headers,
        &trust.group_headers,
        &trust.extra_header_prefixes,
    )
}

fn issuer(oidc: &OidcConfig) -> Result<JwtSettings, AuthenticatorError> {
    let certificate_authority = match &oidc.ca_file {
        Some(file) => Some(String::from_utf8_lossy(&read(file)?).into_owned()),
        None => None,
    };
    let algorithms = oidc.signing_algorithms.iter().map(|name| name.parse::<Algorithm>());
    let flags = OidcFlags {
        issuer_url: oidc.issuer_url.clone(),
        client_id: oidc.client_id.clone(),
        certificate_authority,
        username_claim: oidc.username_claim.clone(),
        username_prefix: oidc.username_prefix.clone(),
        groups_claim: oidc.groups_claim.clone(),
        groups_prefix: oidc.groups_prefix.clone(),
        signing_algorithms: algorithms.collect::<Result<_, _>>()?,
        required_claims: oidc.required_claims.clone(),
    };
    JwtSettings::from_flags(&flags).map_err(|faults| {
        let faults: Vec<String> = faults.iter().map(FieldError::to_string).collect();
        AuthenticatorError::Issuer(faults.join("; "))
    })
}

fn read(file: &Path) -> Result<Vec<u8>, AuthenticatorError> {
    std::fs::read(file).map_err(|source| AuthenticatorError::Read { file: file.to_path_buf(), source })
}

fn keys_are_used(config: &ShardConfig) -> bool {
    !account_keys(&config.service_accounts).is_empty()
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
        keys_url: match &settings.keys_url {
            Some(url) => url.as_str().to_owned(),
            None => format!("{}/openid/v1/jwks", config.base_url().as_str().trim_end_matches('/')),
        },
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
    #[error("oidc: {0}")]
    Algorithm(#[from] UnknownAlgorithm),
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    #[error(transparent)]
    Header(#[from] InvalidHeaderName),
    #[error("oidc: {0}")]
    Issuer(String),
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
    #[error("webhook: {0}")]
    Webhook(#[from] WebhookError),
}
