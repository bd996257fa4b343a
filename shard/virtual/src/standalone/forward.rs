//! The virtual workspaces of a shard, served by another process, which forwards requests to the shard.
//!
//! The process authenticates its clients itself and asserts them to the shard by impersonation, with its own certificate of
//! `system:masters`. So a request has the rights of its client and no others:
//!
//! - A user without a name is refused, because the shard would take the request for one of the process itself.
//! - Every `Impersonate-*` and `X-Remote-*` header of a client is removed before the process sets its own. Only members of
//!   `system:masters`, who may impersonate everybody at the shard, too, keep theirs.
//! - The impersonated user always has a group, so that the shard derives none from its name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use fairlead_apiserver::request::Query;
use fairlead_apiserver::serve::{self, MountedServer};
use fairlead_apiserver::{Action, Response, ResponseBody, failure, forbidden};
use fairlead_authn::{
    AUTHENTICATED, Chain, Identity, IdentityHeaders, Outcome, UNAUTHENTICATED, UserInfo,
    strip_identity_headers,
};
use fairlead_client::{Client, ClientError, StreamingResponse};
use fairlead_process::{BodyError, ConnectionInfo, Drain, RequestBody, Status};
use futures_util::future::Either;
use futures_util::{StreamExt as _, stream};
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Request};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, StreamBody};

use super::contact::ShardContact;
use super::host::rejected;
use super::watch_end::{WatchFraming, until_end};
use crate::host::is_master;

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const EXTRA_PREFIX: &str = "impersonate-extra-";
const PREFIX: &str = "impersonate-";

/// Fields of one connection (RFC 9110, section 7.6.1), besides those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The virtual workspaces of a shard that are forwarded. Whatever else is below `/services` is not for clients of this process.
const FORWARDED: [&str; 5] =
    ["apiexport", "apiresourceschema", "initializingworkspaces", "replication", "terminatingworkspaces"];

/// The largest request body, that of the shard's API server.
const MAX_BODY: u64 = 3 * 1024 * 1024;

/// Forwards the requests of authenticated clients to a shard.
pub(super) struct Forwarder {
    pub(super) authentication: Arc<Chain>,
    /// Without a path prefix, and with a certificate of `system:masters`.
    pub(super) shard: Client,
    pub(super) contact: Arc<ShardContact>,
    /// Serves other paths.
    pub(super) root: Arc<dyn MountedServer>,
}

#[async_trait]
impl MountedServer for Forwarder {
    async fn handle(&self, request: Request<RequestBody>) -> Response {
        if !is_forwarded(request.uri().path()) {
            return self.root.handle(request).await;
        }
        let (parts, body) = request.into_parts();
        match self.forward(parts, body).await {
            Ok(response) => response,
            Err(status) => failure(&status),
        }
    }
}

impl Forwarder {
    /// The body is passed on as the shard takes it, which is after it has authorized the client. Memory for bodies is therefore
    /// limited by the windows of connections.
    async fn forward<B>(&self, mut parts: Parts, body: B) -> Result<Response, Status>
    where
        B: Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
    {
        let identity = match serve::identify(&self.authentication, &parts).await {
            Outcome::Identified(identity) => identity,
            // The shard decides what it permits to anonymous clients.
            Outcome::Anonymous => Identity::anonymous(),
            Outcome::Rejected(rejection) => return Err(rejected(&rejection)),
        };
        assert_user(&mut parts.headers, identity.user())?;
        // The shard refuses larger bodies of an unknown length.
        if body.size_hint().lower() > MAX_BODY {
            return Err(Status::request_entity_too_large(MAX_BODY));
        }
        let drain = drain_of_watch(&parts);
        let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let request = fairlead_client::Request {
            method: parts.method,
            path_and_query: path.to_owned(),
            headers: parts.headers,
            body: Bytes::new(),
        };
        let (is_empty, is_broken) = (body.is_end_stream(), Arc::new(AtomicBool::new(false)));
        let broken = Arc::clone(&is_broken);
        let body = body.map_err(move |error| {
            broken.store(true, Ordering::Relaxed);
            error.into()
        });
        let response = match is_empty {
            true => self.shard.stream_any_status(request).await,
            false => self.shard.relay(request, body).await,
        };
        let unavailable =
            || Status::service_unavailable("the shard of these virtual workspaces is not available", 1);
        let response = response.map_err(|error: ClientError| {
            if is_broken.load(Ordering::Relaxed) {
                return Status::bad_request("the request body could not be read");
            }
            tracing::debug!(%error, "the shard did not respond");
            unavailable()
        })?;
        // Clients take 401 and 403 for final.
        if self.contact.is_own_refusal(response.status).await {
            return Err(unavailable());
        }
        Ok(relayed(response, drain))
    }
}

