//! Fairlead responds as a recorded kcp, or differs for a listed reason.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub, reason = "tests")]

#[path = "../golden/mod.rs"]
mod golden;

use fairlead_tests::recordings::Recordings;
use golden::{Installation, NamePairs, Normalizer, Report, compare_discovery, compare_objects, replay};

/// One test, because the transcripts were recorded one after the other in one installation.
#[tokio::test]
async fn responses_equal_the_recorded_ones_or_differ_for_a_listed_reason() {
    let recordings = Recordings::of_the_repository();
    let directory = tempfile::tempdir().unwrap();
    let installation = Installation::start(directory.path());
    let mut gateway = installation.gateway();
    let mut shards = [installation.shard("root"), installation.shard("shard-1")];
    let theirs = Normalizer::new(&[
        ("127.0.0.1:6443", "<gateway>"),
        ("127.0.0.1:6444", "<shard root>"),
        ("127.0.0.1:6445", "<shard shard-1>"),
    ]);
    let ours = Normalizer::new(&[
        (gateway.authority(), "<gateway>"),
        (shards[0].authority(), "<shard root>"),
        (shards[1].authority(), "<shard shard-1>"),
    ]);
    installation.label_shards().await;
    let mut names = NamePairs::new(theirs, ours);
    let mut report = Report::default();

    let (n, r) = (&mut names, &mut report);
    compare_discovery(&recordings, "root", &mut gateway, "/clusters/root", n, r).await;
    compare_objects(&recordings, "root", &mut gateway, "/clusters/root", n, r).await;
    for (shard, name) in shards.iter_mut().zip(["root-shard", "shard-1"]) {
        let place = |cluster: &str| format!("{cluster}.{name}");
        compare_discovery(&recordings, &place("system-admin"), shard, "/clusters/system:admin", n, r).await;
        for cluster in ["admin", "bound-crds", "shard", "system-crds"] {
            let prefix = format!("/clusters/system:{cluster}");
            compare_objects(&recordings, &place(&format!("system-{cluster}")), shard, &prefix, n, r).await;
        }
    }
    for transcript in ["a-kubectl-basics", "b-workspaces", "c-ordinary-objects", "g-shards-partitions"] {
        replay(&recordings, transcript, &mut gateway, n, r).await;
    }

    println!("{}", report.summary());
    let faults = report.faults();
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

/// A comparison with fewer records would pass, too.
#[test]
fn the_recordings_are_complete() {
    let recordings = Recordings::of_the_repository();
    for (name, exchanges) in [
        ("a-kubectl-basics", 145),
        ("b-workspaces", 254),
        ("c-ordinary-objects", 498),
        ("g-shards-partitions", 120),
        ("h-front-proxy", 445),
    ] {
        assert_eq!(recordings.transcript(name).unwrap().len(), exchanges, "{name}");
    }
    for (place, documents) in [("root", 32), ("system-admin.root-shard", 28), ("system-admin.shard-1", 28)] {
        assert_eq!(recordings.discovery(place).unwrap().len(), documents, "{place}");
    }
    for (place, resources, objects) in [
        ("root", 15, 71),
        ("fresh-organization", 7, 12),
        ("fresh-universal", 7, 12),
        ("system-admin.root-shard", 8, 155),
        ("system-admin.shard-1", 8, 155),
        ("system-bound-crds.root-shard", 1, 10),
        ("system-bound-crds.shard-1", 1, 10),
        ("system-shard.root-shard", 6, 14),
        ("system-shard.shard-1", 6, 15),
        ("system-system-crds.root-shard", 1, 8),
        ("system-system-crds.shard-1", 1, 8),
    ] {
        let lists = recordings.objects(place).unwrap();
        let count = lists.iter().map(|list| list.body["items"].as_array().unwrap().len()).sum::<usize>();
        assert_eq!((lists.len(), count), (resources, objects), "{place}");
    }
    assert_eq!(recordings.front_proxy_metrics().unwrap().len(), 192);
}
