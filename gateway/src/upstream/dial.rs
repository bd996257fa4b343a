//! Opening connections: the endpoints of a server are raced; the next one starts when the previous one is slow or has failed.
//! An endpoint that accepts connections and does not respond costs a moment, not a whole time limit.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use crate::upstream::read_ahead::ReadAhead;
use crate::upstream::streams::{Established, Lifetime, Origin, StreamPermit};
use crate::upstream::transport::UpstreamTransport;
use crate::upstream::worker::WorkerId;
use crate::upstream::{
    ONLY_HTTP1_FOR, Upstream, UpstreamCredential, UpstreamError, UpstreamOptions, random_share,
};

/// Time after which the next endpoint is tried as well (the connection attempt delay of RFC 8305).
const ATTEMPT_DELAY: Duration = Duration::from_millis(300);
/// Pause after a failure to open an additional connection.
const GROW_RETRY_PAUSE: Duration = Duration::from_secs(10);
/// Connections do not all expire at the same time: the maximum age is shortened at random by up to this fraction.
const AGE_JITTER: f64 = 0.2;

/// An attempt to connect to an endpoint.
type Attempt<'a, T> = BoxFuture<'a, Result<T, UpstreamError>>;

impl Upstream {
    /// A stream on a connection that is opened for it, unless another request has just opened one.
    pub(super) async fn stream_on_new_connection(
        self: &Arc<Self>,
        options: UpstreamOptions,
    ) -> Result<StreamPermit, UpstreamError> {
        let has_no_http2 = self.only_http1.lock().is_some_and(|until| Instant::now() < until);
        if has_no_http2 || !self.endpoint.is_tls() {
            return Err(UpstreamError::OnlyHttp1);
        }
        if self.breaker.is_refusing(options.breaker) {
            return Err(UpstreamError::CircuitOpen);
        }
        let dial_permit = self.dial_guard.acquire().await.map_err(|_| UpstreamError::JustFailed)?;
        let group_key = self.credential.load().group_key;
        if let (Some(permit), _) = self.connections.permit(group_key, None, || 0) {
            return Ok(permit);
        }
        let attempt = self.breaker.attempt(options.breaker).map_err(|_| UpstreamError::CircuitOpen)?;
        let connected = self.connect(options).await;
        let has_failed = matches!(&connected, Err(error) if !matches!(error, UpstreamError::OnlyHttp1));
        *self.last_failure.lock() = has_failed.then(Instant::now);
        if has_failed {
            attempt.failed();
            dial_permit.failed();
        } else {
            attempt.succeeded();
        }
        connected
    }

    /// Opens a connection for HTTP/2 and takes the first stream on it.
    pub(super) async fn connect(
        self: &Arc<Self>,
        options: UpstreamOptions,
    ) -> Result<StreamPermit, UpstreamError> {
        let credential = &self.credential.load();
        let attempt = |address| {
            let connecting = async move {
                let transport = self.open_transport(address, credential, &credential.stream_tls).await?;
                if !transport.is_http2() {
                    return Ok(None);
                }
                // Waits for the server's first frame: it may accept, complete the handshake, and hang.
                Ok(Some(Established::over(transport, options.stream_window).await?))
            };
            connecting.boxed()
        };
        match self.race(options.connect_timeout, attempt).await? {
            (address, Some(established)) => {
                let origin = Origin { address, group_key: credential.group_key, worker: WorkerId::current() };
                let health = self.addresses.health_of(address);
                Ok(self.connections.add(established, origin, health, lifetime(options)))
            }
            (_, None) => {
                *self.only_http1.lock() = Some(Instant::now() + ONLY_HTTP1_FOR);
                Err(UpstreamError::OnlyHttp1)
            }
        }
    }

    /// Opens a connection for HTTP/1.1; also returns the key of the credential that it was opened with.
    pub(super) async fn dial(&self, limit: Duration) -> Result<(UpstreamTransport, u64), UpstreamError> {
        let credential = &self.credential.load();
        let attempt = |address| self.open_transport(address, credential, &credential.tunnel_tls).boxed();
        let (_, transport) = self.race(limit, attempt).await?;
        Ok((transport, credential.group_key))
    }

    /// Connects to the first endpoint that responds.
    async fn race<'a, T>(
        &self,
        limit: Duration,
        attempt: impl Fn(SocketAddr) -> Attempt<'a, T>,
    ) -> Result<(SocketAddr, T), UpstreamError> {
        let (host, port) = (self.endpoint.host(), self.endpoint.port());
        let options = self.options.load().health;
        let load = |address| self.connections.load(address);
        let endpoints = self.addresses.in_order(host, port, load, &options).await;
        if endpoints.is_empty() {
            return Err(UpstreamError::NoAddress(host.to_owned()));
        }
        let (address, connected) =
            race(&endpoints, limit, attempt, |address, error| self.record_connect_failure(address, error))
                .await?;
        self.record_connected(address);
        Ok((address, connected))
    }

    pub(super) async fn open_transport(
        &self,
        address: SocketAddr,
        credential: &UpstreamCredential,
        tls: &Arc<rustls::ClientConfig>,
    ) -> Result<UpstreamTransport, UpstreamError> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        if !self.endpoint.is_tls() {
            return Ok(UpstreamTransport::Plain(stream));
        }
        let name = match &credential.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(self.endpoint.host().to_owned()).map_err(io::Error::other)?,
        };
        let connector = TlsConnector::from(Arc::clone(tls));
        let stream = connector.connect(name, ReadAhead::new(stream)).await.map_err(UpstreamError::Tls)?;
        Ok(UpstreamTransport::Tls(Box::new(stream)))
    }
}