/// Whether a path is one of a virtual workspace of a shard. The shard reads the same path, so that a name in another spelling is
/// not forwarded, but never another one.
fn is_forwarded(path: &str) -> bool {
    let name = path.strip_prefix("/services/").and_then(|rest| rest.split('/').next());
    name.is_some_and(|name| FORWARDED.contains(&name))
}

/// Replaces the credentials of a client, and all headers that a shard might take for an identity, by the impersonation of `user`.
fn assert_user(headers: &mut HeaderMap, user: &UserInfo) -> Result<(), Status> {
    remove_hop_by_hop(headers);
    strip_identity_headers(headers);
    for name in [AUTHORIZATION, HOST, CONTENT_LENGTH] {
        headers.remove(name);
    }
    let impersonation: Vec<HeaderName> =
        headers.keys().filter(|name| is_impersonation(name)).cloned().collect();
    if !impersonation.is_empty() {
        if is_master(user) {
            return Ok(());
        }
        let wanted = headers.get(USER).and_then(|value| value.to_str().ok());
        let action = Action::Resource {
            verb: "impersonate",
            group: "",
            version: "v1",
            resource: "users",
            subresource: None,
            namespace: None,
            name: wanted,
        };
        return Err(forbidden(user, &action));
    }
    let mut asserted = user.clone();
    if !asserted.groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED) {
        asserted.groups.push(AUTHENTICATED.to_owned());
    }
    let lines = IdentityHeaders::for_user_as(&asserted, &USER, &GROUP, EXTRA_PREFIX).map_err(|error| {
        tracing::warn!(%error, "a user cannot be asserted to the shard");
        Status::unauthorized()
    })?;
    lines.stamp(headers);
    if let Some(uid) = &user.uid {
        let uid = HeaderValue::from_bytes(uid.as_bytes()).map_err(|_| Status::unauthorized())?;
        headers.insert(UID, uid);
    }
    Ok(())
}

