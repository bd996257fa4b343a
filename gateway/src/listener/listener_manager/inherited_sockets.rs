//! The sockets that a successor was given: what becomes of them here is settled when it has taken over.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Weak;

use crate::listener::bound::BoundListener;
use crate::listener::listener_manager::ListenerManager;

/// Sockets that another process has, too.
pub(crate) struct HandedOverSockets(Vec<HandedOverSocket>);

struct HandedOverSocket {
    listener: String,
    socket: Weak<BoundListener>,
    /// `None` if the system does not tell, and nobody can speak of it.
    number: Option<u64>,
    has_own_file: bool,
}

impl ListenerManager {
    /// All sockets once more, with the names of their listeners, for a successor.
    ///
    /// # Errors
    /// There are too many open files.
    pub(crate) fn hand_on(&self) -> io::Result<(HandedOverSockets, Vec<(String, OwnedFd)>)> {
        let served = self.open.iter().filter_map(|open| Some((open, open.listening.socket.upgrade()?)));
        let (mut handed, mut copies) = (Vec::new(), Vec::new());
        for (open, socket) in served {
            let listener = open.config.name.clone();
            copies.push((listener.clone(), socket.as_fd().try_clone_to_owned()?));
            handed.push(HandedOverSocket {
                listener,
                socket: std::sync::Arc::downgrade(&socket),
                number: socket.number(),
                has_own_file: socket.has_own_file(),
            });
        }
        Ok((HandedOverSockets(handed), copies))
    }
}

impl HandedOverSockets {
    /// Numbers of the sockets whose files are to be the successor's.
    pub(crate) fn files(&self) -> Vec<u64> {
        self.0.iter().filter(|handed| handed.has_own_file).filter_map(|handed| handed.number).collect()
    }

    /// Leaves them to the successor, but for those that it has closed: whoever waits there is served here to the end. Returns
    /// the names of those whose files are the successor's to remove.
    pub(crate) fn leave(&self, closed: &[u64]) -> Vec<String> {
        let mut owned = Vec::new();
        for HandedOverSocket { listener, socket, number, has_own_file } in &self.0 {
            let Some(socket) = socket.upgrade() else { continue };
            if number.is_some_and(|number| closed.contains(&number)) {
                tracing::info!(%listener, address = %socket.address(), "the successor has no listener here: it closes with this process");
                continue;
            }
            if *has_own_file {
                owned.push(listener.clone());
            }
            socket.leave();
        }
        owned
    }

    /// Nobody has taken them after all.
    pub(crate) fn keep(&self) {
        for HandedOverSocket { socket, has_own_file, .. } in &self.0 {
            let Some(socket) = socket.upgrade() else { continue };
            socket.keep();
            if *has_own_file {
                socket.own();
            }
        }
    }
}
