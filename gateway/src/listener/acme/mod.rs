//! Certificates that listeners get by themselves from an authority (ACME, RFC 8555), and renew before they end.
//!
//! A listener's certificate and key lie in one file of a folder, replaced as a whole; the listener reads it like any other, so
//! the last good one stays in effect whatever happens here. Nothing waits for the authority: a listener that has no
//! certificate yet opens with one that vouches for itself and is in no file, which clients refuse, and which is replaced as
//! soon as there is a better one. Answers to challenges lie in the folder, too: gateways that share it all give them, whoever asked.

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
pub(crate) use responder::{BindPatience, Responder};
use state::Folder;

/// What gets and renews certificates.
#[derive(Clone)]
pub(crate) struct Acme {
    config: AcmeConfig,
    folder: Folder,
    answers: ChallengeResponses,
    names: NameResolver,
    /// Has a listener look at its file.
    trigger: ReloadTrigger,
    metrics: AcmeMetrics,
    /// One order at a time: they share an account.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// What is counted.
#[derive(Clone)]
pub(crate) struct AcmeMetrics {
    attempts: IntCounterVec,
    last_attempt: GaugeVec,
    ends: GaugeVec,
}

/// A certificate cannot be got; another try may help.
#[derive(Debug, thiserror::Error)]
pub enum AcmeError {
    /// A file of the folder.
    #[error(transparent)]
    Certificates(#[from] fairlead_certs::Error),
    /// One of the settings' files.
    #[error("{0} cannot be read: {1}")]
    Read(PathBuf, std::io::Error),
    /// The key of the external account.
    #[error("{0} holds no key in base64url")]
    ExternalKey(PathBuf),
    /// The lock by which gateways that share the folder take turns.
    #[error("{0} cannot be locked: {1}")]
    Lock(PathBuf, std::io::Error),
    /// What stands for the account is damaged.
    #[error("the account in {0} cannot be read: {1}; without the file a new one is made")]
    Account(PathBuf, serde_json::Error),
    /// The directory's authorities.
    #[error(transparent)]
    Trust(#[from] CredentialsError),
    /// The directory's address.
    #[error(transparent)]
    Address(#[from] EndpointError),
    /// The authority, or the way there.
    #[error("{0}")]
    Authority(#[from] instant_acme::Error),
    /// The authority does not believe that a name is ours.
    #[error("the authority does not believe that {name} is served here: {why}")]
    Refused {
        /// The name.
        name: String,
        /// What the authority says.
        why: String,
    },
    /// It wants to be shown in another way.
    #[error("the authority does not offer {0} for {1}")]
    NoSuchChallenge(&'static str, String),
    /// What it gave is of no use.
    #[error("what the authority gave cannot be used: {0}")]
    Unusable(String),
    /// It takes too long.
    #[error("the authority has not come to an end in time")]
    Slow,
}

impl Acme {
    /// For a gateway with listeners that want it.
    ///
    /// # Errors
    /// [`MetricsError`] is a fault in the program.
    pub(crate) fn of(
        config: &GatewayConfig,
        reloads: &Reloads,
        metrics: &Metrics,
        names: &NameResolver,
    ) -> Result<Self, MetricsError> {
        let folder = Folder::at(config.acme.folder.to_path_buf());
        Ok(Self {
            config: config.acme.clone(),
            answers: ChallengeResponses::in_folder(folder.answers()),
            folder,
            names: names.clone(),
            trigger: reloads.trigger(),
            metrics: AcmeMetrics::new(metrics)?,
            turn: Arc::default(),
        })
    }

    /// What a listener shows: what was got for it last, or something provisional, which nobody else gets to see: gateways that
    /// share the folder would overwrite what one of them has got.
    ///
    /// # Errors
    /// [`AcmeError`] if the names are none, or, for a listener that is to be opened, nothing can be written.
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
        let provisional = match state::AuthorityLock::read(&file) {
            Some(_) => None,
            None => {
                Some(ProvisionalCertificate::new(&fairlead_certs::provisional_certificate(&listener.hosts)?))
            }
        };
        Ok(TlsSource { certificate: file.clone(), private_key: file, provisional, ..source })
    }

    /// What is answered at a listener itself.
    pub(crate) fn challenges(&self, listener: &ListenerConfig) -> Option<ChallengeFolder> {
        let acme = listener.tls.acme.as_ref()?;
        (acme.challenge == AcmeChallenge::TlsAlpn01)
            .then(|| ChallengeFolder::at(self.answers.folder().to_owned()))
    }

    /// Keeps a listener's certificate fresh as long as what is returned is there, and until the process drains.
    pub(crate) fn keep(&self, listener: &ListenerConfig, shutdown: &Shutdown) -> Option<RenewalState> {
        let acme = listener.tls.acme.as_ref()?;
        let wanted = order::OrderRequest {
            listener: listener.name.clone(),
            names: listener.hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            challenge: acme.challenge,
        };
        let task = tokio::spawn(renewal::keep(self.clone(), wanted, shutdown.clone())).abort_handle();
        Some(RenewalState { task, listener: listener.name.clone(), metrics: self.metrics.clone() })
    }

    /// What answers http-01, if there is an address for it.
    ///
    /// # Errors
    /// What the system says of the address.
    pub(crate) fn responder(
        &self,
        patience: BindPatience,
    ) -> Result<Option<Responder>, (SocketAddr, io::Error)> {
        let Some(address) = self.config.http_address else { return Ok(None) };
        let responder = Responder::at(address, self.answers.clone(), patience);
        responder.map(Some).map_err(|error| (address, error))
    }
}

/// Dropped, nobody looks after a listener's certificate any more; the certificate stays.
pub(crate) struct RenewalState {
    task: AbortHandle,
    listener: String,
    metrics: AcmeMetrics,
}

impl Drop for RenewalState {
    fn drop(&mut self) {
        self.task.abort();
        self.metrics.forget(&self.listener);
    }
}

impl AcmeMetrics {
    /// Registers them. Once per process.
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            attempts: metrics.counters(
                "fairlead_gateway_acme_attempts_total",
                "Attempts to get a certificate for a listener from an authority, by the result (success or failure).",
                &["listener", "result"],
            )?,
            last_attempt: metrics.gauges(
                "fairlead_gateway_acme_last_attempt_timestamp_seconds",
                "When a listener's certificate was last asked for, in seconds since the epoch.",
                &["listener"],
            )?,
            ends: metrics.gauges(
                "fairlead_gateway_acme_certificate_end_timestamp_seconds",
                "When the certificate ends that a listener has from an authority, in seconds since the epoch; 0 while it has none.",
                &["listener"],
            )?,
        })
    }

    /// There is no such listener any more. What has not happened to it has no series.
    fn forget(&self, listener: &str) {
        for result in ["success", "failure"] {
            let _ = self.attempts.remove_label_values(&[listener, result]);
        }
        for times in [&self.last_attempt, &self.ends] {
            let _ = times.remove_label_values(&[listener]);
        }
    }

    /// Whatever a listener can make of them.
    #[cfg(test)]
    pub(crate) fn everything(&self, listener: &str) {
        for result in ["success", "failure"] {
            self.attempts.with_label_values(&[listener, result]).inc();
        }
        self.last_attempt.with_label_values(&[listener]).set(1.0);
        self.ends.with_label_values(&[listener]).set(1.0);
    }
}
