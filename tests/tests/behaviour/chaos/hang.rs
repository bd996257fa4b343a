//! A shard that hangs: its connections stand, nothing comes over them.

use fairlead_client::{Client, WatchStream};
use rustix::process::Signal;
use serde_json::Value;

use super::index::index;
use crate::installation::{Installation, code, until, within};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_shard_is_noticed_and_nobody_else_suffers() {
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
    let answer = within("an answer in place of the hung shard", hung).await.unwrap();
    assert!(matches!(answer, 502..=504), "{answer}");
    within("the end of the watch", ended(&mut at_blue)).await;
    until("an index that is known to be old", || async {
        let age = index(&root, "age_seconds").await;
        if age > 0.0 { Ok(()) } else { Err(age) }
    })
    .await;
    assert_eq!(code(&red.get(CONFIG_MAPS).await), 200);
    assert_eq!(conditions(&installation).await, ["ready", "ready", "ready", "silent"]);

    installation.signal("shard-1", Signal::CONT);
    until("the shard is back", || async {
        let answer = code(&blue.get(CONFIG_MAPS).await);
        if answer == 200 { Ok(()) } else { Err(answer) }
    })
    .await;
    until("the index is fresh", || async {
        let age = index(&root, "age_seconds").await;
        if age == 0.0 { Ok(()) } else { Err(age) }
    })
    .await;
    assert_eq!(index(&root, "lists_read").await, lists, "it goes on where it was");
    let quiet = tokio::time::timeout(std::time::Duration::ZERO, ended(&mut at_red)).await;
    assert!(quiet.is_err(), "a watch at the other shard was cut");
}

/// What `fairlead status` says of the gateway, the cache server and the shards.
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

/// Reads until there is nothing more, be it an end or an error.
async fn ended(watch: &mut WatchStream) {
    while let Some(Ok(_)) = watch.next().await {}
}
