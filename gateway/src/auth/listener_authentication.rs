//! Builds a listener's authenticators from its settings, and again when a configured file changes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
use fairlead_authn::{
    Algorithm, AuthenticationConfiguration, BundleError, CertificateAuthorities, Chain,
    ClientCertificateAuthenticator, ConfigurationError, FieldError, GroupFilter, JwtAuthenticator,
    JwtSettings, LookupPolicy, OidcFlags, RequestHeaderAuthenticator, RequestHeaderNames,
    ServiceAccountKeyError, ServiceAccountKeys, ServiceAccountLookup, ServiceAccountSettings,
    ServiceAccountTokens, SharedAuthorities, SharedKeys, TokenFile, TokenFileError, TokenUnion, TokenWebhook,
    TrustPurpose, UnknownAlgorithm, WebhookError, WebhookSettings,
};
use fairlead_client::Kubeconfig;
use fairlead_config::{KcpBehaviour, ListenerConfig, OidcConfig, ReviewVersion, Timespan, TokenPolicy};
use fairlead_process::{LoadError, Reloads};
use http::header::{HeaderName, InvalidHeaderName};
use parking_lot::Mutex;

use crate::auth::identity::PRIVILEGED_GROUPS;
use crate::policy::listener::UnauthenticatedTokenPolicy;
use crate::policy::listener::{Listener, PlacementEndpoint, RequestPolicy, ResponsePolicy};
use crate::policy::request_filter::RequestFilter;

/// The settings of a listener and the other inputs of its authenticators.
pub(crate) struct ListenerAuthentication {
    listener: String,
    config: ArcSwap<ListenerConfig>,
    /// Replaced together with the settings, so that a rebuild between two reloads uses a consistent pair.
    kcp_compatibility: ArcSwap<Vec<KcpBehaviour>>,
    lookup: Arc<dyn ServiceAccountLookup>,
    /// Held from reading the settings until the policy is applied, so that an older policy never replaces a newer one.
    update_lock: Mutex<()>,
    /// The current issuers. Their keys are passed to the issuers that replace them.
    issuers: ArcSwapOption<JwtAuthenticator>,
}

/// A policy that can be applied.
pub(crate) struct PreparedPolicy {
    config: Arc<ListenerConfig>,
    kcp_compatibility: Arc<Vec<KcpBehaviour>>,
    policy: RequestPolicy,
    issuers: Option<Arc<JwtAuthenticator>>,
}

