//! Token issuers of a listener or a workspace: rotated keys, clock skew, missing credentials.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairlead_config::{InputFile, KcpBehaviour, OidcConfig};
use http::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::issuer::server::{Reply, Server};
use crate::issuer::signing::Signer;
use crate::world::{Answer, Choices, Http2, ORG, World, connect, request};

const PATH: &str = "/clusters/root:org/api";
/// Only to fail instead of hanging. Unknown keys are fetched every ten seconds at most.
const LIMIT: Duration = Duration::from_secs(60);

pub fn serve(server: &Server, keys: &[&Signer]) {
    let document = json!({"issuer": server.url(), "jwks_uri": format!("{}/keys", server.url())});
    let keys = json!({"keys": keys.iter().map(|signer| signer.jwk()).collect::<Vec<_>>()});
    server.answer(move |path, _| match path {
        "/.well-known/openid-configuration" => Reply::Json(document.to_string()),
        "/keys" => Reply::Json(keys.to_string()),
        _ => Reply::Status(404),
    });
}

/// The claims of a token, with times in seconds from now.
pub fn claims(server: &Server, not_before: i64, expires: i64, id: &str) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let at = |seconds: i64| now.saturating_add_signed(seconds);
    json!({
        "iss": server.url(), "aud": "client", "sub": "ann", "jti": id,
        "nbf": at(not_before), "iat": at(not_before), "exp": at(expires),
    })
}

async fn ask(client: &Http2, path: &str, token: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    client.send(request(Method::GET, path, &[("authorization", &bearer)], "")).await
}

