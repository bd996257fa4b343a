//! Replicas: commits of a source with gaps between their revisions, replaced content, files of other sources.

use std::path::Path;

use bytes::Bytes;
use fairlead_store::{
    Advance, FollowError, OpenError, Origin, Range, ReadError, Record, RedbOptions, RedbStore, Replica,
    ReplicaOptions, ReplicaWriter, ReplicatedCommit, Revision,
};

use crate::backend::runtime;
use crate::contract::subject::{show, show_event, take};

const ORIGIN: Origin = Origin { cluster: 7, part: 1 };

fn open(path: Option<&Path>) -> (Replica, ReplicaWriter) {
    ReplicaWriter::open(path, ORIGIN, ReplicaOptions::default()).unwrap()
}

fn commit(revision: u64, changes: &[(&'static str, Option<&'static str>)]) -> ReplicatedCommit {
    let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
    let changes = changes.iter().map(|(key, value)| (bytes(key), value.map(bytes))).collect();
    ReplicatedCommit { revision: Revision(revision), changes }
}

fn list(replica: &Replica, at: Option<u64>) -> Vec<String> {
    let mut records = Vec::new();
    let revision = replica
        .scan(&Range::all(), at.map(Revision), &mut |record| {
            records.push(record.to_record());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    show(&fairlead_store::Page { records, revision, has_more: false }, Revision(0))
}

#[test]
fn commits_keep_the_revisions_of_the_source() {
    let (replica, mut writer) = open(None);
    let mut follower = replica.follow(Revision(0)).unwrap();
    writer
        .apply(vec![commit(3, &[("a", Some("1"))]), commit(9, &[("b", Some("1")), ("a", Some("2"))])])
        .unwrap();
    // Delivered again after a lost connection: skipped.
    writer.apply(vec![commit(9, &[("a", Some("?"))]), commit(12, &[("a", None)])]).unwrap();
    assert_eq!(replica.revision(), Revision(12));
    assert_eq!(list(&replica, None), ["b=1@9/9"]);
    assert_eq!(list(&replica, Some(11)), ["a=2@3/9", "b=1@9/9"]);
    assert_eq!(list(&replica, Some(4)), ["a=1@3/3"]);
    runtime().block_on(async {
        let batches = take(&mut follower, 3).await;
        let revisions: Vec<_> = batches.iter().map(|batch| batch.revision.0).collect();
        assert_eq!(revisions, [3, 9, 12]);
        assert_eq!(batches[1].events.iter().map(show_event).collect::<Vec<_>>(), ["b: - -> 1", "a: 1 -> 2"]);
        let late = take(&mut replica.follow(Revision(5)).unwrap(), 2).await;
        assert_eq!(late, batches[1..], "a revision of the source that changed nothing here");
    });
}

#[test]
fn a_revision_without_a_commit_is_passed_by_readers_and_followers() {
    let (replica, mut writer) = open(None);
    writer.apply(vec![commit(3, &[("a", Some("1"))])]).unwrap();
    let mut follower = replica.follow(Revision(0)).unwrap();
    writer.set_position(Revision(8)).unwrap();
    writer.set_position(Revision(5)).unwrap();
    assert_eq!(replica.revision(), Revision(8));
    assert_eq!(list(&replica, Some(8)), ["a=1@3/3"]);
    runtime().block_on(async {
        assert!(
            matches!(follower.advance().await, Ok(Advance::Batch(batch)) if batch.revision == Revision(3))
        );
        assert_eq!(follower.advance().await.unwrap(), Advance::Position(Revision(8)));
        assert_eq!(follower.position(), Revision(8));
        let mut late = replica.follow(Revision(8)).unwrap();
        writer.apply(vec![commit(9, &[("a", Some("2"))])]).unwrap();
        for follower in [&mut follower, &mut late] {
            assert_eq!(take(follower, 1).await[0].revision, Revision(9));
        }
        assert_eq!(list(&replica, Some(8)), ["a=1@3/3"]);
    });
}

#[test]
fn a_rebuild_replaces_everything_at_once_and_ends_followers_behind_it() {
    let (replica, mut writer) = open(None);
    writer.apply(vec![commit(3, &[("a", Some("1")), ("b", Some("1"))])]).unwrap();
    let mut behind = replica.follow(Revision(3)).unwrap();
    let record = |key: &'static str, created, modified| Record {
        key: key.into(),
        value: "new".into(),
        created: Revision(created),
        modified: Revision(modified),
    };

    let mut rebuild = writer.rebuild().unwrap();
    rebuild.add(&[record("b", 3, 20), record("c", 10, 10)]).unwrap();
    assert_eq!(list(&replica, None), ["a=1@3/3", "b=1@3/3"], "readers keep the old content");
    drop(rebuild);
    assert_eq!(list(&replica, None), ["a=1@3/3", "b=1@3/3"], "an interrupted rebuild changes nothing");

    let mut rebuild = writer.rebuild().unwrap();
    rebuild.add(&[record("b", 3, 20)]).unwrap();
    rebuild.add(&[record("c", 10, 10)]).unwrap();
    rebuild.finish(Revision(21)).unwrap();
    assert_eq!((replica.revision(), replica.compacted()), (Revision(21), Revision(21)));
    assert_eq!(list(&replica, None), ["b=new@3/20", "c=new@10/10"]);
    let past = replica.scan(&Range::all(), Some(Revision(20)), &mut |_| unreachable!());
    assert!(matches!(past, Err(ReadError::Compacted { oldest: Revision(21) })), "{past:?}");
    runtime().block_on(async {
        let end = behind.next().await;
        assert!(matches!(end, Err(FollowError::Compacted { oldest: Revision(21) })), "{end:?}");
        let mut follower = replica.follow(Revision(21)).unwrap();
        writer.apply(vec![commit(22, &[("b", None)])]).unwrap();
        assert_eq!(take(&mut follower, 1).await[0].revision, Revision(22));
    });
}

#[test]
fn compaction_frees_history_in_steps() {
    let (replica, mut writer) = open(None);
    for revision in 1..=2000 {
        writer.apply(vec![commit(revision * 2, &[("a", Some("v"))])]).unwrap();
    }
    writer.compact(Revision(3001)).unwrap();
    assert_eq!(replica.compacted(), Revision(3001));
    while writer.has_rows_to_sweep() {
        writer.sweep().unwrap();
    }
    assert_eq!((replica.stats().history, replica.stats().log), (500, 500));
    assert_eq!(list(&replica, Some(3001)), ["a=v@2/3000"]);
}

#[test]
fn a_file_continues_from_its_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("view.redb");
    let (_, mut writer) = open(Some(&path));
    writer.apply(vec![commit(3, &[("a", Some("1"))])]).unwrap();
    writer.checkpoint().unwrap();
    writer.apply(vec![commit(4, &[("a", Some("2"))])]).unwrap();
    drop(writer);
    let (replica, mut writer) = open(Some(&path));
    if replica.revision() < Revision(4) {
        writer.apply(vec![commit(4, &[("a", Some("2"))])]).unwrap();
    }
    assert_eq!(list(&replica, None), ["a=2@3/4"]);
}

