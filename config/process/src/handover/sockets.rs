//! Sockets that were open when the process began: from systemd, or from its predecessor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use listenfd::ListenFd;
use parking_lot::Mutex;

use super::predecessor::Predecessor;
use super::{LINE, socket_number};

/// What a process has inherited. Whatever nobody takes is closed.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    sockets: Mutex<Vec<(String, OwnedFd)>>,
    line: Mutex<Option<UnixStream>>,
    /// What nobody has taken, by its number.
    left: Mutex<Vec<u64>>,
    is_successor: bool,
}

impl InheritedSockets {
    /// What the environment tells of. To be called first of all and once: it takes this out of the environment, which
    /// nobody else may be reading.
    pub fn from_environment() -> Self {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut inherited = ListenFd::from_env();
        let (mut sockets, mut line) = (Vec::new(), None);
        for place in 0..inherited.len() {
            let name = names.next().unwrap_or_default();
            // Both take whatever listens or is connected; where it listens is looked at by whoever wants it.
            let socket = match inherited.take_unix_listener(place) {
                Ok(Some(socket)) => Some(OwnedFd::from(socket)),
                _ => inherited.take_tcp_listener(place).ok().flatten().map(OwnedFd::from),
            };
            match socket {
                Some(socket) if name == LINE => line = Some(UnixStream::from(socket)),
                Some(socket) => sockets.push((name.to_owned(), socket)),
                // A datagram socket, or no socket at all: nothing of ours.
                None => {}
            }
        }
        Self {
            is_successor: line.is_some(),
            sockets: Mutex::new(sockets),
            line: Mutex::new(line),
            left: Mutex::default(),
        }
    }

    /// Whether another process of the same kind serves until this one is ready.
    pub fn is_successor(&self) -> bool {
        self.is_successor
    }

    /// The socket that fits, first of all one with this name.
    pub fn take(&self, name: &str, fits: impl Fn(BorrowedFd<'_>) -> bool) -> Option<OwnedFd> {
        let mut sockets = self.sockets.lock();
        let fitting: Vec<usize> =
            (0..sockets.len()).filter(|place| fits(sockets[*place].1.as_fd())).collect();
        let named = fitting.iter().find(|place| sockets[**place].0 == name).or(fitting.first());
        let place = *named?;
        Some(sockets.swap_remove(place).1)
    }

    /// Closes what nobody has taken; returns the names. A predecessor hears of it before it leaves.
    pub fn close_rest(&self) -> Vec<String> {
        let rest = std::mem::take(&mut *self.sockets.lock());
        self.left.lock().extend(rest.iter().filter_map(|(_, socket)| socket_number(socket)));
        rest.into_iter().map(|(name, _)| name).collect()
    }

    /// The process that serves until this one is ready; once.
    pub fn predecessor(&self) -> Option<Predecessor> {
        let line = self.line.lock().take()?;
        Some(Predecessor::new(line, self.left.lock().clone()))
    }
}
