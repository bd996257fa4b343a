//! An installation started by `fairlead up` in the test's directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fairlead_certs::{Client as Role, Layout};
use fairlead_tests::harness::{TestStore, binary, free_port};
use serde_json::{Value, json};

use super::raw_client::{RawClient, RawRequest};

/// A gateway, shards `root` and `shard-1` and a cache server. Stopped when dropped.
pub struct Installation {
    directory: PathBuf,
    program: PathBuf,
    state: Value,
}

impl Installation {
    pub fn start(directory: &Path) -> Self {
        let program = binary("fairlead").unwrap();
        let directory = directory.join("installation");
        let port = free_port().unwrap().to_string();
        // Output goes to a file. A pipe would stay open as long as the servers run.
        let log = directory.with_extension("log");
        let output = File::create(&log).unwrap();
        let up = Command::new(&program)
            .args(["up", "--shards", "2", "--detach", "--port", &port])
            .args(["--store", TestStore::of_shards().unwrap(), "--dir"])
            .arg(&directory)
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .status()
            .unwrap();
        let mut installation = Self { directory, program, state: Value::Null };
        assert!(up.success(), "{}", std::fs::read_to_string(&log).unwrap());
        let state = std::fs::read(installation.directory.join("state.json")).unwrap();
        installation.state = serde_json::from_slice(&state).unwrap();
        installation
    }

    /// A client of the gateway with the certificate of kcp-admin.
    pub fn gateway(&self) -> RawClient {
        self.client(&self.url("gateway"), &Role::Admin)
    }

    /// A client of a shard with a certificate of the group `system:masters`.
    pub fn shard(&self, name: &str) -> RawClient {
        self.client(&self.url(name), &Role::ShardAdmin)
    }

    /// Sets the labels that the launcher of the recorded installation set on its shards.
    pub async fn label_shards(&self) {
        let labels = [
            ("root", json!({"region": "us-east-2", "shared": "true"})),
            ("shard-1", json!({"region": "us-east-1", "shared": "true"})),
        ];
        let mut gateway = self.gateway();
        for (shard, labels) in labels {
            let response = gateway
                .send(&RawRequest {
                    method: "PATCH".to_owned(),
                    path: format!("/clusters/root/apis/core.kcp.io/v1alpha1/shards/{shard}"),
                    headers: vec![("Content-Type".to_owned(), "application/merge-patch+json".to_owned())],
                    body: json!({"metadata": {"labels": labels}}).to_string().into(),
                })
                .await;
            assert_eq!(response.status, 200, "{}", String::from_utf8_lossy(&response.body));
        }
    }

    fn url(&self, process: &str) -> String {
        let processes = self.state["processes"].as_array().unwrap();
        let process = processes.iter().find(|candidate| candidate["name"] == process).unwrap();
        process["url"].as_str().unwrap().to_owned()
    }

    fn client(&self, url: &str, role: &Role) -> RawClient {
        let layout = Layout::new(self.directory.join("pki"));
        let files = layout.client_cert(role);
        let read = |path: &Path| std::fs::read(path).unwrap();
        RawClient::new(url, &read(&layout.serving_ca()), &read(&files.certificate), &read(&files.key))
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        let down = Command::new(&self.program)
            .args(["down", "--dir"])
            .arg(&self.directory)
            .stdout(Stdio::null())
            .status();
        if std::thread::panicking() {
            println!("{down:?}");
        }
    }
}
