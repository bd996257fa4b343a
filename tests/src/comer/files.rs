//! The pattern's configuration files, with the addresses of this machine.

use super::ComerError;
use crate::harness::{HarnessError, free_port};

/// A server of the pattern.
pub(super) struct Server {
    /// The server's name, which is also the name of its file.
    pub name: &'static str,
    /// The kind of configuration, as in `fairlead config lint`: `gateway` and so on.
    pub kind: &'static str,
    pub program: &'static str,
    /// The port in the file.
    written: u16,
    /// The port on this machine.
    pub port: u16,
    text: &'static str,
}

/// The URLs of the edge and of the issuer in the files.
const PUBLIC: &str = "https://api.comer.example.com";
const ISSUER: &str = "https://auth.comer.example.com";
/// The setting in the files for a CDN with a read limit of 100 s, and its replacement for the limit of this CDN.
const KEEP_ALIVE: (&str, &str) = ("watchKeepAlive: 30s", "watchKeepAlive: 600ms");

/// Files that belong to no server.
pub(super) const USERS: &str = include_str!("../../../deploy/patterns/comer/users.yaml");
pub(super) const RIGHTS: &str = include_str!("../../../deploy/patterns/comer/rights.yaml");

/// Name, kind, program, port and text of each server, in the order of their start.
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

/// All servers, with free ports.
pub(super) fn servers() -> Result<Vec<Server>, HarnessError> {
    let server = |&(name, kind, program, written, text): &(_, _, _, _, _)| {
        Ok(Server { name, kind, program, written, port: free_port()?, text })
    };
    SERVERS.iter().map(server).collect()
}

/// The configuration of a server. `public` is the URL of the edge for its users.
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
        return Err(ComerError::Missing("edge.yaml does not set watchKeepAlive".to_owned()));
    }
    Ok(text)
}
