//! The matrix of outcomes (front-proxy.md 1.9), row by row and over both protocols: what a request gets from this
//! gateway, and what it gets where the gateway is told to do as kcp does (`kcpCompatibility`).

use std::fs;
use std::net::SocketAddr;

use fairlead_config::{InputFile, KcpBehaviour, SecretFile};
use http::Method;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use crate::explain::Explanation;
use crate::mapping::clusters;
use crate::pki::Leaf;
use crate::shard::Shard;
use crate::world::{Answer, Choices, Http2, SecondGateway, World, connect, logical_cluster, request};

/// All that can be switched back.
pub const EVERYTHING: [KcpBehaviour; 17] = [
    KcpBehaviour::Readiness,
    KcpBehaviour::Unsynced,
    KcpBehaviour::UnavailableBody,
    KcpBehaviour::Unreachable,
    KcpBehaviour::MountLabels,
    KcpBehaviour::Retries,
    KcpBehaviour::AuthenticationMethods,
    KcpBehaviour::Pings,
    KcpBehaviour::Drain,
    KcpBehaviour::Reloads,
    KcpBehaviour::BaseUrls,
    KcpBehaviour::ClearedMounts,
    KcpBehaviour::IdentityHeadersFirst,
    KcpBehaviour::RemoteUid,
    KcpBehaviour::NoCredential,
    KcpBehaviour::QuotedGroups,
    KcpBehaviour::RootPath,
];

/// A listener of the gateways here: one without a method for tokens, one with a token file.
#[derive(Clone, Copy, Debug)]
enum Listener {
    Usual,
    Tokens,
}

/// What a client shows.
#[derive(Clone, Copy, Debug)]
enum Shown {
    Nothing,
    Alice,
    /// A certificate of an authority that nobody trusts.
    Stranger,
    GoodToken,
    BadToken,
}

use Listener::{Tokens, Usual};
use Shown::{Alice, BadToken, GoodToken, Nothing, Stranger};

/// Situation, listener, what is shown, path; the outcome here, and as kcp.
type Row = (&'static str, Listener, Shown, &'static str, &'static str, &'static str);

