//! Working and failing webhooks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use fairlead_authn::{ReviewVersion, TokenWebhook, Verdict, WebhookSettings};
use serde_json::{Value, json};

use super::{
    NOW, accepted, ask, ask_at, at,
    server::{Reply, Server},
    summary,
};

const PATH: &str = "/authenticate";

/// Settings with short delays between attempts and a long deadline.
fn settings() -> WebhookSettings {
    WebhookSettings {
        first_retry_delay: Duration::from_millis(1),
        deadline: Duration::from_secs(600),
        ..WebhookSettings::default()
    }
}

fn webhook(server: &Server, settings: WebhookSettings) -> TokenWebhook {
    let file = tempfile::NamedTempFile::new().unwrap();
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "webhook",
        "contexts": [{ "name": "webhook", "context": { "cluster": "webhook", "user": "proxy" } }],
        "clusters": [{ "name": "webhook", "cluster": {
            "server": format!("{}{PATH}", server.url()),
            "certificate-authority-data": STANDARD.encode(&server.certificate_authority),
        } }],
        "users": [{ "name": "proxy", "user": {} }],
    });
    std::fs::write(file.path(), kubeconfig.to_string()).unwrap();
    TokenWebhook::from_kubeconfig(file.path(), settings).unwrap()
}

fn review(version: &str, status: &Value) -> Reply {
    let review = json!({ "apiVersion": format!("authentication.k8s.io/{version}"), "kind": "TokenReview", "status": status });
    Reply::Json(review.to_string())
}

/// Accepts the token `good`, in the version of the request.
fn serve(server: &Server) {
    server.answer(|path, body| {
        let question: Value = serde_json::from_slice(body).unwrap();
        assert_eq!((path, &question["kind"]), (PATH, &json!("TokenReview")));
        let version = question["apiVersion"].as_str().unwrap().trim_start_matches("authentication.k8s.io/");
        review(
            version,
            &match question["spec"]["token"].as_str().unwrap() {
                "good" => json!({ "authenticated": true, "user": {
                "username": "ann", "uid": "7", "groups": ["a", "b"], "extra": { "Example.com/K": ["v"] },
            } }),
                "bare" => json!({ "authenticated": true, "user": { "username": "bob", "groups": null } }),
                "nameless" => json!({ "authenticated": true, "user": { "groups": ["a"] } }),
                "nobody" => json!({ "authenticated": true }),
                _ => json!({ "authenticated": false, "user": { "username": "x" }, "error": "no such token" }),
            },
        )
    });
}

#[tokio::test]
async fn a_webhook_identifies_the_user() {
    let server = Server::start().await;
    serve(&server);
    for version in ["v1", "v1beta1"] {
        let settings = WebhookSettings { version: version.parse().unwrap(), ..settings() };
        let webhook = webhook(&server, settings);
        let identity = accepted(ask(&webhook, "good").await);
        assert_eq!(identity.user().uid.as_deref(), Some("7"));
        assert_eq!(identity.user().extra["example.com/k"], ["v"]);
        let cases = [
            ("good", "ann: a b"),
            ("bare", "bob: "),
            ("nameless", "the webhook does not accept the token"),
            ("nobody", "the webhook does not accept the token"),
            ("bad", "the webhook does not accept the token"),
        ];
        for (token, expected) in cases {
            assert_eq!(summary(&ask(&webhook, token).await), expected, "{token} in {version}");
        }
    }
    assert!("v2".parse::<ReviewVersion>().is_err());
}

#[tokio::test]
async fn audiences_are_checked() {
    let server = Server::start().await;
    let cases =
        [(json!(null), true), (json!([]), true), (json!(["other", "us"]), true), (json!(["other"]), false)];
    for (audiences, expected) in cases {
        let theirs = audiences.clone();
        server.answer(move |_, body| {
            let question: Value = serde_json::from_slice(body).unwrap();
            assert_eq!(question["spec"]["audiences"], json!(["us"]));
            let user = json!({ "username": "ann" });
            review("v1beta1", &json!({ "authenticated": true, "user": user, "audiences": theirs }))
        });
        let webhook = webhook(&server, WebhookSettings { audiences: vec!["us".to_owned()], ..settings() });
        let verdict = ask(&webhook, "good").await;
        assert_eq!(matches!(verdict, Verdict::Accepted(_)), expected, "{audiences}");
    }
}

#[tokio::test]
async fn reviews_are_cached() {
    let server = Server::start().await;
    serve(&server);
    let webhook = webhook(&server, settings());
    for (token, seconds, questions) in
        [("good", 0, 1), ("good", 119, 1), ("good", 120, 2), ("bad", 0, 3), ("bad", 9, 3), ("bad", 10, 4)]
    {
        ask_at(&webhook, token, at(NOW + seconds)).await;
        assert_eq!(server.count(PATH), questions, "{token} after {seconds} s");
    }
    let together = futures_util::future::join_all((0..20).map(|_| ask(&webhook, "bare"))).await;
    assert!(together.iter().all(|verdict| summary(verdict) == "bob: "));
    assert_eq!(server.count(PATH), 5);
}

#[tokio::test]
async fn a_failing_webhook_is_retried() {
    let server = Server::start().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    server.answer(move |_, _| match counter.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::Status(500),
        1 => Reply::Status(429),
        2 => Reply::Status(503),
        _ => review("v1beta1", &json!({ "authenticated": true, "user": { "username": "ann" } })),
    });
    let stumbling = webhook(&server, settings());
    assert_eq!(summary(&ask(&stumbling, "good").await), "ann: ");
    assert_eq!(asked.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn a_broken_webhook_accepts_no_token() {
    let server = Server::start().await;
    type Respond = fn() -> Reply;
    let cases: [(Respond, usize, &str); 6] = [
        (|| Reply::Status(503), 5, "503"),
        (|| Reply::Status(403), 1, "403"),
        (|| Reply::Redirect("https://evil.example.com".to_owned()), 1, "is not a TokenReview"),
        (|| Reply::Json("{}".to_owned()), 1, "is not a TokenReview"),
        (|| review("v1", &json!({ "authenticated": true })), 1, "is not a TokenReview"),
        (|| Reply::Json("x".repeat(2 << 20)), 1, "is larger than"),
    ];
    for (answer, tries, expected) in cases {
        let before = server.count(PATH);
        server.answer(move |_, _| answer());
        let webhook = webhook(&server, settings());
        match ask(&webhook, "good").await {
            Verdict::Declined(reason) => {
                assert!(reason.is_retryable() && reason.to_string().contains(expected), "{reason}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(server.count(PATH) - before, tries, "{expected}");
    }
    server.answer(|_, _| Reply::Silence);
    let impatient = webhook(&server, WebhookSettings { deadline: Duration::from_millis(20), ..settings() });
    let verdict = ask(&impatient, "good").await;
    assert!(matches!(verdict, Verdict::Declined(reason) if reason.is_retryable()));
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_named() {
    let path = std::path::Path::new("does/not/exist");
    let error = TokenWebhook::from_kubeconfig(path, settings()).unwrap_err().to_string();
    assert!(error.contains("does/not/exist"), "{error}");
}
