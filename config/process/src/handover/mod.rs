//! How a process hands its listening sockets to its successor, usually a newer version of the program.
//!
//! The sockets go the way that systemd gives sockets to services: `LISTEN_FDS` and `LISTEN_FDNAMES`. One more of them, named
//! [`LINE`], is a line between the two processes. On it both say words of the form `WORD=value`, one per line; a word that
//! is not known is ignored and one that does not come is waited for only where the older version said it, too, which is
//! what lets versions differ. The predecessor begins with `FILE=<number>` for each socket whose file goes with whoever serves, so
//! that this is known even if it has no time for a last word. The successor says `LEFT=<number>` for each socket that it has no
//! use for and has closed, and `READY=1` when it serves as well as its predecessor did. The predecessor answers with
//! `OWN=<name>` for each socket whose file is now the successor's, for versions that know no `FILE`, and with `YOURS=1`; the
//! successor says `MINE=1`, and then the predecessor drains. Until then either may end, and the other goes on.

use std::os::fd::AsFd;

mod predecessor;
mod sockets;
mod successor;

pub use predecessor::{Inheritance, Predecessor};
pub use sockets::InheritedSockets;
pub use successor::{HandoverError, Successor};

/// The name of the socket that is the line.
const LINE: &str = "fairlead-handover";
/// What a socket is called whose name cannot be said.
const UNNAMED: &str = "unknown";
/// The longest word that is read.
const MAX_LINE: u64 = 4096;

const READY: &str = "READY=1";
const YOURS: &str = "YOURS=1";
const MINE: &str = "MINE=1";
const OWN: &str = "OWN=";
const FILE: &str = "FILE=";
const LEFT: &str = "LEFT=";

/// What both processes know a socket by, whatever either calls it: the number that the system has for it.
pub fn socket_number(socket: impl AsFd) -> Option<u64> {
    rustix::fs::fstat(socket).ok().map(|socket| socket.st_ino)
}

/// The number that a word ends with, if it begins like this.
fn number_in(word: &str, beginning: &str) -> Option<u64> {
    word.strip_prefix(beginning)?.parse().ok()
}
