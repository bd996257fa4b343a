#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use super::super::testing::{Shard, condition};
use super::*;

const EXPORTS: &str = "apiexports.apis.kcp.io";
const SLICES: &str = "apiexportendpointslices.apis.kcp.io";

fn export(name: &str) -> Value {
    json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": name}, "spec": {}})
}

fn secret(name: &str, key: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": "default"}, "type": "Opaque",
        "data": {"key": STANDARD.encode(key)},
    })
}

#[tokio::test(start_paused = true)]
async fn an_export_gets_an_identity_and_an_endpoint_slice() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    shard.create("abc", EXPORTS, export("mine")).await.unwrap();
    let read = || shard.get("abc", EXPORTS, None, "mine").unwrap();
    shard.until("it has an identity", || read()["status"]["identityHash"].is_string()).await;
    let found = read();
    assert_eq!(found["spec"]["identity"]["secretRef"], json!({"namespace": "kcp-system", "name": "mine"}));
    let secret = shard.get("abc", "secrets", Some("kcp-system"), "mine").unwrap();
    let key = STANDARD.decode(secret["data"]["key"].as_str().unwrap()).unwrap();
    assert_eq!(key.len(), 43);
    assert_eq!(found["status"]["identityHash"], fairlead_names::hex_sha256(&key));
    assert!(condition(&found, condition_type::IDENTITY_VALID).unwrap().0);
    let slice = shard.get("abc", SLICES, None, "mine").unwrap();
    assert_eq!(slice["metadata"]["ownerReferences"][0]["uid"], found["metadata"]["uid"]);
    shard.delete("abc", SLICES, None, "mine").await;
    shard.until("it has a slice again", || shard.get("abc", SLICES, None, "mine").is_some()).await;
}

/// The hash is asserted by kcp's TestRequeueWhenIdentitySecretAdded.
#[tokio::test(start_paused = true)]
async fn an_export_waits_for_the_secret_of_its_identity() {
    let shard = Shard::start().await;
    shard.workspace("abc").await;
    let mut object = export("mine");
    object["spec"]["identity"] = json!({"secretRef": {"namespace": "default", "name": "key"}});
    shard.create("abc", EXPORTS, object).await.unwrap();
    let read = || shard.get("abc", EXPORTS, None, "mine").unwrap();
    let reason = || condition(&read(), condition_type::IDENTITY_VALID).map(|one| one.1);
    shard.until("it fails", || reason().as_deref() == Some("IdentityVerificationFailed")).await;
    shard.create("abc", "secrets", secret("key", "abcd1234")).await.unwrap();
    shard.until("it has an identity", || read()["status"]["identityHash"].is_string()).await;
    let hash = "e9cee71ab932fde863338d08be4de9dfe39ea049bdafb342ce659ec5450b69ae";
    assert_eq!(read()["status"]["identityHash"], hash);
    shard
        .change("abc", "secrets", Some("default"), "key", |secret| {
            secret["data"]["key"] = STANDARD.encode("other").into();
        })
        .await;
    shard.until("it fails", || reason().as_deref() == Some("IdentityVerificationFailed")).await;
    assert_eq!(read()["status"]["identityHash"], hash, "an identity never changes");
}
