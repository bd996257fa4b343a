//! SIGKILL of any process at any time loses no acknowledged write.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fairlead_client::{Client, ClientError, PatchType, WriteOptions};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::installation::{Installation, until, within};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WRITERS: u32 = 10;
const WRITES: u32 = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_is_lost() {
    let mut installation = Installation::start(2).await;
    let workspaces = [
        installation.workspace("root", "red", "root").await,
        installation.workspace("root", "blue", "shard-1").await,
    ];
    for victim in ["gateway", "root", "shard-1", "cache"] {
        let acknowledged = Arc::new(watch::Sender::new(0));
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                // Each writer has its own connection, so that a kill affects many of them.
                let client = installation.admin(&workspaces[number as usize % 2]);
                let name = format!("{victim}-{number}");
                tokio::spawn(write(client, name, acknowledged.clone()))
            })
            .collect();
        let mut seen = acknowledged.subscribe();
        let third = WRITERS * WRITES / 3;
        within("the first third", seen.wait_for(|count| *count > third)).await.unwrap();
        assert!(*seen.borrow() < 2 * third, "the kill is too late");
        installation.kill(victim).await;
        for writer in writers {
            let (client, writes) = within("a writer", writer).await.unwrap();
            writes.check(&client).await;
        }
    }
    assert!(installation.server("root").restarts >= 1);
}

/// The acknowledged writes of one writer.
struct AcknowledgedWrites {
    name: String,
    created: BTreeMap<String, String>,
    counted: u32,
}

/// Alternates between creating objects and changing one object, and repeats each write until it is acknowledged.
async fn write(
    client: Client,
    name: String,
    acknowledged: Arc<watch::Sender<u32>>,
) -> (Client, AcknowledgedWrites) {
    let options = WriteOptions::default();
    let mut writes = AcknowledgedWrites { name: name.clone(), created: BTreeMap::new(), counted: 0 };
    let count = |value: u32| json!({ "data": { "count": value.to_string() } });
    for number in 0..WRITES {
        if number % 2 == 0 {
            let entry = format!("{name}-{number}");
            let object = config_map(&entry, json!({ "written": number.to_string() }));
            let attempts = AtomicU32::new(0);
            until("a creation", || async {
                let before = attempts.fetch_add(1, Ordering::Relaxed);
                match client.create::<Value>(CONFIG_MAPS, &object, &options).await {
                    // An earlier attempt succeeded, but its acknowledgement was lost.
                    Err(error) if error.is_already_exists() && before > 0 => Ok(()),
                    outcome => retryable(outcome),
                }
            })
            .await;
            writes.created.insert(entry, number.to_string());
        } else {
            let path = format!("{CONFIG_MAPS}/{name}");
            if writes.counted == 0 {
                let object = config_map(&name, json!({}));
                until("the first creation", || async {
                    match client.create::<Value>(CONFIG_MAPS, &object, &options).await {
                        Err(error) if error.is_already_exists() => Ok(()),
                        outcome => retryable(outcome),
                    }
                })
                .await;
            }
            let change = count(number);
            until("a change", || async {
                retryable(client.patch::<Value>(&path, PatchType::Merge, &change, &options).await)
            })
            .await;
            writes.counted = number;
        }
        acknowledged.send_modify(|count| *count += 1);
    }
    (client, writes)
}

/// Accepts errors that the end of a process explains, for another attempt. Panics for any other error.
fn retryable(outcome: Result<Value, ClientError>) -> Result<(), ClientError> {
    match outcome {
        Ok(_) => Ok(()),
        Err(error) if error.is_retryable() => Err(error),
        Err(error) => panic!("not explained by the kill: {error}"),
    }
}

impl AcknowledgedWrites {
    async fn check(&self, client: &Client) {
        let list: Value = client.get_json(CONFIG_MAPS).await.unwrap();
        let stored: BTreeMap<&str, &Value> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| (item["metadata"]["name"].as_str().unwrap(), &item["data"]))
            .collect();
        for (name, written) in &self.created {
            assert_eq!(
                stored.get(name.as_str()).map(|data| &data["written"]),
                Some(&json!(written)),
                "{name}"
            );
        }
        assert_eq!(stored[self.name.as_str()]["count"], self.counted.to_string(), "{}", self.name);
    }
}

fn config_map(name: &str, data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}
