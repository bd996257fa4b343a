//! How a process hands its listening sockets to its successor, usually a newer version of the program.
//!
//! The sockets go the way that systemd gives sockets to services: `LISTEN_FDS` and `LISTEN_FDNAMES`. One more of them, named
//! [`LINE`], is a line between the two processes. On it both say words of the form `WORD=value`, one per line; a word that
//! is not known is ignored and one that does not come is waited for only where the older version said it, too, which is
//! what lets versions differ. The successor says `READY=1` when it serves as well as its predecessor did. The predecessor
//! answers with `OWN=<name>` for each socket whose file is now the successor's, and with `YOURS=1`; the successor says
//! `MINE=1`, and then the predecessor drains. Until then either may end, and the other goes on.

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
