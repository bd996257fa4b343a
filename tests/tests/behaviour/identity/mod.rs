//! Authorization and identity at a shard: the order of authorizers, a webhook, reviews, certificate signing requests.

mod certificates;
mod order;
mod reviews;
mod revisions;
mod tls_server;
mod webhook;
mod workspaces;

use std::net::SocketAddr;

use fairlead_certs::Client as Role;
use fairlead_client::Client;
use fairlead_tests::harness::{Pki, Process, Program, free_port};
use serde_json::{Value, json};

/// A root shard of its own, without a gateway and a cache server.
struct Shard {
    process: Process,
    pki: Pki,
    port: u16,
    // Dropped last: it is the working directory of the process.
    _folder: tempfile::TempDir,
}

impl Shard {
    /// A shard whose configuration has additional settings.
    async fn start(settings: Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pki = Pki::new(&folder.path().join("pki"), &["root"]).unwrap();
        let port = free_port().unwrap();
        let layout = pki.layout();
        let serving = pki.shard("root").unwrap();
        let mut config = json!({
            "serving": {
                "address": SocketAddr::from(([127, 0, 0, 1], port)),
                "certificate": serving.certificate, "privateKey": serving.key,
            },
            "shardBaseURL": format!("https://localhost:{port}"),
            "store": {"path": folder.path().join("store.redb")},
            "trust": {"clientCA": layout.client_ca(), "requestHeaderCA": layout.requestheader_ca()},
        });
        for (key, value) in settings.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        let file = folder.path().join("shard.yaml");
        // JSON is YAML.
        std::fs::write(&file, config.to_string()).unwrap();
        let program = Program::new("fairlead-shard", folder.path()).unwrap();
        let process = program.args(["--config".into(), file.into_os_string()]).start().unwrap();
        let mut shard = Self { process, pki, port, _folder: folder };
        let master = shard.client(&Role::ShardAdmin);
        shard.process.until_ready(&master).await.unwrap();
        shard
    }

    fn client(&self, role: &Role) -> Client {
        self.pki.client(self.port, self.pki.credentials(role).unwrap()).unwrap()
    }

    fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }
}
