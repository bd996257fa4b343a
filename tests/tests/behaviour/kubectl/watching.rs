//! `kubectl get -w` while another client writes.

use std::process::Stdio;

use fairlead_client::{DeleteOptions, PatchType, WriteOptions};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::ChildStdout;

use super::{Session, with_each};
use crate::installation::within;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_shows_what_another_client_writes() {
    with_each(|session: Session| async move {
        let mut watching = session
            .kubectl
            .command()
            .args(["get", "configmaps", "-w", "--output-watch-events", "-l", "log=yes"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
        // kubectl does not report when the watch is open: the first object may come with the list or as an event.
        let entry = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "entry", "labels": { "log": "yes" } }, "data": {},
        });
        let options = WriteOptions::default();
        session.admin.create::<Value>(CONFIG_MAPS, &entry, &options).await.unwrap();
        assert_eq!(cells(&mut lines).await[..3], ["EVENT", "NAME", "DATA"]);
        assert_eq!(cells(&mut lines).await[..3], ["ADDED", "entry", "0"]);
        let path = format!("{CONFIG_MAPS}/entry");
        for count in 1..=5 {
            let patch = json!({ "data": { format!("line-{count}"): "x" } });
            session.admin.patch::<Value>(&path, PatchType::Merge, &patch, &options).await.unwrap();
            assert_eq!(cells(&mut lines).await[..3], ["MODIFIED", "entry", &count.to_string()]);
        }
        session.admin.delete(&path, &DeleteOptions::default()).await.unwrap();
        assert_eq!(cells(&mut lines).await[..2], ["DELETED", "entry"]);
        watching.kill().await.unwrap();
    })
    .await;
}

async fn cells(lines: &mut Lines<BufReader<ChildStdout>>) -> Vec<String> {
    let line = within("a line of kubectl", lines.next_line()).await.unwrap().expect("kubectl has ended");
    line.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inactive_workspace_ends_its_watches_and_refuses_requests() {
    with_each(|session: Session| async move {
        let mut watching = session
            .kubectl
            .command()
            .args(["get", "configmaps", "-w"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
        assert_eq!(cells(&mut lines).await[..2], ["NAME", "DATA"]);
        assert_eq!(cells(&mut lines).await[..2], ["kube-root-ca.crt", "1"]);
        // The watch is open when it delivers an object that was created after the list.
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "entry" } });
        let options = WriteOptions::default();
        session.admin.create::<Value>(CONFIG_MAPS, &object, &options).await.unwrap();
        assert_eq!(cells(&mut lines).await[..1], ["entry"]);
        let mark = async |value: Value| {
            let path = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster";
            let patch = json!({ "metadata": { "annotations": { "core.kcp.io/inactive": value } } });
            session.admin.patch::<Value>(path, PatchType::Merge, &patch, &options).await.unwrap();
        };
        mark("true".into()).await;
        assert_eq!(within("the end of the watch", lines.next_line()).await.unwrap(), None);
        let refused = session.admin.get_json::<Value>(CONFIG_MAPS).await.unwrap_err().to_string();
        assert!(refused.contains("logical cluster is marked inactive"), "{refused}");
        mark(Value::Null).await;
        session.admin.get_json::<Value>(CONFIG_MAPS).await.unwrap();
        watching.kill().await.unwrap();
    })
    .await;
}
