//! Authentication at a listener with every kind of credential: kcp's table of optional authentication and its authenticators.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fairlead_config::{InputFile, KcpBehaviour, SecretFile, WebhookConfig};
use http::Method;
use serde_json::{Value, json};

use crate::pki::Leaf;
use crate::world::{Answer, Choices, ORG, World, request};

/// Number of times that the settings change and change back under load.
const CHANGES: usize = 150;

const PATH: &str = "/clusters/root:org/api";

async fn world(choose: impl FnOnce(&mut World)) -> World {
    let mut world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    choose(&mut world);
    world.start().await;
    world
}

async fn ask(world: &World, certificate: Option<&Leaf>, path: &str, headers: &[(&str, &str)]) -> Answer {
    world.http2(certificate).await.send(request(Method::GET, path, headers, "")).await
}

/// The status code of an error; otherwise the user that the shard received, and whether it also received the token.
fn outcome(answer: &Answer) -> String {
    if answer.status != 200 {
        return answer.status.to_string();
    }
    let user = answer.echoed("x-remote-user").pop().unwrap_or_else(|| "nobody".to_owned());
    let user = user.trim_start_matches("x-remote-user: ").to_owned();
    match answer.echoed("authorization").is_empty() {
        true => user,
        false => format!("{user} with token"),
    }
}

fn with_token_file(world: &mut World) {
    let file = world.directory.path().join("tokens.csv");
    fs::write(&file, "good,bob,7,\"team-1,system:masters\"\n").unwrap();
    world.config.listeners[0].authentication.token_file = Some(SecretFile::from(file));
}

fn with_webhook(world: &mut World) {
    let kubeconfig = world.directory.path().join("shards.kubeconfig").into();
    let webhook = WebhookConfig { kubeconfig, ..WebhookConfig::default() };
    world.config.listeners[0].authentication.webhook = Some(webhook);
}

/// Tests every line of front-proxy.md 4.2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn optional_authentication_depends_on_the_configured_methods() {
    let nothing = world(|_| ()).await;
    let token_file = world(with_token_file).await;
    let webhook = world(with_webhook).await;
    let webhook_like_kcp = world(|world| {
        with_webhook(world);
        world.config.kcp_compatibility = vec![KcpBehaviour::AuthenticationMethods];
    })
    .await;
    let no_authority = world(|world| world.config.listeners[0].client_ca = None).await;
    for (what, world, certificate, token, expected) in [
        ("no method", &nothing, "none", "", "nobody"),
        ("no method", &nothing, "none", "any", "nobody with token"),
        ("no method", &nothing, "stranger", "", "401"),
        ("no method", &nothing, "stranger", "any", "401"),
        ("no method", &nothing, "alice", "", "alice"),
        ("no method", &nothing, "alice", "any", "alice with token"),
        ("token file", &token_file, "none", "", "401"),
        ("token file", &token_file, "none", "bad", "401"),
        ("token file", &token_file, "none", "good", "bob"),
        ("token file", &token_file, "stranger", "", "401"),
        ("token file", &token_file, "stranger", "bad", "401"),
        ("token file", &token_file, "stranger", "good", "bob"),
        ("token file", &token_file, "alice", "good", "alice with token"),
        // With a second space before the token the header holds no token, as for the shards.
        ("token file", &token_file, "none", " good", "401"),
        ("webhook", &webhook, "none", "", "401"),
        ("webhook as kcp", &webhook_like_kcp, "none", "", "nobody"),
        ("webhook as kcp", &webhook_like_kcp, "none", "any", "nobody with token"),
        ("no authority", &no_authority, "stranger", "", "nobody"),
        ("no authority", &no_authority, "alice", "any", "nobody with token"),
    ] {
        let leaf = match certificate {
            "alice" => Some(world.user()),
            "stranger" => Some(world.serving_ca.client("stranger", &["system:masters"])),
            _ => None,
        };
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str()), ("x-remote-user", "forged")];
        let headers = if token.is_empty() { &headers[1..] } else { &headers[..] };
        let answer = ask(world, leaf.as_ref(), PATH, headers).await;
        assert_eq!(outcome(&answer), expected, "{what}: certificate {certificate}, token {token:?}");
    }
}