/// The authenticators cannot be built; the operator has to correct the file or the setting.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthenticationError {
    /// A file cannot be read.
    #[error("{0} cannot be read")]
    Read(PathBuf, #[source] std::io::Error),
    /// A CA bundle cannot be used.
    #[error("{0}: {1}")]
    Bundle(PathBuf, BundleError),
    /// A header name is invalid.
    #[error("requestHeader: {0:?} is not a header name")]
    Header(String, #[source] InvalidHeaderName),
    /// The token file is invalid.
    #[error(transparent)]
    TokenFile(#[from] TokenFileError),
    /// A file of service account keys is invalid.
    #[error(transparent)]
    Keys(#[from] ServiceAccountKeyError),
    /// The structured authentication configuration is invalid.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// A signature algorithm of an issuer is unknown.
    #[error("oidc: {0}")]
    Algorithm(#[from] UnknownAlgorithm),
    /// The settings of an issuer are invalid.
    #[error("oidc: {0}")]
    Issuer(String),
    /// The token webhook cannot be configured.
    #[error("webhook: {0}")]
    Webhook(#[from] WebhookError),
}

impl ListenerAuthentication {
    /// The authentication of a listener with these settings.
    pub(crate) fn new(
        config: ListenerConfig,
        kcp_compatibility: &[KcpBehaviour],
        lookup: Arc<dyn ServiceAccountLookup>,
    ) -> Arc<Self> {
        Arc::new(Self {
            listener: config.name.clone(),
            config: ArcSwap::from_pointee(config),
            kcp_compatibility: ArcSwap::from_pointee(kcp_compatibility.to_vec()),
            lookup,
            update_lock: Mutex::default(),
            issuers: ArcSwapOption::empty(),
        })
    }

    /// Opens the listener and registers the files of its policy for reload.
    ///
    /// # Errors
    /// [`LoadError`] if a file cannot be loaded now; on later errors the last good policy stays.
    pub(crate) fn open(
        self: &Arc<Self>,
        reloads: &Reloads,
        listener: impl FnOnce(RequestPolicy) -> Listener,
    ) -> Result<Arc<Listener>, LoadError> {
        let object = self.object();
        let files = self.files();
        let (this, opened) = (Arc::clone(self), Arc::new(std::sync::OnceLock::<Weak<Listener>>::new()));
        let target = Arc::clone(&opened);
        let first: Arc<Mutex<Option<RequestPolicy>>> = Arc::default();
        let made = Arc::clone(&first);
        reloads.register_naming(&object, files, move || {
            let _update = this.update_lock.lock();
            let prepared = this.prepared(this.config.load_full(), this.kcp_compatibility.load_full())?;
            this.start_issuers(prepared.issuers);
            // The reload holds a weak reference, so that it does not keep the listener open.
            match target.get().map(Weak::upgrade) {
                Some(Some(listener)) => listener.policy.store(Arc::new(prepared.policy)),
                Some(None) => {}
                None => *made.lock() = Some(prepared.policy),
            }
            Ok::<_, AuthenticationError>(((), this.files()))
        })?;
        let policy = first.lock().take();
        // `register_naming` has loaded the files once, or has failed.
        let policy = policy.unwrap_or_else(RequestPolicy::deny_all);
        let listener = Arc::new(listener(policy));
        let _ = opened.set(Arc::downgrade(&listener));
        Ok(listener)
    }

    /// Builds a policy from other settings without applying it.
    ///
    /// # Errors
    /// [`AuthenticationError`]
    pub(crate) fn prepare(
        &self,
        config: &ListenerConfig,
        kcp_compatibility: &[KcpBehaviour],
    ) -> Result<PreparedPolicy, AuthenticationError> {
        self.prepared(Arc::new(config.clone()), Arc::new(kcp_compatibility.to_vec()))
    }

    /// Applies a prepared policy.
    pub(crate) fn apply(&self, prepared: PreparedPolicy, listener: &Listener, reloads: &Reloads) {
        let update_lock = self.update_lock.lock();
        self.config.store(prepared.config);
        self.kcp_compatibility.store(prepared.kcp_compatibility);
        self.start_issuers(prepared.issuers);
        listener.policy.store(Arc::new(prepared.policy));
        // A reload takes its own lock first and then this one.
        drop(update_lock);
        reloads.follow(&self.object(), &self.files());
    }

    fn start_issuers(&self, issuers: Option<Arc<JwtAuthenticator>>) {
        if let Some(issuers) = issuers {
            issuers.start();
            self.issuers.store(Some(issuers));
        }
    }

    /// The name of the reloaded object in logs and metrics.
    fn object(&self) -> String {
        format!("credentials of listener {}", self.listener)
    }

    /// All files of the authenticators, also those that a kubeconfig among them names.
    fn files(&self) -> Vec<PathBuf> {
        let config = self.config.load();
        let authentication = &config.authentication;
        let authorities = [config.client_ca.as_deref(), authentication.request_header.client_ca.as_deref()];
        let authorities = authorities.into_iter().flatten().map(Path::to_owned);
        if self.kcp_compatibility.load().contains(&KcpBehaviour::Reloads) {
            return authorities.collect();
        }
        let inputs = [
            authentication.token_file.as_deref(),
            authentication.configuration.as_deref(),
            authentication.oidc.as_ref().and_then(|oidc| oidc.ca_file.as_deref()),
            authentication.webhook.as_ref().map(|webhook| &*webhook.kubeconfig),
        ];
        let keys = authentication.service_accounts.key_files.iter().map(|file| &**file);
        let webhook = authentication.webhook.as_ref();
        let named = webhook.map(|webhook| files_of_kubeconfig(&webhook.kubeconfig)).unwrap_or_default();
        let inputs = inputs.into_iter().flatten().chain(keys).map(Path::to_owned);
        authorities.chain(inputs).chain(named).collect()
    }

    fn prepared(
        &self,
        config: Arc<ListenerConfig>,
        kcp_compatibility: Arc<Vec<KcpBehaviour>>,
    ) -> Result<PreparedPolicy, AuthenticationError> {
        let authentication = &config.authentication;
        let mut authorities = CertificateAuthorities::none();
        for (file, purpose) in [
            (&config.client_ca, TrustPurpose::Client),
            (&authentication.request_header.client_ca, TrustPurpose::RequestHeader),
        ] {
            if let Some(file) = file.as_deref() {
                let bundle = authorities.with(purpose, &read(file)?);
                authorities = bundle.map_err(|error| AuthenticationError::Bundle(file.to_owned(), error))?;
            }
        }
        let authorities = SharedAuthorities::new(authorities);
        let mut chain = Chain::builder();
        if authentication.request_header.client_ca.is_some() {
            let headers = &authentication.request_header;
            let names = request_header_names(&config)?;
            let proxies =
                RequestHeaderAuthenticator::new(authorities.clone(), headers.allowed_names.clone(), names);
            chain = chain.with(proxies);
        }
        chain = chain.with(ClientCertificateAuthenticator::new(authorities));
        let mut anonymous = None;
        let (tokens, issuers) = self.tokens(&config, &mut anonymous)?;
        if !tokens.is_empty() {
            chain = chain.with(tokens);
        }
        let filter = GroupFilter::from_flags(&authentication.pass_on_groups, &authentication.drop_groups);
        if !authentication.privileged_token_groups {
            chain = chain.filter_token_groups(GroupFilter::new([] as [&str; 0], PRIVILEGED_GROUPS));
        }
        let policy = RequestPolicy {
            chain: chain.filter_groups(filter).build(),
            requires_credentials: requires_credentials(&config, &kcp_compatibility),
            anonymous,
            tokens: match config.tokens {
                TokenPolicy::PassThrough => UnauthenticatedTokenPolicy::PassOn,
                TokenPolicy::Refuse => UnauthenticatedTokenPolicy::Refuse,
            },
            workspaces: authentication.workspaces,
            in_cluster_clients: config.in_cluster_clients,
            placement_endpoint: if config.placement_endpoint {
                PlacementEndpoint::Offered
            } else {
                PlacementEndpoint::Hidden
            },
            admin_page: config.admin_page,
            request_filter: RequestFilter::new(&config),
            trace_context: config.trace_context,
            responses: ResponsePolicy {
                no_store: config.cache_control_no_store,
                keep_alive: config.watch_keep_alive.map(Timespan::get),
            },
        };
        Ok(PreparedPolicy { config, kcp_compatibility, policy, issuers })
    }

    fn tokens(
        &self,
        config: &ListenerConfig,
        anonymous: &mut Option<fairlead_authn::AnonymousAccess>,
    ) -> Result<(TokenUnion, Option<Arc<JwtAuthenticator>>), AuthenticationError> {
        let authentication = &config.authentication;
        let accounts = &authentication.service_accounts;
        let mut union = TokenUnion::new();
        if let Some(file) = &authentication.token_file {
            union = union.with(TokenFile::load(file)?);
        }
        if !accounts.key_files.is_empty() {
            let keys =
                SharedKeys::new(ServiceAccountKeys::load(accounts.key_files.iter().map(|file| &**file))?);
            let settings = ServiceAccountSettings {
                issuers: accounts.issuers.clone(),
                audiences: accounts.audiences.clone(),
            };
            let look_up = match accounts.lookup {
                true => LookupPolicy::All(Arc::clone(&self.lookup)),
                false => LookupPolicy::Nothing,
            };
            union = union.with(ServiceAccountTokens::new(keys, settings, look_up));
        }
        let mut issuers = Vec::new();
        if let Some(oidc) = &authentication.oidc {
            issuers.push(issuer(oidc)?);
        }
        if let Some(file) = &authentication.configuration {
            let reserved: &[String] = if accounts.key_files.is_empty() { &[] } else { &accounts.issuers };
            let configuration = AuthenticationConfiguration::load(file, reserved)?;
            issuers.extend(configuration.issuers);
            *anonymous = configuration.anonymous;
        }
        let mut jwt = None;
        if !issuers.is_empty() {
            let mut issuers = JwtAuthenticator::new(issuers);
            if let Some(before) = &*self.issuers.load() {
                issuers = issuers.with_keys_of(before);
            }
            let issuers = Arc::new(issuers);
            jwt = Some(Arc::clone(&issuers));
            union = union.with(issuers);
        }
        if let Some(webhook) = &authentication.webhook {
            let settings = WebhookSettings {
                version: match webhook.version {
                    ReviewVersion::V1beta1 => fairlead_authn::ReviewVersion::V1beta1,
                    ReviewVersion::V1 => fairlead_authn::ReviewVersion::V1,
                },
                cache_ttl: webhook.cache_ttl.get(),
                audiences: accounts.audiences.clone(),
                ..WebhookSettings::default()
            };
            union = union.with(TokenWebhook::from_kubeconfig(&webhook.kubeconfig, settings)?);
        }
        Ok((union, jwt))
    }
}

/// Whether a request without a certificate is authenticated here rather than by the shard. kcp ignores two of the
/// authentication methods.
fn requires_credentials(config: &ListenerConfig, kcp_compatibility: &[KcpBehaviour]) -> bool {
    let authentication = &config.authentication;
    let counted_by_kcp = authentication.token_file.is_some()
        || !authentication.service_accounts.key_files.is_empty()
        || authentication.oidc.is_some();
    let ignored_by_kcp = authentication.configuration.is_some() || authentication.webhook.is_some();
    let behaves_as_kcp = kcp_compatibility.contains(&KcpBehaviour::AuthenticationMethods);
    counted_by_kcp || (ignored_by_kcp && !behaves_as_kcp)
}

/// Files that a kubeconfig names; none if it cannot be read, which its loader reports.
fn files_of_kubeconfig(kubeconfig: &Path) -> Vec<PathBuf> {
    let context = Kubeconfig::load(kubeconfig).ok().and_then(|kubeconfig| kubeconfig.resolve(None).ok());
    context.map(|context| context.files().map(Path::to_owned).collect()).unwrap_or_default()
}

fn issuer(oidc: &OidcConfig) -> Result<JwtSettings, AuthenticationError> {
    let certificate_authority = match oidc.ca_file.as_deref() {
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
        AuthenticationError::Issuer(faults.join("; "))
    })
}

fn request_header_names(config: &ListenerConfig) -> Result<RequestHeaderNames, AuthenticationError> {
    let headers = &config.authentication.request_header;
    let names = |texts: &[String]| {
        let parse = |text: &String| {
            HeaderName::try_from(text).map_err(|error| AuthenticationError::Header(text.clone(), error))
        };
        texts.iter().map(parse).collect::<Result<Vec<_>, _>>()
    };
    Ok(RequestHeaderNames {
        user: names(&headers.username_headers)?,
        uid: names(&headers.uid_headers)?,
        group: names(&headers.group_headers)?,
        extra_prefix: headers
            .extra_header_prefixes
            .iter()
            .map(|prefix| prefix.to_ascii_lowercase())
            .collect(),
    })
}

fn read(file: &Path) -> Result<Vec<u8>, AuthenticationError> {
    std::fs::read(file).map_err(|error| AuthenticationError::Read(file.to_owned(), error))
}
