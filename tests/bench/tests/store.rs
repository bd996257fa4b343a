//! `bench-store` runs through with tiny amounts; its figures mean nothing then.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

use fairlead_tests::harness::{is_left_out, tool};

#[test]
fn every_measurement_of_the_stores_has_figures() {
    if is_left_out("etcd") {
        return;
    }
    tool("etcd").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_bench-store"))
        .args(["--smoke", "--dir"])
        .arg(directory.path())
        .output()
        .unwrap();
    let (table, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{table}{errors}");
    for quantity in [
        "commits on etcd / etcd's own puts",
        "commits on redb",
        "gets, in the cache: etcd / redb",
        "gets, larger than the cache: etcd / redb",
        "lists of 100, larger than the cache: etcd / redb",
        "events of a watch, in the cache: etcd / redb",
        "p99 of write to event on another replica",
        "start on etcd with a good view file",
        "start on etcd without a view file",
        "memory of a replica",
        "backup of redb: p99",
        "backup of etcd: memory",
    ] {
        assert!(table.contains(quantity), "{quantity} is missing in\n{table}");
    }
}
