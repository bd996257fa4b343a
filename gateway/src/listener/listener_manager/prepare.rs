//! Prepares listeners: every step that can fail, before any listener is changed.

use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fairlead_config::{GatewayConfig, ListenerConfig};
use fairlead_process::{ClientCertificates, LoadError, TlsSource, chain};

use crate::auth::listener_authentication::ListenerAuthentication;
use crate::listener::acme::AcmeError;
use crate::listener::bound::{BoundListener, ListenAddress, Sockets};
use crate::listener::listener_manager::{
    Change, ListenerManager, ListenerParts, OpenListener, PreparedListener, PreparedListeners,
};
use crate::policy::client_address::{PeerPolicy, PeersError};
use crate::policy::listener::{ClientCertificateUse, ConnectionPolicy, Listener};
use crate::policy::quota::ListenerQuotas;
use crate::upstream::ListenerUpstreamIdentity;

/// A listener cannot be opened or changed; the operator must act.
#[derive(Debug, thiserror::Error)]
pub enum ListenerError {
    /// An address cannot be bound.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address.
        address: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A TLS file of the listener cannot be loaded.
    #[error(transparent)]
    Tls(LoadError),
    /// The listener's client certificate for shards cannot be loaded.
    #[error(transparent)]
    UpstreamIdentity(LoadError),
    /// An authentication file cannot be loaded.
    #[error(transparent)]
    Credentials(LoadError),
    /// An authentication file cannot be loaded for a changed configuration.
    #[error("credentials of listener {listener}: {reason}")]
    NewCredentials {
        /// The listener's name.
        listener: String,
        /// The reason.
        reason: String,
    },
    /// The listener's `peers` setting is invalid.
    #[error(transparent)]
    PeerPolicy(#[from] PeersError),
    /// The listener has no certificate, and none can be created.
    #[error("listener {0} has no certificate: {1}")]
    Acme(String, #[source] Box<AcmeError>),
    /// Too many listeners, including closed ones that still drain.
    #[error("there are too many listeners, including those that still drain")]
    TooMany,
}

impl ListenerError {
    /// Advice for the operator.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Bind { address, source } if source.kind() == io::ErrorKind::AddrInUse => {
                Some(match address.rsplit_once(':') {
                    Some((host, port)) if host != "unix" => format!("another process listens on port {port}"),
                    _ => "another process listens there".to_owned(),
                })
            }
            Self::TooMany => Some("the change is tried again automatically".to_owned()),
            Self::Bind { .. }
            | Self::Tls(_)
            | Self::UpstreamIdentity(_)
            | Self::Credentials(_)
            | Self::NewCredentials { .. }
            | Self::PeerPolicy(_)
            | Self::Acme(..) => None,
        }
    }

    /// The configuration key that the error is about.
    fn key(&self) -> &'static str {
        match self {
            Self::Bind { address, .. } if address.starts_with("unix:") => ".socket",
            Self::Bind { .. } => ".serving.address",
            Self::Tls(_) => ".serving",
            Self::UpstreamIdentity(_) => ".upstreamIdentity",
            Self::Credentials(_) | Self::NewCredentials { .. } => ".authentication",
            Self::PeerPolicy(_) => ".peers",
            Self::Acme(..) => ".tls.acme",
            Self::TooMany => "",
        }
    }
}

impl ListenerManager {
    /// Performs every step of applying the configuration that can fail.
    ///
    /// # Errors
    /// [`ListenerError`] with the configuration key; all listeners are unchanged.
    pub(crate) fn prepare(
        &self,
        config: &GatewayConfig,
        sockets: Sockets,
    ) -> Result<PreparedListeners, (String, ListenerError)> {
        let prepared = config.listeners.iter().enumerate().map(|(index, listener)| {
            let known = self.open.iter().find(|open| open.config.name == listener.name);
            let prepared = match known {
                Some(known) => self.prepare_change(known, listener, config),
                None => self.prepare_new(listener, config, sockets),
            };
            prepared.map_err(|error| (format!("listeners[{index}]{}", error.key()), error))
        });
        Ok(PreparedListeners(prepared.collect::<Result<_, _>>()?))
    }

    fn prepare_new(
        &self,
        listener: &ListenerConfig,
        config: &GatewayConfig,
        sockets: Sockets,
    ) -> Result<PreparedListener, ListenerError> {
        let ListenerParts { telemetry, lookup, reloads, .. } = &self.parts;
        let wanted = address_of(listener);
        let bound = match sockets {
            Sockets::Bound => Some(self.socket(&listener.name, &wanted)?),
            Sockets::Unbound => None,
        };
        let connection_policy = self.connection_policy(listener, config, sockets)?;
        let kept = Arc::new(());
        let files = reloads.owned_by(&kept);
        let authentication =
            ListenerAuthentication::new(listener.clone(), &config.kcp_compatibility, Arc::clone(lookup));
        let series = telemetry.metrics.listener_series(&listener.name).ok_or(ListenerError::TooMany)?;
        let opened = authentication.open(&files, |policy| Listener {
            name: listener.name.as_str().into(),
            series,
            metrics: telemetry.metrics.listener(&listener.name),
            connection_policy: ArcSwap::from_pointee(connection_policy),
            quotas: Arc::new(ListenerQuotas::new(&listener.quotas)),
            backlog_budget: Arc::clone(&self.parts.backlog_budget),
            policy: ArcSwap::from_pointee(policy),
            _files: kept,
        });
        let change = Change::New(opened.map_err(ListenerError::Credentials)?, authentication);
        Ok(PreparedListener { config: listener.clone(), wanted, bound, change })
    }

