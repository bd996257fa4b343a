//! Waiting until a server says that it is ready, as any client could.

use std::time::Duration;

use fairlead_certs::{Client as Identity, Layout};
use fairlead_client::{
    Client, ClientOptions, Credentials, CredentialsError, Endpoint, EndpointError, TrustRoots,
};
use tokio::time::Instant;

use super::topology::{Process, Role};

/// A server's `/readyz`, asked over TLS with a certificate that the server knows.
#[derive(Clone, Debug)]
pub(crate) struct ReadinessProbe {
    client: Client,
}

/// A probe cannot be made: a defect of the certificates just written.
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
            // The issuer asks for no certificate, and gets none.
            Role::Gateway | Role::Issuer => Identity::Admin,
            Role::Shard | Role::Cache => Identity::ShardAdmin,
        };
        Ok(Self { client: client(&process.url(), &identity, certificates)? })
    }

    /// Returns when the server is ready. Asks often at first, because that is what people wait for, and less often
    /// later. Never gives up: whoever waits has a deadline or is told when the process ends.
    pub(crate) async fn passed(&self) {
        let begin = Instant::now();
        while self.client.get("/readyz").await.is_err() {
            tokio::time::sleep(pause(begin.elapsed())).await;
        }
    }
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