/// An issuer, a webhook or a token file cannot make its users operators of the gateway by naming a group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn privileged_groups_come_from_certificates_unless_tokens_may_assert_them() {
    const METRICS: &str = "/metrics";
    let with_operator = |privileged_token_groups: bool| {
        world(move |world| {
            let file = world.directory.path().join("tokens.csv");
            fs::write(&file, "good,eve,7,\"team,system:kcp:admin,system:fairlead:shard\"\n").unwrap();
            let authentication = &mut world.config.listeners[0].authentication;
            authentication.token_file = Some(SecretFile::from(file));
            authentication.privileged_token_groups = privileged_token_groups;
        })
    };
    let token = [("authorization", "Bearer good")];
    let strict = with_operator(false).await;
    let groups = ["x-remote-group: system:authenticated", "x-remote-group: team"];
    assert_eq!(ask(&strict, None, PATH, &token).await.echoed("x-remote-group"), groups);
    assert_ne!(ask(&strict, None, METRICS, &token).await.status, 200);
    assert_eq!(ask(&strict, Some(&strict.operator()), METRICS, &[]).await.status, 200);

    let allowed = with_operator(true).await;
    assert_eq!(ask(&allowed, None, PATH, &token).await.echoed("x-remote-group").len(), 4);
    assert_eq!(ask(&allowed, None, METRICS, &token).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_are_dropped_passed_on_and_reloaded() {
    let world = world(|world| {
        with_token_file(world);
        world.config.listeners[0].authentication.pass_on_groups =
            vec!["team-*".to_owned(), "system:authenticated".to_owned(), "system:masters".to_owned()];
    })
    .await;
    let bob = [("authorization", "Bearer good")];
    let answer = ask(&world, None, PATH, &bob).await;
    let groups = ["x-remote-group: system:authenticated", "x-remote-group: team-1"];
    assert_eq!(answer.echoed("x-remote-group"), groups);
    fs::write(world.directory.path().join("tokens.csv"), "other,carol,8\n").unwrap();
    world.environment.reloads.check_now();
    assert_eq!(outcome(&ask(&world, None, PATH, &bob).await), "401");
    assert_eq!(outcome(&ask(&world, None, PATH, &[("authorization", "Bearer other")]).await), "carol");
    fs::write(world.directory.path().join("tokens.csv"), "no comma").unwrap();
    world.environment.reloads.check_now();
    assert_eq!(outcome(&ask(&world, None, PATH, &[("authorization", "Bearer other")]).await), "carol");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_added_by_a_reconfiguration_is_reloaded_like_the_initial_ones() {
    let mut world = world(|_| ()).await;
    let mut changed = world.config.clone();
    with_token_file(&mut world);
    changed.listeners[0].authentication.token_file =
        world.config.listeners[0].authentication.token_file.clone();
    world.gateway.as_mut().unwrap().reconfigure(changed).unwrap();
    assert_eq!(outcome(&ask(&world, None, PATH, &[("authorization", "Bearer good")]).await), "bob");
    world.environment.reloads.check_now();
    fs::write(world.directory.path().join("tokens.csv"), "other,carol,8\n").unwrap();
    world.environment.reloads.check_now();
    assert_eq!(outcome(&ask(&world, None, PATH, &[("authorization", "Bearer other")]).await), "carol");
    assert_eq!(outcome(&ask(&world, None, PATH, &[("authorization", "Bearer good")]).await), "401");
}

/// The second hop of a request to a mounted workspace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_front_proxies_may_assert_users_in_request_headers() {
    let world = world(|world| {
        let directory = world.directory.path();
        fs::write(directory.join("proxies.crt"), &world.front_proxy_ca.pem).unwrap();
        let headers = &mut world.config.listeners[0].authentication.request_header;
        headers.client_ca = Some(InputFile::from(directory.join("proxies.crt")));
        headers.allowed_names = vec!["kcp-front-proxy".to_owned(), "kcp-mounts-proxy".to_owned()];
    })
    .await;
    let says = [
        ("x-remote-user", "dora"),
        ("x-remote-group", "team-2"),
        ("x-remote-group", "system:masters"),
        ("x-remote-extra-authentication.kcp.io%2fscopes", "cluster:a"),
    ];
    for (authority, name, expected) in [
        (&world.front_proxy_ca, "kcp-front-proxy", "dora"),
        (&world.front_proxy_ca, "kcp-mounts-proxy", "dora"),
        (&world.front_proxy_ca, "someone", "401"),
        (&world.client_ca, "kcp-front-proxy", "kcp-front-proxy"),
        (&world.serving_ca, "kcp-front-proxy", "401"),
    ] {
        let answer = ask(&world, Some(&authority.client(name, &[])), PATH, &says).await;
        assert_eq!(outcome(&answer), expected, "{name}");
        if expected == "dora" {
            let groups = ["x-remote-group: system:authenticated", "x-remote-group: team-2"];
            assert_eq!(answer.echoed("x-remote-group"), groups);
            let scopes = ["x-remote-extra-authentication.kcp.io%2fscopes: cluster:a"];
            assert_eq!(answer.echoed("x-remote-extra-"), scopes);
        }
    }
}

/// Otherwise the next gateway, which trusts this one and these header names, would accept the identity that the client forged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identity_headers_that_a_listener_trusts_are_not_forwarded() {
    let world = world(|world| {
        let directory = world.directory.path();
        fs::write(directory.join("proxies.crt"), &world.front_proxy_ca.pem).unwrap();
        let headers = &mut world.config.listeners[0].authentication.request_header;
        headers.client_ca = Some(InputFile::from(directory.join("proxies.crt")));
        headers.allowed_names = vec!["kcp-front-proxy".to_owned()];
        headers.username_headers = vec!["X-Proxy-User".to_owned(), "X-Remote-User".to_owned()];
        headers.group_headers = vec!["X-Proxy-Group".to_owned()];
        headers.extra_header_prefixes = vec!["X-Proxy-Extra-".to_owned()];
    })
    .await;
    let says = [("x-proxy-user", "dora"), ("x-proxy-group", "team-2"), ("x-proxy-extra-scopes", "cluster:a")];
    for (peer, user) in
        [(world.user(), "alice"), (world.front_proxy_ca.client("kcp-front-proxy", &[]), "dora")]
    {
        let answer = ask(&world, Some(&peer), PATH, &says).await;
        assert_eq!(outcome(&answer), user);
        assert_eq!(answer.echoed("x-proxy-"), [""; 0], "{user}");
    }
}

