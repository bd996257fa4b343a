//! The pages of a copy: as many as those of a store with the same commits in the same order. Caches count pages, so reads of the
//! copy cost then what those of the store cost.

use bytes::Bytes;
use redb::ReadableTableMetadata;

use super::super::view::View;
use super::super::{RedbOptions, RedbStore};
use super::{Origin, Replica, ReplicaOptions, ReplicaWriter, ReplicatedCommit};
use crate::{Mutation, Revision, Store};

const KEYS: u64 = 600;
const KEYS_PER_COMMIT: usize = 20;
const VALUE_BYTES: usize = 1024;

/// Orders in which the keys are created.
const IN_ORDER: fn(u64) -> u64 = |number| number;
/// 7 and the number of keys have no common divisor, so each key comes once.
const MIXED: fn(u64) -> u64 = |number| number * 7 % KEYS;

/// Leaf and branch pages of the current values, the history and the log.
type Pages = [(u64, u64); 3];

#[test]
fn a_copy_has_as_many_pages_as_a_store_with_the_same_commits() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (name, order, group) in [("in order", IN_ORDER, 1), ("mixed, in groups", MIXED, 9)] {
        let folder = tempfile::tempdir().unwrap();
        // Small, so that there are checkpoints.
        let options = RedbOptions { journal_bytes: 64 << 10, ..RedbOptions::default() };
        let store = RedbStore::open(folder.path().join("store"), options).unwrap();
        let copy = folder.path().join("copy");
        let (replica, mut writer) =
            ReplicaWriter::open(Some(&copy), Origin { cluster: 1, part: 1 }, ReplicaOptions::default())
                .unwrap();
        let created: Vec<u64> = (0..KEYS).map(order).collect();
        let mut revision = 0;
        for numbers in [&created[..], &created[..KEYS as usize / 2]] {
            let commits: Vec<_> =
                numbers.chunks(KEYS_PER_COMMIT).map(|numbers| changes(numbers, revision)).collect();
            for changes in &commits {
                let puts = changes.iter().map(|(key, value)| Mutation::put(key.clone(), value.clone()));
                runtime.block_on(store.commit(puts.collect())).unwrap();
            }
            for commits in commits.chunks(group) {
                let commits = commits.iter().map(|changes| {
                    revision += 1;
                    let changes = changes.iter().cloned().map(|(key, value)| (key, Some(value)));
                    ReplicatedCommit { revision: Revision(revision), changes: changes.collect() }
                });
                writer.apply(commits.collect()).unwrap();
            }
            assert_eq!(pages_of_store(&store), pages_of_copy(&replica), "{name}");
            writer.checkpoint().unwrap();
            assert_eq!(pages_of_store(&store), pages_of_copy(&replica), "{name}, after the checkpoint");
        }
        let below = store.revision();
        runtime.block_on(store.compact(below)).unwrap();
        writer.compact(below).unwrap();
        while writer.has_rows_to_sweep() {
            writer.sweep().unwrap();
        }
        assert_eq!(pages_of_store(&store), pages_of_copy(&replica), "{name}, compacted");
        assert_eq!(pages_of_copy(&replica)[1..], [(0, 0); 2], "{name}: all history is swept");
    }
}

fn changes(numbers: &[u64], seed: u64) -> Vec<(Bytes, Bytes)> {
    let value = vec![u8::try_from(seed % 251).unwrap_or(0); VALUE_BYTES];
    let change =
        |number: &u64| (Bytes::from(format!("/registry/measured-{number:09}")), value.clone().into());
    numbers.iter().map(change).collect()
}

fn pages_of_store(store: &RedbStore) -> Pages {
    pages(&store.shared.view())
}

fn pages_of_copy(replica: &Replica) -> Pages {
    pages(&replica.shared.view())
}

fn pages(view: &View) -> Pages {
    let of = |stats: redb::TableStats| (stats.leaf_pages(), stats.branch_pages());
    [view.current().stats(), view.history().stats(), view.log().stats()].map(|stats| of(stats.unwrap()))
}
