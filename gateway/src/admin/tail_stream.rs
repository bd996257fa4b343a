//! The endless response of the tail endpoint: access log lines as requests complete.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use tokio::time::timeout;

use crate::admin::AdminApi;
use crate::auth::identity::RequestIdentity;
use crate::forward::date;
use crate::forward::downstream::DownstreamExchange;
use crate::forward::local_response::send_local_response;
use crate::forward::request_context::RequestContext;
use crate::forward::stream_deadline::StreamDeadline;
use crate::forward::{CLIENT_CLOSED_REQUEST, Forwarder};
use crate::request::response::LocalResponse;
use crate::telemetry::tail::{Filter, LogSubscription, TooManySubscribers};

impl AdminApi {
    /// Streams completed requests to an authorized client; returns the status code of the response.
    pub(crate) async fn tail<C: DownstreamExchange>(
        &self,
        forwarder: &Forwarder,
        client: &mut C,
        context: &RequestContext,
        head: &Parts,
    ) -> u16 {
        let lines = match Filter::of_query(head.uri.query().unwrap_or_default()) {
            Ok(filter) => forwarder.telemetry.tail.subscribe(self.with_cluster(filter).await),
            Err(error) => {
                let response = LocalResponse::bad_request(error.to_string());
                return send_local_response(forwarder, client, context, &head.method, response).await;
            }
        };
        match lines {
            Ok(lines) => stream(forwarder, client, context, lines).await,
            Err(error @ TooManySubscribers) => {
                let response = LocalResponse::unavailable(&error.to_string(), "too_many_subscribers");
                send_local_response(forwarder, client, context, &head.method, response).await
            }
        }
    }
}

async fn stream<C: DownstreamExchange>(
    forwarder: &Forwarder,
    client: &mut C,
    context: &RequestContext,
    mut lines: LogSubscription,
) -> u16 {
    let identity = context
        .stats
        .with(|annotations| annotations.identity.clone())
        .map_or(RequestIdentity::PassThrough, RequestIdentity::Authenticated);
    let deadline = StreamDeadline::new(forwarder.drain(context.connection()), &identity, forwarder.number());
    tokio::select! {
        () = deadline.reached() => {}
        sent = send(forwarder, client, &mut lines) => {
            if sent.is_none() {
                client.abort();
                return CLIENT_CLOSED_REQUEST;
            }
        }
    }
    // The stream ends between two lines, unless a write was interrupted; the abort makes that visible to the client.
    if client.end(None).await.is_err() {
        client.abort();
    }
    StatusCode::OK.as_u16()
}

/// Sends lines until the client disconnects or stalls.
async fn send<C: DownstreamExchange>(
    forwarder: &Forwarder,
    client: &mut C,
    lines: &mut LogSubscription,
) -> Option<()> {
    let (mut begin, ()) = Response::new(()).into_parts();
    begin.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    begin.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    begin.headers.insert(http::header::DATE, date::now());
    client.begin(begin, false).ok()?;
    client.flush().await.ok()?;
    loop {
        let next: Bytes = tokio::select! {
            biased;
            () = client.closed() => return None,
            next = lines.next() => next,
        };
        let stall_timeout = forwarder.slow_clients.load().response_stall_timeout.get();
        let written = async {
            client.write(next, false).await?;
            client.flush().await
        };
        timeout(stall_timeout, written).await.ok()?.ok()?;
    }
}
