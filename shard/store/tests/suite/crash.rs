//! `kill -9`: acknowledged commits survive, also several crashes in a row.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use fairlead_store::{Mutation, RedbOptions, RedbStore, Revision, Store};
use futures_util::future::join_all;

use crate::backend::runtime;
use crate::contract::subject::take;

const FILE: &str = "FAIRLEAD_STORE_CRASH_TEST_FILE";
const CLIENTS: usize = 8;

/// Acknowledgements per run before the kill. 0 kills the process while it opens the file.
const RUNS: [usize; 9] = [300, 0, 1, 40, 0, 0, 7, 500, 3];

#[test]
fn an_acknowledged_commit_survives_any_number_of_kills() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let mut acknowledged = BTreeMap::new();
    for acknowledgements in RUNS {
        run_and_kill(&path, acknowledgements, &mut acknowledged);
        if acknowledgements > 0 {
            check(&path, &acknowledged);
        }
    }
    assert!(acknowledged.len() >= RUNS.iter().sum());
}

/// Starts a writer, kills it after `acknowledgements` acknowledgements, and collects all that it printed.
fn run_and_kill(path: &Path, acknowledgements: usize, acknowledged: &mut BTreeMap<Revision, String>) {
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::writer_to_be_killed", "--ignored", "--nocapture", "--test-threads=1"])
        .env(FILE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
    let (mut left, mut started) = (acknowledgements, false);
    for line in lines.map_while(Result::ok) {
        let mut words = line.split(' ');
        match words.next() {
            // libtest prints "test crash::… ... " in front of the first line.
            Some("test") => started = true,
            Some("acknowledged") => {
                let revision = Revision(words.next().unwrap().parse().unwrap());
                assert!(acknowledged.insert(revision, words.next().unwrap().to_owned()).is_none());
                left = left.saturating_sub(1);
            }
            _ => {}
        }
        if started && left == 0 {
            // Killing it twice is harmless; what it had printed before is still read to the end.
            writer.kill().unwrap();
        }
    }
    assert!(!writer.wait().unwrap().success(), "the writer was to be killed");
    assert_eq!(left, 0, "the writer ended by itself");
}

fn check(path: &Path, acknowledged: &BTreeMap<Revision, String>) {
    let store = RedbStore::open(path, RedbOptions::default()).unwrap();
    let last = *acknowledged.keys().next_back().unwrap();
    assert!(store.revision() >= last);
    for (revision, name) in acknowledged {
        let record =
            store.get(name.as_bytes()).unwrap().unwrap_or_else(|| panic!("{name} at {revision} is lost"));
        assert_eq!((record.modified, &record.value[..]), (*revision, value(name).as_bytes()));
    }
    // Each commit has two keys: none is there without the other.
    let last = store.get(b"last").unwrap().unwrap();
    assert_eq!(last.modified, store.revision());
    let its_twin = store.get(&last.value).unwrap().unwrap();
    assert_eq!(its_twin.modified, store.revision());
    // The log is complete.
    let compacted = store.compacted();
    let count = usize::try_from(store.revision().0 - compacted.0).unwrap();
    let batches = runtime().block_on(async { take(&mut store.follow(compacted).unwrap(), count).await });
    for (revision, batch) in (compacted.0 + 1..).zip(&batches) {
        assert_eq!((batch.revision.0, batch.events.len()), (revision, 2));
        assert_eq!(batch.events[1].value.as_ref(), Some(&batch.events[0].key));
    }
}

fn value(name: &str) -> String {
    name.repeat(20)
}

#[test]
#[ignore = "the process that the test above starts and kills"]
fn writer_to_be_killed() {
    println!();
    println!("test has begun");
    let path = std::env::var_os(FILE).unwrap();
    let store: Arc<dyn Store> = Arc::new(RedbStore::open(path, RedbOptions::default()).unwrap());
    runtime().block_on(async {
        let run = store.revision();
        join_all((0..CLIENTS).map(|client| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for round in 0_u64.. {
                    let name = format!("{run}-{client}-{round}");
                    let mutations = vec![
                        Mutation::create(name.clone(), value(&name)),
                        Mutation::put("last", name.clone()),
                    ];
                    let revision = store.commit(mutations).await.unwrap();
                    print_whole(&format!("acknowledged {revision} {name}\n"));
                    if client == 0 && round % 16 == 0 {
                        store.compact(Revision(revision.0.saturating_sub(50))).await.unwrap();
                    }
                }
            })
        }))
        .await;
    });
}

/// Writes a whole line at once: a kill between two writes must not leave half of one.
fn print_whole(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).unwrap();
    out.flush().unwrap();
}
