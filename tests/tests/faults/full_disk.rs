//! A full disk: writes are refused, reads and open watches go on, nothing acknowledged is lost, and writes go on when there is room.

use fairlead_client::{ClientError, WriteOptions};
use fairlead_tests::harness::ShardSettings;
use fairlead_tests::history::Content;
use serde_json::Value;

use crate::recorder::object;
use crate::run::{Run, WATCHERS};
use crate::seed;
use crate::site::{Collection, Site, TIMEOUT, eventually};

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
    let fillers = fill(&run.site).await;
    assert!(fillers > 50, "the disk was full after {fillers} objects");
    let tasks = run.spawn_writers();
    // Every writer meets a refusal, and none of them waits for it.
    tokio::time::timeout(TIMEOUT, run.join(tasks)).await.expect("writers are refused at once");

    // The shard is alive and ready: it refuses writes with a status, and serves reads.
    let collection = run.site.collections[0].clone();
    // Some may find room in what a checkpoint has freed.
    let (_, refused) = until_refused(&run.site, "probe").await;
    assert_eq!(refused.code(), Some(503), "{refused}");
    assert!(refused.to_string().contains("the disk of the store is full"), "{refused}");
    run.site.clients[0].get("/readyz").await.unwrap();
    let names = names(&run.site).await;
    assert_eq!(fillers_of(&names), fillers, "a refused write has no effect");

    // Room comes while the process runs: writes go on without a restart.
    let process = run.site.replicas[0].process.id();
    run.site.replicas[0].make_room().unwrap();
    let late = large(&collection, "filler-late", Content(u64::MAX));
    eventually("a write after there is room", || create(&run.site, &late)).await;
    for number in 0..fillers {
        let object = large(&collection, &format!("filler-late-{number}"), Content(u64::MAX));
        create(&run.site, &object).await.unwrap();
    }
    assert_eq!(run.site.replicas[0].process.id(), process);

    // Nothing acknowledged is lost when the machine fails afterwards.
    run.site.replicas[0].process.kill().await.unwrap();
    run.site.replicas[0].lift_file_limit().unwrap();
    run.site.replicas[0].process.restart().await.unwrap();
    run.until_ready().await;
    run.check(1).await;
    assert_eq!(fillers_of(&self::names(&run.site).await), 2 * fillers + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_on_a_file_system_that_others_fill_recovers_when_they_give_room() {
    let directory = tempfile::tempdir().unwrap();
    let Some(_mounted) = SmallFileSystem::mount(directory.path()) else { return };
    let settings = ShardSettings { compaction_interval: "1h", ..ShardSettings::default() };
    let mut site = Site::start(directory.path(), &settings).await;
    let collection = site.collections[0].clone();
    let foreign = directory.path().join("foreign");
    let mut fillers = 0;
    for round in 0..3 {
        let mut file = std::fs::File::create(&foreign).unwrap();
        while std::io::Write::write(&mut file, &[b'f'; 4096]).is_ok() {}
        // Room for some objects, so that the end comes in different places.
        file.set_len(file.metadata().unwrap().len() - (round << 19)).unwrap();
        let first = fillers;
        loop {
            let object = large(&collection, &format!("filler-{fillers}"), Content(fillers));
            match create(&site, &object).await {
                Ok(_) => fillers += 1,
                Err(error) => {
                    assert!(error.to_string().contains("the disk of the store is full"), "{error}");
                    break;
                }
            }
        }
        site.clients[0].get("/readyz").await.unwrap();
        assert_eq!(fillers_of(&names(&site).await), fillers);
        drop(file);
        std::fs::remove_file(&foreign).unwrap();
        let object = large(&collection, &format!("filler-{fillers}"), Content(fillers));
        eventually("a write after there is room", || create(&site, &object)).await;
        fillers += 1;
        assert!(fillers > first);
    }
    site.replicas[0].process.kill().await.unwrap();
    site.replicas[0].process.restart().await.unwrap();
    site.replicas[0].until_ready().await.unwrap();
    assert_eq!(fillers_of(&names(&site).await), fillers);
}

/// A mounted file system of 48 MiB.
struct SmallFileSystem(std::path::PathBuf);

impl SmallFileSystem {
    /// `None` without the right to mount, which only root has.
    fn mount(directory: &std::path::Path) -> Option<Self> {
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=48m", "tmpfs"])
            .arg(directory)
            .output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(directory.to_owned()));
        }
        println!("left out without the right to mount a file system");
        None
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        // At once, although the processes of the test may not have ended yet.
        drop(std::process::Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

async fn names(site: &Site) -> Vec<String> {
    let list: Value = site.clients[0].get_json(&site.collections[0].path).await.unwrap();
    let items = list["items"].as_array().unwrap().iter();
    items.filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

fn fillers_of(names: &[String]) -> u64 {
    names.iter().filter(|name| name.starts_with("filler-")).count() as u64
}

fn large(collection: &Collection, name: &str, content: Content) -> Value {
    let mut object = object(collection, name, content);
    object["data"]["filler"] = "x".repeat(20_000).into();
    object
}

/// Creates objects until the shard refuses one; returns how many were acknowledged.
async fn fill(site: &Site) -> u64 {
    let (fillers, refused) = until_refused(site, "filler").await;
    assert!(refused.is_retryable(), "{refused}");
    fillers
}

/// As [`fill`], with other names; also returns the refusal.
async fn until_refused(site: &Site, name: &str) -> (u64, ClientError) {
    for number in 0.. {
        let object = large(&site.collections[0], &format!("{name}-{number}"), Content(u64::MAX));
        if let Err(error) = create(site, &object).await {
            return (number, error);
        }
    }
    unreachable!("the disk has no end")
}

async fn create(site: &Site, object: &Value) -> Result<Value, ClientError> {
    site.clients[0].create(&site.collections[0].path, object, &WriteOptions::default()).await
}