/// Connects to the endpoints with delays and returns the first connection. Reports endpoints that fail, and endpoints that were
/// tried at least [`ATTEMPT_DELAY`] before the first that succeeded: a smaller difference may be chance.
async fn race<'a, T>(
    endpoints: &[SocketAddr],
    limit: Duration,
    attempt: impl Fn(SocketAddr) -> Attempt<'a, T>,
    fails: impl Fn(SocketAddr, Option<&UpstreamError>),
) -> Result<(SocketAddr, T), UpstreamError> {
    let mut waiting = endpoints.iter().copied();
    let mut racing = FuturesUnordered::new();
    let mut began: Vec<(SocketAddr, Instant)> = Vec::new();
    let mut failure = UpstreamError::Dial(io::ErrorKind::TimedOut.into());
    loop {
        if let Some(address) = waiting.next() {
            began.push((address, Instant::now()));
            let attempt = timeout(limit, attempt(address));
            racing.push(async move {
                let late = |_| Err(UpstreamError::Dial(io::ErrorKind::TimedOut.into()));
                (address, attempt.await.unwrap_or_else(late))
            });
        } else if racing.is_empty() {
            return Err(failure);
        }
        tokio::select! {
            Some((address, outcome)) = racing.next() => match outcome {
                Ok(connected) => {
                    let winner = began.iter().find(|(other, _)| *other == address).map(|(_, at)| *at);
                    let is_slow = |at: Instant| winner.is_some_and(|winner| winner >= at + ATTEMPT_DELAY);
                    let slower = began.iter().filter(|(_, at)| is_slow(*at));
                    slower.for_each(|(other, _)| fails(*other, None));
                    return Ok((address, connected));
                }
                Err(error) => {
                    tracing::debug!(%address, %error, "an endpoint cannot be connected to");
                    began.retain(|(other, _)| *other != address);
                    fails(address, Some(&error));
                    failure = error;
                }
            },
            () = tokio::time::sleep(ATTEMPT_DELAY), if waiting.len() > 0 => {}
        }
    }
}

/// Opens an additional connection.
pub(super) async fn grow(upstream: Arc<Upstream>, options: UpstreamOptions) {
    if let Err(error) = upstream.connect(options).await {
        tracing::debug!(shard = %upstream.name, %error, "no additional connection could be opened");
        tokio::time::sleep(GROW_RETRY_PAUSE).await;
    }
    upstream.growing.store(false, Ordering::Relaxed);
}

fn lifetime(options: UpstreamOptions) -> Lifetime {
    let jitter = options.max_age.mul_f64(AGE_JITTER * random_share());
    Lifetime {
        ping_interval: options.ping_interval,
        pings: options.pings,
        idle_timeout: options.idle_timeout,
        max_age: options.max_age.saturating_sub(jitter),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use parking_lot::Mutex;

    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, last], 6443))
    }

    /// Endpoint 1 accepts and does not respond, 2 refuses, 4 does so after more than a head start, all others respond.
    fn attempt(endpoint: SocketAddr) -> Attempt<'static, ()> {
        let connecting = async move {
            match endpoint {
                silent if silent == address(1) => std::future::pending().await,
                refusing if refusing == address(2) => {
                    Err(io::Error::from(io::ErrorKind::ConnectionRefused).into())
                }
                hesitant if hesitant == address(4) => {
                    tokio::time::sleep(ATTEMPT_DELAY + ATTEMPT_DELAY / 2).await;
                    Err(io::Error::from(io::ErrorKind::ConnectionReset).into())
                }
                _ => Ok(()),
            }
        };
        connecting.boxed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_endpoint_costs_a_moment_and_is_reported() {
        for (endpoints, expected) in [
            (&[1, 3][..], Ok((3, vec![1]))),
            (&[2, 3], Ok((3, vec![2]))),
            (&[1, 2, 3], Ok((3, vec![1, 2]))),
            (&[3, 1], Ok((3, vec![]))),
            // The second had begun just before the third.
            (&[4, 1, 3], Ok((3, vec![4]))),
            (&[2], Err(vec![2])),
            (&[1, 2], Err(vec![1, 2])),
        ] {
            let endpoints: Vec<_> = endpoints.iter().copied().map(address).collect();
            let limit = Duration::from_secs(3);
            let avoided = Mutex::new(Vec::new());
            let began = Instant::now();
            let fails = |other, _: Option<&UpstreamError>| avoided.lock().push(other);
            let outcome = race(&endpoints, limit, attempt, fails).await;
            let reports = avoided.into_inner();
            let avoided: BTreeSet<_> = reports.iter().copied().collect();
            assert_eq!(reports.len(), avoided.len(), "each once");
            match expected {
                Ok((winner, others)) => {
                    assert!(matches!(outcome, Ok((endpoint, ())) if endpoint == address(winner)));
                    assert_eq!(avoided, others.into_iter().map(address).collect());
                    assert!(began.elapsed() < limit / 2, "{endpoints:?}");
                }
                Err(others) => {
                    assert!(outcome.is_err());
                    assert_eq!(avoided, others.into_iter().map(address).collect());
                }
            }
        }
    }
}
