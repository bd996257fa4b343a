//! The request as the upstream gets it. A dry run uses the same code as a real request.

use std::net::IpAddr;

use http::header;
use http::request::Parts;
use http::uri::{Authority, Scheme};
use http::{Method, Uri};

use crate::forward::Forwarder;
use crate::forward::failure::Failure;
use crate::forward::headers::{HeaderRewrite, Hop, prepare};
use crate::forward::target::Forward;
use crate::request::RequestClass;

/// Rewrites a request for the upstream. Returns the number of identity headers of the client that were removed.
pub(crate) fn build_upstream_request(
    forwarder: &Forwarder,
    forward: &Forward,
    head: &mut Parts,
    client: IpAddr,
    class: RequestClass,
) -> Result<usize, Failure> {
    let hop = Hop::of(&head.headers);
    name_authority(head, forward)?;
    let decided = HeaderRewrite {
        path_and_query: &forward.path_and_query,
        identity: &forward.identity,
        identity_header_names: forward.identity_header_names.as_deref(),
        trusted: forward.trusted.as_deref(),
        kcp: forwarder.kcp_identity_headers(),
        hops: forward.hops,
        client,
        class,
    };
    let stripped = prepare(head, &hop, &decided)?;
    head.headers.remove(header::TRANSFER_ENCODING);
    if is_safe(&head.method) {
        head.headers.remove(header::CONTENT_LENGTH);
    }
    Ok(stripped)
}

/// Moves the authority into the target, where HTTP/2 expects it. An HTTP/1.0 client that names none gets the upstream's.
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
    // The decided path replaces it; only scheme and authority matter here.
    uri.path_and_query = Some(forward.path_and_query.clone());
    head.uri = Uri::from_parts(uri).map_err(|_| Failure::Malformed("its target is not a URI"))?;
    Ok(())
}

/// Whether a method is safe (RFC 9110, 9.2.1).
pub(crate) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}
