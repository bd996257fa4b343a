//! Paths of the binaries, and free ports for them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use tokio::net::TcpSocket;

use super::HarnessError;

/// The path of a binary of this workspace: in `$FAIRLEAD_BIN_DIR`, or else in cargo's folder for the profile of the
/// running test.
pub fn binary(name: &str) -> Result<PathBuf, HarnessError> {
    let directory = match std::env::var_os("FAIRLEAD_BIN_DIR") {
        Some(directory) => PathBuf::from(directory),
        None => built_beside()?,
    };
    let path = directory.join(name);
    if path.is_file() { Ok(path) } else { Err(HarnessError::NotBuilt { name: name.to_owned(), directory }) }
}

/// A free port of the loopback interface. This process reserves it as long as it lives, so that the system does not give
/// it away. A server that sets SO_REUSEADDR, as ours do, can listen there.
pub fn free_port() -> Result<u16, HarnessError> {
    static RESERVED: Mutex<Vec<TcpSocket>> = Mutex::new(Vec::new());
    let reserve = || {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let port = socket.local_addr()?.port();
        RESERVED.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
        Ok(port)
    };
    reserve().map_err(HarnessError::system("reserving a free port"))
}

/// Tests run from `target/<profile>/deps`, binaries from `target/<profile>`.
fn built_beside() -> Result<PathBuf, HarnessError> {
    let mut path = std::env::current_exe().map_err(HarnessError::system("finding the running test"))?;
    path.pop();
    if path.ends_with("deps") {
        path.pop();
    }
    Ok(path)
}
