//! Requests as they would be sent: made for a server by the same code whether they are, or are only rehearsed.

use std::net::IpAddr;

use http::header;
use http::request::Parts;
use http::uri::{Authority, Scheme};
use http::{Method, Uri, Version};

use super::failure::Failure;
use super::{forward, host, refusal};
use crate::answer::Answer;
use crate::core::{Asked, Core, Decision, Forward};
use crate::explain::{At, Outcome, Steps};
use crate::listener::Connection;
use crate::request::RequestClass;
use crate::seen::Seen;

/// A request that was not made.
pub(crate) struct Rehearsed {
    /// What the gateway would do.
    pub(crate) decision: Decision,
    /// What kind of exchange it would be.
    pub(crate) class: RequestClass,
    /// Whose it would be.
    pub(crate) client: IpAddr,
    /// What the server would get.
    pub(crate) sent: Option<Parts>,
}

/// What would become of a request, up to the point where a server would hear of it.
pub(crate) async fn rehearse(
    core: &Core,
    connection: &Connection,
    mut head: Parts,
    seen: &Seen,
    steps: &Steps,
) -> Rehearsed {
    let class =
        RequestClass::of(&head.method, head.uri.path(), head.uri.query(), head.version, &head.headers);
    let peer = connection.peer.ip();
    let said = connection.said.client_of(peer, &mut head.headers);
    let client = said.unwrap_or(peer);
    if let Ok(client) = said
        && client != peer
    {
        steps.tell(At::Peer, Outcome::Noted, || format!("the peer says that the client is {client}"));
    }
    let is_http2 = head.version == Version::HTTP_2;
    let fault = if is_http2 { host::fault_over_http2(&head) } else { host::fault_over_http1(&head) };
    let decision = match refusal(&said, fault, &head.method) {
        Some(answer) => Decision::Answer(answer.into_wanted_form(&head.headers, head.uri.query())),
        None => {
            let Parts { method, uri, headers, .. } = &head;
            let (sender, address, steps) = (None, client, Some(steps));
            let asked = Asked { method, uri, headers, class, address, connection, sender, seen, steps };
            core.decide(&asked).await
        }
    };
    let Decision::Forward(forward) = &decision else {
        return Rehearsed { decision, class, client, sent: None };
    };
    match as_sent(core, forward, &mut head, client, class) {
        Ok(_) => Rehearsed { decision, class, client, sent: Some(head) },
        Err(failure) => {
            let answer = failure.answer(core.upstreams.unreachable());
            let decision = Decision::Answer(answer.unwrap_or_else(Answer::bad_gateway));
            Rehearsed { decision, class, client, sent: None }
        }
    }
}

/// Makes of a request what the server is to see. Returns how many identity headers the client had forged.
pub(super) fn as_sent(
    core: &Core,
    forward: &Forward,
    head: &mut Parts,
    client: IpAddr,
    class: RequestClass,
) -> Result<usize, Failure> {
    let hop = forward::Hop::of(&head.headers);
    name_authority(head, forward)?;
    let decided = forward::Forwarded {
        path_and_query: &forward.path_and_query,
        sender: &forward.sender,
        asserted_by: forward.asserted_by.as_deref(),
        believed: forward.believed.as_deref(),
        as_kcp: core.kcp_stamping(),
        hops: forward.hops,
        client,
        class,
    };
    let forged = forward::prepare(head, &hop, &decided)?;
    head.headers.remove(header::TRANSFER_ENCODING);
    if is_safe(&head.method) {
        head.headers.remove(header::CONTENT_LENGTH);
    }
    Ok(forged)
}

/// The authority stands in the target, where HTTP/2 wants it; a client may have written it as `Host`, which then
/// goes. A client that need not name any (HTTP/1.0) means the server.
fn name_authority(head: &mut Parts, forward: &Forward) -> Result<(), Failure> {
    let invalid = |_| Failure::Malformed("it names no authority");
    let authority = match (head.headers.remove(header::HOST), head.uri.authority()) {
        (Some(host), _) => {
            Authority::from_maybe_shared(bytes::Bytes::copy_from_slice(host.as_bytes())).map_err(invalid)?
        }
        (None, Some(authority)) => authority.clone(),
        (None, None) => Authority::try_from(forward.upstream.authority()).map_err(invalid)?,
    };
    let mut uri = std::mem::take(&mut head.uri).into_parts();
    uri.scheme = Some(Scheme::HTTPS);
    uri.authority = Some(authority);
    // Replaced by what was decided; only the rest of the target counts here.
    uri.path_and_query = Some(forward.path_and_query.clone());
    head.uri = Uri::from_parts(uri).map_err(|_| Failure::Malformed("its target is not a URI"))?;
    Ok(())
}

/// Whether a method asks for nothing but an answer.
pub(super) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}
