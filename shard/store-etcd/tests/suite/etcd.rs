//! Clusters of real etcd processes.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use etcd_client::{Client, ConnectOptions};
use fairlead_store::{CommitError, Mutation, Revision, Store};
use fairlead_store_etcd::{EtcdOptions, Timing};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Names the programs, separated by spaces, that `make test` could not get on this machine.
const WITHOUT: &str = "FAIRLEAD_TESTS_WITHOUT";

/// Time until a cluster must be healthy.
const START: Duration = Duration::from_secs(60);

/// A cluster on the loopback interface. Its processes are killed when it is dropped.
pub(crate) struct Cluster {
    members: Vec<Member>,
    folder: TempDir,
    arguments: Vec<String>,
}

struct Member {
    client_port: u16,
    peer_port: u16,
    process: Option<Child>,
}

/// Whether the calling test is left out, because the machine has no etcd. It is recorded in `target/tests-left-out`.
pub(crate) fn is_left_out() -> bool {
    if !std::env::var(WITHOUT).unwrap_or_default().split_whitespace().any(|missing| missing == "etcd") {
        return false;
    }
    let test = format!("suite {}", std::thread::current().name().unwrap_or_default());
    println!("left out without etcd: {test}");
    let record = OpenOptions::new().create(true).append(true).open(target().join("tests-left-out"));
    record.unwrap().write_all(format!("etcd\t{test}\n").as_bytes()).unwrap();
    true
}

/// On the `PATH`, else where `deploy/tools.sh` unpacks it.
fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([target().join("tools/usr/bin")]);
    let mut programs = folders.map(|folder| folder.join("etcd"));
    programs.find(|file| file.is_file()).expect("no etcd on the PATH; `deploy/tools.sh etcd` installs it")
}

fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("target")
}

/// A port that nothing listens on at the moment.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

impl Cluster {
    /// Starts a cluster and waits until it accepts requests.
    pub(crate) async fn start(members: usize) -> Self {
        Self::start_with(members, &[]).await
    }

    /// The same, with further arguments of each process.
    pub(crate) async fn start_with(members: usize, arguments: &[&str]) -> Self {
        let mut cluster = Self::stopped(members, arguments);
        for member in 0..members {
            cluster.start_member(member);
        }
        cluster.wait_until_healthy().await;
        cluster
    }

    pub(crate) fn stopped(members: usize, arguments: &[&str]) -> Self {
        let member = |_| Member { client_port: free_port(), peer_port: free_port(), process: None };
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Self { members: (0..members).map(member).collect(), folder: tempfile::tempdir().unwrap(), arguments }
    }

    pub(crate) fn start_member(&mut self, index: usize) {
        let peer =
            |(index, member): (usize, &Member)| format!("m{index}=http://127.0.0.1:{}", member.peer_port);
        let peers: Vec<_> = self.members.iter().enumerate().map(peer).collect();
        let (client, peer) = (self.client_url(index), peers[index].split_once('=').unwrap().1.to_owned());
        let data = self.data(index);
        let log = std::fs::File::create(self.folder.path().join(format!("m{index}.log"))).unwrap();
        let mut command = Command::new(program());
        command
            .args(["--name", &format!("m{index}"), "--data-dir", data.to_str().unwrap()])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &peers.join(","), "--initial-cluster-state", "new"])
            .args(["--initial-cluster-token", self.folder.path().to_str().unwrap()])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.members[index].process = Some(command.spawn().unwrap());
    }

    /// Kills a process at once, as `kill -9` does.
    pub(crate) fn kill(&mut self, index: usize) {
        let Some(mut process) = self.members[index].process.take() else { return };
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Copies the data of a member that does not run, or puts the copy back, as a backup is restored.
    pub(crate) fn save(&self, index: usize) {
        copy(&self.data(index), &self.folder.path().join(format!("saved-{index}")));
    }

    pub(crate) fn set_back(&self, index: usize) {
        std::fs::remove_dir_all(self.data(index)).unwrap();
        copy(&self.folder.path().join(format!("saved-{index}")), &self.data(index));
    }

    fn data(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("m{index}"))
    }

    /// Stops a process as it is, so that it keeps its connections but does not answer, or lets it go on.
    pub(crate) fn freeze(&self, index: usize, is_frozen: bool) {
        let process = self.members[index].process.as_ref().unwrap();
        let pid = Pid::from_raw(i32::try_from(process.id()).unwrap()).unwrap();
        kill_process(pid, if is_frozen { Signal::STOP } else { Signal::CONT }).unwrap();
    }

    pub(crate) fn client_url(&self, index: usize) -> String {
        let scheme =
            if self.arguments.iter().any(|argument| argument == "--cert-file") { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.members[index].client_port)
    }

    pub(crate) fn client_port(&self, index: usize) -> u16 {
        self.members[index].client_port
    }

    /// A client of one member.
    pub(crate) async fn client(&self, index: usize) -> Client {
        let options = ConnectOptions::new().with_timeout(Duration::from_secs(5));
        Client::connect([self.client_url(index)], Some(options)).await.unwrap()
    }

    /// Waits until each running member answers a linearizable read.
    pub(crate) async fn wait_until_healthy(&self) {
        let deadline = Instant::now() + START;
        for (index, _) in self.members.iter().enumerate().filter(|(_, member)| member.process.is_some()) {
            let mut client = self.client(index).await;
            while client.get("health", None).await.is_err() {
                assert!(Instant::now() < deadline, "etcd does not start: {}", self.log(index));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    fn log(&self, index: usize) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("m{index}.log"))).unwrap_or_default()
    }

    /// The index of the leader.
    pub(crate) async fn leader(&self) -> usize {
        for index in 0..self.members.len() {
            if self.members[index].process.is_none() {
                continue;
            }
            let status = self.client(index).await.status().await.unwrap();
            if status.header().unwrap().member_id() == status.leader() {
                return index;
            }
        }
        panic!("no member leads");
    }

    /// Options of a store on this cluster, with short time limits.
    pub(crate) fn options(&self) -> EtcdOptions {
        let endpoints = (0..self.members.len()).map(|index| self.client_url(index)).collect();
        options(endpoints)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for index in 0..self.members.len() {
            self.kill(index);
        }
    }
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

pub(crate) fn options(endpoints: Vec<String>) -> EtcdOptions {
    let timing = Timing {
        patience: Duration::from_millis(500),
        request: Duration::from_secs(2),
        resolution: Duration::from_secs(2),
        heartbeat: Duration::from_millis(500),
        // Revisions are counted.
        barrier: Duration::from_secs(3600),
        ..Timing::default()
    };
    EtcdOptions { endpoints, timing, ..EtcdOptions::default() }
}

/// Repeats a commit while etcd is not available. Returns its revision.
pub(crate) async fn commit_when_available(store: &dyn Store, mutations: Vec<Mutation>) -> Revision {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match store.commit(mutations.clone()).await {
            Ok(revision) => return revision,
            Err(CommitError::Unavailable { .. } | CommitError::Unknown { .. }) => {
                assert!(Instant::now() < deadline, "etcd is not available again");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(other) => panic!("{other}"),
        }
    }
}
