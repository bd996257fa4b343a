//! A load balancer for connections in this process, as a service of TCP before several replicas.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::HarnessError;

/// Forwards connections to servers of the loopback interface, in turns. A server that accepts no connection is skipped, and
/// the connections of one that dies end. It stops when it is dropped.
pub struct Balancer {
    port: u16,
    accepting: JoinHandle<()>,
}

impl Balancer {
    /// Listens on a free port.
    pub async fn start(servers: Vec<u16>) -> Result<Self, HarnessError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.map_err(HarnessError::system("listening for connections to balance"))?;
        let address = listener.local_addr().map_err(HarnessError::system("reading the own address"))?;
        let accepting = tokio::spawn(accept(listener, Arc::from(servers)));
        Ok(Self { port: address.port(), accepting })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, servers: Arc<[u16]>) {
    let turn = Arc::new(AtomicUsize::new(0));
    while let Ok((client, _)) = listener.accept().await {
        let (servers, turn) = (servers.clone(), turn.clone());
        tokio::spawn(async move {
            let first = turn.fetch_add(1, Ordering::Relaxed);
            // An error ends both connections, which is all that either side has to learn.
            let _ = forward(client, &servers, first).await;
        });
    }
}

async fn forward(mut client: TcpStream, servers: &[u16], first: usize) -> io::Result<()> {
    for server in servers.iter().cycle().skip(first % servers.len().max(1)).take(servers.len()) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, *server));
        if let Ok(mut server) = TcpStream::connect(address).await {
            client.set_nodelay(true)?;
            server.set_nodelay(true)?;
            return tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop);
        }
    }
    Ok(())
}