/// Underscores count as dashes, as in [`strip_identity_headers`].
fn is_impersonation(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.len() >= PREFIX.len() && name[..PREFIX.len()].replace('_', "-") == PREFIX
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect();
    for name in named.into_iter().chain(HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// The drain that ends a watch, if the request is one.
fn drain_of_watch(parts: &Parts) -> Option<Drain> {
    let query = parts.uri.query().unwrap_or_default();
    let connection = parts.extensions.get::<ConnectionInfo>().filter(|_| Query::parse(query).flag("watch"));
    connection.map(|connection| connection.drain().clone())
}

/// The response of the shard, whose body is passed on as it arrives. When the client goes away, so does the request to the shard.
/// A watch also ends with `drain`.
fn relayed(response: StreamingResponse, drain: Option<Drain>) -> Response {
    static WATCHES: AtomicU64 = AtomicU64::new(0);
    let StreamingResponse { status, mut headers, body } = response;
    remove_hop_by_hop(&mut headers);
    let pieces = stream::unfold(body, |mut body| async move { Some((body.chunk().await?, body)) });
    // A response with a length is an object or an error.
    let pieces = match drain.filter(|_| !headers.contains_key(CONTENT_LENGTH)) {
        Some(drain) => {
            let number = WATCHES.fetch_add(1, Ordering::Relaxed);
            let end = async move { drain.end_of_stream(number).await };
            Either::Left(until_end(pieces, WatchFraming::of(&headers), end))
        }
        None => Either::Right(pieces),
    };
    let frames = pieces.map(|piece| piece.map(Frame::data).map_err(BodyError::from));
    let mut relayed = Response::new(ResponseBody::Streamed(Box::pin(StreamBody::new(frames))));
    *relayed.status_mut() = status;
    *relayed.headers_mut() = headers;
    relayed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeMap;

    use std::convert::Infallible;

    use http::StatusCode;

    use super::*;
    use crate::standalone::stub_shard::{StubShard, reply};

    const PATH: &str = "/services/apiexport/root/a/clusters/*/api/v1/configmaps";

    /// Serves nothing.
    struct NoRoot;

    #[async_trait]
    impl MountedServer for NoRoot {
        async fn handle(&self, _request: Request<RequestBody>) -> Response {
            failure(&Status::unknown_resource())
        }
    }

    fn forwarder(shard: &StubShard) -> Forwarder {
        let authentication = Arc::new(Chain::builder().build());
        let contact = ShardContact::new(shard.client(), "kubeconfig".into());
        Forwarder { authentication, shard: shard.client(), contact, root: Arc::new(NoRoot) }
    }

    #[tokio::test]
    async fn a_refusal_of_the_shard_does_not_wait_for_the_body() {
        let shard = StubShard::start(|head| match head.contains(PATH) {
            true => reply(403, "", ""),
            false => reply(201, "", ""),
        })
        .await;
        let (parts, ()) = Request::post(PATH).body(()).unwrap().into_parts();
        let begin = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"{")))]);
        let endless = StreamBody::new(begin.chain(stream::pending()));
        let response = forwarder(&shard).forward(parts, endless).await.unwrap();
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
    }

    #[tokio::test]
    async fn a_refusal_of_the_process_itself_is_an_outage() {
        for refusal in [401, 403] {
            let shard = StubShard::start(move |_| reply(refusal, "", "")).await;
            let request = Request::get(PATH).body(RequestBody::buffered(Bytes::new())).unwrap();
            let response = forwarder(&shard).handle(request).await;
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "{refusal}");
        }
    }

    #[tokio::test]
    async fn bodies_have_the_limit_of_the_shard() {
        let shard = StubShard::start(|_| reply(201, "", "")).await;
        for (length, expected) in [(0, 201), (2, 201), (MAX_BODY as usize, 201), (MAX_BODY as usize + 1, 413)]
        {
            let body = RequestBody::buffered(vec![b' '; length].into());
            let response = forwarder(&shard).handle(Request::post(PATH).body(body).unwrap()).await;
            assert_eq!(response.status().as_u16(), expected, "{length}");
        }
        let heads = shard.heads();
        assert_eq!(heads.len(), 3);
        assert!(heads[1].contains("content-length: 2\r\n"), "{}", heads[1]);
    }

    #[tokio::test]
    async fn a_body_that_breaks_is_an_error_of_the_client() {
        let shard = StubShard::start(|_| String::new()).await;
        let (parts, ()) = Request::post(PATH).body(()).unwrap().into_parts();
        let broken = stream::iter([Err::<Frame<Bytes>, _>(std::io::Error::other("reset"))]);
        let status = forwarder(&shard).forward(parts, StreamBody::new(broken)).await.err().unwrap();
        assert_eq!(status.code, 400);
    }

    fn user(name: &str, groups: &[&str]) -> UserInfo {
        UserInfo {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..UserInfo::default()
        }
    }

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_static(value));
        }
        headers
    }

    /// The headers that the shard gets, sorted, or the code of the refusal.
    fn asserted(user: &UserInfo, lines: &[(&'static str, &'static str)]) -> Result<Vec<String>, u16> {
        let mut headers = headers(lines);
        assert_user(&mut headers, user).map_err(|status| status.code)?;
        let lines = headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        let mut lines: Vec<String> = lines.collect();
        lines.sort();
        Ok(lines)
    }

    #[test]
    fn a_client_is_asserted_as_it_is_and_sets_no_header_of_an_identity() {
        let alice =
            ["impersonate-group: system:authenticated", "impersonate-group: team", "impersonate-user: alice"];
        let authenticated = user("alice", &["team", "system:authenticated"]);
        for (case, lines) in [
            ("nothing", &[][..]),
            ("a token, which the process has verified", &[("authorization", "Bearer a"), ("host", "b")]),
            ("headers of a proxy", &[("x-remote-user", "root"), ("X-Remote-Group", "system:masters")]),
            ("with underscores", &[("x_remote_user", "root")]),
            (
                "hop-by-hop fields",
                &[("connection", "impersonate-user, close"), ("te", "trailers"), ("upgrade", "x")],
            ),
            ("fields named by Connection", &[("connection", "x-own"), ("x-own", "1")]),
        ] {
            assert_eq!(asserted(&authenticated, lines).unwrap(), alice, "{case}");
        }
        // The same headers even if the certificate does not have the group, which the shard adds, too.
        assert_eq!(asserted(&user("alice", &["team"]), &[]).unwrap(), alice);
        let kept = asserted(&authenticated, &[("accept", "a"), ("user-agent", "b"), ("kcp-x", "c")]).unwrap();
        assert!(
            ["accept: a", "user-agent: b", "kcp-x: c"].iter().all(|line| kept.contains(&(*line).to_owned()))
        );
    }

    #[test]
    fn uids_and_extras_are_asserted() {
        let extra =
            BTreeMap::from([("authentication.kcp.io/scopes".to_owned(), vec!["cluster:a".to_owned()])]);
        let user = UserInfo { uid: Some("7".to_owned()), extra, ..user("bob", &["system:authenticated"]) };
        assert_eq!(
            asserted(&user, &[]).unwrap(),
            [
                "impersonate-extra-authentication.kcp.io%2fscopes: cluster:a",
                "impersonate-group: system:authenticated",
                "impersonate-uid: 7",
                "impersonate-user: bob",
            ]
        );
    }

    #[test]
    fn a_user_that_the_shard_would_take_for_another_one_is_refused() {
        for name in ["", " root", "root ", "a\nb"] {
            assert_eq!(asserted(&user(name, &["system:authenticated"]), &[]), Err(401), "{name:?}");
        }
        let uid = UserInfo { uid: Some("a\nb".to_owned()), ..user("a", &[]) };
        assert_eq!(asserted(&uid, &[]), Err(401));
        // Without a group the shard would derive groups from these names.
        for name in ["system:node:n", "system:serviceaccount:default:a"] {
            let lines = asserted(&user(name, &[]), &[]).unwrap();
            assert_eq!(
                lines,
                ["impersonate-group: system:authenticated".to_owned(), format!("impersonate-user: {name}")]
            );
        }
        let anonymous = asserted(Identity::anonymous().user(), &[]).unwrap();
        assert_eq!(
            anonymous,
            ["impersonate-group: system:unauthenticated", "impersonate-user: system:anonymous"]
        );
    }

    #[test]
    fn only_masters_impersonate() {
        let impersonation: [&[(&'static str, &'static str)]; 5] = [
            &[("impersonate-user", "root")],
            &[("impersonate-group", "system:masters")],
            &[("impersonate-uid", "1")],
            &[("Impersonate_User", "root")],
            &[("impersonate-extra-a", "b"), ("connection", "close")],
        ];
        for lines in impersonation {
            assert_eq!(asserted(&user("alice", &["system:kcp:admin"]), lines), Err(403), "{lines:?}");
        }
        let master = user("kcp-vw-0", &["system:masters"]);
        assert_eq!(asserted(&master, impersonation[0]).unwrap(), ["impersonate-user: root"]);
    }

    #[test]
    fn only_virtual_workspaces_of_shards_are_forwarded() {
        for (path, expected) in [
            ("/services/apiexport/root/a/clusters/*/api", true),
            ("/services/initializingworkspaces", true),
            ("/services/terminatingworkspaces/root:a", true),
            ("/services/apiresourceschema/a", true),
            ("/services/replication/a/slice/clusters/*/api", true),
            ("/services/cache/shards/*", false),
            ("/services/apiexports/a", false),
            ("/services/%61piexport/a", false),
            ("/services", false),
            ("/clusters/root/api", false),
            ("/clusters/root/services/apiexport", false),
        ] {
            assert_eq!(is_forwarded(path), expected, "{path}");
        }
    }
}
