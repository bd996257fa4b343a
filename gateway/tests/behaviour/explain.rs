//! The explain endpoint: every step of a hypothetical request, and the outcome that the real request has.
//!
//! `matrix` requests an explanation for each of its rows and compares it with the real response.

use std::fs;
use std::net::SocketAddr;

use fairlead_config::{ConcurrencyPolicy, InputFile, QuotaConfig, SecretFile};
use http::Method;
use serde_json::{Value, json};

use crate::world::{Answer, Choices, Http2, ORG, World, connect, request};

const PATH: &str = "/services/fairlead/v1/explain";

/// The explanation of a request.
#[derive(Debug)]
pub struct Explanation(Value);

impl Explanation {
    pub async fn ask(world: &World, address: SocketAddr, question: &Value) -> Self {
        let answer = post(world, address, question).await;
        assert_eq!(answer.status, 200, "{question}: {}", answer.text);
        assert_eq!(answer.headers["cache-control"], "no-store");
        Self(answer.json())
    }

    /// Asserts that the real request had the explained outcome: the same response of the gateway, or a server that received the
    /// same headers.
    pub fn assert_agrees_with(&self, real: &Answer, about: &str) {
        let echo: Value = serde_json::from_str(&real.text).unwrap_or_default();
        let Some(lines) = echo["headers"].as_array().filter(|_| real.status == 200) else {
            let own = &self.0["response"];
            assert_eq!(own["code"], real.status, "{about}: {self:?}, {real:?}");
            assert_eq!(own["message"], echo["message"], "{about}: {self:?}, {real:?}");
            return;
        };
        let url = self.0["forward"]["url"].as_str().unwrap_or_else(|| panic!("{about}: {self:?}"));
        assert!(url.ends_with(echo["path"].as_str().unwrap()), "{about}: {url}, {echo}");
        let secret = "authorization: ";
        let mut sent: Vec<String> = lines
            .iter()
            .map(|line| line.as_str().unwrap().to_owned())
            .filter(|line| !line.starts_with("host: "))
            .map(|line| if line.starts_with(secret) { secret.to_owned() } else { line })
            .collect();
        let headers = self.0["forward"]["headers"].as_array().unwrap().iter();
        let mut explained: Vec<String> = headers
            .map(|header| format!("{}: {}", header[0].as_str().unwrap(), header[1].as_str().unwrap()))
            .map(|line| if line.starts_with(secret) { secret.to_owned() } else { line })
            .collect();
        sent.sort();
        explained.sort();
        assert_eq!(explained, sent, "{about}");
    }

    /// One line per step.
    fn steps(&self) -> Vec<String> {
        let steps = self.0["steps"].as_array().unwrap().iter();
        let text = |step: &Value, key: &str| step[key].as_str().unwrap().to_owned();
        steps
            .map(|step| format!("{} {} {}", text(step, "stage"), text(step, "result"), text(step, "message")))
            .collect()
    }

    /// The outcome: `<code> <reason>`, or the server and the user.
    fn end(&self) -> String {
        let (answer, forward) = (&self.0["response"], &self.0["forward"]);
        match (answer["code"].as_u64(), forward["server"].as_str()) {
            (Some(code), None) => format!("{code} {}", answer["reason"].as_str().unwrap()),
            (None, Some(server)) => {
                let user = self.0["user"]["name"].as_str().unwrap_or("nobody");
                format!("{server} as {user}")
            }
            (None, None) => "closed".to_owned(),
            both => panic!("{both:?}"),
        }
    }
}

async fn post(world: &World, address: SocketAddr, question: &Value) -> Answer {
    let operator = world.operator();
    let stream = connect(address, &world.serving_ca, Some(&operator), b"h2").await.unwrap();
    Http2::over(stream).await.send(request(Method::POST, PATH, &[], &question.to_string())).await
}

