//! Tests of the harness and of the load generator.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub, reason = "tests")]

mod stub;

use std::path::PathBuf;
use std::time::Duration;

use fairlead_certs::{Client as Role, Renewal};
use fairlead_client::Endpoint;
use fairlead_tests::harness::{HarnessError, Kubectl, Process, Program, binary, ready};
use fairlead_tests::load::{
    DeliveryLoad, GetLoad, LoadError, ObservedProcess, Table, Target, WatchLoad, WorkspaceLoad,
    measure_delivery, measure_fsync, measure_gets, measure_watches, measure_workspaces,
};
use stub::Stub;

#[tokio::test]
async fn a_process_can_be_awaited_stopped_and_restarted() {
    let directory = tempfile::tempdir().unwrap();
    let mut process = shell(
        directory.path(),
        "echo started; trap 'echo stopping; exit 3' TERM; while :; do sleep 0.05; done",
    );
    until_logged(&mut process, 1).await.unwrap();
    assert_eq!(process.terminate().await.unwrap().code(), Some(3));
    assert_eq!(process.log(), "started\nstopping\n");
    let first = process.id();
    process.restart().await.unwrap();
    until_logged(&mut process, 2).await.unwrap();
    assert_ne!(process.id(), first);
    process.kill().await.unwrap();
    assert!(ObservedProcess { name: "dead".into(), pid: process.id() }.sample().is_err());
}

