//! Connections to single members of the cluster.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{
    Client, ConnectOptions, Error, KvClient, LeaseClient, MaintenanceClient, ResponseHeader, WatchClient,
};
use fairlead_store::Revision;

use crate::error::{EtcdError, cause, cause_of, is_denied, is_without_space, message_of};
use crate::options::EtcdOptions;
use crate::tls::{read, tls_options};

/// Pings on an idle connection. etcd closes connections that ping more often than every 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(6);
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// Time to connect, with TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// A connection to one member. Cheap to clone: clones share one HTTP/2 connection.
#[derive(Clone)]
pub(crate) struct Connection {
    kv: KvClient,
    watch: WatchClient,
    lease: LeaseClient,
    maintenance: MaintenanceClient,
    endpoint: Arc<str>,
    request_timeout: Duration,
}

impl Connection {
    /// Connects when the first request is sent, or to authenticate a user.
    pub(crate) async fn new(options: &EtcdOptions, endpoint: &str) -> Result<Self, EtcdError> {
        let mut connect = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
            // A member without a leader answers at once instead of after a timeout.
            .with_require_leader(true);
        if endpoint.starts_with("https://") {
            connect = connect.with_tls(tls_options(&options.tls)?);
        }
        if let Some(user) = &options.user {
            let password = password(&user.password_file)?;
            connect = connect.with_user(&user.name, password).with_auto_token_refresh(true);
        }
        let connected = Client::connect([endpoint], Some(connect));
        let client = within(options.timing.request, endpoint, connected).await?;
        // Pages and watch responses are limited by their number of keys, not by bytes.
        Ok(Self {
            kv: client.kv_client().max_decoding_message_size(usize::MAX),
            watch: client.watch_client().max_decoding_message_size(usize::MAX),
            lease: client.lease_client(),
            maintenance: client.maintenance_client(),
            endpoint: endpoint.into(),
            request_timeout: options.timing.request,
        })
    }

    pub(crate) fn endpoint(&self) -> &Arc<str> {
        &self.endpoint
    }

    pub(crate) fn kv(&self) -> KvClient {
        self.kv.clone()
    }

    pub(crate) fn watch(&self) -> WatchClient {
        self.watch.clone()
    }

    pub(crate) fn lease(&self) -> LeaseClient {
        self.lease.clone()
    }

    pub(crate) fn maintenance(&self) -> MaintenanceClient {
        self.maintenance.clone()
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        self.request_timeout
    }

    pub(crate) fn too_slow(&self) -> EtcdError {
        too_slow(&self.endpoint, self.request_timeout)
    }

    /// The outcome of a request, within its time.
    pub(crate) async fn request<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, EtcdError> {
        within(self.request_timeout, &self.endpoint, request).await
    }

    /// Checks that a response comes from the cluster.
    pub(crate) fn check_cluster(
        &self,
        expected: u64,
        header: Option<&ResponseHeader>,
    ) -> Result<(), EtcdError> {
        match header {
            Some(header) if header.cluster_id() == expected => Ok(()),
            Some(header) => Err(EtcdError::Foreign {
                endpoint: self.endpoint.to_string(),
                reason: format!("it is the cluster {:x}, not {expected:x}", header.cluster_id()),
            }),
            None => Err(self.malformed()),
        }
    }

    /// Checks that the cluster has not lost revisions that were seen before.
    pub(crate) fn check_revision(&self, found: Revision, seen: Revision) -> Result<(), EtcdError> {
        if found >= seen {
            return Ok(());
        }
        let reason = format!(
            "it is at revision {found}, although {seen} has been seen: data is lost, or a backup was restored"
        );
        Err(EtcdError::Foreign { endpoint: self.endpoint.to_string(), reason })
    }

    /// The error for a response without a part that etcd always sends.
    pub(crate) fn malformed(&self) -> EtcdError {
        EtcdError::Unreachable { cause: cause(format!("{} sends malformed responses", self.endpoint)) }
    }
}

pub(crate) async fn within<T>(
    time: Duration,
    endpoint: &str,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, EtcdError> {
    match tokio::time::timeout(time, request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) if is_denied(&error) => Err(EtcdError::Denied { reason: message_of(&error) }),
        Ok(Err(error)) if is_without_space(&error) => Err(EtcdError::NoSpace { reason: message_of(&error) }),
        Ok(Err(error)) => {
            let cause = cause(format!("{endpoint}: {}", cause_of(&error)));
            Err(EtcdError::Unreachable { cause })
        }
        Err(_) => Err(too_slow(endpoint, time)),
    }
}

fn too_slow(endpoint: &str, time: Duration) -> EtcdError {
    let cause = cause(format!("{endpoint} does not answer within {} ms", time.as_millis()));
    EtcdError::Unreachable { cause }
}

fn password(file: &Path) -> Result<String, EtcdError> {
    let text = String::from_utf8(read(file)?);
    let text = text.map_err(|_| EtcdError::Options { reason: format!("{} is no text", file.display()) })?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
