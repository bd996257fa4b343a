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
