//! Members that are lost or hang, the leader, and the quorum.

use fairlead_tests::harness::is_left_out;

use super::{Subject, etcd, until_seen};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_and_writes_go_on_without_a_member_or_the_leader() {
    if is_left_out("etcd") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut etcd = etcd(directory.path(), 3, &[]).await;
    let subject = Subject::start(directory.path(), etcd.endpoints()).await;
    let mut watch = subject.watch().await;
    subject.create("before").await.unwrap();
    let leader = etcd.leader().await.unwrap();
    // Among them are the leader and the member that the shard uses. The first one hangs as well.
    for (number, member) in [leader, (leader + 1) % 3, (leader + 2) % 3].into_iter().enumerate() {
        let (hanging, lost) = (format!("hanging-{number}"), format!("lost-{number}"));
        if number == 0 {
            etcd.freeze(member).unwrap();
            assert!(subject.exists("before").await);
            subject.create_when_available(&hanging).await;
            etcd.thaw(member).unwrap();
            etcd.until_healthy(member).await.unwrap();
            until_seen(&mut watch, &hanging).await;
        }
        etcd.kill(member).await.unwrap();
        assert!(subject.exists("before").await);
        subject.create_when_available(&lost).await;
        until_seen(&mut watch, &lost).await;
        etcd.restart(member).await.unwrap();
        etcd.until_healthy(member).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_go_on_and_writes_are_refused_without_a_quorum() {
    if is_left_out("etcd") {
        return;
    }
    for members in [1, 3] {
        let directory = tempfile::tempdir().unwrap();
        let mut etcd = etcd(directory.path(), members, &[]).await;
        let subject = Subject::start(directory.path(), etcd.endpoints()).await;
        let mut watch = subject.watch().await;
        subject.create("before").await.unwrap();
        let lost = members / 2 + 1;
        for member in 0..lost {
            etcd.kill(member).await.unwrap();
        }
        subject.assert_refused("during").await;
        assert!(subject.exists("before").await);
        subject.client.get("/readyz").await.expect("a shard that serves reads is ready");
        for member in 0..lost {
            etcd.restart(member).await.unwrap();
        }
        subject.create_when_available("after").await;
        until_seen(&mut watch, "before").await;
        until_seen(&mut watch, "after").await;
    }
}