/// Configures the listener to trust these user name headers of front proxies, in addition to X-Remote-User.
fn trust_front_proxies(world: &mut World, names: &[&str]) {
    let directory = world.directory.path();
    fs::write(directory.join("proxies.crt"), &world.front_proxy_ca.pem).unwrap();
    let headers = &mut world.config.listeners[0].authentication.request_header;
    headers.client_ca = Some(InputFile::from(directory.join("proxies.crt")));
    headers.allowed_names = vec!["kcp-front-proxy".to_owned()];
    headers.username_headers =
        names.iter().chain(&["X-Remote-User"]).map(|name| (*name).to_owned()).collect();
}

/// A request may start under other settings than those by which it is authenticated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newly_trusted_identity_headers_are_removed_from_waiting_requests() {
    const NEW: &str = "/clusters/root:new/api";
    let mut world = world(|world| {
        world.config.index.miss_wait = "1m".parse().unwrap();
        trust_front_proxies(world, &[]);
    })
    .await;
    let proxy = world.http2(Some(&world.front_proxy_ca.client("kcp-front-proxy", &[]))).await;
    let says = [("x-proxy-user", "dora")];
    // The workspace is not in the index yet.
    let waiting = tokio::spawn({
        let (proxy, asked) = (proxy.clone(), request(Method::GET, NEW, &says, ""));
        async move { proxy.send(asked).await }
    });
    let operator = world.http2(Some(&world.operator())).await;
    while !operator.get("/metrics").await.text.contains("fairlead_gateway_requests_open{class=\"read\"} 2\n")
    {
    }
    trust_front_proxies(&mut world, &["X-Proxy-User"]);
    let config = world.config.clone();
    world.gateway.as_mut().unwrap().reconfigure(config).unwrap();
    world.create_workspace("root", "new", "alpha", "new0000000000001");
    let answer = waiting.await.unwrap();
    assert_eq!(outcome(&answer), "dora");
    assert_eq!(answer.echoed("x-proxy-"), [""; 0]);
}