/// A gateway with an internal listener, a strict listener with many restrictions, and a listener with quotas.
async fn world() -> World {
    let mut world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    let path = |name: &str| world.directory.path().join(name);
    fs::write(path("tokens.csv"), "good,bob,7,\"team,system:masters\"\nbanned,eve,8\n").unwrap();
    fs::write(path("networks"), "192.0.2.0/24\n127.0.0.0/8\n").unwrap();
    let mut strict = world.config.listeners[0].clone();
    strict.name = "strict".to_owned();
    strict.client_ca = None;
    strict.placement_endpoint = false;
    strict.authentication.token_file = Some(SecretFile::from(path("tokens.csv")));
    strict.authenticate_before_routing = true;
    strict.hosts = vec!["api.example.com".to_owned()];
    strict.peers.allow = Some(InputFile::from(path("networks")));
    strict.peers.client_address_header = Some("CF-Connecting-IP".to_owned());
    strict.deny.users = vec!["eve".to_owned()];
    strict.deny.impersonation = true;
    let mut limited = world.config.listeners[0].clone();
    limited.name = "limited".to_owned();
    limited.quotas.per_identity = QuotaConfig {
        requests_per_second: Some(1),
        burst: Some(5),
        concurrent: Some(2),
        watches: Some(0),
        ..QuotaConfig::default()
    };
    world.config.listeners.extend([strict, limited]);
    world.config.index.miss_wait = "20ms".parse().unwrap();
    world.config.upstream.concurrency.policy = ConcurrencyPolicy::Fixed;
    world.put_workspace("root", "away", json!({"cluster": ORG}), "Unavailable");
    world.put_workspace(
        "root",
        "mount",
        json!({"mount": {"ref": {}}, "URL": format!("{}/clusters/x", world.alpha.url())}),
        "Ready",
    );
    world.start().await;
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_branch_is_explained() {
    let world = world().await;
    let alice = world.user().certificate;
    let stranger = world.serving_ca.client("stranger", &[]).certificate;
    let org = "/clusters/root:org/api";
    let with_alice = |path: &str| json!({"path": path, "certificate": alice});
    let strict = |more: Value| {
        let mut question = json!({"path": org, "listener": "strict", "token": "good"});
        question.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        question
    };
    let limited = |path: &str| json!({"path": path, "listener": "limited", "certificate": alice});
    #[rustfmt::skip]
    let cases: Vec<(Value, &str, &[&str])> = vec![
        (with_alice(org), "alpha as alice", &[
            "listener passed internal at 127.0.0.1:", "client certificates authenticate",
            "proves that it has the certificate's key, is assumed",
            "path passed workspace root:org, path /api",
            "workspace passed logical cluster root is on shard root",
            "workspace passed workspace org leads to logical cluster 0rg0000000000001",
            "workspace passed logical cluster 0rg0000000000001 is on shard alpha",
            "client certificate: accepted as \"alice\"", "groups dropped at this listener: system:masters",
            "shard passed alpha: its workspaces are watched", "no connection failure is known", "no wait",
        ]),
        (json!({"path": org}), "alpha as nobody", &["does not authenticate this credential"]),
        (json!({"path": org, "certificate": stranger}), "401 unauthorized", &["credential refused client certificate: not accepted"]),
        (with_alice("/clusters/root:nope/api"), "403 unknown_workspace", &["no workspace of that name", "waits up to 20 ms"]),
        (json!({"path": "/clusters/root:nope/api"}), "403 unknown_workspace", &["without a credential do not wait"]),
        (with_alice("/clusters/unknown/api"), "403 unknown_workspace", &["no shard has a logical cluster of that id", "not a generated ID"]),
        (with_alice("/clusters/Bad/api"), "403 unknown_workspace", &["path refused not a logical cluster"]),
        (with_alice("/clusters/root//api"), "307 redirect", &["not canonical: redirect to /clusters/root/api"]),
        (with_alice("/clusters/root:away/api"), "503 unavailable_workspace", &["workspace away leads to logical cluster 0rg0000000000001, and is Unavailable", "by its id it can be reached"]),
        (with_alice("/clusters/root:mount/api"), "*mount", &["workspace mount is mounted", "mount passed mounted from https://"]),
        (with_alice("/clusters/root:mount:x/api"), "403 unknown_workspace", &["no workspaces exist behind a mount"]),
        (with_alice("/services/apiexport/root:org/x/clusters/*/api"), "alpha as alice", &["/services/ leads to the virtual workspaces of the shard of its logical cluster"]),
        (with_alice("/services/x/api"), "404 no_service", &["names no logical cluster whose shard could serve it"]),
        (with_alice("/elsewhere"), "404 unmapped", &["no mapping has this path"]),
        (with_alice("/livez"), "200 probe", &["an endpoint of the gateway"]),
        (with_alice(PATH), "403 forbidden", &["an endpoint of the gateway"]),
        (json!({"path": org, "method": "CONNECT", "certificate": alice}), "405 method", &[]),
        (json!({"path": org, "certificate": alice, "headers": {"impersonate-user": "bob"}}), "alpha as alice", &["impersonates \"bob\""]),
        (strict(json!({})), "alpha as bob", &[
            "authenticates before it routes", "token file: accepted as \"bob\"",
            "client certificates do not authenticate",
        ]),
        (strict(json!({"token": "bad"})), "401 unauthorized", &["token file: not accepted: the bearer token is not known"]),
        (strict(json!({"token": "banned"})), "403 filtered", &["identity refused this listener denies the user"]),
        (strict(json!({"host": "other.example.com"})), "421 misdirected", &["host refused this listener does not serve the host of the request"]),
        (strict(json!({"serverName": "other.example.com"})), "421 misdirected", &["host refused"]),
        (strict(json!({"headers": {"impersonate-user": "bob"}})), "403 filtered", &["impersonation is not allowed here"]),
        (strict(json!({"peer": "198.51.100.1"})), "closed", &["peer refused a connection from 198.51.100.1 is closed at once"]),
        (strict(json!({"peer": "192.0.2.1", "headers": {"cf-connecting-ip": "203.0.113.9"}})), "alpha as bob", &["the client address is 203.0.113.9"]),
        (strict(json!({"headers": {"cf-connecting-ip": "nobody"}})), "400 bad_request", &[]),
        (limited(org), "alpha as alice", &["quota info you: 5 more requests at once, 1 per second", "0 of 2 requests at a time now"]),
        (limited("/clusters/root:org/api/v1/pods?watch=true"), "429 limited", &["quota refused too many open watches"]),
    ];
    for (question, end, steps) in cases {
        let explained = Explanation::ask(&world, world.address, &question).await;
        let lines = explained.steps().join("\n");
        match end {
            "*mount" => {
                assert_eq!(explained.0["forward"]["url"], format!("{}/clusters/x/api", world.alpha.url()))
            }
            end => assert_eq!(explained.end(), end, "{question}:\n{lines}"),
        }
        for step in steps {
            assert!(lines.contains(step), "{question}: {step:?} is missing in\n{lines}");
        }
        assert!(!explained.0.to_string().contains("Bearer"), "{explained:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_explanation_uses_no_quota_and_sends_no_request() {
    let world = world().await;
    let alice = world.user();
    let org = "/clusters/root:org/api";
    let question = json!({"path": org, "listener": "limited", "certificate": alice.certificate});
    for _ in 0..20 {
        assert_eq!(Explanation::ask(&world, world.address, &question).await.end(), "alpha as alice");
    }
    let listener = world.gateway.as_ref().unwrap().listeners[2].1;
    let stream = connect(listener, &world.serving_ca, Some(&alice), b"h2").await.unwrap();
    let client = Http2::over(stream).await;
    // The explanations have used nothing of the burst. An explanation after the burst is used up shows the limit.
    let mut answered = 0;
    while client.get(org).await.status == 200 {
        answered += 1;
    }
    assert!(answered >= 5, "{answered}");
    assert_eq!(Explanation::ask(&world, world.address, &question).await.end(), "429 limited");
    assert_eq!(client.get(org).await.status, 429);
    // Only the real requests reached the shard, and a miss in an explanation is not cached.
    assert_eq!(world.alpha.state.requests.load(std::sync::atomic::Ordering::SeqCst), answered);
    for _ in 0..2 {
        let missing = json!({"path": "/clusters/root:nope/api", "certificate": alice.certificate});
        let explained = Explanation::ask(&world, world.address, &missing).await.steps().join("\n");
        assert!(
            explained.contains("waits up to") && !explained.contains("not found recently"),
            "{explained}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_operators_get_explanations_and_invalid_questions_are_described() {
    let world = world().await;
    let (operator, alice) = (world.operator(), world.user());
    let by_url = format!("{PATH}?path=/clusters/root:org/api&listener=limited");
    for (leaf, expected) in [(Some(&operator), 200), (Some(&alice), 403), (None, 401)] {
        let answer = world.get(leaf, &by_url).await;
        assert_eq!(answer.status, expected, "{}", answer.text);
    }
    let client = world.http2(Some(&operator)).await;
    for (method, path, body, code, says) in [
        (Method::GET, PATH, "", 400, "the path is missing"),
        (Method::GET, "/services/fairlead/v1/explain?path=/a&token=x", "", 400, "by POST"),
        (Method::POST, PATH, "{}", 400, "missing field `path`"),
        (Method::POST, PATH, r#"{"path": "/a", "passwort": 1}"#, 400, "unknown field"),
        (Method::POST, PATH, r#"{"path": "/a b"}"#, 400, "invalid request target"),
        (Method::POST, PATH, r#"{"path": "/a", "certificate": "x"}"#, 400, "contains no certificate"),
        (
            Method::POST,
            PATH,
            r#"{"path": "/a", "listener": "x"}"#,
            404,
            "no listener \\\"x\\\", only internal, strict, limited",
        ),
        (Method::PUT, PATH, "", 405, ""),
    ] {
        let answer = client.send(request(method, path, &[], body)).await;
        assert_eq!(answer.status, code, "{path} {body}: {}", answer.text);
        assert!(answer.text.contains(says), "{path} {body}: {}", answer.text);
    }
}

/// Only listeners that offer the page serve it, and only to operators. Its files have headers that restrict the browser.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_admin_page_is_for_operators_at_listeners_that_offer_it() {
    const PAGE: &str = "/services/fairlead/admin/";
    let choice: fn(&mut fairlead_config::GatewayConfig) = |config| {
        let mut without = config.listeners[0].clone();
        without.name = "without".to_owned();
        config.listeners[0].admin_page = true;
        config.listeners.push(without);
    };
    let world = World::with(Choices { config: Some(choice), ..Choices::default() }).await;
    let (operator, alice) = (world.operator(), world.user());
    for (leaf, path, code) in [
        (Some(&operator), PAGE, 200),
        (Some(&operator), "/services/fairlead/admin/style.css", 200),
        (Some(&operator), "/services/fairlead/admin/script.js", 200),
        (Some(&operator), "/services/fairlead/admin", 307),
        (Some(&operator), "/services/fairlead/admin/other.js", 404),
        (Some(&alice), PAGE, 403),
        (None, PAGE, 401),
    ] {
        let answer = world.get(leaf, path).await;
        assert_eq!(answer.status, code, "{path}: {}", answer.text);
        if code == 200 {
            for (name, part) in [
                ("content-security-policy", "default-src 'none'"),
                ("content-security-policy", "frame-ancestors 'none'"),
                ("x-frame-options", "DENY"),
                ("x-content-type-options", "nosniff"),
                ("cache-control", "no-store"),
            ] {
                assert!(answer.headers[name].to_str().unwrap().contains(part), "{path}: {name}");
            }
        }
        if code == 403 {
            assert_eq!(answer.json()["reason"], "Forbidden");
        }
        if code == 307 {
            assert_eq!(answer.headers["location"], PAGE);
        }
    }
    let without = world.gateway.as_ref().unwrap().listeners[1].1;
    let stream = connect(without, &world.serving_ca, Some(&operator), b"h2").await.unwrap();
    assert_eq!(Http2::over(stream).await.get(PAGE).await.status, 404);
    let client = world.http2(Some(&operator)).await;
    assert_eq!(client.send(request(Method::POST, PAGE, &[], "")).await.status, 405);

    // The data that the page shows is available.
    let status = client.get("/services/fairlead/v1/status").await.json();
    assert_eq!(status["listeners"][0]["policy"].as_array().unwrap().last().unwrap(), "admin page");
    assert!(status["certificates"][0]["notAfter"].as_u64().unwrap() > 1_800_000_000, "{status}");
    assert!(
        status["reloads"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["object"] == "credentials of listener internal"),
        "{status}"
    );
    let figures = client.get("/services/fairlead/v1/stats").await.json();
    assert!(
        figures["families"]["fairlead_gateway_stage_duration_seconds"][0]["count"].as_u64().is_some(),
        "{figures}"
    );
}
