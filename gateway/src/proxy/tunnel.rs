//! Upgrades: WebSocket and SPDY. The request is forwarded over a connection of its own; if the shard switches
//! protocols, bytes are carried both ways until one side ends.
//!
//! Not pingora's own path: there the end of the (empty) request body races with the shard's answer, and where the
//! answer is fast the tunnel is closed the moment it opens.

use bytes::{Bytes, BytesMut};
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use pingora::http::ResponseHeader;
use pingora::proxy::Session;
use pingora::{Error, ErrorType, OrErr, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::{Context, GatewayProxy, forward};
use crate::answer::Answer;
use crate::core::Forward;
use crate::ending::Ending;
use crate::request::is_hop_by_hop;

/// Bytes read from the shard at once.
const CHUNK: usize = 16 << 10;

impl GatewayProxy {
    /// Forwards an upgrade request and answers it completely; the tunnel, if there is one, has ended then.
    pub(super) async fn tunnel(
        &self,
        session: &mut Session,
        context: &Context,
        forward: &Forward,
        ending: &Ending,
    ) -> Result<()> {
        if !session.is_body_empty() {
            return self.write(session, Answer::bad_request("an upgrade request must not have a body")).await;
        }
        let request = self.upgrade_request(session, context, forward)?;
        let upstream = match self.core.upstreams.dial_http1(&forward.upstream).await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(shard = %forward.upstream.name, %error, "cannot connect to the shard");
                return self
                    .write(session, Answer::unavailable("the shard cannot be reached", "connect_failed"))
                    .await;
            }
        };
        let limit = self.core.upstreams.response_timeout();
        let exchange = async {
            let (mut sender, connection) = http1::handshake(TokioIo::new(upstream)).await?;
            // Ends with the tunnel or the response body, at the latest when the client's side is dropped.
            tokio::spawn(connection.with_upgrades());
            sender.send_request(request).await
        };
        let response = match timeout(limit, exchange).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                tracing::debug!(shard = %forward.upstream.name, %error, "the shard did not answer an upgrade request");
                return self.write(session, Answer::bad_gateway()).await;
            }
            Err(_) => return self.write(session, Answer::gateway_timeout()).await,
        };
        forward.upstream.metrics.first_byte(context.class, context.began.elapsed());
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            carry(session, response, ending).await
        } else {
            pass_on(session, response).await
        }
    }

    fn upgrade_request(
        &self,
        session: &Session,
        context: &Context,
        forward: &Forward,
    ) -> Result<Request<Empty<Bytes>>> {
        let incoming = session.req_header();
        let mut outgoing: http::request::Parts = incoming.clone().into();
        let decided = forward::Forwarded {
            path_and_query: &forward.path_and_query,
            sender: &forward.sender,
            asserted_by: forward.asserted_by.as_deref(),
            hops: forward.hops,
            client: context.client,
            class: context.class,
        };
        let forged = forward::prepare(&mut outgoing, &forward::Hop::of(&incoming.headers), &decided)?;
        self.core.metrics.forged(forged);
        let mut request = Request::new(Empty::new());
        *request.method_mut() = outgoing.method;
        *request.uri_mut() = forward.path_and_query.clone().into();
        *request.headers_mut() = outgoing.headers;
        request.headers_mut().remove(header::TRANSFER_ENCODING);
        Ok(request)
    }
}

fn head_of<B>(response: &Response<B>) -> Result<ResponseHeader> {
    let switching = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let mut head = ResponseHeader::build(response.status(), Some(response.headers().len()))?;
    for (name, value) in response.headers() {
        let handshake = switching && (*name == header::CONNECTION || *name == header::UPGRADE);
        if handshake || !is_hop_by_hop(name) {
            head.append_header(name.clone(), value.clone())?;
        }
    }
    Ok(head)
}

/// The shard does not switch: an ordinary answer.
async fn pass_on(session: &mut Session, response: Response<Incoming>) -> Result<()> {
    let mut head = head_of(&response)?;
    if !head.headers.contains_key(header::CONTENT_LENGTH) {
        head.insert_header(header::TRANSFER_ENCODING, "chunked")?;
    }
    session.write_response_header(Box::new(head), false).await?;
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let frame =
            frame.or_err(ErrorType::ReadError, "reading the shard's answer").map_err(Error::into_up)?;
        if let Ok(chunk) = frame.into_data() {
            session.write_response_body(Some(chunk), false).await?;
        }
    }
    session.write_response_body(None, true).await
}

/// Carries bytes until one side ends or the tunnel's time is over.
async fn carry(session: &mut Session, response: Response<Incoming>, ending: &Ending) -> Result<()> {
    session.write_response_header(Box::new(head_of(&response)?), false).await?;
    let upgraded = hyper::upgrade::on(response)
        .await
        .or_err(ErrorType::ReadError, "switching protocols")
        .map_err(Error::into_up)?;
    let (mut from_shard, mut to_shard) = tokio::io::split(TokioIo::new(upgraded));
    let mut buffer = BytesMut::with_capacity(CHUNK);
    let over = ending.reached();
    tokio::pin!(over);
    loop {
        tokio::select! {
            read = from_shard.read_buf(&mut buffer) => match read {
                Ok(1..) => session.write_response_body(Some(buffer.split().freeze()), false).await?,
                Ok(0) | Err(_) => break,
            },
            read = session.read_request_body() => match read? {
                Some(chunk) => {
                    if to_shard.write_all(&chunk).await.is_err() || to_shard.flush().await.is_err() {
                        break;
                    }
                }
                None => break,
            },
            () = &mut over => break,
        }
        buffer.reserve(CHUNK);
    }
    // What the shard has not seen yet it sees as the end.
    let _ = to_shard.shutdown().await;
    session.write_response_body(None, true).await
}