/// The headers are not forwarded while the settings change repeatedly, either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identity_headers_are_not_forwarded_while_the_trusted_names_change() {
    let mut world = world(|world| trust_front_proxies(world, &["X-Proxy-User"])).await;
    let with = world.config.clone();
    trust_front_proxies(&mut world, &[]);
    let without = world.config.clone();
    let stop = Arc::<AtomicBool>::default();
    let mut asked = Vec::new();
    for _ in 0..4 {
        let proxy = world.http2(Some(&world.front_proxy_ca.client("kcp-front-proxy", &[]))).await;
        let stop = Arc::clone(&stop);
        asked.push(tokio::spawn(async move {
            let mut both = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                let says = [("x-proxy-user", "dora")];
                let answer = proxy.send(request(Method::GET, PATH, &says, "")).await;
                if outcome(&answer) == "dora" && !answer.echoed("x-proxy-").is_empty() {
                    both.push(answer.text);
                }
            }
            both
        }));
    }
    let gateway = world.gateway.as_mut().unwrap();
    for _ in 0..CHANGES {
        for config in [&without, &with] {
            gateway.reconfigure(config.clone()).unwrap();
        }
    }
    stop.store(true, Ordering::SeqCst);
    for one in asked {
        assert_eq!(one.await.unwrap(), [""; 0]);
    }
}

/// Creates a signing key for service account tokens and configures the listener to verify tokens with its public key.
fn signing_key(world: &mut World) -> EcdsaKeyPair {
    let (key, file) = robots_key(world);
    world.config.listeners[0].authentication.service_accounts.key_files = vec![file];
    key
}

pub fn robots_key(world: &World) -> (EcdsaKeyPair, InputFile) {
    let key = rcgen::KeyPair::generate().unwrap();
    let file = world.directory.path().join("sa.pub");
    fs::write(&file, key.public_key_pem()).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.serialized_der()).unwrap();
    (pair, InputFile::from(file))
}

pub fn robot(key: &EcdsaKeyPair, cluster: &str) -> String {
    robot_issued_in(key, cluster, 0)
}

