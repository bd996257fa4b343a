//! Sockets handed over to a successor process. They are released when it has taken over, and kept if it fails.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Weak;

use crate::listener::bound::BoundListener;
use crate::listener::listener_manager::ListenerManager;

/// Sockets that another process holds as well.
pub(crate) struct HandedOverSockets(Vec<HandedOverSocket>);

struct HandedOverSocket {
    listener: String,
    socket: Weak<BoundListener>,
    /// `None` if the system does not provide it; the socket cannot be identified then.
    number: Option<u64>,
    owns_file: bool,
}

impl ListenerManager {
    /// Duplicates all sockets, with the names of their listeners, for a successor.
    ///
    /// # Errors
    /// There are too many open files.
    pub(crate) fn hand_over(&self) -> io::Result<(HandedOverSockets, Vec<(String, OwnedFd)>)> {
        let served = self.open.iter().filter_map(|open| Some((open, open.listening.socket.upgrade()?)));
        let (mut handed, mut copies) = (Vec::new(), Vec::new());
        for (open, socket) in served {
            let listener = open.config.name.clone();
            copies.push((listener.clone(), socket.as_fd().try_clone_to_owned()?));
            handed.push(HandedOverSocket {
                listener,
                socket: std::sync::Arc::downgrade(&socket),
                number: socket.number(),
                owns_file: socket.owns_file(),
            });
        }
        Ok((HandedOverSockets(handed), copies))
    }
}

impl HandedOverSockets {
    /// Identifiers of the sockets whose files the successor takes over.
    pub(crate) fn files(&self) -> Vec<u64> {
        self.0.iter().filter(|handed| handed.owns_file).filter_map(|handed| handed.number).collect()
    }

    /// Releases the sockets to the successor, except those that it has closed: their waiting connections are served here. Returns
    /// the names of those whose files the successor must remove.
    pub(crate) fn release(&self, closed: &[u64]) -> Vec<String> {
        let mut owned = Vec::new();
        for HandedOverSocket { listener, socket, number, owns_file } in &self.0 {
            let Some(socket) = socket.upgrade() else { continue };
            if number.is_some_and(|number| closed.contains(&number)) {
                tracing::info!(%listener, address = %socket.address(), "the successor does not use this socket: it is closed with this process");
                continue;
            }
            if *owns_file {
                owned.push(listener.clone());
            }
            socket.release();
        }
        owned
    }

    /// Reclaims the sockets, because the hand-over has failed.
    pub(crate) fn reclaim(&self) {
        for HandedOverSocket { socket, owns_file, .. } in &self.0 {
            let Some(socket) = socket.upgrade() else { continue };
            socket.reclaim();
            if *owns_file {
                socket.own_file();
            }
        }
    }
}
