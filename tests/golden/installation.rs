//! `fairlead up` in a directory of the test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fairlead_certs::{Client as Role, Layout};
use fairlead_tests::harness::{binary, free_port};
use serde_json::{Value, json};

use super::wire::{Ask, Wire};

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
        // A file and no pipe: who waits for the end of a pipe would wait for the servers.
        let log = directory.with_extension("log");
        let output = File::create(&log).unwrap();
        let up = Command::new(&program)
            .args(["up", "--shards", "2", "--detach", "--port", &port, "--dir"])
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

    /// kcp-admin at the gateway.
    pub fn gateway(&self) -> Wire {
        self.wire(&self.url("gateway"), &Role::Admin)
    }

    /// `system:masters` at a shard.
    pub fn shard(&self, name: &str) -> Wire {
        self.wire(&self.url(name), &Role::ShardAdmin)
    }

    /// The labels that the launcher of the recorded installation gave its shards.
    pub async fn label_shards(&self) {
        let labels = [
            ("root", json!({"region": "us-east-2", "shared": "true"})),
            ("shard-1", json!({"region": "us-east-1", "shared": "true"})),
        ];
        let mut gateway = self.gateway();
        for (shard, labels) in labels {
            let answer = gateway
                .send(&Ask {
                    method: "PATCH".to_owned(),
                    path: format!("/clusters/root/apis/core.kcp.io/v1alpha1/shards/{shard}"),
                    headers: vec![("Content-Type".to_owned(), "application/merge-patch+json".to_owned())],
                    body: json!({"metadata": {"labels": labels}}).to_string().into(),
                })
                .await;
            assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        }
    }

    fn url(&self, process: &str) -> String {
        let processes = self.state["processes"].as_array().unwrap();
        let process = processes.iter().find(|candidate| candidate["name"] == process).unwrap();
        process["url"].as_str().unwrap().to_owned()
    }

    fn wire(&self, url: &str, role: &Role) -> Wire {
        let layout = Layout::new(self.directory.join("pki"));
        let files = layout.client_cert(role);
        let read = |path: &Path| std::fs::read(path).unwrap();
        Wire::new(url, &read(&layout.serving_ca()), &read(&files.certificate), &read(&files.key))
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