fn robot_issued_in(key: &EcdsaKeyPair, cluster: &str, seconds: u64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let claims: Value = json!({
        "iss": "https://kcp.default.svc", "aud": ["https://kcp.default.svc"], "exp": now + 600, "jti": "j",
        "iat": now + seconds,
        "sub": "system:serviceaccount:default:robot",
        "kubernetes.io": {
            "clusterName": cluster, "namespace": "default", "serviceaccount": {"name": "robot", "uid": "u-1"},
        },
    });
    let signed =
        [json!({"alg": "ES256"}), claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
    let signature = key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_account_tokens_are_checked_on_their_shard_and_select_their_workspace() {
    let mut key = None;
    let world = world(|world| key = Some(signing_key(world))).await;
    let key = key.unwrap();
    let (token, foreign) = (robot(&key, ORG), robot(&key, "root"));
    let early = robot_issued_in(&key, ORG, 500);
    let bearer = |token: &str| format!("Bearer {token}");
    let object = json!({"metadata": {"name": "robot", "namespace": "default", "uid": "u-1"}});
    world.alpha.state.put("serviceaccounts", "robot", object);
    let name = "system:serviceaccount:default:robot";
    for (path, token, expected, forwarded) in [
        (PATH, &token, name, "/clusters/0rg0000000000001/api"),
        // Clients inside a cluster know only host and port.
        ("/api/v1/pods?limit=1", &token, name, "/clusters/0rg0000000000001/api/v1/pods?limit=1"),
        ("/version/", &token, name, "/clusters/0rg0000000000001/version"),
        // The account is looked up on the shard of its own workspace; root has no account of that name.
        (PATH, &foreign, "401", ""),
        ("/api/v1/pods", &foreign, "401", ""),
        (PATH, &early, "401", ""),
    ] {
        let answer = ask(&world, None, path, &[("authorization", &bearer(token))]).await;
        assert_eq!(outcome(&answer), expected, "{path}");
        if expected == name {
            assert_eq!(answer.json()["path"], forwarded);
            let expected = [
                format!("x-remote-extra-authentication.kcp.io%2fcluster-name: {ORG}"),
                format!("x-remote-extra-authentication.kcp.io%2fscopes: cluster:{ORG}"),
            ];
            assert_eq!(answer.echoed("x-remote-extra-authentication.kcp.io"), expected);
        }
    }
    // A client that declares sharded requests addresses the path that it names.
    let aware = [("authorization", bearer(&token)), ("x-kubernetes-sharded-request", "true".to_owned())];
    let aware: Vec<_> = aware.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(ask(&world, None, "/api/v1/pods", &aware).await.status, 404);
    let unknown = bearer(&robot(&key, "nope"));
    assert_eq!(ask(&world, None, "/api/v1/pods", &[("authorization", &unknown)]).await.status, 403);
    let climbing = bearer(&robot(&key, "../services"));
    assert_eq!(ask(&world, None, "/x", &[("authorization", &climbing)]).await.status, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_account_tokens_without_a_workspace_are_scoped_to_none() {
    let mut key = None;
    let world = world(|world| {
        key = Some(signing_key(world));
        world.config.listeners[0].authentication.service_accounts.lookup = false;
    })
    .await;
    let homeless = format!("Bearer {}", robot(&key.unwrap(), ""));
    let answer = ask(&world, None, PATH, &[("authorization", &homeless)]).await;
    assert_eq!(outcome(&answer), "system:serviceaccount:default:robot");
    let expected = [
        "x-remote-extra-authentication.kcp.io%2fcluster-name: ",
        "x-remote-extra-authentication.kcp.io%2fscopes: cluster:",
    ];
    assert_eq!(answer.echoed("x-remote-extra-authentication.kcp.io"), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_structured_configuration_may_allow_anonymous_requests_to_paths() {
    let world = world(|world| {
        let file = world.directory.path().join("authentication.yaml");
        let text = "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\n\
                    anonymous:\n  enabled: true\n  conditions:\n  - path: /clusters/root:org/healthz\n";
        fs::write(&file, text).unwrap();
        world.config.listeners[0].authentication.configuration = Some(InputFile::from(file));
    })
    .await;
    let open = ask(&world, None, "/clusters/root:org/healthz", &[]).await;
    assert_eq!(outcome(&open), "system:anonymous");
    assert_eq!(outcome(&ask(&world, None, PATH, &[]).await), "401");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn web_pages_of_allowed_origins_may_read_answers() {
    let world = world(|world| {
        world.config.cors_allowed_origins = vec!["^https://console\\.example$".to_owned()];
    })
    .await;
    let client = world.http2(None).await;
    let send = async |method: Method, path: &str, origin: &str| {
        client.send(request(method, path, &[("origin", origin)], "")).await
    };
    let allowed = "https://console.example";
    let preflight = send(Method::OPTIONS, PATH, allowed).await;
    assert_eq!(preflight.status, 204);
    for (name, value) in [
        ("access-control-allow-origin", allowed),
        ("access-control-allow-methods", "POST, GET, OPTIONS, PUT, DELETE, PATCH"),
        ("access-control-expose-headers", "Date"),
        ("access-control-allow-credentials", "true"),
    ] {
        assert_eq!(preflight.headers[name], value);
    }
    for (method, path, origin, code, decorated) in [
        (Method::GET, PATH, allowed, 200, true),
        (Method::GET, "/clusters/Nope/api", allowed, 403, true),
        (Method::GET, PATH, "https://evil.example", 200, false),
        (Method::OPTIONS, PATH, "https://evil.example", 200, false),
        (Method::GET, "/livez", allowed, 200, false),
    ] {
        let answer = send(method.clone(), path, origin).await;
        let is_allowed = answer.headers.contains_key("access-control-allow-origin");
        assert_eq!((answer.status, is_allowed), (code, decorated), "{method} {path} {origin}");
    }
}
