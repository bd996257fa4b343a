//! An etcd that was set back, and a local copy that rotted.

use std::path::Path;

use fairlead_tests::harness::is_left_out;

use super::{Subject, etcd, refusal};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_of_an_older_state_is_refused_until_the_copy_is_removed() {
    if is_left_out("etcd") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut etcd = etcd(directory.path(), 1, &[]).await;
    let mut subject = Subject::start(directory.path(), etcd.endpoints()).await;
    subject.create("old").await.unwrap();
    etcd.kill(0).await.unwrap();
    let (data, saved) = (directory.path().join("etcd-m0"), directory.path().join("saved"));
    copy(&data, &saved);
    etcd.restart(0).await.unwrap();
    subject.create_when_available("new").await;

    etcd.kill(0).await.unwrap();
    std::fs::remove_dir_all(&data).unwrap();
    copy(&saved, &data);
    etcd.restart(0).await.unwrap();
    etcd.until_healthy(0).await.unwrap();
    // A running shard serves what it has, but accepts nothing.
    subject.until_ready_is(false).await;
    subject.assert_refused("during").await;
    assert!(subject.exists("new").await);

    // Its end makes the copy durable, so that the next start sees that it is ahead.
    subject.shard.process.terminate().await.unwrap();
    let refused = refusal(&mut subject).await;
    assert!(refused.contains("data is lost, or a backup was restored"), "{refused}");
    std::fs::remove_file(subject.shard.store()).unwrap();
    subject.shard.process.restart().await.unwrap();
    subject.shard.until_ready().await.unwrap();
    assert!(subject.exists("old").await && !subject.exists("new").await);
    subject.create("after").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotten_copy_is_refused_in_one_sentence_and_made_again_after_its_removal() {
    if is_left_out("etcd") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let etcd = etcd(directory.path(), 1, &[]).await;
    let mut subject = Subject::start(directory.path(), etcd.endpoints()).await;
    subject.create("before").await.unwrap();
    subject.shard.process.terminate().await.unwrap();
    let path = subject.shard.store();
    let sound = std::fs::read(&path).unwrap();
    // The header, the whole file, and the second half.
    for (from, every) in [(0, 1), (0, 512), (sound.len() / 2, 64)] {
        let mut rotten = sound.clone();
        rotten.iter_mut().skip(from).step_by(every).for_each(|byte| *byte ^= 0x55);
        std::fs::write(&path, &rotten).unwrap();
        let refused = refusal(&mut subject).await;
        assert!(refused.contains("it is only a copy"), "from {from}, every {every}: {refused}");
        assert!(std::fs::read(&path).unwrap() == rotten, "the file is not overwritten");
    }
    std::fs::remove_file(&path).unwrap();
    subject.shard.process.restart().await.unwrap();
    subject.shard.until_ready().await.unwrap();
    assert!(subject.exists("before").await);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
