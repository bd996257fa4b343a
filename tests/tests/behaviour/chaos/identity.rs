//! The identity of a request comes from its credentials, never from headers that a client sends.

use fairlead_certs::Client as Role;
use http::Method;
use serde_json::json;

use crate::installation::Installation;
use crate::wire::{raw, send, send_with_trailers};

/// Header fields that would change the client's identity if a server trusted them.
const FORGED: &[&[(&str, &str)]] = &[
    &[
        ("x-remote-user", "kcp-admin"),
        ("x-remote-group", "system:masters"),
        ("x-remote-group", "system:kcp:admin"),
    ],
    &[("x-remote-user", "nobody"), ("x-remote-user", "shard-admin"), ("x-remote-group", "system:masters")],
    &[
        ("x-remote-user", "shard-admin"),
        ("x-remote-uid", "0"),
        ("x-remote-group", "system:masters"),
        ("x-remote-extra-authentication.kcp.io%2fscopes", "cluster:*"),
        ("x-remote-extra-authorization.kcp.io%2fwarrant", r#"{"user":"a","groups":["system:masters"]}"#),
    ],
    &[("x_remote_user", "shard-admin"), ("x_remote_group", "system:masters")],
    &[("impersonate-user", "shard-admin"), ("impersonate-group", "system:masters")],
    &[("x-forwarded-user", "shard-admin"), ("x-forwarded-client-cert", "Subject=\"O=system:masters\"")],
];

/// The same fields in spellings that only HTTP/1.1 allows.
const FORGED_TEXTS: &[&str] = &[
    "X-REMOTE-USER: shard-admin\r\nx-ReMoTe-GrOuP: system:masters\r\n",
    "X-Remote-User: shard-admin\r\nX-Remote-Group: system:masters\r\nConnection: X-Remote-User, X-Remote-Group\r\n",
    "Connection: X-Remote-User\r\nConnection: X-Remote-Group, x-remote-extra-scopes\r\nX-Remote-User: shard-admin\r\n",
    "X_Remote_User: shard-admin\r\nX_Remote_Group: system:masters\r\n",
];

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// A server, and a path with restricted access.
struct Target {
    name: &'static str,
    url: String,
    secret: &'static str,
    /// The role with access.
    entitled: Role,
}

fn targets(installation: &Installation) -> Vec<Target> {
    const SECRETS: &str = "/clusters/root/api/v1/secrets";
    const REPLICAS: &str = "/shards/root/clusters/root/apis/core.kcp.io/v1alpha1/shards";
    [
        ("gateway", SECRETS, Role::Admin),
        ("root", SECRETS, Role::Admin),
        ("shard-1", "/clusters/system:admin/api/v1/secrets", Role::ShardAdmin),
        ("cache", REPLICAS, Role::Cache),
    ]
    .map(|(name, secret, entitled)| Target { name, url: installation.server(name).url, secret, entitled })
    .into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_identity_headers_grant_no_rights() {
    let installation = Installation::start(2).await;
    let anonymous = installation.anonymous();
    for Target { name, url, secret, entitled } in targets(&installation) {
        let good = installation.credentials(&entitled);
        assert_eq!(send(&url, &good, Method::GET, secret, &[], "").await.code, 200, "{name}: who may, may");
        // A certificate without rights there, and no certificate.
        let mut powerless = vec![("anonymous", anonymous.clone())];
        if name == "cache" {
            powerless.push(("kcp-admin", installation.credentials(&Role::Admin)));
        }
        for (who, credentials) in powerless {
            for forged in FORGED {
                let over_2 = send(&url, &credentials, Method::GET, secret, forged, "").await;
                assert!(is_rejection(over_2.code), "{name}, {who}, {forged:?}: {over_2:?}");
                let lines: String =
                    forged.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
                let over_1 = raw(&url, &credentials, &get(secret, &lines)).await;
                assert!(is_rejection(over_1.0), "{name}, {who}, {forged:?}: {over_1:?}");
            }
            for forged in FORGED_TEXTS {
                let over_1 = raw(&url, &credentials, &get(secret, forged)).await;
                assert!(is_rejection(over_1.0), "{name}, {who}, {forged:?}: {over_1:?}");
            }
            let over_2 =
                send_with_trailers(&url, &credentials, Method::GET, secret, &[], "x", FORGED[0]).await;
            assert!(is_rejection(over_2.code), "{name}, {who}, trailers: {over_2:?}");
            let over_1 = raw(&url, &credentials, &with_trailers("GET", secret, "x")).await;
            assert!(is_rejection(over_1.0), "{name}, {who}, trailers: {over_1:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_identity_headers_do_not_change_the_user() {
    let installation = Installation::start(1).await;
    let admin = installation.credentials(&Role::Admin);
    let path = format!("/clusters/root{REVIEWS}");
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" }).to_string();
    for server in ["gateway", "root"] {
        let url = installation.server(server).url;
        let is_admin = |text: &str, how: &str| {
            assert!(text.contains(r#""username":"kcp-admin""#), "{server}, {how}: {text}");
            assert!(!text.contains("system:masters") && !text.contains("warrant"), "{server}, {how}: {text}");
        };
        for forged in FORGED.iter().filter(|forged| forged[0].0 != "impersonate-user") {
            let headers: Vec<_> =
                [("content-type", "application/json")].iter().chain(*forged).copied().collect();
            let response = send(&url, &admin, Method::POST, &path, &headers, review.clone()).await;
            is_admin(&response.text, &format!("{forged:?}"));
            assert_eq!(response.code, 201);
        }
        for forged in FORGED_TEXTS {
            let text = format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
                 {forged}Connection: close\r\n\r\n{review}",
                review.len()
            );
            is_admin(&raw(&url, &admin, &text).await.1, forged);
        }
        let headers = [("content-type", "application/json")];
        let over_2 =
            send_with_trailers(&url, &admin, Method::POST, &path, &headers, review.clone(), FORGED[0]).await;
        is_admin(&over_2.text, "trailers");
        is_admin(&raw(&url, &admin, &with_trailers("POST", &path, &review)).await.1, "trailers");
    }
    // The shard trusts these headers from the gateway: they are not rejected above because they are unknown.
    let gateway = installation.credentials(&Role::FrontProxy);
    let headers =
        [("content-type", "application/json"), ("x-remote-user", "jane"), ("x-remote-group", "crew")];
    let url = installation.server("root").url;
    let response = send(&url, &gateway, Method::POST, &path, &headers, review).await;
    assert!(response.text.contains(r#""username":"jane""#), "{response:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_tokens_are_401_and_users_without_rights_403() {
    let installation = Installation::start(1).await;
    let anonymous = installation.anonymous();
    for server in ["gateway", "root"] {
        let url = installation.server(server).url;
        let headers = [("authorization", "Bearer not-a-token")];
        let response =
            send(&url, &anonymous, Method::GET, "/clusters/root/api/v1/namespaces", &headers, "").await;
        assert_eq!(
            (response.code, response.json()["reason"].as_str()),
            (401, Some("Unauthorized")),
            "{server}: {response:?}"
        );
        let response = send(&url, &anonymous, Method::GET, "/clusters/root/api/v1/namespaces", &[], "").await;
        // A shard also accepts anonymous requests.
        let expected = if server == "gateway" { (401, "Unauthorized") } else { (403, "Forbidden") };
        assert_eq!(
            (response.code, response.json()["reason"].as_str().unwrap()),
            expected,
            "{server}: {response:?}"
        );
    }
    let cache = installation.server("cache").url;
    for path in [
        "/shards/*/clusters/*/apis/core.kcp.io/v1alpha1/shards",
        "/shards/root/clusters/root/apis",
        "/metrics",
    ] {
        let response = send(&cache, &anonymous, Method::GET, path, &[], "").await;
        assert_eq!(response.code, 403, "{path}: {response:?}");
    }
}

fn is_rejection(code: u16) -> bool {
    matches!(code, 400 | 401 | 403)
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n")
}

fn with_trailers(method: &str, path: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\nTrailer: X-Remote-User\r\nConnection: close\r\n\r\n{:x}\r\n{body}\r\n0\r\n\
         X-Remote-User: shard-admin\r\nX-Remote-Group: system:masters\r\n\r\n",
        body.len()
    )
}
