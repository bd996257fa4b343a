//! The revision that a gateway names in a request: only gateways are held until the shard has it, and are told one.

use fairlead_certs::Client as Role;
use fairlead_client::{Client, Request, Token};
use fairlead_tests::harness::Pki;
use http::{HeaderName, HeaderValue, Method};
use serde_json::json;

use super::Shard;

const PATH: &str = "/clusters/root/api/v1/namespaces/default/configmaps";
/// A revision that the shard never has.
const FUTURE: u64 = 9_000_000_000_000_000_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_gateways_wait_for_a_revision_and_are_told_one() {
    let shard = Shard::start(json!({})).await;
    let folder = tempfile::tempdir().unwrap();
    let foreign = Pki::new(folder.path(), &["root"]).unwrap().layout().client_cert(&Role::FrontProxy);
    let read = |path| std::fs::read(path).unwrap();
    let anonymous = || shard.pki.anonymous().unwrap();
    let unverified = anonymous().with_certificate(&read(&foreign.certificate), &read(&foreign.key)).unwrap();
    let clients = [
        ("no credential", anonymous(), 403),
        ("a certificate of another authority", unverified, 401),
        ("a wrong token", anonymous().with_token(Token::new("wrong")).unwrap(), 401),
        ("a master", shard.pki.credentials(&Role::ShardAdmin).unwrap(), 200),
    ];
    for (case, credentials, status) in clients {
        let client = shard.pki.client(shard.port, credentials).unwrap();
        for revision in [0, FUTURE] {
            // A request that is held gets 503.
            assert_eq!(send(&client, PATH, revision).await, (status, None), "{case}, revision {revision}");
        }
        assert_eq!(send(&client, "/readyz", FUTURE).await, (200, None), "{case}");
    }
    // A listener for tokens has a gateway's certificate as well, with a name that may not assert users.
    for (role, expected) in [(Role::FrontProxy, 403), (Role::FrontProxyEdge, 401)] {
        let gateway = shard.client(&role);
        let (status, current) = send(&gateway, PATH, 0).await;
        // The user has no rights, which the shard decides when it has the revision.
        assert_eq!((status, current.is_some()), (expected, true), "{role:?}");
        let (status, refused_at) = send(&gateway, PATH, FUTURE).await;
        assert_eq!((status, refused_at.is_some()), (503, true), "{role:?}");
    }
}

/// Sends a request that names a revision, for a user if the client may name one. Returns status and revision of the response.
async fn send(client: &Client, path: &str, revision: u64) -> (u16, Option<u64>) {
    let request = Request::new(Method::GET, path)
        .with_header(HeaderName::from_static("x-fairlead-revision"), revision.into())
        .with_header(HeaderName::from_static("x-remote-user"), HeaderValue::from_static("ann"));
    let response = client.request_any_status(request).await.unwrap();
    let told = response.headers.get("x-fairlead-revision");
    (response.status.as_u16(), told.map(|value| value.to_str().unwrap().parse().unwrap()))
}
