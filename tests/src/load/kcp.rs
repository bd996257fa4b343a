//! A Go kcp: one shard with its virtual workspaces, cache server and etcd in one process.

use std::path::{Path, PathBuf};

use super::{LoadError, ObservedProcess, Target};
use crate::harness::{Process, Program, free_port, ready};

/// A running `kcp start`, which is killed when dropped.
pub(super) struct Kcp {
    pub(super) process: Process,
    kubeconfig: PathBuf,
}

/// A user of the kubeconfig that kcp writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KcpUser {
    /// An administrator of all workspaces.
    Admin,
    /// A user without limits, who may also make requests to all workspaces at once.
    ShardAdmin,
}

impl Kcp {
    /// Starts the program with its files in a folder, with kcp's embedded etcd, on the loopback interface; returns when it is
    /// ready.
    pub(super) async fn start(program: &Path, folder: &Path) -> Result<Self, LoadError> {
        let [port, client, peer] = [free_port()?, free_port()?, free_port()?];
        let program = Program::at(program.to_owned(), "kcp", folder).args([
            "start".to_owned(),
            format!("--root-directory={}", folder.join("root").display()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--embedded-etcd-client-port={client}"),
            format!("--embedded-etcd-peer-port={peer}"),
        ]);
        let mut process = program.start()?;
        let kubeconfig = folder.join("root/admin.kubeconfig");
        let id = process.id();
        process
            .until(|| async {
                let target =
                    target(&kubeconfig, KcpUser::ShardAdmin, id).map_err(|error| error.to_string())?;
                ready(&target.connection()).await.map_err(|error| error.to_string())
            })
            .await?;
        Ok(Self { process, kubeconfig })
    }

    /// The server without a path.
    pub(super) fn target(&self, user: KcpUser) -> Result<Target, LoadError> {
        target(&self.kubeconfig, user, self.process.id())
    }

    /// The bytes of the heap that are in use after a collection of garbage. The resident memory of a Go process says little
    /// about the cost of an object: it is up to twice as large, and shrinks only slowly.
    pub(super) async fn live_heap(&self) -> Result<u64, LoadError> {
        let client = self.target(KcpUser::ShardAdmin)?.connection();
        let profile = client.get("/debug/pprof/heap?gc=1&debug=1").await?.body;
        let text = String::from_utf8_lossy(&profile);
        let live = text.lines().find_map(|line| line.strip_prefix("# HeapAlloc = ")?.trim().parse().ok());
        live.ok_or_else(|| LoadError::Unexpected("kcp's heap profile has no size".to_owned()))
    }
}

fn target(kubeconfig: &Path, user: KcpUser, id: u32) -> Result<Target, LoadError> {
    let context = match user {
        KcpUser::Admin => "base",
        KcpUser::ShardAdmin => "shard-base",
    };
    let observed = ObservedProcess { name: "kcp".to_owned(), pid: id };
    Ok(Target::from_kubeconfig(kubeconfig, Some(context), vec![observed])?.without_prefix())
}
