//! Listening sockets.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{SocketAddrUnix, SocketFlags, accept_with};
use tokio::net::{TcpListener, TcpSocket, UnixListener};

use crate::listener::socket::AcceptedSocket;
use crate::listener::socket_file::SocketFile;

/// Maximum length of the kernel's accept queue.
const BACKLOG: u32 = 1024;
/// Peer address of connections to Unix sockets: this machine.
const UNIX_PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The address of a listener.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ListenAddress {
    /// A network address; port 0 selects a free port.
    Tcp(SocketAddr),
    /// A socket file and its permissions.
    Unix(PathBuf, u32),
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(formatter),
            Self::Unix(path, _) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

impl ListenAddress {
    /// True if the socket is bound to this address.
    pub(crate) fn is_bound_by(&self, socket: BorrowedFd<'_>) -> bool {
        let Ok(bound) = rustix::net::getsockname(socket) else { return false };
        match self {
            Self::Tcp(wanted) => SocketAddr::try_from(bound).is_ok_and(|bound| {
                bound.ip() == wanted.ip() && (bound.port() == wanted.port() || wanted.port() == 0)
            }),
            Self::Unix(path, _) => SocketAddrUnix::try_from(bound)
                .ok()
                .and_then(|bound| bound.path_bytes().map(<[u8]>::to_owned))
                .is_some_and(|bound| SocketFile::is_named(path, &bound)),
        }
    }

    /// True if both addresses are of the same socket, regardless of permissions.
    pub(crate) fn is_same_socket(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tcp(one), Self::Tcp(other)) => one == other,
            (Self::Unix(one, _), Self::Unix(other, _)) => one == other,
            _ => false,
        }
    }
}

/// States whether the sockets of prepared listeners are bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// They are bound.
    Bound,
    /// They are not bound, because the listeners will not be opened.
    Unbound,
}

/// A listening socket that is not yet served.
#[derive(Debug)]
pub(crate) struct BoundListener {
    socket: Socket,
    address: ListenAddress,
    /// The file of a Unix socket.
    file: Option<SocketFile>,
    /// True while another process also listens on it and continues to do so.
    is_shared: AtomicBool,
    /// True if another process created it.
    is_inherited: bool,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl BoundListener {
    /// Binds an address and listens.
    ///
    /// # Errors
    /// The system's error, most often that the address is in use.
    pub(crate) fn bind(address: &ListenAddress) -> io::Result<Self> {
        match address {
            ListenAddress::Tcp(address) => {
                let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
                // A restarted gateway must not wait for its predecessor's connections to time out.
                socket.set_reuseaddr(true)?;
                socket.bind(*address)?;
                let listener = socket.listen(BACKLOG)?;
                let address = ListenAddress::Tcp(listener.local_addr()?);
                Ok(Self {
                    socket: Socket::Tcp(listener),
                    address,
                    file: None,
                    is_shared: AtomicBool::new(false),
                    is_inherited: false,
                })
            }
            ListenAddress::Unix(path, mode) => {
                let (listener, file) = SocketFile::bind(path, *mode)?;
                let socket = Socket::Unix(UnixListener::from_std(listener)?);
                Ok(Self {
                    socket,
                    address: address.clone(),
                    file: Some(file),
                    is_shared: AtomicBool::new(false),
                    is_inherited: false,
                })
            }
        }
    }

    /// Takes over a listening socket for an address; fails if it is bound to another one. Its file belongs to the other
    /// process until [`Self::own_file`].
    ///
    /// # Errors
    /// The socket does not listen there, or is unusable.
    pub(crate) fn adopt(socket: OwnedFd, address: &ListenAddress) -> io::Result<Self> {
        if !address.is_bound_by(socket.as_fd()) {
            return Err(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                "the socket listens at another address",
            ));
        }
        rustix::io::ioctl_fionbio(&socket, true)?;
        match address {
            ListenAddress::Tcp(_) => {
                let listener = TcpListener::from_std(std::net::TcpListener::from(socket))?;
                let address = ListenAddress::Tcp(listener.local_addr()?);
                Ok(Self {
                    socket: Socket::Tcp(listener),
                    address,
                    file: None,
                    is_shared: AtomicBool::new(false),
                    is_inherited: false,
                })
            }
            ListenAddress::Unix(path, _) => {
                let listener = UnixListener::from_std(std::os::unix::net::UnixListener::from(socket))?;
                let file = SocketFile::adopt(path)?;
                Ok(Self {
                    socket: Socket::Unix(listener),
                    address: address.clone(),
                    file: Some(file),
                    is_shared: AtomicBool::new(false),
                    is_inherited: false,
                })
            }
        }
    }