fn outcome(answer: &Answer) -> String {
    match answer.status {
        200 => answer.echoed("x-remote-user").pop().unwrap_or_else(|| "nobody".to_owned()),
        code => code.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn issuer_keys_rotate_and_clock_skew_is_tolerated() {
    let server = Server::start().await;
    let (first, second) = (Signer::elliptic_curve("P-256", "one"), Signer::elliptic_curve("P-256", "two"));
    serve(&server, &[&first]);
    let mut world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    let file = world.directory.path().join("issuer-ca.crt");
    std::fs::write(&file, &server.certificate_authority).unwrap();
    world.config.listeners[0].authentication.oidc = Some(OidcConfig {
        issuer_url: server.url(),
        client_id: "client".to_owned(),
        ca_file: Some(InputFile::from(file)),
        username_prefix: "-".to_owned(),
        signing_algorithms: vec!["ES256".to_owned()],
        ..OidcConfig::default()
    });
    world.start().await;
    let client = world.http2(None).await;
    const ANN: &str = "x-remote-user: ann";
    for (what, not_before, expires, expected) in [
        ("good", -60, 600, ANN),
        ("from a clock that is a little ahead", 30, 600, ANN),
        ("from a clock that is far ahead", 300, 600, "401"),
        ("over", -600, -1, "401"),
    ] {
        let token = first.sign(&claims(&server, not_before, expires, what));
        assert_eq!(outcome(&ask(&client, PATH, &token).await), expected, "{what}");
    }

    // The next key is published and used, then the previous one is withdrawn: tokens of published keys are always accepted.
    serve(&server, &[&first, &second]);
    let next = second.sign(&claims(&server, 0, 600, "next"));
    let found = async {
        for number in 0.. {
            let last = first.sign(&claims(&server, 0, 600, &number.to_string()));
            assert_eq!(outcome(&ask(&client, PATH, &last).await), ANN);
            if outcome(&ask(&client, PATH, &next).await) == ANN {
                break;
            }
        }
    };
    timeout(LIMIT, found).await.expect("the new key is not found");
    // Tokens with made-up keys have not caused more fetches than that.
    assert!(server.count("/keys") <= 5, "{} fetches", server.count("/keys"));
}

/// A world where the type of `root:org` has its own issuer.
async fn world_with_issuer(server: &Server) -> World {
    let mut world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    world.config.listeners[0].authentication.workspaces = true;
    set_type(&world, "root:tenants");
    world.root.state.put(
        "workspacetypes",
        "tenants",
        json!({
            "metadata": {"name": "tenants", "annotations": {"kcp.io/cluster": "root", "kcp.io/path": "root"}},
            "spec": {"authenticationConfigurations": [{"name": "own"}]},
        }),
    );
    world.root.state.put(
        "workspaceauthenticationconfigurations",
        "own",
        json!({
            "metadata": {"name": "own", "annotations": {"kcp.io/cluster": "root"}},
            "spec": {"jwt": [{
                "issuer": {
                    "url": server.url(), "audiences": ["client"],
                    "certificateAuthority": server.certificate_authority,
                },
                "claimMappings": {"username": {"claim": "sub", "prefix": "own:"}},
            }]},
        }),
    );
    world.create_workspace("root", "plain", "alpha", "pla1n00000000001");
    world.start().await;
    world
}

/// Sets the workspace type of `root:org` at its shard.
fn set_type(world: &World, name: &str) {
    let mut object = crate::world::logical_cluster(ORG, Some("org"));
    object["metadata"]["annotations"]["internal.tenancy.kcp.io/type"] = json!(name);
    world.alpha.state.put("logicalclusters", ORG, object);
}

/// kcp's proxy panics and closes the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_credential_a_workspace_with_issuers_of_its_own_is_401() {
    let server = Server::start().await;
    let signer = Signer::elliptic_curve("P-256", "one");
    serve(&server, &[&signer]);
    let world = world_with_issuer(&server).await;
    let token = signer.sign(&claims(&server, 0, 600, "t"));
    let bearer = format!("Bearer {token}");

    let client = world.http2(None).await;
    let mut http1 = world.http1(None).await;
    for _ in 0..3 {
        let answer = client.get(PATH).await;
        assert_eq!((answer.status, answer.json()["reason"].as_str()), (401, Some("Unauthorized")));
        http1.ready().await.unwrap();
        let get = request(Method::GET, PATH, &[("host", "localhost")], "");
        assert_eq!(Answer::of(http1.send_request(get).await.unwrap()).await.status, 401);
    }
    // The connections stay open, and requests with a credential succeed.
    let answer = ask(&client, PATH, &token).await;
    assert_eq!(outcome(&answer), "x-remote-user: own:ann");
    let scopes = answer.echoed("x-remote-extra-authentication.kcp.io%2fscopes");
    assert_eq!(scopes, [format!("x-remote-extra-authentication.kcp.io%2fscopes: cluster:{ORG}")]);
    http1.ready().await.unwrap();
    let get = request(Method::GET, PATH, &[("host", "localhost"), ("authorization", &bearer)], "");
    let answer = Answer::of(http1.send_request(get).await.unwrap()).await;
    assert_eq!(outcome(&answer), "x-remote-user: own:ann");
    // In other workspaces the gateway does not verify this token; the shard does.
    for path in ["/clusters/root:plain/api", "/clusters/root/api"] {
        assert_eq!(outcome(&client.get(path).await), "nobody", "{path}");
        let answer = ask(&client, path, &token).await;
        assert_eq!(
            (outcome(&answer), answer.echoed("authorization").len()),
            ("nobody".to_owned(), 1),
            "{path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_credential_such_a_workspace_is_500_with_kcp_compatibility() {
    let server = Server::start().await;
    let signer = Signer::elliptic_curve("P-256", "one");
    serve(&server, &[&signer]);
    let world = world_with_issuer(&server).await;
    let kcp =
        world.start_second_gateway(|config| config.kcp_compatibility = vec![KcpBehaviour::NoCredential]);
    kcp.gateway.ready().await;
    let stream = connect(kcp.address, &world.serving_ca, None, b"h2").await.unwrap();
    let client = Http2::over(stream).await;
    let answer = client.get(PATH).await;
    let words = "This request caused apiserver to panic. Look in the logs for details.\n";
    assert_eq!((answer.status, answer.text.as_str()), (500, words));
    let stranger = world.serving_ca.client("stranger", &[]);
    let stream = connect(kcp.address, &world.serving_ca, Some(&stranger), b"h2").await.unwrap();
    assert_eq!(Http2::over(stream).await.get(PATH).await.status, 500, "a certificate is no token");
    // Only this response is as in kcp.
    let token = signer.sign(&claims(&server, 0, 600, "t"));
    assert_eq!(outcome(&ask(&client, PATH, &token).await), "x-remote-user: own:ann");
    assert_eq!(outcome(&client.get("/clusters/root:plain/api").await), "nobody");
}

/// kcp's index reads the type only when a logical cluster appears on another shard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_with_a_new_type_is_authenticated_by_that_type() {
    let server = Server::start().await;
    serve(&server, &[]);
    let world = world_with_issuer(&server).await;
    let client = world.http2(None).await;
    for (name, expected) in [("root:tenants", "401"), ("root:universal", "nobody"), ("root:tenants", "401")] {
        set_type(&world, name);
        let becomes = async { while outcome(&client.get(PATH).await) != expected {} };
        timeout(LIMIT, becomes).await.unwrap_or_else(|_| panic!("{name} does not count"));
    }
}