const NOT_PERMITTED: &str = "403 Forbidden";
const UNAVAILABLE: &str = "503 ServiceUnavailable";
const UNAVAILABLE_AS_KCP: &str = "503 \"Not available.\\n\"";
const UNMAPPED: &str = "404 \"404 page not found\\n\"";
const ALICE: &str = "root as alice";

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("unknown workspace, no credential", Usual, Nothing, "/clusters/root:nope/api", NOT_PERMITTED, NOT_PERMITTED),
    ("unknown workspace, no credential", Tokens, Nothing, "/clusters/root:nope/api", NOT_PERMITTED, NOT_PERMITTED),
    ("unknown workspace, valid certificate", Usual, Alice, "/clusters/root:nope/api", NOT_PERMITTED, NOT_PERMITTED),
    ("unknown workspace, foreign certificate", Usual, Stranger, "/clusters/root:nope/api", NOT_PERMITTED, NOT_PERMITTED),
    ("unknown workspace, valid token", Tokens, GoodToken, "/clusters/root:nope/api", NOT_PERMITTED, NOT_PERMITTED),
    ("unknown workspace, invalid token", Tokens, BadToken, "/clusters/root:nope/api", NOT_PERMITTED, NOT_PERMITTED),
    ("unknown workspace, unjudged token", Usual, BadToken, "/clusters/root:nope/api", NOT_PERMITTED, NOT_PERMITTED),
    ("wildcard", Usual, Alice, "/clusters/*/api", NOT_PERMITTED, NOT_PERMITTED),
    ("system", Usual, Alice, "/clusters/system:admin/api", NOT_PERMITTED, NOT_PERMITTED),
    ("upper case", Usual, Alice, "/clusters/Root/api", NOT_PERMITTED, NOT_PERMITTED),
    ("wildcard, foreign certificate", Usual, Stranger, "/clusters/*/api", NOT_PERMITTED, NOT_PERMITTED),
    ("known, no credential, no method", Usual, Nothing, "/clusters/root:here/api", "root as nobody", "root as nobody"),
    ("known, no credential, a method", Tokens, Nothing, "/clusters/root:here/api", "401 Unauthorized", "401 Unauthorized"),
    ("known, invalid token, a method", Tokens, BadToken, "/clusters/root:here/api", "401 Unauthorized", "401 Unauthorized"),
    ("known, valid token, a method", Tokens, GoodToken, "/clusters/root:here/api", "root as bob", "root as bob"),
    ("known, token, no method", Usual, BadToken, "/clusters/root:here/api", "root as nobody with token", "root as nobody with token"),
    ("known, foreign certificate", Usual, Stranger, "/clusters/root:here/api", "401 Unauthorized", "401 Unauthorized"),
    ("known, foreign certificate, a method", Tokens, Stranger, "/clusters/root:here/api", "401 Unauthorized", "401 Unauthorized"),
    ("known, valid certificate", Usual, Alice, "/clusters/root:here/api", ALICE, ALICE),
    ("Scheduling", Usual, Alice, "/clusters/root:scheduling/api", NOT_PERMITTED, NOT_PERMITTED),
    ("Initializing", Usual, Alice, "/clusters/root:initializing/api", ALICE, ALICE),
    ("Terminating", Usual, Alice, "/clusters/root:terminating/api", ALICE, ALICE),
    ("Deleting", Usual, Alice, "/clusters/root:deleting/api", ALICE, ALICE),
    ("Inactive", Usual, Alice, "/clusters/root:inactive/api", ALICE, ALICE),
    ("Ready", Usual, Alice, "/clusters/root:ready/api", ALICE, ALICE),
    ("Unavailable, by path", Usual, Alice, "/clusters/root:unavailable/api", UNAVAILABLE, UNAVAILABLE_AS_KCP),
    ("Unavailable, by path, nothing shown", Usual, Nothing, "/clusters/root:unavailable/api", UNAVAILABLE, UNAVAILABLE_AS_KCP),
    ("Unavailable, by id", Usual, Alice, "/clusters/id-unavailable/api", ALICE, ALICE),
    ("below Unavailable, by path", Usual, Alice, "/clusters/root:unavailable:child/api", UNAVAILABLE, UNAVAILABLE_AS_KCP),
    ("below Unavailable, by id", Usual, Alice, "/clusters/id-unavailable:child/api", ALICE, ALICE),
    ("nothing below Unavailable", Usual, Alice, "/clusters/root:unavailable:nope/api", NOT_PERMITTED, NOT_PERMITTED),
    ("mount, ready", Usual, Alice, "/clusters/root:mount/api", "mounted as alice", "mounted as alice"),
    ("mount, not ready", Usual, Alice, "/clusters/root:mount-away/api", UNAVAILABLE, UNAVAILABLE_AS_KCP),
    ("mount, URL empty", Usual, Alice, "/clusters/root:mount-empty/api", NOT_PERMITTED, NOT_PERMITTED),
    ("mount, not ready, URL empty", Usual, Alice, "/clusters/root:mount-away-empty/api", NOT_PERMITTED, NOT_PERMITTED),
    ("mount, labels behind it", Usual, Alice, "/clusters/root:mount:x:y/api", NOT_PERMITTED, "mounted as alice"),
    ("services, wildcard", Usual, Alice, "/services/x/clusters/*/api", "mapped as alice", "mapped as alice"),
    ("services, unknown", Usual, Alice, "/services/x/clusters/unknown/api", NOT_PERMITTED, NOT_PERMITTED),
    ("services, known", Usual, Alice, "/services/x/clusters/root:here/api", "mapped as alice", "mapped as alice"),
    ("services, no cluster", Usual, Alice, "/services/x/api", "mapped as alice", "mapped as alice"),
    ("unmapped", Usual, Alice, "/e2e", UNMAPPED, UNMAPPED),
    ("unmapped, nothing shown", Usual, Nothing, "/e2e", UNMAPPED, UNMAPPED),
    ("unmapped, foreign certificate", Usual, Stranger, "/e2e", "401 Unauthorized", "401 Unauthorized"),
    ("unmapped, no credential, a method", Tokens, Nothing, "/e2e", "401 Unauthorized", "401 Unauthorized"),
    ("no such endpoint at the root", Usual, Alice, "/healthz", UNMAPPED, UNMAPPED),
    ("no such endpoint at the root", Usual, Alice, "/version", UNMAPPED, UNMAPPED),
    ("no such endpoint at the root", Usual, Alice, "/api", UNMAPPED, UNMAPPED),
    ("no such endpoint at the root", Usual, Alice, "/apis", UNMAPPED, UNMAPPED),
    ("no such endpoint at the root", Usual, Alice, "/openapi/v3", UNMAPPED, UNMAPPED),
    ("clusters, none named", Usual, Alice, "/clusters", UNMAPPED, UNMAPPED),
    ("clusters, none named", Usual, Alice, "/clusters/", UNMAPPED, UNMAPPED),
];

