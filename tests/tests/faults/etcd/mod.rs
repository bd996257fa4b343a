//! Faults of etcd as clients of a shard see them: the table in `docs/shard.md`, with a real etcd.
//!
//! A jump of the clock is not tested, because it needs rights on the machine: the shard measures time with monotonic clocks only.

mod address;
mod members;
mod proxy;
mod restored;
mod space;

use std::path::Path;
use std::time::Duration;

use fairlead_client::{Client, ClientError, DeleteOptions, WatchStream, WriteOptions};
use fairlead_tests::harness::{EtcdCluster, EtcdSettings, Shard, ShardSettings};
use serde_json::{Value, json};

use crate::site::{TIMEOUT, eventually};

/// Objects that every test writes and reads: they need no namespace and have no controllers.
const ROLES: &str = "/clusters/root/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// A shard on etcd.
struct Subject {
    shard: Shard,
    client: Client,
}

impl Subject {
    async fn start(directory: &Path, endpoints: Vec<String>) -> Self {
        let place = EtcdSettings { endpoints, prefix: "/registry".to_owned() };
        let settings = ShardSettings { etcd: Some(place), ..ShardSettings::default() };
        let shard = Shard::start(directory, &settings).await.unwrap();
        let client = shard.client("").unwrap();
        Self { shard, client }
    }

    async fn create(&self, name: &str) -> Result<Value, ClientError> {
        self.create_with(name, "").await
    }

    /// An object with a text that takes room.
    async fn create_with(&self, name: &str, text: &str) -> Result<Value, ClientError> {
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": [],
            "metadata": { "name": name, "annotations": { "text": text } },
        });
        self.client.create(ROLES, &object, &WriteOptions::default()).await
    }

    async fn delete(&self, name: &str) -> Result<(), ClientError> {
        self.client.delete(&format!("{ROLES}/{name}"), &DeleteOptions::default()).await
    }

    async fn exists(&self, name: &str) -> bool {
        match self.client.get(&format!("{ROLES}/{name}")).await {
            Ok(_) => true,
            Err(error) if error.is_not_found() => false,
            Err(error) => panic!("reads go on: {error}"),
        }
    }

    /// Creates an object as a client does that repeats what is refused. Each refusal is one that the table allows.
    async fn create_when_available(&self, name: &str) {
        eventually("a write", || async {
            match self.create(name).await {
                // An attempt without a clear response had its effect.
                Err(error) if error.is_already_exists() => Ok(()),
                Err(error) => {
                    assert_outage(&error);
                    Err(error)
                }
                Ok(_) => Ok(()),
            }
        })
        .await;
    }

    /// Writes until the shard says that etcd is not available, which it does as long as that lasts.
    async fn assert_refused(&self, name: &str) {
        eventually("a refusal", || async {
            let error = self.create(name).await.expect_err("written without etcd");
            assert_outage(&error);
            // The write that was under way when etcd went away has an unknown outcome.
            if error.code() == Some(503) { Ok(()) } else { Err(error) }
        })
        .await;
        assert!(!self.exists(name).await);
    }

    /// Waits until `/readyz` fails, or succeeds again.
    async fn until_ready_is(&self, expected: bool) {
        eventually("the readiness", || async {
            match self.client.get("/readyz").await {
                Ok(_) if expected => Ok(()),
                Err(_) if !expected => Ok(()),
                other => Err(format!("{:?}", other.map(drop))),
            }
        })
        .await;
    }

    /// A watch of everything after the present.
    async fn watch(&self) -> WatchStream {
        let list: Value = self.client.get_json(ROLES).await.unwrap();
        let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
        self.client.watch(&format!("{ROLES}?watch=1&resourceVersion={revision}")).await.unwrap()
    }
}

/// 503 `ServiceUnavailable` with `Retry-After`, or 504 `Timeout` without it, after which a client reads before it repeats.
fn assert_outage(error: &ClientError) {
    let status = error.status().unwrap_or_else(|| panic!("no response: {error}"));
    match status.code {
        503 => {
            assert_eq!(status.reason, "ServiceUnavailable", "{status:?}");
            assert!(status.retry_after.is_some_and(|after| after >= Duration::from_secs(1)), "{status:?}");
        }
        504 => assert!(status.reason == "Timeout" && status.retry_after.is_none(), "{status:?}"),
        _ => panic!("{status:?}"),
    }
}

/// Waits for the event of an object that was written after the watch began.
async fn until_seen(watch: &mut WatchStream, name: &str) {
    let seen = async {
        loop {
            let event = watch.next().await.expect("the watch goes on").expect("the watch goes on");
            let object: Value = serde_json::from_slice(&event.object).unwrap();
            if object["metadata"]["name"] == name {
                return;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, seen).await.expect("the event arrives");
}

/// Starts a shard that must refuse; returns its sentence.
async fn refusal(subject: &mut Subject) -> String {
    subject.shard.process.restart().await.unwrap();
    let error = subject.shard.until_ready().await.expect_err("the shard does not start");
    error.to_string()
}

async fn etcd(directory: &Path, members: usize, arguments: &[&str]) -> EtcdCluster {
    EtcdCluster::start(directory, members, arguments).await.unwrap()
}
