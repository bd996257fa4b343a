//! What is told of a request once it has ended: metrics, and which workspaces are busy.

use http::Method;

use super::context::Context;
use crate::core::{Core, Forward};
use crate::observe::Phase;
use crate::request::RequestClass;

/// A request is on its way to a server.
pub(super) fn begun(core: &Core, context: &mut Context) {
    if context.class == RequestClass::Watch {
        context.watching =
            context.seen.with(|noted| noted.cluster.as_ref().map(|cluster| core.top.watch(cluster)));
    }
}

/// The head of the shard's answer is here.
pub(super) fn first_byte(context: &Context, forward: &Forward) {
    let waited = context.began.elapsed();
    let door = context.connection().door.number;
    forward.upstream.metrics.first_byte(door, context.class, waited);
    context.seen.first_byte(waited);
}

/// A request has ended with this code; `forward` if it was one for a server. The one place where everything that was
/// noted of it is used.
pub(super) fn ended(core: &Core, context: &Context, method: &Method, code: u16, forward: Option<&Forward>) {
    let (duration, door) = (context.began.elapsed(), context.connection().door.number);
    core.metrics.finished(method, code, duration);
    for phase in Phase::OF_REQUEST {
        if let Some(took) = context.seen.took(phase) {
            core.metrics.phase(door, phase, took);
        }
    }
    if let Some(forward) = forward {
        let metrics = &forward.upstream.metrics;
        metrics.total(door, context.class, duration);
        metrics.body_bytes(context.request_bytes, context.response_bytes);
        if let Some(shard) = &forward.about {
            core.metrics.mapped_body_bytes(shard, context.request_bytes, context.response_bytes);
        }
    }
    context.seen.with(|noted| {
        if let Some(cluster) = &noted.cluster {
            let bytes = context.request_bytes + context.response_bytes;
            core.top.ended(cluster, code, bytes, context.began + duration);
        }
    });
    tracing::trace!(%method, code, micros = duration.as_micros() as u64, "request");
}
