//! Dry run of a request: the same code builds the upstream request, but does not send it.

use std::net::IpAddr;

use http::Version;
use http::request::Parts;

use crate::admin::{AdminApi, AdminReply};
use crate::forward::upstream_request::build_upstream_request;
use crate::pipeline::{Action, RequestView, refusal};
use crate::policy::connection::Connection;
use crate::request::RequestClass;
use crate::request::decision_log::{DecisionLog, Stage, StageResult};
use crate::request::host;
use crate::request::response::LocalResponse;
use crate::telemetry::request_stats::RequestStats;

/// The result of a dry run.
pub(crate) struct DryRun {
    /// The action that the gateway would take.
    pub(crate) decision: Action,
    /// The class of the request.
    pub(crate) class: RequestClass,
    /// The address of the client.
    pub(crate) client: IpAddr,
    /// The head of the upstream request.
    pub(crate) upstream_head: Option<Parts>,
}

/// Processes a request up to the point where it would be sent to a server.
pub(crate) async fn dry_run(
    admin: &AdminApi,
    connection: &Connection,
    mut head: Parts,
    stats: &RequestStats,
    log: &DecisionLog,
) -> DryRun {
    let class =
        RequestClass::of(&head.method, head.uri.path(), head.uri.query(), head.version, &head.headers);
    let peer = connection.peer.ip();
    let client_address = connection.client_address.client_of(peer, &mut head.headers);
    let client = client_address.unwrap_or(peer);
    if let Ok(client) = client_address
        && client != peer
    {
        log.record(Stage::Peer, StageResult::Info, || {
            format!("the client address is {client}, according to the peer")
        });
    }
    let is_http2 = head.version == Version::HTTP_2;
    let host_error =
        if is_http2 { host::host_error_over_http2(&head) } else { host::host_error_over_http1(&head) };
    let decision = match refusal(&client_address, host_error, &head.method) {
        Some(response) => Action::Respond(response.into_accepted_format(&head.headers, head.uri.query())),
        None => {
            let Parts { method, uri, headers, .. } = &head;
            let (identity, address, decision_log) = (None, client, Some(log));
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
            match admin.pipeline.decide(&view).await {
                // Endpoints of the gateway itself are called, except those with a body or a stream.
                Action::Admin(endpoint) => match admin.call(&view, endpoint).await {
                    AdminReply::Respond(response) => Action::Respond(response),
                    AdminReply::Continue(_) => Action::Admin(endpoint),
                },
                action => action,
            }
        }
    };
    let Action::Forward(forward) = &decision else {
        return DryRun { decision, class, client, upstream_head: None };
    };
    match build_upstream_request(&admin.pipeline.forwarder, forward, &mut head, client, class) {
        Ok(_) => DryRun { decision, class, client, upstream_head: Some(head) },
        Err(failure) => {
            let response = failure.response(admin.pipeline.forwarder.upstreams.unreachable());
            let decision = Action::Respond(response.unwrap_or_else(LocalResponse::bad_gateway));
            DryRun { decision, class, client, upstream_head: None }
        }
    }
}
