//! Certificates that listeners order from an ACME authority (RFC 8555) and renew before they expire.
//!
//! A listener's certificate and key are in one file of a folder, which is replaced atomically. The listener reloads it like any
//! other file, so the last valid one stays active whatever fails here. Nothing waits for the authority: a listener without a
//! certificate opens with a self-signed one, which is in no file and which clients refuse, and which is replaced as
//! soon as the ordered one is available. Challenge responses are in the folder as well: all gateways that share it can serve
//! them, whichever ordered the certificate.

mod challenge_responses;
mod directory;
mod order;
mod renewal;
mod responder;
mod state;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use fairlead_client::{CredentialsError, EndpointError, NameResolver};
use fairlead_config::{AcmeChallenge, AcmeConfig, GatewayConfig, ListenerConfig};
use fairlead_process::{
    ChallengeFolder, Metrics, MetricsError, ProvisionalCertificate, ReloadTrigger, Reloads, Shutdown,
    TlsSource,
};
use prometheus::{GaugeVec, IntCounterVec};
use tokio::task::AbortHandle;

use crate::listener::bound::Sockets;
use challenge_responses::ChallengeResponses;
pub(crate) use responder::{AddressInUse, Responder};
use state::Folder;

/// Orders and renews certificates.
#[derive(Clone)]
pub(crate) struct Acme {
    config: AcmeConfig,
    folder: Folder,
    challenge_responses: ChallengeResponses,
    names: NameResolver,
    /// Triggers a reload of the certificate files.
    trigger: ReloadTrigger,
    metrics: AcmeMetrics,
    /// Held during an order: orders share an account, so only one runs at a time.
    order_lock: Arc<tokio::sync::Mutex<()>>,
}

/// The metrics of orders.
#[derive(Clone)]
pub(crate) struct AcmeMetrics {
    attempts: IntCounterVec,
    last_attempt: GaugeVec,
    not_after: GaugeVec,
}

