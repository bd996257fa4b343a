//! Responses that the gateway makes itself, written to the client.

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, response};
use tokio::time::timeout;

use crate::forward::Forwarder;
use crate::forward::date;
use crate::forward::downstream::{ClientDisconnected, DownstreamExchange, drain};
use crate::forward::request_context::RequestContext;
use crate::forward::telemetry;
use crate::request::response::{AUDIT_ID, LocalResponse};

/// Sends a response of the gateway's own; returns its status code.
pub(crate) async fn send_local_response<C: DownstreamExchange>(
    forwarder: &Forwarder,
    client: &mut C,
    context: &RequestContext,
    method: &Method,
    response: LocalResponse,
) -> u16 {
    let (head, body) = own_head(forwarder, context, response);
    let code = head.status.as_u16();
    let bodiless = *method == Method::HEAD || body.is_empty();
    let written = async {
        client.begin(head, bodiless)?;
        if !bodiless {
            client.write(body, true).await?;
        }
        client.flush().await
    };
    let stall_timeout = forwarder.slow_clients.load().response_stall_timeout.get();
    match timeout(stall_timeout, written).await.unwrap_or(Err(ClientDisconnected)) {
        Ok(()) => drain(client).await,
        Err(ClientDisconnected) => tracing::debug!("the client left before it could be told"),
    }
    code
}

/// Completes the head of a response of the gateway's own; returns head and body.
pub(crate) fn own_head(
    forwarder: &Forwarder,
    context: &RequestContext,
    response: LocalResponse,
) -> (response::Parts, Bytes) {
    let LocalResponse { response, reason, .. } = response;
    let (mut head, body) = (*response).into_parts();
    context.stats.local_response(reason, body.len());
    forwarder.telemetry.metrics.local_response(head.status.as_u16(), reason);
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    let id = uuid::Uuid::new_v4().hyphenated().encode_lower(&mut text);
    // A UUID is a valid value.
    if let Ok(id) = HeaderValue::from_str(id) {
        head.headers.insert(AUDIT_ID, id);
        telemetry::on_response_headers(context, &head.headers);
    }
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    head.headers.insert(header::DATE, date::now());
    (head, body)
}
