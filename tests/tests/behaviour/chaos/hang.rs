//! A hung shard: its connections stay open, but no data arrives.

use fairlead_client::{Client, WatchStream};
use rustix::process::Signal;
use serde_json::Value;

use super::index::index;
use crate::installation::{Installation, code, until, within};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_shard_is_detected_and_other_shards_are_not_affected() {
    let installation = Installation::start(2).await;
    let root = installation.admin("/clusters/root");
    let red = installation.admin(&installation.workspace("root", "red", "root").await);
    let blue = installation.admin(&installation.workspace("root", "blue", "shard-1").await);
    let lists = index(&root, "lists_read").await;
    let mut at_red = watch(&red).await;
    let mut at_blue = watch(&blue).await;

    installation.freeze("shard-1").await;
    let hung = tokio::spawn({
        let blue = blue.clone();
        async move { code(&blue.get(CONFIG_MAPS).await) }
    });
    assert_eq!(code(&red.get(CONFIG_MAPS).await), 200);
    let response = within("the gateway's response for the hung shard", hung).await.unwrap();
    assert!(matches!(response, 502..=504), "{response}");
    within("the end of the watch", ended(&mut at_blue)).await;
    until("an index that is reported as stale", || async {
        let age = index(&root, "age_seconds").await;
        if age > 0.0 { Ok(()) } else { Err(age) }
    })
    .await;
    assert_eq!(code(&red.get(CONFIG_MAPS).await), 200);
    assert_eq!(conditions(&installation).await, ["ready", "ready", "ready", "silent"]);

    installation.signal("shard-1", Signal::CONT);
    until("the shard is back", || async {
        let response = code(&blue.get(CONFIG_MAPS).await);
        if response == 200 { Ok(()) } else { Err(response) }
    })
    .await;
    until("the index is fresh", || async {
        let age = index(&root, "age_seconds").await;
        if age == 0.0 { Ok(()) } else { Err(age) }
    })
    .await;
    assert_eq!(index(&root, "lists_read").await, lists, "the watch resumed without a new list");
    let quiet = tokio::time::timeout(std::time::Duration::ZERO, ended(&mut at_red)).await;
    assert!(quiet.is_err(), "a watch at the other shard was cut");
}

/// The conditions of gateway, cache server and shards in `fairlead status`.
async fn conditions(installation: &Installation) -> Vec<String> {
    let output = installation.fairlead(["status", "--dir=site", "-o", "json"]).await;
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut processes = status["processes"].as_array().unwrap().clone();
    let rank = |process: &Value| {
        let name = process["name"].as_str().unwrap().to_owned();
        ["gateway", "cache", "root", "shard-1"].iter().position(|known| *known == name)
    };
    processes.retain(|process| rank(process).is_some());
    processes.sort_by_key(rank);
    processes.iter().map(|process| process["condition"].as_str().unwrap().to_owned()).collect()
}

async fn watch(client: &Client) -> WatchStream {
    client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await.unwrap()
}

/// Reads to the end of the watch or to an error.
async fn ended(watch: &mut WatchStream) {
    while let Some(Ok(_)) = watch.next().await {}
}
