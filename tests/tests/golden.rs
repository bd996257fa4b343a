//! What we answer is what a recorded kcp answers, or differs from it for a reason that is written down.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub, reason = "tests")]

#[path = "../golden/mod.rs"]
mod golden;

use golden::{Installation, Observer, Recordings, Side, Sides, compare_discovery, compare_objects, replay};

/// One test, because the transcripts were recorded one after the other in one installation.
#[tokio::test]
async fn answers_are_the_recorded_ones_or_differ_for_a_listed_reason() {
    let Some(recordings) = Recordings::find() else {
        println!("skipped: no recordings");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let installation = Installation::start(directory.path());
    let mut gateway = installation.gateway();
    let mut shards = [installation.shard("root"), installation.shard("shard-1")];
    let theirs = Side::new(&[
        ("127.0.0.1:6443", "<gateway>"),
        ("127.0.0.1:6444", "<shard root>"),
        ("127.0.0.1:6445", "<shard shard-1>"),
    ]);
    let ours = Side::new(&[
        (gateway.authority(), "<gateway>"),
        (shards[0].authority(), "<shard root>"),
        (shards[1].authority(), "<shard shard-1>"),
    ]);
    installation.label_shards().await;
    let mut sides = Sides::new(theirs, ours);
    let mut observer = Observer::default();

    let (s, o) = (&mut sides, &mut observer);
    compare_discovery(&recordings, "root", &mut gateway, "/clusters/root", s, o).await;
    compare_objects(&recordings, "root", &mut gateway, "/clusters/root", s, o).await;
    for (shard, name) in shards.iter_mut().zip(["root-shard", "shard-1"]) {
        let place = |cluster: &str| format!("{cluster}.{name}");
        compare_discovery(&recordings, &place("system-admin"), shard, "/clusters/system:admin", s, o).await;
        for cluster in ["admin", "bound-crds", "shard", "system-crds"] {
            let prefix = format!("/clusters/system:{cluster}");
            compare_objects(&recordings, &place(&format!("system-{cluster}")), shard, &prefix, s, o).await;
        }
    }
    for transcript in ["a-kubectl-basics", "b-workspaces", "c-ordinary-objects", "g-shards-partitions"] {
        replay(&recordings, transcript, &mut gateway, s, o).await;
    }

    println!("{}", observer.summary());
    let complaints = observer.complaints();
    assert!(complaints.is_empty(), "{} complaints\n{}", complaints.len(), complaints.join("\n"));
}
