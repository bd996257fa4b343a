//! A TCP proxy between a store and etcd that can be cut and led elsewhere.

use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// A proxy on a port of its own.
pub(crate) struct Proxy {
    port: u16,
    /// The port behind it; `None`: connections are closed at once.
    target: watch::Sender<Option<u16>>,
    task: AbortHandle,
}

impl Proxy {
    pub(crate) async fn start(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (target, state) = watch::channel(Some(target));
        let task = tokio::spawn(accept(listener, state)).abort_handle();
        Self { port, target, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Closes all connections, and from now on leads to another port, or to none.
    pub(crate) fn lead_to(&self, target: Option<u16>) {
        self.target.send_replace(target);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, state: watch::Receiver<Option<u16>>) {
    let state = Arc::new(state);
    let mut connections = JoinSet::new();
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut state = (*state).clone();
        connections.spawn(async move {
            let Some(target) = *state.borrow_and_update() else { return };
            let Ok(mut server) = TcpStream::connect(("127.0.0.1", target)).await else { return };
            tokio::select! {
                _ = copy_bidirectional(&mut client, &mut server) => {}
                _ = state.changed() => {}
            }
        });
    }
}
