//! The quota of etcd.

use fairlead_tests::harness::is_left_out;
use serde_json::json;

use super::{ROLES, Subject, assert_outage, etcd};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_are_refused_without_space_and_deletions_make_room() {
    if is_left_out("etcd") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let etcd = etcd(directory.path(), 1, &["--quota-backend-bytes", "12582912"]).await;
    let subject = Subject::start(directory.path(), etcd.endpoints()).await;
    subject.create("small").await.unwrap();
    let text = "x".repeat(200 << 10);
    let mut written = 0;
    let refused = loop {
        match subject.create_with(&format!("large-{written}"), &text).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 200, "the quota has no effect");
    };
    assert_outage(&refused);
    assert!(refused.to_string().contains("space exceeded"), "{refused}");
    assert!(subject.exists("small").await && subject.exists("large-0").await);
    subject.client.get("/readyz").await.expect("a shard that serves reads is ready");

    for number in 0..written {
        subject.delete(&format!("large-{number}")).await.expect("deletions are accepted");
    }
    let list: serde_json::Value = subject.client.get_json(ROLES).await.unwrap();
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
    let send = async |path: &str, body: serde_json::Value| {
        let response = etcd.request(0, path, &body.to_string()).await.unwrap();
        assert!(response["error"].is_null(), "{path}: {response}");
        response
    };
    send("/v3/kv/compaction", json!({ "revision": revision, "physical": true })).await;
    send("/v3/maintenance/defragment", json!({})).await;
    let alarms = send("/v3/maintenance/alarm", json!({ "action": "GET" })).await;
    let member = alarms["alarms"][0]["memberID"].clone();
    let disarm = json!({ "action": "DEACTIVATE", "alarm": "NOSPACE", "memberID": member });
    send("/v3/maintenance/alarm", disarm).await;
    subject.create_when_available("after").await;
}
