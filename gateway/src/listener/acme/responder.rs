//! Serves http-01 challenge responses over plain HTTP on a separate address: only the files of one folder, by token.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fairlead_config::AddressQuotaConfig;
use fairlead_process::{AddressQuotas, Shutdown};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::listener::acme::challenge_responses::ChallengeResponses;

/// Maximum number of open connections; an authority validates from several addresses at once.
const MAX_CONNECTIONS: usize = 64;
/// Maximum number of open connections per client address, so that no address can use all of them.
const MAX_CONNECTIONS_PER_ADDRESS: u32 = 32;
/// Time limit for a whole connection: one request and its response.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval of attempts to bind an address that is in use.
const BIND_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The handling of an address that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressInUse {
    /// Binding fails.
    Fail,
    /// Binding is retried, because a predecessor is about to release the address.
    Wait,
}

/// The HTTP server for http-01 challenges, not yet serving.
pub(crate) struct Responder {
    address: SocketAddr,
    /// `None` while the address is in use.
    listener: Option<TcpListener>,
    challenge_responses: ChallengeResponses,
}

impl Responder {
    pub(super) fn at(
        address: SocketAddr,
        challenge_responses: ChallengeResponses,
        address_in_use: AddressInUse,
    ) -> io::Result<Self> {
        let listener = match bind(address) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse && address_in_use == AddressInUse::Wait =>
            {
                None
            }
            bound => Some(bound?),
        };
        Ok(Self { address, listener, challenge_responses })
    }

    /// Serves until the process drains.
    pub(crate) async fn serve(mut self, shutdown: Shutdown) {
        let listener = loop {
            if let Some(listener) = self.listener.take() {
                break listener;
            }
            // No event is sent when an address becomes free.
            tokio::select! {
                () = shutdown.draining() => return,
                () = tokio::time::sleep(BIND_RETRY_INTERVAL) => self.listener = bind(self.address).ok(),
            }
        };
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let limits = AddressQuotaConfig {
            connections: Some(MAX_CONNECTIONS_PER_ADDRESS),
            ..AddressQuotaConfig::default()
        };
        let addresses = AddressQuotas::new(&limits);
        loop {
            let accepted = tokio::select! {
                () = shutdown.draining() => return,
                accepted = async {
                    let permit = Arc::clone(&permits).acquire_owned().await;
                    (permit, listener.accept().await)
                } => accepted,
            };
            let (Ok(permit), Ok((stream, peer))) = accepted else {
                // Mostly out of file descriptors, whose release sends no event.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let Ok(connected) = addresses.connect(peer.ip()) else { continue };
            let challenge_responses = self.challenge_responses.clone();
            let service = service_fn(move |request| {
                let challenge_responses = challenge_responses.clone();
                async move { Ok::<_, Infallible>(respond(&challenge_responses, &request).await) }
            });
            tokio::spawn(async move {
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(CONNECTION_TIMEOUT)
                    .keep_alive(false)
                    .max_header_size(16 << 10)
                    .serve_connection(TokioIo::new(stream), service);
                // Errors of a connection do not matter.
                let _ = timeout(CONNECTION_TIMEOUT, connection).await;
                drop((permit, connected));
            });
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(128)
}

async fn respond(
    challenge_responses: &ChallengeResponses,
    request: &Request<Incoming>,
) -> Response<Full<Bytes>> {
    let found = match request.uri().path().strip_prefix("/.well-known/acme-challenge/") {
        Some(token) if matches!(*request.method(), Method::GET | Method::HEAD) => {
            challenge_responses.token(token).await
        }
        _ => None,
    };
    let (code, body) = match found {
        Some(text) => (StatusCode::OK, Bytes::from(text)),
        None => (StatusCode::NOT_FOUND, Bytes::from_static(b"404 page not found\n")),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    response
}
