//! Damaged files and occupied ports: the server reports the problem in one sentence and changes nothing.

use std::net::TcpListener;
use std::process::Output;

use fairlead_tests::harness::binary;

use crate::installation::{Installation, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_corrupt_store_is_rejected_with_one_sentence_and_not_changed() {
    let mut installation = Installation::start(1).await;
    installation.stop().await;
    for (server, program) in [("root", "fairlead-shard"), ("cache", "fairlead-cache-server")] {
        let store = installation.directory().join(format!("data/{server}/store.redb"));
        let good = std::fs::read(&store).unwrap();
        let mut half_overwritten = good.clone();
        half_overwritten.iter_mut().take(8_192).for_each(|byte| *byte = 0x5a);
        let mut cut = good.clone();
        cut.truncate(good.len() / 3);
        for (how, bad) in [
            ("overwritten", half_overwritten),
            ("cut", cut),
            ("with one value changed", changed_in_values(&good)),
            ("not a store", b"This is a text file and not a store.\n".repeat(500)),
        ] {
            std::fs::write(&store, &bad).unwrap();
            let config = installation.directory().join(format!("config/{server}.yaml"));
            let mut command = tokio::process::Command::new(binary(program).unwrap());
            command.arg("--config").arg(config).kill_on_drop(true);
            let output = within(&format!("the end of {server}, {how}"), command.output()).await.unwrap();
            assert!(!output.status.success(), "{server}, {how}: {output:?}");
            let message = one_sentence(&output);
            assert!(message.contains("store.redb"), "{server}, {how}: {message}");
            assert!(
                std::fs::read(&store).unwrap() == bad,
                "{server}, {how}: the file was touched; {message}"
            );
        }
        std::fs::write(&store, &good).unwrap();
    }
    installation.start_again().await;
}

/// The file with other UIDs, as after bit rot: everything still parses.
fn changed_in_values(good: &[u8]) -> Vec<u8> {
    let mut bad = good.to_owned();
    let mark = b"\"uid\":\"";
    let places: Vec<_> = good
        .windows(mark.len())
        .enumerate()
        .filter(|(_, seen)| seen == mark)
        .map(|(place, _)| place)
        .collect();
    assert!(!places.is_empty(), "no object in the file");
    for place in places {
        bad[place + mark.len()] ^= 1;
    }
    bad
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_start_is_reported_in_one_sentence() {
    let mut installation = Installation::start(1).await;
    let port = installation.port().to_string();
    let other = installation.fairlead(["up", "--dir=other", "--port", &port]).await;
    assert_rejected(&other, &format!("port {port} is in use"));
    let again = installation.fairlead(["up", "--dir=site", "--port=0"]).await;
    assert_rejected(&again, "another `fairlead up`");
    installation.stop().await;

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    assert_rejected(&installation.fairlead(["up", "--dir=site", "--port", &port]).await, "is in use");
    for file in ["format", "pki/format"] {
        let path = installation.directory().join(file);
        let good = std::fs::read(&path).unwrap();
        std::fs::write(&path, "99\n").unwrap();
        assert_rejected(&installation.fairlead(["up", "--dir=site", "--port=0"]).await, "newer");
        std::fs::write(&path, good).unwrap();
    }
    let foreign = installation.scratch("foreign");
    std::fs::write(foreign.join("notes.txt"), "A text file.").unwrap();
    assert_rejected(
        &installation.fairlead(["up", "--dir=foreign", "--port=0", "--fresh"]).await,
        "not a directory of fairlead",
    );
    assert_eq!(std::fs::read_dir(&foreign).unwrap().count(), 1);
    installation.start_again().await;
}

fn assert_rejected(output: &Output, why: &str) {
    assert!(!output.status.success(), "{why}: {output:?}");
    let message = one_sentence(output);
    assert!(message.contains(why), "{why:?} is not in {message:?}");
}

/// The message: one line, and one with a hint.
fn one_sentence(output: &Output) -> String {
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<_> = message.lines().filter(|line| !line.trim().is_empty()).collect();
    assert!(
        (1..=2).contains(&lines.len()),
        "not one sentence: {message:?}, after {:?}",
        String::from_utf8_lossy(&output.stdout)
    );
    assert!(!message.contains("panicked"), "{message}");
    message
}
