//! Readiness of servers, by requests to `/readyz`, or `/health` of etcd.

use std::time::Duration;

use fairlead_certs::{Client as Identity, Layout};
use fairlead_client::{
    Client, ClientOptions, Credentials, CredentialsError, Endpoint, EndpointError, TrustRoots,
};
use tokio::time::Instant;

use super::topology::{ETCD, Process, Role};

/// Requests the readiness of a server over TLS, with a client certificate that the server accepts.
#[derive(Clone, Debug)]
pub(crate) struct ReadinessProbe {
    client: Client,
    path: &'static str,
}

/// Errors of a probe: defects of the certificates just written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: std::io::Error },
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

impl ReadinessProbe {
    /// The probe of a process.
    pub(crate) fn of(process: &Process, certificates: &Layout) -> Result<Self, ProbeError> {
        let identity = match process.role {
            // The issuer does not request a client certificate.
            Role::Gateway | Role::Issuer => Identity::Admin,
            Role::Shard | Role::Cache | Role::Etcd => Identity::ShardAdmin,
        };
        let client = client(&process.url(), &identity, certificates)?;
        Ok(Self { client, path: readiness_path(&process.name) })
    }

    /// Returns when the server is ready. Polls every 20 ms at first, because users wait for the start, and less often later.
    /// There is no deadline here: the caller has one, and stops waiting when the process ends.
    pub(crate) async fn until_ready(&self) {
        let begin = Instant::now();
        while self.client.get(self.path).await.is_err() {
            tokio::time::sleep(pause(begin.elapsed())).await;
        }
    }
}

/// The path that tells whether a process is ready. etcd has `/readyz` only since 3.5.11.
pub(crate) fn readiness_path(process: &str) -> &'static str {
    if process == ETCD { "/health" } else { "/readyz" }
}

/// A client of a server of the installation.
pub(crate) fn client(url: &str, identity: &Identity, certificates: &Layout) -> Result<Client, ProbeError> {
    let files = certificates.client_cert(identity);
    let read = |path: &std::path::Path| {
        std::fs::read(path).map_err(|source| ProbeError::Read { path: path.display().to_string(), source })
    };
    let credentials = Credentials::new(TrustRoots::Pem(read(&certificates.serving_ca())?))?
        .with_certificate(&read(&files.certificate)?, &read(&files.key)?)?;
    let options = ClientOptions {
        connect_timeout: Duration::from_secs(2),
        request_timeout: Duration::from_secs(5),
        max_connections: 1,
        ..ClientOptions::default()
    };
    Ok(Client::new(Endpoint::parse(url)?, credentials, options))
}

fn pause(waited: Duration) -> Duration {
    match waited.as_millis() {
        ..3_000 => Duration::from_millis(20),
        3_000..15_000 => Duration::from_millis(100),
        _ => Duration::from_millis(500),
    }
}
