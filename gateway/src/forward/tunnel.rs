//! Upgrades: WebSocket and SPDY. The request is sent on a connection of its own; after the shard's 101, bytes are copied in both
//! directions until one side ends. No byte of the client is sent before the 101.
//!
//! Any client can ask for an upgrade with any request, so such a request waits for admission like any other, and counts among
//! the concurrent requests until the shard has switched protocols.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy, split};
use tokio::time::{sleep, timeout};
use tokio_util::io::InspectReader;

use crate::forward::downstream::DownstreamExchange;
use crate::forward::exchange::Exchange;
use crate::forward::failure;
use crate::forward::failure::{Broken, Failure};
use crate::forward::headers::{HeaderRewrite, Hop, prepare};
use crate::forward::local_response::send_local_response;
use crate::forward::request_context::RequestContext;
use crate::forward::response_body::Download;
use crate::forward::stream_deadline::StreamDeadline;
use crate::forward::target::Forward;
use crate::forward::telemetry;
use crate::forward::{CLIENT_CLOSED_REQUEST, Forwarder};
use crate::request::is_hop_by_hop;
use crate::request::response::LocalResponse;
use http::request::Parts;

/// Time for which a shard may send after its client has closed its side.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// An upgrade request that is to be forwarded.
pub(crate) struct Upgrade {
    pub(crate) forward: Forward,
    pub(crate) head: Parts,
    pub(crate) context: RequestContext,
}

/// An upgraded connection to a shard.
pub(crate) struct Tunnel {
    /// Headers of the 101, for the client.
    pub(crate) headers: HeaderMap,
    upgraded: Upgraded,
    upgrade: Box<Upgrade>,
    ending: StreamDeadline,
}

/// Forwards an upgrade request. If the shard does not switch protocols or cannot be reached, the client gets a response here.
pub(crate) async fn open<C: DownstreamExchange>(
    forwarder: &Forwarder,
    client: &mut C,
    mut upgrade: Box<Upgrade>,
) -> Option<Tunnel> {
    let method = upgrade.head.method.clone();
    let code = if client.is_done() {
        match send_request(forwarder, client, &mut upgrade).await {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                let drain = forwarder.drain(upgrade.context.connection());
                let ending = StreamDeadline::new(drain, &upgrade.forward.identity, forwarder.number());
                telemetry::on_response_headers(&upgrade.context, response.headers());
                if let Some(quota) = &mut upgrade.forward.quota {
                    quota.switched();
                }
                let headers = client_response_headers(response.headers());
                match hyper::upgrade::on(response).await {
                    Ok(upgraded) => {
                        // An open tunnel should keep little memory, and no credential.
                        (upgrade.head.uri, upgrade.head.headers) = (Uri::default(), HeaderMap::new());
                        return Some(Tunnel { headers, upgraded, upgrade, ending });
                    }
                    Err(error) => {
                        tracing::debug!(%error, "the shard did not switch protocols after all");
                        send_local_response(
                            forwarder,
                            client,
                            &upgrade.context,
                            &method,
                            LocalResponse::bad_gateway(),
                        )
                        .await
                    }
                }
            }
            Ok(response) => {
                let response = response.map(|body| Download::Http1 { body, trailers: None, lease: None });
                let Upgrade { forward, context, head } = &mut *upgrade;
                Exchange::new(forwarder, client, context, forward, head).relay(response).await
            }
            Err(failure) => match failure.response(forwarder.upstreams.unreachable()) {
                Some(response) => {
                    let head = &upgrade.head;
                    let response = response.into_accepted_format(&head.headers, head.uri.query());
                    let response = match &upgrade.forward.allowed_origin {
                        Some(origin) => origin.decorate(response),
                        None => response,
                    };
                    send_local_response(forwarder, client, &upgrade.context, &method, response).await
                }
                None => CLIENT_CLOSED_REQUEST,
            },
        }
    } else {
        let response = LocalResponse::bad_request("an upgrade request must not have a body");
        send_local_response(forwarder, client, &upgrade.context, &method, response).await
    };
    finished(forwarder, &upgrade, &method, code);
    None
}

