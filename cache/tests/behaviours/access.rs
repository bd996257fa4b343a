use std::collections::BTreeSet;

use fairlead_cache::MASTERS;
use fairlead_client::{Impersonation, Request, Token};
use http::{HeaderName, HeaderValue, Method};
use serde_json::{Value, json};

use crate::support::{Cache, Pki, code, collection, typed};

const SHARDS: &str = "core.kcp.io/v1alpha1/shards";

/// CVE-2026-39429: requests without a certificate of a member of `system:masters` may neither read nor write.
#[tokio::test]
async fn only_masters_are_allowed() {
    let cache = Cache::start().await;
    let shard = typed(SHARDS, json!({"metadata": {"name": "s1"}}));
    cache
        .master()
        .create::<Value>(&collection("s1", "root", SHARDS), &shard, &Default::default())
        .await
        .unwrap();
    let pki = &cache.pki;
    let outsiders = [
        ("nothing", pki.anonymous()),
        ("a user", pki.client_certificate("bob", &["system:authenticated", "system:kcp:admin"])),
        ("a group with a similar name", pki.client_certificate("system:masters", &["system:mastersx"])),
        ("a foreign master", pki.client_signed_by(&Pki::new(), "shard", &[MASTERS])),
        ("a token", pki.anonymous().with_token(Token::new("secret")).unwrap()),
    ];
    for (client_name, credentials) in outsiders {
        let client = cache.client(credentials);
        for path in [
            collection("*", "*", SHARDS),
            collection("s1", "root", SHARDS),
            collection("s1", "root", &format!("{SHARDS}/s1")),
            format!("{}?watch=true", collection("*", "*", SHARDS)),
            collection("*", "*", "apiextensions.k8s.io/v1/customresourcedefinitions"),
            collection("s1", "root", "core.kcp.io/v1alpha1"),
            "/shards/s1/clusters/root/apis".to_owned(),
            "/shards/s1/clusters/root/version".to_owned(),
            "/shards/s1/clusters/root/openapi/v3".to_owned(),
            "/metrics".to_owned(),
        ] {
            assert_eq!(code(client.get(&path).await), 403, "{client_name} reads {path}");
        }
        let created = client
            .create::<Value>(
                &collection("s1", "root", SHARDS),
                &typed(SHARDS, json!({"metadata": {"name": "s2"}})),
                &Default::default(),
            )
            .await;
        assert_eq!(code(created), 403, "{client_name} creates");
        let deleted =
            client.delete(&collection("s1", "root", &format!("{SHARDS}/s1")), &Default::default()).await;
        assert_eq!(code(deleted), 403, "{client_name} deletes");
        for path in ["/livez", "/readyz", "/healthz", "/readyz/store"] {
            assert_eq!(client.get(path).await.unwrap().body, "ok", "{client_name} {path}");
        }
    }
    let remaining: Value = cache.master().get_json(&collection("*", "*", SHARDS)).await.unwrap();
    assert_eq!(crate::support::names(&remaining), ["s1"]);
}

#[tokio::test]
async fn forged_identity_headers_are_ignored() {
    let cache = Cache::start().await;
    let pki = &cache.pki;
    for credentials in [pki.anonymous(), pki.client_certificate("kcp-front-proxy", &[])] {
        let client = cache.client(credentials);
        let mut request = Request::new(Method::GET, collection("*", "*", SHARDS));
        for (name, value) in [
            ("x-remote-user", "shard"),
            ("x-remote-group", MASTERS),
            ("x-remote-extra-authentication.kcp.io%2Fscopes", "cluster:root"),
        ] {
            let name = HeaderName::try_from(name).unwrap();
            request = request.with_header(name, HeaderValue::from_static(value));
        }
        assert_eq!(code(client.request(request).await), 403);
    }
}

#[tokio::test]
async fn impersonation_is_refused() {
    let cache = Cache::start().await;
    let master = cache.pki.client_certificate("shard", &[MASTERS]);
    let as_bob = Impersonation { user: "bob".into(), groups: Vec::new() };
    let client = cache.client(master.with_impersonation(as_bob).unwrap());
    assert_eq!(code(client.get(&collection("*", "*", SHARDS)).await), 403);
}

#[tokio::test]
async fn masters_can_read_process_metrics() {
    let cache = Cache::start().await;
    let master = cache.master();
    let text = master.get("/metrics").await.unwrap().body;
    let names: BTreeSet<&str> = std::str::from_utf8(&text)
        .unwrap()
        .lines()
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    assert!(names.contains("process_resident_memory_bytes") && names.contains("fairlead_build_info"));
    assert_eq!(code(master.get("/shards/s1/clusters/root/metrics").await), 501);
    assert_eq!(code(master.get("/readyz/nothing").await), 404);
}
