//! Sockets that were open when the process started: from systemd, or from its predecessor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use listenfd::ListenFd;
use parking_lot::Mutex;

use super::predecessor::Predecessor;
use super::{HANDOVER_SOCKET, socket_number};

/// Inherited sockets. Those that are not taken are closed.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    sockets: Mutex<Vec<(String, OwnedFd)>>,
    channel: Mutex<Option<UnixStream>>,
    /// Numbers of the sockets that were closed unused.
    unused: Mutex<Vec<u64>>,
    is_successor: bool,
}

impl InheritedSockets {
    /// Takes the sockets that the environment names. Call it once, before any other thread runs: it removes the variables from the
    /// environment.
    pub fn from_environment() -> Self {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut inherited = ListenFd::from_env();
        let (mut sockets, mut channel) = (Vec::new(), None);
        for index in 0..inherited.len() {
            let name = names.next().unwrap_or_default();
            // Both calls accept listening and connected sockets; `take` checks the address.
            let socket = match inherited.take_unix_listener(index) {
                Ok(Some(socket)) => Some(OwnedFd::from(socket)),
                _ => inherited.take_tcp_listener(index).ok().flatten().map(OwnedFd::from),
            };
            match socket {
                Some(socket) if name == HANDOVER_SOCKET => channel = Some(UnixStream::from(socket)),
                Some(socket) => sockets.push((name.to_owned(), socket)),
                // A datagram socket, or no socket at all.
                None => {}
            }
        }
        Self {
            is_successor: channel.is_some(),
            sockets: Mutex::new(sockets),
            channel: Mutex::new(channel),
            unused: Mutex::default(),
        }
    }

    /// Whether a predecessor serves until this process is ready.
    pub fn is_successor(&self) -> bool {
        self.is_successor
    }

    /// Takes a socket that `fits`, preferably one with this name.
    pub fn take(&self, name: &str, fits: impl Fn(BorrowedFd<'_>) -> bool) -> Option<OwnedFd> {
        let mut sockets = self.sockets.lock();
        let fitting: Vec<usize> =
            (0..sockets.len()).filter(|index| fits(sockets[*index].1.as_fd())).collect();
        let named = fitting.iter().find(|index| sockets[**index].0 == name).or(fitting.first());
        let index = *named?;
        Some(sockets.swap_remove(index).1)
    }

    /// Closes the sockets that were not taken and returns their names. The predecessor is informed during the hand-over.
    pub fn close_rest(&self) -> Vec<String> {
        let rest = std::mem::take(&mut *self.sockets.lock());
        self.unused.lock().extend(rest.iter().filter_map(|(_, socket)| socket_number(socket)));
        rest.into_iter().map(|(name, _)| name).collect()
    }

    /// The process that serves until this one is ready. Returns it once.
    pub fn predecessor(&self) -> Option<Predecessor> {
        let channel = self.channel.lock().take()?;
        Some(Predecessor::new(channel, self.unused.lock().clone()))
    }
}