/// Sends the request and waits for the response head.
async fn send_request<C: DownstreamExchange>(
    forwarder: &Forwarder,
    client: &mut C,
    upgrade: &mut Upgrade,
) -> Result<Response<Incoming>, Failure> {
    let admission = {
        let Upgrade { forward, context, head } = &mut *upgrade;
        Exchange::new(forwarder, client, context, forward, head).admit_only().await?
    };
    // The response mostly waits for a container, so the time does not count as the shard's.
    let sender = async {
        if let Some(admission) = admission {
            sleep(admission.remaining()).await;
        }
        pending::<Infallible>().await
    };
    let forward = &upgrade.forward;
    let request = request(forwarder, upgrade)?;
    let exchange = async {
        let wire = forwarder.upstreams.dial_http1(&forward.upstream).await.map_err(|error| {
            failure::record_connect_failure(&forward.upstream, &error);
            Failure::Unreachable
        })?;
        let broken = |error| Failure::Shard(Broken::Http1(error));
        let response = async {
            let (mut identity, connection) = http1::handshake(TokioIo::new(wire)).await?;
            // Ends with the tunnel or with the response's body, at the latest when the client's side is dropped.
            tokio::spawn(connection.with_upgrades());
            identity.send_request(request).await
        };
        let limit = forwarder.upstreams.response_timeout();
        timeout(limit, response).await.map_err(|_| Failure::Timeout)?.map_err(broken)
    };
    let response = tokio::select! {
        response = exchange => response?,
        () = client.closed() => return Err(Failure::ClientDisconnected),
        never = sender => match never {},
    };
    telemetry::on_first_byte(&upgrade.context, forward);
    Ok(response)
}

/// The request as the shard gets it.
fn request(forwarder: &Forwarder, upgrade: &Upgrade) -> Result<Request<Empty<Bytes>>, Failure> {
    let Upgrade { forward, head, context } = upgrade;
    let (mut outgoing, ()) = Request::new(()).into_parts();
    outgoing.method = head.method.clone();
    outgoing.headers = head.headers.clone();
    let decided = HeaderRewrite {
        path_and_query: &forward.path_and_query,
        identity: &forward.identity,
        identity_header_names: forward.identity_header_names.as_deref(),
        trusted: forward.trusted.as_deref(),
        kcp: forwarder.kcp_identity_headers(),
        hops: forward.hops,
        client: context.client,
        class: context.class,
    };
    let stripped = prepare(&mut outgoing, &Hop::of(&head.headers), &decided)?;
    forwarder.telemetry.metrics.stripped(stripped);
    telemetry::inject_traceparent(context, &mut outgoing.headers);
    for name in [header::TRANSFER_ENCODING, header::CONTENT_LENGTH] {
        outgoing.headers.remove(name);
    }
    if let Some(authority) = head.uri.authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        outgoing.headers.insert(header::HOST, host);
    }
    outgoing.uri = forward.path_and_query.clone().into();
    outgoing.version = Version::HTTP_11;
    Ok(Request::from_parts(outgoing, Empty::new()))
}

/// Headers of the 101 for the client: those of the handshake, and no other hop-by-hop fields.
fn client_response_headers(headers: &HeaderMap) -> HeaderMap {
    let handshake = |name: &header::HeaderName| matches!(*name, header::CONNECTION | header::UPGRADE);
    let kept = headers.iter().filter(|(name, _)| handshake(name) || !is_hop_by_hop(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn finished(forwarder: &Forwarder, upgrade: &Upgrade, method: &Method, code: u16) {
    telemetry::on_complete(&forwarder.telemetry, &upgrade.context, method, code, Some(&upgrade.forward));
}

impl Tunnel {
    /// Copies bytes until the shard closes, the client has closed and [`LAST_WORDS`] are over, or the tunnel's deadline passes.
    /// `ahead` are bytes that the client has sent already.
    pub(crate) async fn carry(
        self,
        forwarder: &Forwarder,
        ahead: Bytes,
        client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) {
        let forward = &self.upgrade.forward;
        let counted = |bytes: &[u8]| forward.count_bytes(bytes.len());
        let (from_client, mut to_client) = split(client);
        let (from_shard, mut to_shard) = split(TokioIo::new(self.upgraded));
        let mut from_client = InspectReader::new(from_client, counted);
        let mut from_shard = InspectReader::new(from_shard, counted);
        let up = async {
            to_shard.write_all(&ahead).await?;
            copy(&mut from_client, &mut to_shard).await?;
            // The client has closed its side and may still read.
            to_shard.shutdown().await?;
            sleep(LAST_WORDS).await;
            Ok(0)
        };
        let outcome = tokio::select! {
            outcome = up => outcome,
            outcome = copy(&mut from_shard, &mut to_client) => outcome,
            () = self.ending.reached() => Ok(0),
        };
        if let Err(error) = outcome {
            let error: std::io::Error = error;
            tracing::debug!(%error, "a tunnel has broken");
        }
        // Data that one side has not read yet is followed by an orderly close.
        let _ = to_shard.shutdown().await;
        let method = self.upgrade.head.method.clone();
        // As in kcp, upgrades count as 200.
        finished(forwarder, &self.upgrade, &method, StatusCode::OK.as_u16());
    }
}
