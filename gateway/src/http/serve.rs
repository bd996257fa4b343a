//! Serves one request, whichever protocol its client speaks: determines the client's address, lets the pipeline decide, and
//! then forwards the request, responds, or calls the admin API.

use std::sync::Arc;

use bytes::BytesMut;
use http::request::Parts;
use http::{HeaderMap, Request};
use tokio::time::timeout;

use crate::admin::{AdminCall, AdminReply};
use crate::forward::downstream::{BodyError, DownstreamExchange, drain};
use crate::forward::exchange::Exchange;
use crate::forward::local_response::send_local_response;
use crate::forward::request_context::RequestContext;
use crate::forward::target::Forward;
use crate::forward::telemetry;
use crate::forward::tunnel::Upgrade;
use crate::http::HttpServer;
use crate::pipeline::{Action, RequestView, refusal};
use crate::policy::connection::Connection;
use crate::request::RequestClass;
use crate::request::host;
use crate::request::response::LocalResponse;

/// Largest body of a request to the admin API.
const MAX_ADMIN_BODY_BYTES: usize = 64 << 10;

/// The result of serving a request.
pub(super) enum Served {
    /// The client has its response, or has disconnected.
    Responded,
    /// The connection becomes a tunnel.
    Upgrade(Box<Upgrade>),
}

/// Serves one request. `host_error` is the error in its host, if there is one.
pub(super) async fn serve<C: DownstreamExchange>(
    server: &HttpServer,
    connection: &Arc<Connection>,
    client: &mut C,
    head: &mut Parts,
    host_error: Option<host::HostError>,
) -> Served {
    let forwarder = server.forwarder();
    let class =
        RequestClass::of(&head.method, head.uri.path(), head.uri.query(), head.version, &head.headers);
    let peer = connection.peer.ip();
    let client_address = connection.client_address.client_of(peer, &mut head.headers);
    let address = client_address.unwrap_or(peer);
    let open = forwarder.telemetry.metrics.open(class);
    let mut context = RequestContext::begin(class, address, connection.begin_request(), open);
    if class == RequestClass::Watch {
        context.keep_alive = connection.listener.policy.load().responses.keep_alive;
    }
    telemetry::on_request(&forwarder.telemetry, &mut context, head);
    let decided = match refusal(&client_address, host_error, &head.method) {
        Some(response) => Decided::Respond(response.into_accepted_format(&head.headers, head.uri.query())),
        None => {
            let Parts { method, uri, headers, .. } = &*head;
            let stats = &context.stats;
            let (identity, decision_log) = (None, None);
            let view = RequestView {
                method,
                uri,
                headers,
                class,
                address,
                connection,
                identity,
                stats,
                decision_log,
            };
            decide(server, &view).await
        }
    };
    if !matches!(decided, Decided::Forward(_)) {
        // The request is not sent again, so its headers need not be kept while the client reads.
        head.headers = HeaderMap::new();
    }
    let code = match decided {
        Decided::Respond(response) => {
            send_local_response(forwarder, client, &context, &head.method, response).await
        }
        // Boxed, because it is rare and large.
        Decided::Admin(call) => Box::pin(serve_admin(server, client, call, &context, head)).await,
        Decided::Forward(forward) if class == RequestClass::Upgrade => {
            let (empty, ()) = Request::new(()).into_parts();
            let head = std::mem::replace(head, empty);
            return Served::Upgrade(Box::new(Upgrade { forward, head, context }));
        }
        // By reference: moving the target out would reserve space for both copies in the task of an open watch.
        Decided::Forward(ref forward) => {
            telemetry::on_forward(&forwarder.telemetry, &mut context);
            let mut exchange = Exchange::new(forwarder, client, &mut context, forward, head);
            let code = exchange.run().await;
            telemetry::on_complete(&forwarder.telemetry, &context, &head.method, code, Some(forward));
            return Served::Responded;
        }
    };
    telemetry::on_complete(&forwarder.telemetry, &context, &head.method, code, None);
    Served::Responded
}

/// The decision about a request, once the admin API has been called.
enum Decided {
    Forward(Forward),
    Respond(LocalResponse),
    /// The admin API reads a body or writes a stream.
    Admin(AdminCall),
}

async fn decide(server: &HttpServer, view: &RequestView<'_>) -> Decided {
    match server.pipeline.decide(view).await {
        Action::Forward(forward) => Decided::Forward(forward),
        Action::Respond(response) => Decided::Respond(response),
        // Boxed, because it is rare and large: every request's task would reserve space for it.
        Action::Admin(endpoint) => match Box::pin(server.admin.call(view, endpoint)).await {
            AdminReply::Respond(response) => Decided::Respond(response),
            AdminReply::Continue(call) => Decided::Admin(call),
        },
    }
}

/// Serves a call of the admin API that has a body or a stream; returns the status code.
async fn serve_admin<C: DownstreamExchange>(
    server: &HttpServer,
    client: &mut C,
    call: AdminCall,
    context: &RequestContext,
    head: &Parts,
) -> u16 {
    if call == AdminCall::Tail {
        drain(client).await;
        return server.admin.tail(server.forwarder(), client, context, head).await;
    }
    let limit = server.forwarder().slow_clients.load().request_body_timeout.get();
    let body = timeout(limit, read_body(client)).await.unwrap_or_else(|_| {
        server.forwarder().telemetry.metrics.slow_body();
        Err(LocalResponse::request_timeout())
    });
    let response = match body {
        Ok(body) => server.admin.respond(call, context.connection(), context.client, head, &body).await,
        Err(response) => response,
    };
    send_local_response(server.forwarder(), client, context, &head.method, response).await
}

async fn read_body<C: DownstreamExchange>(client: &mut C) -> Result<BytesMut, LocalResponse> {
    let mut body = BytesMut::new();
    loop {
        match client.read().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > MAX_ADMIN_BODY_BYTES => {
                let status = fairlead_process::Status::request_entity_too_large(MAX_ADMIN_BODY_BYTES as u64);
                return Err(LocalResponse::status(&status, "body_too_large"));
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            Err(BodyError::Malformed(reason)) => return Err(LocalResponse::bad_request(reason)),
            // The client has disconnected, so it does not read this.
            Err(BodyError::ClientDisconnected(_)) => {
                return Err(LocalResponse::bad_request("the request is incomplete"));
            }
        }
    }
}