#[tokio::test]
async fn descendants_are_killed_with_a_process_if_its_program_is_set_so() {
    let directory = tempfile::tempdir().unwrap();
    let script = "sleep 300 & echo started $!; wait";
    let program = Program::at(PathBuf::from("/bin/sh"), "shell", directory.path()).args(["-c", script]);
    for is_dropped in [false, true] {
        let mut process = program.clone().killed_with_descendants().start().unwrap();
        until_logged(&mut process, if is_dropped { 2 } else { 1 }).await.unwrap();
        let log = process.log();
        let pid = log.split_whitespace().last().unwrap().parse().unwrap();
        let worker = ObservedProcess { name: "worker".into(), pid };
        assert!(worker.sample().is_ok());
        if !is_dropped {
            process.kill().await.unwrap();
        }
        drop(process);
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while worker.sample().is_ok() {
            assert!(std::time::Instant::now() < deadline, "the worker still runs");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn the_log_of_a_process_that_ends_too_early_is_in_the_error() {
    let directory = tempfile::tempdir().unwrap();
    let mut process = shell(directory.path(), "echo no such port >&2; exit 7");
    let error = until_logged(&mut process, 1_000).await.unwrap_err();
    assert!(matches!(&error, HarnessError::Ended { status, .. } if status.code() == Some(7)), "{error}");
    assert!(error.to_string().contains("no such port"), "{error}");
}

#[test]
fn a_missing_binary_is_named() {
    assert!(binary("bench").unwrap().is_file());
    assert!(binary("no-such-program").unwrap_err().to_string().contains("no-such-program"));
}

#[tokio::test]
async fn every_installed_kubectl_runs() {
    let directory = tempfile::tempdir().unwrap();
    for kubectl in Kubectl::found(&directory.path().join("kubeconfig"), directory.path()).unwrap() {
        let printed = kubectl.ok("version --client -o json").await.unwrap();
        if kubectl.version() != "default" {
            let minor = kubectl.version().trim_start_matches("1.");
            assert!(printed.contains(&format!("\"minor\": \"{minor}")), "{printed}");
        }
        let failed = kubectl.ok("get pods --server=http://127.0.0.1:1").await.unwrap_err();
        assert!(matches!(failed, HarnessError::Kubectl { .. }), "{failed}");
    }
}

#[tokio::test]
async fn certificates_are_rotated_in_place() {
    let stub = Stub::start().await;
    let client = stub.pki.client(stub.port, stub.pki.credentials(&Role::Admin).unwrap()).unwrap();
    ready(&client).await.unwrap();
    stub.pki.issue(Renewal::WhenDue).unwrap();
    assert!(!client.set_credentials(stub.pki.credentials(&Role::Admin).unwrap()));
    stub.pki.issue(Renewal::EveryLeaf).unwrap();
    assert!(client.set_credentials(stub.pki.credentials(&Role::Admin).unwrap()));
    ready(&client).await.unwrap();
    let kubeconfig = stub.pki.admin_kubeconfig(stub.port).unwrap();
    Target::from_kubeconfig(&kubeconfig, Some("base"), vec![]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loads_report_their_operations() {
    let stub = Stub::start().await;
    let target = target(&stub);
    let gets = GetLoad {
        name: "GET".into(),
        path: "/api/v1/configmaps".into(),
        connections: 2,
        streams: 3,
        warm_up: Duration::ZERO,
        duration: Duration::from_millis(200),
    };
    let table = measure_gets(&target, &gets).await.unwrap();
    assert_eq!(names(&table), ["self CPU per GET", "GET per second", "GET latency"]);
    assert!(value(&table, "GET per second").parse::<f64>().unwrap() > 1.0);

    let watches = WatchLoad {
        path: "/api/v1/configmaps".into(),
        count: 25,
        per_connection: 10,
        settle: Duration::ZERO,
    };
    let connections = stub.connections();
    let table = measure_watches(&target, &watches).await.unwrap();
    assert_eq!(names(&table), ["self memory per watch"]);
    // One for the first watch, which is not counted, and three for 25 watches with ten per connection.
    assert_eq!(stub.connections() - connections, 4);

    let delivery = DeliveryLoad {
        rate: 100,
        watches: 6,
        receivers: 3,
        per_connection: 2,
        duration: Duration::from_millis(300),
    };
    let table = measure_delivery(&target, &delivery).await.unwrap();
    assert_eq!((value(&table, "events lost"), note(&table, "events lost")), ("0", "of 90"));

    let workspaces = WorkspaceLoad {
        clients: 4,
        count: 20,
        settled_after: 10,
        name_prefix: "w".into(),
        type_name: "universal".into(),
    };
    let table = measure_workspaces(&target, &workspaces).await.unwrap();
    assert_eq!(
        value(&table, "403s after Ready"),
        "5",
        "the stub rejects the first request to each fourth workspace"
    );
    assert_eq!(value(&table, "other failures after Ready"), "0");
    assert!(note(&table, "self memory per workspace").starts_with("slope from 10 to 20 workspaces"));
}

#[tokio::test]
async fn a_rejected_load_is_an_error() {
    let stub = Stub::start().await;
    let gets = GetLoad {
        name: "GET".into(),
        path: "/forbidden".into(),
        connections: 1,
        streams: 1,
        warm_up: Duration::ZERO,
        duration: Duration::from_secs(1),
    };
    let error = measure_gets(&target(&stub), &gets).await.unwrap_err();
    assert!(matches!(&error, LoadError::Client(error) if error.code() == Some(403)), "{error}");
}

#[test]
fn measuring_the_disk_leaves_no_files() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(measure_fsync(directory.path()).unwrap().rows().len(), 1);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

fn shell(directory: &std::path::Path, script: &str) -> Process {
    Program::at(PathBuf::from("/bin/sh"), "shell", directory).args(["-c", script]).start().unwrap()
}

/// Waits until the log contains `started` this many times.
async fn until_logged(process: &mut Process, times: usize) -> Result<(), HarnessError> {
    let path = process.program().log_path();
    process
        .until(|| async {
            let started = std::fs::read_to_string(&path).unwrap_or_default().matches("started").count();
            if started >= times { Ok(()) } else { Err("nothing yet") }
        })
        .await
}

fn target(stub: &Stub) -> Target {
    let endpoint = Endpoint::parse(&format!("https://localhost:{}/clusters/root", stub.port)).unwrap();
    let own = ObservedProcess { name: "self".into(), pid: std::process::id() };
    Target::new(endpoint, stub.pki.anonymous().unwrap(), vec![own])
}

fn names(table: &Table) -> Vec<&str> {
    table.rows().iter().map(|row| row.what.as_str()).collect()
}

fn value<'a>(table: &'a Table, what: &str) -> &'a str {
    &table.rows().iter().find(|row| row.what == what).unwrap().value
}

fn note<'a>(table: &'a Table, what: &str) -> &'a str {
    &table.rows().iter().find(|row| row.what == what).unwrap().note
}
