//! A full disk: writes are refused, reads and open watches go on, and nothing acknowledged is lost.

use fairlead_client::{ClientError, WriteOptions};
use fairlead_tests::harness::ShardSettings;
use fairlead_tests::history::Content;
use serde_json::Value;

use crate::recorder::{Recorder, object};
use crate::run::{Run, WATCHERS};
use crate::seed;
use crate::site::{Site, TIMEOUT};

/// The store gets room for a few thousand writes beyond its size at the start.
const ROOM: u64 = 4 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_writes_and_loses_none() {
    let directory = tempfile::tempdir().unwrap();
    let settings = ShardSettings { compaction_interval: "1h", ..ShardSettings::default() };
    let mut site = Site::start(directory.path(), &settings).await;
    // The limit of a file's size stands for the size of the disk: it needs no rights, and the errors come in the same calls.
    site.replicas[0].process.kill().await.unwrap();
    let size = std::fs::metadata(site.replicas[0].store()).unwrap().len();
    site.replicas[0].limit_files((size + ROOM) / 512).unwrap();
    site.replicas[0].process.restart().await.unwrap();
    site.replicas[0].until_ready().await.unwrap();

    let mut run = Run::start(site, fastrand::Rng::with_seed(seed()), WATCHERS).await;
    let fillers = fill(&run).await;
    assert!(fillers > 50, "the disk was full after {fillers} objects");
    let tasks = run.spawn_writers();
    // Every writer meets a refusal, and none of them waits for it.
    tokio::time::timeout(TIMEOUT, run.join(tasks)).await.expect("writers are refused at once");

    // The shard is alive: it refuses writes with a status, and serves reads.
    let collection = run.site.collections[0].clone();
    let refused = create(&run.site, &object(&collection, "ours-0", Content(u64::MAX))).await.unwrap_err();
    assert_eq!(refused.code(), Some(503), "{refused}");
    let list: Value = run.site.clients[0].get_json(&collection.path).await.unwrap();
    assert!(list["items"].as_array().is_some_and(|items| items.len() as u64 >= fillers), "{list}");

    // The next process has as little room: it serves what is there, or says why it does not.
    run.site.replicas[0].process.kill().await.unwrap();
    run.site.replicas[0].lift_file_limit().unwrap();
    run.site.replicas[0].process.restart().await.unwrap();
    run.until_ready().await;
    run.check(1).await;
    let list: Value = run.site.clients[0].get_json(&collection.path).await.unwrap();
    let stored = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("filler-")));
    let stored = stored.count() as u64;
    assert!(stored == fillers || stored == fillers + 1, "{stored} of {fillers} are stored");
    // There is room again.
    create(&run.site, &object(&collection, "filler-last", Content(u64::MAX))).await.unwrap();
}

/// Creates objects until the shard refuses one; returns how many were acknowledged.
async fn fill(run: &Run) -> u64 {
    let collection = run.site.collections[0].clone();
    let recorder = Recorder::new();
    for number in 0.. {
        let mut object = object(&collection, &format!("filler-{number}"), recorder.content());
        object["data"]["filler"] = "x".repeat(20_000).into();
        match create(&run.site, &object).await {
            Ok(_) => {}
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                return number;
            }
        }
    }
    unreachable!("the disk has no end")
}

async fn create(site: &Site, object: &Value) -> Result<Value, ClientError> {
    site.clients[0].create(&site.collections[0].path, object, &WriteOptions::default()).await
}
