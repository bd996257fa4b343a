//! Runs an [`ApiServer`]: the service of the listener, identities of connections, reloaded certificate authorities, and the
//! compaction of the store's history.

mod revision_barrier;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use fairlead_authn::{
    BundleError, CertificateAuthorities, Chain, ConnectionCredentials, Outcome, SharedAuthorities,
    TrustPurpose, WorkspaceAuthenticator,
};
use fairlead_process::{
    BoundServer, ConnectionInfo, Health, LoadError, Reloads, RequestBody, ServerOptions, Shutdown,
};
use fairlead_store::{CompactError, RetainedRevisions, Store};
use http::request::Parts;
use http::{Extensions, Request};
use tokio::time::{Instant, MissedTickBehavior};

use crate::host::Host;
use crate::hub::Hub;
use crate::response::{Response, ResponseBody};
use crate::server::ApiServer;

pub use revision_barrier::RevisionBarrier;

/// The share of the drain window in which watches are ended; the rest is for their clients to reconnect elsewhere.
const WATCH_DRAIN_SHARE: f64 = 0.8;

/// An API server below a path of another one's listener, such as the cache server or the virtual workspaces in the process of a
/// shard. It gets the whole path.
pub struct Mount {
    /// The path, without a trailing slash.
    pub path: &'static str,
    /// The API server.
    pub server: Arc<dyn MountedServer>,
    /// Its hub, whose watches end with those of the listener; `None` if it has none of its own.
    pub hub: Option<Hub>,
}

/// An API server for requests of another one's listener.
#[async_trait]
pub trait MountedServer: Send + Sync {
    /// Responds to a request.
    async fn handle(&self, request: Request<RequestBody>) -> Response;
}

#[async_trait]
impl<H: Host> MountedServer for ApiServer<H> {
    async fn handle(&self, request: Request<RequestBody>) -> Response {
        Self::handle(self, request).await
    }
}

impl Mount {
    fn has(&self, path: &str) -> bool {
        path.strip_prefix(self.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    fn below<'p>(&self, path: &'p str) -> &'p str {
        path.strip_prefix(self.path).unwrap_or(path)
    }
}

