//! Another cluster at the address, history that was compacted meanwhile, and a prefix that belongs to another shard.

use fairlead_tests::harness::{EtcdSettings, ShardSettings, is_left_out};

use super::proxy::Proxy;
use super::{ROLES, Subject, etcd, refusal};
use crate::site::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_at_the_address_gets_no_write_and_the_shard_is_not_ready() {
    if is_left_out("etcd") {
        return;
    }
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ours = etcd(directory.path(), 1, &[]).await;
    let foreign = etcd(elsewhere.path(), 1, &[]).await;
    // An installation of the same name.
    let other = Subject::start(elsewhere.path(), foreign.endpoints()).await;
    let proxy = Proxy::start(&ours.endpoints()[0]).await;
    let subject = Subject::start(directory.path(), vec![proxy.url()]).await;
    subject.create("before").await.unwrap();

    proxy.lead_to(Some(&foreign.endpoints()[0]));
    subject.until_ready_is(false).await;
    subject.assert_refused("during").await;
    assert!(subject.exists("before").await);
    assert!(!other.exists("during").await && !other.exists("before").await);

    proxy.lead_to(Some(&ours.endpoints()[0]));
    subject.create_when_available("after").await;
    subject.until_ready_is(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_whose_next_revision_was_compacted_ends_and_tells_old_watches_after_its_start() {
    if is_left_out("etcd") {
        return;
    }
    let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let etcd = etcd(directory.path(), 1, &[]).await;
    let proxy = Proxy::start(&etcd.endpoints()[0]).await;
    let mut subject = Subject::start(directory.path(), vec![proxy.url()]).await;
    let place = EtcdSettings { endpoints: etcd.endpoints(), prefix: "/registry".to_owned() };
    let settings = ShardSettings { etcd: Some(place), ..ShardSettings::default() };
    let replica = subject.shard.start_replica(other.path(), &settings).await.unwrap();
    let replica = Subject { client: replica.client("").unwrap(), shard: replica };
    let seen = subject.create("before").await.unwrap()["metadata"]["resourceVersion"].clone();
    let seen = seen.as_str().unwrap().to_owned();

    proxy.lead_to(None);
    replica.create("meanwhile").await.unwrap();
    // The revision of a compaction can still be read, so the next one of the shard must be before it.
    let last = replica.create("last").await.unwrap()["metadata"]["resourceVersion"].clone();
    let body = serde_json::json!({ "revision": last }).to_string();
    let compacted = etcd.request(0, "/v3/kv/compaction", &body).await.unwrap();
    assert!(compacted["error"].is_null(), "{compacted}");
    assert!(subject.exists("before").await && !subject.exists("meanwhile").await);

    proxy.lead_to(Some(&etcd.endpoints()[0]));
    // The shard ends, because its indexes cannot skip revisions; a service manager starts it again.
    let ended = subject.shard.process.until(|| async { Err::<(), _>("it runs") }).await.unwrap_err();
    assert!(ended.to_string().contains("ended with"), "{ended}");
    subject.shard.process.restart().await.unwrap();
    subject.shard.until_ready().await.unwrap();
    assert!(subject.exists("meanwhile").await);
    let path = format!("{ROLES}?resourceVersion={seen}&resourceVersionMatch=Exact");
    let old = subject.client.get(&path).await.unwrap_err();
    assert!(old.is_gone(), "{old}");
    let watch = format!("{ROLES}?watch=1&resourceVersion={seen}");
    eventually("410 for the watch", || async {
        match subject.client.watch(&watch).await {
            Err(error) if error.is_gone() => Ok(()),
            Err(error) => Err(error.to_string()),
            Ok(mut watch) => match watch.next().await {
                Some(Err(error)) if error.is_gone() => Ok(()),
                Some(Ok(event)) if String::from_utf8_lossy(&event.object).contains("Expired") => Ok(()),
                other => Err(format!("{other:?}")),
            },
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefix_of_another_shard_is_refused_in_one_sentence() {
    if is_left_out("etcd") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let etcd = etcd(directory.path(), 1, &[]).await;
    let mut subject = Subject::start(directory.path(), etcd.endpoints()).await;
    subject.create("before").await.unwrap();
    subject.shard.process.kill().await.unwrap();
    // The record of the owner, as if another shard had claimed the prefix, or another installation with a shard of this name.
    let key = base64("/registry/.fairlead/owner");
    let body = serde_json::json!({ "key": key }).to_string();
    let record = etcd.request(0, "/v3/kv/range", &body).await.unwrap()["kvs"][0]["value"].clone();
    let record = String::from_utf8(decoded(record.as_str().unwrap())).unwrap();
    let cases = [
        (record.replace("shard root", "shard other"), "belongs to \"shard other\""),
        (record.replace(record.lines().nth(2).unwrap(), "00000000000000aa"), "is not the etcd of this store"),
    ];
    for (changed, sentence) in cases {
        assert_ne!(changed, record);
        let body = serde_json::json!({ "key": key, "value": base64(&changed) }).to_string();
        etcd.request(0, "/v3/kv/put", &body).await.unwrap();
        let refused = refusal(&mut subject).await;
        assert!(refused.contains(sentence), "{refused}");
    }
    let body = serde_json::json!({ "key": key, "value": base64(&record) }).to_string();
    etcd.request(0, "/v3/kv/put", &body).await.unwrap();
    subject.shard.process.restart().await.unwrap();
    subject.shard.until_ready().await.unwrap();
    assert!(subject.exists("before").await, "nothing was overwritten");
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn decoded(text: &str) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}