    /// Takes over the listening socket of another process.
    ///
    /// # Errors
    /// The socket does not listen there, or is unusable.
    pub(crate) fn inherit(socket: OwnedFd, address: &ListenAddress) -> io::Result<Self> {
        Ok(Self { is_inherited: true, ..Self::adopt(socket, address)? })
    }

    /// True if another process created it.
    pub(crate) fn is_inherited(&self) -> bool {
        self.is_inherited
    }

    /// Duplicates the socket: each connection is accepted by one of the two.
    ///
    /// # Errors
    /// There are too many open files.
    pub(crate) fn share(&self, address: &ListenAddress) -> io::Result<Self> {
        let shared = Self::adopt(self.as_fd().try_clone_to_owned()?, address)?;
        Ok(Self { is_inherited: self.is_inherited && !self.owns_file(), ..shared })
    }

    /// Takes over the socket's file and sets its permissions.
    pub(crate) fn own_file(&self) {
        if let (Some(file), ListenAddress::Unix(_, mode)) = (&self.file, &self.address)
            && let Err(error) = file.own(*mode)
        {
            tracing::warn!(address = %self.address, %error, "the permissions of the socket file cannot be set");
        }
    }

    /// Releases the socket and its file to another process, which also listens on it.
    pub(crate) fn release(&self) {
        self.is_shared.store(true, Ordering::Release);
        if let Some(file) = &self.file {
            file.release();
        }
    }

    /// Reverts [`Self::release`]: no other process listens on the socket.
    pub(crate) fn reclaim(&self) {
        self.is_shared.store(false, Ordering::Release);
    }

    /// The identifier by which other processes that hold the socket recognise it.
    pub(crate) fn number(&self) -> Option<u64> {
        fairlead_process::socket_number(self)
    }

    /// True if the socket's file belongs to this process.
    pub(crate) fn owns_file(&self) -> bool {
        self.file.as_ref().is_some_and(SocketFile::is_owned)
    }

    /// True if another process will accept the waiting connections.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Acquire)
    }

    /// The bound address, with the actual port.
    pub(crate) fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// Accepts the next connection.
    pub(super) async fn accept(&self) -> io::Result<(AcceptedSocket, SocketAddr)> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((AcceptedSocket::Tcp(stream.into_std()?), peer))
            }
            Socket::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((AcceptedSocket::Unix(stream.into_std()?), UNIX_PEER))
            }
        }
    }

    /// Accepts a connection from the kernel's queue, if there is one.
    pub(super) fn accept_waiting(&self) -> io::Result<(AcceptedSocket, SocketAddr)> {
        let socket = accept_with(self, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        Ok(match self.socket {
            Socket::Tcp(_) => {
                let stream = std::net::TcpStream::from(socket);
                let peer = stream.peer_addr()?;
                (AcceptedSocket::Tcp(stream), peer)
            }
            Socket::Unix(_) => (AcceptedSocket::Unix(socket.into()), UNIX_PEER),
        })
    }
}

impl AsFd for BoundListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(listener) => listener.as_fd(),
            Socket::Unix(listener) => listener.as_fd(),
        }
    }
}
