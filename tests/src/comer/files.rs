//! The pattern's own files, with the addresses of this machine in place of those that they are written with.

use super::ComerError;
use crate::harness::{HarnessError, free_port};

/// A server of the pattern.
pub(super) struct Server {
    /// Its name, and that of its file.
    pub name: &'static str,
    /// `gateway` and so on, as `fairlead config lint` calls it.
    pub kind: &'static str,
    pub program: &'static str,
    /// The port that its file has.
    written: u16,
    /// Its port here.
    pub port: u16,
    text: &'static str,
}

/// What the files call the edge as people see it, and the issuer.
const PUBLIC: &str = "https://api.comer.example.com";
const ISSUER: &str = "https://auth.comer.example.com";
/// What the files say for a CDN that gives up after 100 s, and what that is for the limit here.
const KEEP_ALIVE: (&str, &str) = ("watchKeepAlive: 30s", "watchKeepAlive: 600ms");

/// What is no server's.
pub(super) const USERS: &str = include_str!("../../../deploy/patterns/comer/users.yaml");
pub(super) const RIGHTS: &str = include_str!("../../../deploy/patterns/comer/rights.yaml");

/// Name, kind, program, port and text of each, in the order in which they are started.
const SERVERS: [(&str, &str, &str, u16, &str); 6] = [
    (
        "cache",
        "cache",
        "fairlead-cache-server",
        7003,
        include_str!("../../../deploy/patterns/comer/cache.yaml"),
    ),
    ("root", "shard", "fairlead-shard", 7001, include_str!("../../../deploy/patterns/comer/root.yaml")),
    ("alpha", "shard", "fairlead-shard", 7002, include_str!("../../../deploy/patterns/comer/alpha.yaml")),
    ("issuer", "issuer", "fairlead-issuer", 7004, include_str!("../../../deploy/patterns/comer/issuer.yaml")),
    (
        "internal",
        "gateway",
        "fairlead-gateway",
        7443,
        include_str!("../../../deploy/patterns/comer/internal.yaml"),
    ),
    ("edge", "gateway", "fairlead-gateway", 8443, include_str!("../../../deploy/patterns/comer/edge.yaml")),
];

/// All of them, with free ports.
pub(super) fn servers() -> Result<Vec<Server>, HarnessError> {
    let server = |&(name, kind, program, written, text): &(_, _, _, _, _)| {
        Ok(Server { name, kind, program, written, port: free_port()?, text })
    };
    SERVERS.iter().map(server).collect()
}

/// The configuration of a server, when people find the edge at `public`.
pub(super) fn configuration(
    server: &Server,
    all: &[Server],
    public: &str,
    issuer: &str,
) -> Result<String, ComerError> {
    let mut text =
        server.text.replace(PUBLIC, public).replace(ISSUER, issuer).replace(KEEP_ALIVE.0, KEEP_ALIVE.1);
    for other in all {
        text = text.replace(&format!("127.0.0.1:{}", other.written), &format!("127.0.0.1:{}", other.port));
    }
    if server.name == "edge" && !text.contains(KEEP_ALIVE.1) {
        return Err(ComerError::Missing("edge.yaml does not say how long a watch may be quiet".to_owned()));
    }
    Ok(text)
}
