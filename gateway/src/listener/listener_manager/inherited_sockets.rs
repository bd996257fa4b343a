//! The sockets that a successor was given: what becomes of them here is settled when it has taken over.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Weak;

use crate::listener::bound::BoundDoor;
use crate::listener::listener_manager::Doors;

/// Sockets that another process has, too.
pub(crate) struct HandedOn(Vec<HandedSocket>);

struct HandedSocket {
    door: String,
    socket: Weak<BoundDoor>,
    /// `None` if the system does not tell, and nobody can speak of it.
    number: Option<u64>,
    has_own_file: bool,
}

impl Doors {
    /// All sockets once more, with the names of their doors, for a successor.
    ///
    /// # Errors
    /// There are too many open files.
    pub(crate) fn hand_on(&self) -> io::Result<(HandedOn, Vec<(String, OwnedFd)>)> {
        let served = self.open.iter().filter_map(|open| Some((open, open.listening.socket.upgrade()?)));
        let (mut handed, mut copies) = (Vec::new(), Vec::new());
        for (open, socket) in served {
            let door = open.config.name.clone();
            copies.push((door.clone(), socket.as_fd().try_clone_to_owned()?));
            handed.push(HandedSocket {
                door,
                socket: std::sync::Arc::downgrade(&socket),
                number: socket.number(),
                has_own_file: socket.has_own_file(),
            });
        }
        Ok((HandedOn(handed), copies))
    }
}

impl HandedOn {
    /// Numbers of the sockets whose files are to be the successor's.
    pub(crate) fn files(&self) -> Vec<u64> {
        self.0.iter().filter(|handed| handed.has_own_file).filter_map(|handed| handed.number).collect()
    }

    /// Leaves them to the successor, but for those that it has closed: whoever waits there is served here to the end. Returns
    /// the names of those whose files are the successor's to remove.
    pub(crate) fn leave(&self, closed: &[u64]) -> Vec<String> {
        let mut owned = Vec::new();
        for HandedSocket { door, socket, number, has_own_file } in &self.0 {
            let Some(socket) = socket.upgrade() else { continue };
            if number.is_some_and(|number| closed.contains(&number)) {
                tracing::info!(%door, address = %socket.address(), "the successor has no door here: it closes with this process");
                continue;
            }
            if *has_own_file {
                owned.push(door.clone());
            }
            socket.leave();
        }
        owned
    }

    /// Nobody has taken them after all.
    pub(crate) fn keep(&self) {
        for HandedSocket { socket, has_own_file, .. } in &self.0 {
            let Some(socket) = socket.upgrade() else { continue };
            socket.keep();
            if *has_own_file {
                socket.own();
            }
        }
    }
}