/// Serves until the drain has finished. When the drain begins, the hub's watches are ended evenly over most of the drain
/// window. The health endpoints need no authentication, unless the host refuses them. [`Hub::run`] must run concurrently, and
/// longer than this, for watches to be ended. The first mount with the path of a request gets it. `barrier` is that of a server
/// with other replicas; all paths wait for it.
pub async fn serve<H: Host>(
    bound: BoundServer,
    options: ServerOptions,
    server: Arc<ApiServer<H>>,
    health: Health,
    hub: Hub,
    mounts: Vec<Mount>,
    barrier: Option<RevisionBarrier>,
) {
    let shutdown = options.shutdown.clone();
    let mounted_hubs: Vec<Hub> = mounts.iter().filter_map(|mount| mount.hub.clone()).collect();
    let endpoints = Arc::new(Endpoints { server, health, mounts, barrier });
    let serving = bound.serve(options, move |request: Request<RequestBody>| {
        let endpoints = Arc::clone(&endpoints);
        async move { endpoints.respond_after_barrier(request).await }
    });
    let ending = async {
        shutdown.draining().await;
        for hub in std::iter::once(&hub).chain(&mounted_hubs) {
            hub.end_evenly(shutdown.window().mul_f64(WATCH_DRAIN_SHARE));
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = serving => {}
        () = ending => {}
    }
}

/// The endpoints of a listener.
struct Endpoints<H> {
    server: Arc<ApiServer<H>>,
    health: Health,
    mounts: Vec<Mount>,
    barrier: Option<RevisionBarrier>,
}

impl<H: Host> Endpoints<H> {
    /// Responds when this replica has passed the revision that the request names, if it names one.
    async fn respond_after_barrier(&self, mut request: Request<RequestBody>) -> Response {
        let requested = RevisionBarrier::take_requested(request.headers_mut());
        let awaited = self.barrier.as_ref().and_then(|barrier| Some((barrier, requested?)));
        // The peer is authenticated before the wait, its user after it: the revision may contain the workspace, the service
        // account or the permission of the request.
        let awaited = awaited.filter(|_| self.server.host().may_name_revisions(request.extensions()));
        if let Some((barrier, revision)) = awaited
            && let Err(refusal) = barrier.wait(revision).await
        {
            return *refusal;
        }
        let mut response = self.respond(request).await;
        if let Some((barrier, _)) = awaited {
            barrier.stamp(&mut response);
        }
        response
    }

    async fn respond(&self, request: Request<RequestBody>) -> Response {
        let uri = request.uri();
        if let Some(mount) = self.mounts.iter().find(|mount| mount.has(uri.path())) {
            return match self.health.respond(mount.below(uri.path()), uri.query()) {
                Some(response) => response.map(ResponseBody::full),
                None => mount.server.handle(request).await,
            };
        }
        let Some(response) = self.health.respond(without_cluster(uri.path()), uri.query()) else {
            return self.server.handle(request).await;
        };
        let (parts, _) = request.into_parts();
        match self.server.host().refuse_probe(&parts, without_cluster(parts.uri.path())).await {
            Some(refusal) => refusal,
            None => response.map(ResponseBody::full),
        }
    }
}

/// Removes the prefix of a logical cluster: the health endpoints are the same below it.
fn without_cluster(path: &str) -> &str {
    let below = path.strip_prefix("/clusters/").and_then(|rest| rest.find('/').map(|at| &rest[at..]));
    below.unwrap_or(path)
}

/// Drops the history that is older than one interval and not retained, once in every interval, until the process drains.
///
/// # Errors
/// [`CompactError`] when the store cannot write any more.
pub async fn compact_periodically(
    store: Arc<dyn Store>,
    every: Duration,
    retained: RetainedRevisions,
    shutdown: Shutdown,
) -> Result<(), CompactError> {
    let mut ticks = tokio::time::interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut older_than_an_interval = store.revision();
    loop {
        tokio::select! {
            () = shutdown.draining() => return Ok(()),
            _ = ticks.tick() => {}
        }
        let now = store.revision();
        store.compact(retained.limit(older_than_an_interval)).await?;
        older_than_an_interval = now;
    }
}

/// Authenticates a request by `chain`. The certificate of a connection is verified once per connection and per
/// reload of the authorities.
pub async fn identify(chain: &Chain, parts: &Parts) -> Outcome {
    let credentials = connection_credentials(&parts.extensions);
    chain.authenticate(&credentials, &parts.headers, SystemTime::now()).await
}

/// As [`identify`], for a logical cluster that trusts issuers of its own.
pub async fn identify_in(
    chain: &Chain,
    parts: &Parts,
    workspace: &WorkspaceAuthenticator,
    cluster: &str,
) -> Outcome {
    let credentials = connection_credentials(&parts.extensions);
    chain.authenticate_in(None, &credentials, &parts.headers, SystemTime::now(), workspace, cluster).await
}

/// Whether the peer of a connection is a gateway: it has a certificate of the request-header CA.
pub fn is_gateway(chain: &Chain, connection: &Extensions) -> bool {
    chain.is_proxy(&connection_credentials(connection), SystemTime::now())
}

/// Whether the certificate of a connection alone authenticates a client.
pub fn accepts_certificate(chain: &Chain, connection: &Extensions) -> bool {
    chain.accepts_certificate(&connection_credentials(connection), SystemTime::now())
}

/// The credentials of the connection (its client certificate), cached with the connection.
fn connection_credentials(connection: &Extensions) -> Arc<ConnectionCredentials> {
    let Some(connection) = connection.get::<ConnectionInfo>() else {
        return Arc::new(ConnectionCredentials::none());
    };
    if let Some(known) = connection.cached::<ConnectionCredentials>() {
        return known;
    }
    let presented = connection.tls().0.clone();
    let credentials =
        Arc::new(presented.map_or_else(ConnectionCredentials::none, ConnectionCredentials::new));
    connection.cache(Arc::clone(&credentials));
    credentials
}

/// Loads certificate authorities from PEM files, now and whenever a file changes.
///
/// # Errors
/// [`LoadError`] when a bundle is invalid at start; later the last valid ones stay in use.
pub fn watch_authorities(
    bundles: Vec<(TrustPurpose, PathBuf)>,
    reloads: &Reloads,
) -> Result<SharedAuthorities, LoadError> {
    let authorities = SharedAuthorities::new(CertificateAuthorities::none());
    let files: Vec<PathBuf> = bundles.iter().map(|(_, file)| file.clone()).collect();
    let shared = authorities.clone();
    reloads.register("certificate authorities", files, move || {
        shared.replace(load_authorities(&bundles)?);
        Ok::<(), AuthoritiesError>(())
    })?;
    Ok(authorities)
}

fn load_authorities(bundles: &[(TrustPurpose, PathBuf)]) -> Result<CertificateAuthorities, AuthoritiesError> {
    let mut authorities = CertificateAuthorities::none();
    for (purpose, file) in bundles {
        let pem =
            std::fs::read(file).map_err(|source| AuthoritiesError::Read { file: file.clone(), source })?;
        let unusable = |source| AuthoritiesError::Bundle { file: Path::to_owned(file), source };
        authorities = authorities.with(*purpose, &pem).map_err(unusable)?;
    }
    Ok(authorities)
}

/// An invalid bundle of certificate authorities; the operator has to fix the file.
#[derive(Debug, thiserror::Error)]
enum AuthoritiesError {
    #[error("{file} cannot be read")]
    Read { file: PathBuf, source: std::io::Error },
    #[error("{file}")]
    Bundle { file: PathBuf, source: BundleError },
}
