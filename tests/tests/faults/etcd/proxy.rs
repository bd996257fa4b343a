//! A TCP proxy between a shard and etcd that can be cut and led elsewhere.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// A proxy with a port of its own. It ends when dropped.
pub struct Proxy {
    port: u16,
    /// The address behind it; `None`: connections are closed at once.
    target: watch::Sender<Option<String>>,
    task: AbortHandle,
}

impl Proxy {
    /// Starts a proxy before a URL such as `http://127.0.0.1:2379`.
    pub async fn start(url: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (target, state) = watch::channel(Some(address(url)));
        let task = tokio::spawn(accept(listener, state)).abort_handle();
        Self { port, target, task }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Closes all connections, and from now on leads to another URL, or to none.
    pub fn lead_to(&self, url: Option<&str>) {
        self.target.send_replace(url.map(address));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn address(url: &str) -> String {
    url.trim_start_matches("http://").to_owned()
}

async fn accept(listener: TcpListener, state: watch::Receiver<Option<String>>) {
    let mut connections = JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        let mut state = state.clone();
        connections.spawn(async move {
            let Some(target) = state.borrow_and_update().clone() else { return };
            let Ok(mut server) = TcpStream::connect(target).await else { return };
            tokio::select! {
                _ = copy_bidirectional(&mut client, &mut server) => {}
                _ = state.changed() => {}
            }
        });
    }
}