/// A certificate cannot be ordered; another attempt may succeed.
#[derive(Debug, thiserror::Error)]
pub enum AcmeError {
    /// A file of the ACME folder cannot be read or written.
    #[error(transparent)]
    Certificates(#[from] fairlead_certs::Error),
    /// A configured file cannot be read.
    #[error("{0} cannot be read: {1}")]
    Read(PathBuf, std::io::Error),
    /// The key of the external account is not base64url.
    #[error("{0} does not contain a base64url key")]
    ExternalKey(PathBuf),
    /// The lock that serializes the orders of gateways that share the folder.
    #[error("{0} cannot be locked: {1}")]
    Lock(PathBuf, std::io::Error),
    /// The stored account is damaged.
    #[error("the account in {0} cannot be read: {1}; if the file is removed, a new account is created")]
    Account(PathBuf, serde_json::Error),
    /// The CA certificates for the directory's server cannot be used.
    #[error(transparent)]
    Trust(#[from] CredentialsError),
    /// The directory's address is invalid.
    #[error(transparent)]
    Address(#[from] EndpointError),
    /// An error of the authority, or of the connection to it.
    #[error("{0}")]
    Authority(#[from] instant_acme::Error),
    /// The authority could not validate a name.
    #[error("the authority could not validate {name}: {reason}")]
    Refused {
        /// The DNS name or IP address.
        name: String,
        /// The authority's reason.
        reason: String,
    },
    /// The authority does not offer the configured type of challenge.
    #[error("the authority does not offer {0} for {1}")]
    NoSuchChallenge(&'static str, String),
    /// The certificate is unusable.
    #[error("the authority's certificate cannot be used: {0}")]
    Unusable(String),
    /// The order took too long.
    #[error("the authority did not complete the order in time")]
    Slow,
}

impl Acme {
    /// For a gateway with listeners that use ACME.
    ///
    /// # Errors
    /// [`MetricsError`] if it is called twice with the same metrics.
    pub(crate) fn of(
        config: &GatewayConfig,
        reloads: &Reloads,
        metrics: &Metrics,
        names: &NameResolver,
    ) -> Result<Self, MetricsError> {
        let folder = Folder::at(config.acme.folder.to_path_buf());
        Ok(Self {
            config: config.acme.clone(),
            challenge_responses: ChallengeResponses::in_folder(folder.challenge_responses()),
            folder,
            names: names.clone(),
            trigger: reloads.trigger(),
            metrics: AcmeMetrics::new(metrics)?,
            order_lock: Arc::default(),
        })
    }

    /// The certificate source of a listener: the last ordered certificate, or a self-signed one, which is kept in memory only:
    /// gateways that share the folder would otherwise overwrite an ordered certificate.
    ///
    /// # Errors
    /// [`AcmeError`] if the names are invalid, or, for a listener that is to be opened, if the folder cannot be written to.
    pub(crate) fn source(
        &self,
        listener: &ListenerConfig,
        source: TlsSource,
        sockets: Sockets,
    ) -> Result<TlsSource, AcmeError> {
        if listener.tls.acme.is_none() {
            return Ok(source);
        }
        if sockets == Sockets::Bound {
            self.folder.make()?;
        }
        let file = self.folder.certificate(&listener.name);
        let provisional = match state::StoredCertificate::read(&file) {
            Some(_) => None,
            None => {
                Some(ProvisionalCertificate::new(&fairlead_certs::provisional_certificate(&listener.hosts)?))
            }
        };
        Ok(TlsSource { certificate: file.clone(), private_key: file, provisional, ..source })
    }

    /// The challenge responses that a listener serves itself.
    pub(crate) fn challenges(&self, listener: &ListenerConfig) -> Option<ChallengeFolder> {
        let acme = listener.tls.acme.as_ref()?;
        (acme.challenge == AcmeChallenge::TlsAlpn01)
            .then(|| ChallengeFolder::at(self.challenge_responses.folder().to_owned()))
    }

    /// Renews a listener's certificate until the returned value is dropped or the process drains.
    pub(crate) fn start_renewal(
        &self,
        listener: &ListenerConfig,
        shutdown: &Shutdown,
    ) -> Option<RenewalState> {
        let acme = listener.tls.acme.as_ref()?;
        let request = order::OrderRequest {
            listener: listener.name.clone(),
            names: listener.hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            challenge: acme.challenge,
        };
        let task = tokio::spawn(renewal::run(self.clone(), request, shutdown.clone())).abort_handle();
        Some(RenewalState { task, listener: listener.name.clone(), metrics: self.metrics.clone() })
    }

    /// The server for http-01, if an address is configured for it.
    ///
    /// # Errors
    /// The system's error for the address.
    pub(crate) fn responder(
        &self,
        address_in_use: AddressInUse,
    ) -> Result<Option<Responder>, (SocketAddr, io::Error)> {
        let Some(address) = self.config.http_address else { return Ok(None) };
        let responder = Responder::at(address, self.challenge_responses.clone(), address_in_use);
        responder.map(Some).map_err(|error| (address, error))
    }
}

/// Stops the renewal of a listener's certificate when it is dropped; the certificate stays.
pub(crate) struct RenewalState {
    task: AbortHandle,
    listener: String,
    metrics: AcmeMetrics,
}

impl Drop for RenewalState {
    fn drop(&mut self) {
        self.task.abort();
        self.metrics.remove(&self.listener);
    }
}

impl AcmeMetrics {
    /// Registers the metrics; called once per process.
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            attempts: metrics.counters(
                "fairlead_gateway_acme_attempts_total",
                "Attempts to order a listener's certificate from an ACME authority, by result (success or failure).",
                &["listener", "result"],
            )?,
            last_attempt: metrics.gauges(
                "fairlead_gateway_acme_last_attempt_timestamp_seconds",
                "Time of the last attempt to order a listener's certificate, in seconds since the epoch.",
                &["listener"],
            )?,
            not_after: metrics.gauges(
                "fairlead_gateway_acme_certificate_end_timestamp_seconds",
                "Expiry of the certificate that a listener has from an ACME authority, in seconds since the epoch; 0 while it has none.",
                &["listener"],
            )?,
        })
    }

    /// Removes the series of a removed listener. A result that did not occur has no series.
    fn remove(&self, listener: &str) {
        for result in ["success", "failure"] {
            let _ = self.attempts.remove_label_values(&[listener, result]);
        }
        for times in [&self.last_attempt, &self.not_after] {
            let _ = times.remove_label_values(&[listener]);
        }
    }

    /// Creates all series of a listener.
    #[cfg(test)]
    pub(crate) fn create_all_series(&self, listener: &str) {
        for result in ["success", "failure"] {
            self.attempts.with_label_values(&[listener, result]).inc();
        }
        self.last_attempt.with_label_values(&[listener]).set(1.0);
        self.not_after.with_label_values(&[listener]).set(1.0);
    }
}