#[test]
fn a_file_remembers_how_far_its_source_was_seen() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("view.redb");
    let (replica, mut writer) = open(Some(&path));
    writer.apply(vec![commit(3, &[("a", Some("1"))])]).unwrap();
    assert_eq!(writer.position(), Revision(3));
    writer.set_position(Revision(8)).unwrap();
    writer.checkpoint().unwrap();
    assert_eq!((replica.revision(), writer.position()), (Revision(8), Revision(8)));
    // Without anything to apply, too.
    writer.set_position(Revision(9)).unwrap();
    writer.set_position(Revision(5)).unwrap();
    writer.checkpoint().unwrap();
    drop((replica, writer));

    let (replica, mut writer) = open(Some(&path));
    assert_eq!((replica.revision(), writer.position()), (Revision(9), Revision(9)));
    writer.apply(vec![commit(12, &[("a", None)])]).unwrap();
    assert_eq!(writer.position(), Revision(12));
    writer.rebuild().unwrap().finish(Revision(20)).unwrap();
    assert_eq!(writer.position(), Revision(20));
    drop((replica, writer));
    assert_eq!(open(Some(&path)).1.position(), Revision(20));
}

#[test]
fn files_that_are_no_replica_of_this_source_are_refused_and_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("view.redb");
    let refused = |path: &Path| {
        let before = std::fs::read(path).unwrap();
        let error = ReplicaWriter::open(Some(path), ORIGIN, ReplicaOptions::default()).unwrap_err();
        assert!(std::fs::read(path).unwrap() == before, "the file was changed");
        error.to_string()
    };

    let other = Origin { cluster: 0xbeef, part: 1 };
    drop(ReplicaWriter::open(Some(&path), other, ReplicaOptions::default()).unwrap());
    assert!(refused(&path).ends_with("is a copy of another source, the cluster beef"));
    let other = ReplicaWriter::open(Some(&path), ORIGIN, ReplicaOptions::default());
    assert!(matches!(other, Err(OpenError::Foreign { .. })));

    let store = directory.path().join("store.redb");
    drop(RedbStore::open(&store, RedbOptions::default()).unwrap());
    assert!(refused(&store).contains("it is a store of its own and no copy"));
    let opened = RedbStore::open(&path, RedbOptions::default());
    assert!(matches!(opened, Err(OpenError::Corrupt { hint, .. }) if hint.contains("copy of a store")));

    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[512..middle].fill(0xee);
    std::fs::write(&path, bytes).unwrap();
    assert!(refused(&path).contains("it is only a copy, which is made again"), "{}", refused(&path));
    std::fs::write(&path, "something else").unwrap();
    assert!(refused(&path).contains("it is only a copy, which is made again"));
}