#[rustfmt::skip]
const ROWS_OF_SHARDS: &[Row] = &[
    ("shard object deleted, by path", Usual, Alice, "/clusters/root:gone/api", NOT_PERMITTED, NOT_PERMITTED),
    ("shard object deleted, by id", Usual, Alice, "/clusters/id-gone/api", NOT_PERMITTED, NOT_PERMITTED),
    ("base URL edited, by path", Usual, Alice, "/clusters/root:moving/api", "new-home as alice", NOT_PERMITTED),
    ("base URL edited, by id", Usual, Alice, "/clusters/id-moving/api", "new-home as alice", NOT_PERMITTED),
];

#[rustfmt::skip]
const ROWS_OF_A_SHARD_THAT_IS_DOWN: &[Row] = &[
    ("process down, by path", Usual, Alice, "/clusters/root:down/api", UNAVAILABLE, "502 \"\""),
    ("process down, by id", Usual, Alice, "/clusters/id-down/api", UNAVAILABLE, "502 \"\""),
    ("another shard", Usual, Alice, "/clusters/root:here/api", ALICE, ALICE),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_of_the_matrix() {
    let mut world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    let (mapped, mounted) =
        (world.unregistered_shard("mapped").await, world.unregistered_shard("mounted").await);
    let shards = ["gone", "moving", "down"].map(|name| world.unregistered_shard(name));
    let [gone, moving, down] = futures_util::future::join_all(shards).await.try_into().ok().unwrap();
    two_listeners(&mut world);
    let services = json!({"path": "/services/", "backend": mapped.url()});
    let file = world.write_mapping("mapping.yaml", vec![clusters(), services]);
    world.config.paths.mapping_file = Some(InputFile::from(file));
    world.config.index.miss_wait = "20ms".parse().unwrap();
    for phase in ["Scheduling", "Initializing", "Terminating", "Deleting", "Inactive", "Ready", "Unavailable"]
    {
        let name = phase.to_lowercase();
        let (id, child) = (format!("id-{name}"), format!("id-{name}-child"));
        world.root.state.put("logicalclusters", &id, logical_cluster(&id, Some(&name)));
        world.put_workspace("root", &name, json!({"cluster": id}), phase);
        world.create_workspace(&id, "child", "root", &child);
    }
    let url = format!("{}/clusters/there", mounted.url());
    for (name, url, phase) in [
        ("mount", url.as_str(), "Ready"),
        ("mount-away", &url, "Unavailable"),
        ("mount-empty", "", "Ready"),
        ("mount-away-empty", "", "Unavailable"),
    ] {
        world.put_workspace("root", name, json!({"mount": {"ref": {}}, "URL": url}), phase);
    }
    world.create_workspace("root", "here", "root", "id-here");
    for (name, shard) in [("gone", &gone), ("moving", &moving), ("down", &down)] {
        world.register(name, &shard.url());
        place(&world, shard, name);
    }

    let [here, kcp_compatibility] =
        [&[][..], &EVERYTHING].map(|kcp| world.start_second_gateway(|c| c.kcp_compatibility = kcp.to_vec()));
    let gateways = [&here, &kcp_compatibility];
    for gateway in gateways {
        gateway.gateway.ready().await;
    }
    check(&world, gateways, ROWS).await;

    let new_home = world.unregistered_shard("new-home").await;
    place(&world, &new_home, "moving");
    world.register("moving", &new_home.url());
    world.root.state.delete("shards", "gone");
    for (gateway, moved) in gateways.into_iter().zip(["new-home as alice", NOT_PERMITTED]) {
        for (path, expected) in [("/clusters/id-moving/api", moved), ("/clusters/id-gone/api", NOT_PERMITTED)]
        {
            while outcome(&ask(&world, gateway.address, b"h2", Alice, path).await) != expected {}
        }
    }
    check(&world, gateways, ROWS_OF_SHARDS).await;
    down.stop().await;
    check(&world, gateways, ROWS_OF_A_SHARD_THAT_IS_DOWN).await;
}

/// Asks everything in both protocols.
async fn check(world: &World, gateways: [&SecondGateway; 2], rows: &[Row]) {
    for (situation, listener, shown, path, here, kcp_compatibility) in rows {
        for (gateway, expected) in gateways.into_iter().zip([here, kcp_compatibility]) {
            for protocol in [&b"h2"[..], b"http/1.1"] {
                let address = gateway.gateway.listeners[*listener as usize].1;
                let certificate = certificate(world, *shown);
                let answer = ask_with(world, address, protocol, certificate.as_ref(), *shown, path).await;
                let protocol = protocol.escape_ascii();
                assert_eq!(
                    outcome(&answer),
                    *expected,
                    "{situation}: {shown:?}, {path}, {protocol}: {answer:?}"
                );
                judge_form(&answer, path);
                let foretold = foretell(world, gateway, *listener, certificate, *shown, path).await;
                // A server that is not there is found out by going there.
                if !situation.starts_with("process down") {
                    foretold.assert_agrees_with(&answer, situation);
                }
            }
        }
    }
}

/// What an operator is told about the request of [`ask`].
async fn foretell(
    world: &World,
    gateway: &SecondGateway,
    listener: Listener,
    certificate: Option<Leaf>,
    shown: Shown,
    path: &str,
) -> Explanation {
    let mut question = json!({
        "path": path, "listener": gateway.gateway.listeners[listener as usize].0, "headers": {"x-remote-user": "forged"},
    });
    if let Some(certificate) = certificate {
        question["certificate"] = json!(certificate.certificate);
    }
    if let Some(token) = token(shown) {
        question["token"] = json!(token);
    }
    Explanation::ask(world, gateway.address, &question).await
}

/// Asserts the parts that all responses of a kind share.
fn judge_form(answer: &Answer, path: &str) {
    let head = |name: &str| answer.headers.get(name).map(|value| value.to_str().unwrap());
    match outcome(answer).as_str() {
        NOT_PERMITTED => {
            let why =
                format!("forbidden: User \"\" cannot get path \"{path}\": workspace access not permitted");
            assert_eq!(answer.json()["message"], why);
            assert_eq!(head("x-content-type-options"), Some("nosniff"));
        }
        UNAVAILABLE => assert_eq!(head("retry-after"), Some("1")),
        UNAVAILABLE_AS_KCP | "502 \"\"" => assert_eq!(head("retry-after"), None),
        "401 Unauthorized" => assert_eq!(head("www-authenticate"), None),
        UNMAPPED => assert_eq!(head("content-type"), Some("text/plain; charset=utf-8")),
        _ => {}
    }
}

/// The server that responded and the user that it got; or the code with the reason of a `Status`, or with the text.
fn outcome(answer: &Answer) -> String {
    let code = answer.status;
    let body: Value = serde_json::from_str(&answer.text).unwrap_or_default();
    if let (200, Some(shard)) = (code, body["shard"].as_str()) {
        let user = answer.echoed("x-remote-user: ").pop();
        let user = user.as_deref().map_or("nobody", |line| &line["x-remote-user: ".len()..]);
        let token = if answer.echoed("authorization").is_empty() { "" } else { " with token" };
        return format!("{shard} as {user}{token}");
    }
    match body["kind"].as_str() {
        Some("Status") => {
            assert_eq!(body["code"], code);
            format!("{code} {}", body["reason"].as_str().unwrap())
        }
        _ => format!("{code} {:?}", answer.text),
    }
}

async fn ask(world: &World, listener: SocketAddr, protocol: &[u8], shown: Shown, path: &str) -> Answer {
    ask_with(world, listener, protocol, certificate(world, shown).as_ref(), shown, path).await
}

async fn ask_with(
    world: &World,
    listener: SocketAddr,
    protocol: &[u8],
    certificate: Option<&Leaf>,
    shown: Shown,
    path: &str,
) -> Answer {
    let mut asked = request(Method::GET, path, &[("x-remote-user", "forged")], "");
    if let Some(token) = token(shown) {
        asked.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let stream = connect(listener, &world.serving_ca, certificate, protocol).await.unwrap();
    if protocol == b"h2" {
        return Http2::over(stream).await.send(asked).await;
    }
    asked.headers_mut().insert("host", "localhost".parse().unwrap());
    *asked.uri_mut() = path.parse().unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    Answer::of(sender.send_request(asked).await.unwrap()).await
}

fn certificate(world: &World, shown: Shown) -> Option<Leaf> {
    match shown {
        Alice => Some(world.user()),
        Stranger => Some(world.serving_ca.client("stranger", &["system:masters"])),
        _ => None,
    }
}

fn token(shown: Shown) -> Option<&'static str> {
    match shown {
        GoodToken => Some("good"),
        BadToken => Some("bad"),
        _ => None,
    }
}

fn two_listeners(world: &mut World) {
    let file = world.directory.path().join("tokens.csv");
    fs::write(&file, "good,bob,7\n").unwrap();
    let mut listener = world.config.listeners[0].clone();
    listener.name = "tokens".to_owned();
    listener.authentication.token_file = Some(SecretFile::from(file));
    world.config.listeners.push(listener);
}

/// The workspace `root:<name>` on a shard.
fn place(world: &World, shard: &Shard, name: &str) {
    let id = format!("id-{name}");
    shard.state.put("logicalclusters", &id, logical_cluster(&id, Some(name)));
    world.put_workspace("root", name, json!({"cluster": id}), "Ready");
}