    fn prepare_change(
        &self,
        known: &OpenListener,
        listener: &ListenerConfig,
        config: &GatewayConfig,
    ) -> Result<PreparedListener, ListenerError> {
        let wanted = address_of(listener);
        let bound =
            if wanted == known.listening.wanted { None } else { Some(self.socket(&listener.name, &wanted)?) };
        let is_same = connection_settings(&known.config) == connection_settings(listener)
            && *known.listener.connection_policy.load().limits == config.limits;
        let connection_policy =
            if is_same { None } else { Some(self.connection_policy(listener, config, Sockets::Bound)?) };
        let policy = known.authentication.prepare(listener, &config.kcp_compatibility).map_err(|error| {
            ListenerError::NewCredentials { listener: listener.name.clone(), reason: chain(&error) }
        })?;
        let change = Change::Known(Box::new(policy), connection_policy);
        Ok(PreparedListener { config: listener.clone(), wanted, bound, change })
    }

    /// A socket for a listener. If another listener is about to release the address, its socket is shared until then.
    fn socket(&self, name: &str, wanted: &ListenAddress) -> Result<BoundListener, ListenerError> {
        let current = self.open.iter().find(|open| open.listening.address.is_same_socket(wanted));
        let shared = current.and_then(|open| open.listening.socket.upgrade());
        let inherited = || self.parts.inherited.take(name, |socket| wanted.is_bound_by(socket));
        let bound = match shared {
            Some(socket) => socket.share(wanted),
            None => match inherited() {
                Some(socket) => BoundListener::inherit(socket, wanted),
                None => BoundListener::bind(wanted),
            },
        };
        bound.map_err(|source| ListenerError::Bind { address: wanted.to_string(), source })
    }

    fn connection_policy(
        &self,
        listener: &ListenerConfig,
        config: &GatewayConfig,
        sockets: Sockets,
    ) -> Result<ConnectionPolicy, ListenerError> {
        let kept = Arc::new(());
        let reloads = self.parts.reloads.owned_by(&kept);
        let trusted = &listener.authentication.request_header.client_ca;
        let what = format!("serving certificate of listener {}", listener.name);
        let authorities = [listener.client_ca.as_deref(), trusted.as_deref()];
        let certificates = match listener.client_ca.as_ref().or(trusted.as_ref()) {
            Some(_) => ClientCertificateUse::Identity,
            None => ClientCertificateUse::Transport,
        };
        let client_certificates = match certificates {
            ClientCertificateUse::Identity => ClientCertificates::Requested,
            // Browsers would ask their users for a certificate that is not used.
            ClientCertificateUse::Transport => ClientCertificates::NotRequested,
        };
        let tls = TlsSource::https(&listener.serving)
            .with_policy(&listener.tls)
            .announcing(authorities.into_iter().flatten());
        let tls = self.parts.acme.source(listener, TlsSource { client_certificates, ..tls }, sockets);
        let tls = tls
            .map_err(|error| ListenerError::Acme(listener.name.clone(), error.into()))?
            .watch(&what, &reloads);
        let peers = PeerPolicy::of(listener, &reloads)?;
        Ok(ConnectionPolicy {
            certificates,
            has_proxies_as_peers: trusted.is_some() || peers.are_trusted_proxies(),
            peers,
            tls: tls.map_err(ListenerError::Tls)?,
            challenges: self.parts.acme.challenges(listener),
            limits: Arc::new(config.limits.clone()),
            upstream_identity: ListenerUpstreamIdentity::of(listener, config, &reloads)
                .map_err(ListenerError::UpstreamIdentity)?,
            _files: kept,
        })
    }
}

/// The address of a listener's configuration.
fn address_of(listener: &ListenerConfig) -> ListenAddress {
    match &listener.socket {
        // The configuration was validated.
        Some(socket) => ListenAddress::Unix(socket.path.to_path_buf(), socket.mode().unwrap_or(0o600)),
        None => ListenAddress::Tcp(listener.serving.address),
    }
}

/// The settings that a connection policy depends on.
fn connection_settings(listener: &ListenerConfig) -> impl PartialEq + use<> {
    (
        (listener.serving.certificate.clone(), listener.serving.private_key.clone()),
        listener.client_ca.clone(),
        listener.authentication.request_header.client_ca.clone(),
        listener.tls.clone(),
        listener.peers.clone(),
        listener.upstream_identity.clone(),
    )
}
