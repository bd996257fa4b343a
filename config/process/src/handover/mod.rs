//! Hand-over of listening sockets to a successor process, usually a newer version of the program.
//!
//! The sockets are passed as systemd passes them to services: `LISTEN_FDS` and `LISTEN_FDNAMES`. One more socket, named
//! [`HANDOVER_SOCKET`], connects the two processes. Both send messages on it, one per line. An unknown message is ignored, and a
//! process waits for a message only if the oldest supported version sends it, so that versions may differ. The messages, in
//! order:
//!
//! 1. The predecessor sends `FILE=<number>` for each Unix socket whose file belongs to the serving process, so that the successor
//!    removes the file even if the predecessor ends without a hand-over.
//! 2. The successor sends `LEFT=<number>` for each socket that it does not use and has closed.
//! 3. The successor sends `READY=1` when it serves as well as its predecessor.
//! 4. The predecessor sends `OWN=<name>` for each socket whose file now belongs to the successor, for versions that do not know
//!    `FILE`, and then `YOURS=1`.
//! 5. The successor sends `MINE=1`, and the predecessor drains.
//!
//! Until the last message either process may end, and the other one continues to serve.

use std::os::fd::AsFd;

mod predecessor;
mod sockets;
mod successor;

pub use predecessor::{Inheritance, Predecessor};
pub use sockets::InheritedSockets;
pub use successor::{HandoverError, Successor};

/// Name of the socket that connects the two processes.
const HANDOVER_SOCKET: &str = "fairlead-handover";
/// Name of a socket whose own name cannot be passed.
const UNNAMED: &str = "unknown";
/// Longest message that is read, in bytes.
const MAX_MESSAGE: u64 = 4096;

const READY: &str = "READY=1";
const YOURS: &str = "YOURS=1";
const MINE: &str = "MINE=1";
const OWN: &str = "OWN=";
const FILE: &str = "FILE=";
const LEFT: &str = "LEFT=";

/// The inode number of a socket, which identifies it in both processes whatever its name is.
pub fn socket_number(socket: impl AsFd) -> Option<u64> {
    rustix::fs::fstat(socket).ok().map(|socket| socket.st_ino)
}

/// The number after `prefix` in a message, if it has that prefix.
fn number_in(message: &str, prefix: &str) -> Option<u64> {
    message.strip_prefix(prefix)?.parse().ok()
}
