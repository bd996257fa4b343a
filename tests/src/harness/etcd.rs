//! Clusters of real etcd processes on the loopback interface.

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{HarnessError, Process, Program, free_port, tool};

/// A cluster of etcd. Its members keep their data while they are killed and restarted; all are killed when it is dropped.
pub struct EtcdCluster {
    members: Vec<Member>,
}

struct Member {
    port: u16,
    process: Process,
}

impl EtcdCluster {
    /// Starts a cluster of one or more members in a directory; returns when every member has answered a linearizable read.
    /// `arguments` are added to those of each member.
    pub async fn start(directory: &Path, members: usize, arguments: &[&str]) -> Result<Self, HarnessError> {
        Self::start_programs(directory, members, arguments, |program| program).await
    }

    /// The same, with a change to the program of each member.
    pub(super) async fn start_programs(
        directory: &Path,
        members: usize,
        arguments: &[&str],
        change: impl Fn(Program) -> Program,
    ) -> Result<Self, HarnessError> {
        let mut ports = Vec::new();
        for _ in 0..members {
            ports.push((free_port()?, free_port()?));
        }
        let peers: Vec<String> =
            ports.iter().enumerate().map(|(index, (_, peer))| format!("m{index}={}", url(*peer))).collect();
        let peers = peers.join(",");
        let mut cluster = Self { members: Vec::new() };
        for (index, (port, peer)) in ports.into_iter().enumerate() {
            let (name, client, peer) = (format!("m{index}"), url(port), url(peer));
            let data = directory.join(format!("etcd-{name}"));
            let own = [
                ["--name", &name],
                ["--listen-client-urls", &client],
                ["--advertise-client-urls", &client],
                ["--listen-peer-urls", &peer],
                ["--initial-advertise-peer-urls", &peer],
                ["--initial-cluster", &peers],
                ["--initial-cluster-token", &name_of(directory)],
                // Short, so that a new leader is found within a second.
                ["--heartbeat-interval", "50"],
                ["--election-timeout", "500"],
            ];
            let program = Program::at(tool("etcd")?, &format!("etcd-{name}"), directory)
                .args(own.concat().into_iter().map(str::to_owned))
                .args(["--data-dir".into(), data])
                .args(arguments.iter().map(|argument| (*argument).to_owned()));
            cluster.members.push(Member { port, process: change(program).start()? });
        }
        for index in 0..members {
            cluster.until_healthy(index).await?;
        }
        Ok(cluster)
    }

    /// The URLs for clients, of all members.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| url(member.port)).collect()
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether it has no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Waits until a member answers a linearizable read, which needs a majority of the members.
    pub async fn until_healthy(&mut self, index: usize) -> Result<(), HarnessError> {
        let member = self.member(index)?;
        let port = member.port;
        member.process.until(|| is_healthy(port)).await
    }

    /// Sends SIGKILL to a member, which stays away.
    pub async fn kill(&mut self, index: usize) -> Result<(), HarnessError> {
        self.member(index)?.process.kill().await
    }

    /// Starts a member that was killed; it is not healthy yet.
    pub async fn restart(&mut self, index: usize) -> Result<(), HarnessError> {
        self.member(index)?.process.restart().await
    }

    /// Stops a member as it is: it keeps its connections, but does not respond.
    pub fn freeze(&mut self, index: usize) -> Result<(), HarnessError> {
        self.member(index)?.process.signal(Signal::STOP)
    }

    /// Lets a frozen member go on.
    pub fn thaw(&mut self, index: usize) -> Result<(), HarnessError> {
        self.member(index)?.process.signal(Signal::CONT)
    }

    /// The index of the member that leads. An error while there is none, or if a killed member is asked.
    pub async fn leader(&self) -> Result<usize, HarnessError> {
        for (index, member) in self.members.iter().enumerate() {
            let Ok(status) = post(member.port, "/v3/maintenance/status", "{}").await else { continue };
            let leader = &status["leader"];
            if leader.is_string() && status["header"]["member_id"] == *leader {
                return Ok(index);
            }
        }
        Err(HarnessError::System {
            what: "finding the leader of etcd".to_owned(),
            source: std::io::ErrorKind::NotFound.into(),
        })
    }

    /// Sends a request to etcd's JSON gateway, such as `/v3/kv/compaction` with `{"revision": 7}`; returns the response.
    pub async fn request(&self, index: usize, path: &str, body: &str) -> Result<Value, HarnessError> {
        let port = self.members.get(index).map_or(0, |member| member.port);
        post(port, path, body).await.map_err(HarnessError::system(format!("requesting {path} of etcd")))
    }

    fn member(&mut self, index: usize) -> Result<&mut Member, HarnessError> {
        self.members.get_mut(index).ok_or_else(|| HarnessError::System {
            what: format!("finding member {index} of etcd"),
            source: std::io::ErrorKind::NotFound.into(),
        })
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// Distinguishes clusters, so that a reused port never joins two of them.
fn name_of(directory: &Path) -> String {
    PathBuf::from(directory).display().to_string()
}

async fn is_healthy(port: u16) -> std::io::Result<()> {
    let answer = exchange(port, "GET /health", "").await?;
    let health: Value = serde_json::from_str(&answer)?;
    if health["health"] == "true" { Ok(()) } else { Err(std::io::Error::other(answer)) }
}

async fn post(port: u16, path: &str, body: &str) -> std::io::Result<Value> {
    Ok(serde_json::from_str(&exchange(port, &format!("POST {path}"), body).await?)?)
}

/// One exchange of HTTP/1.0, whose body ends with the connection.
async fn exchange(port: u16, line: &str, body: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    let (_, body) = response.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    Ok(body.to_owned())
}
