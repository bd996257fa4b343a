//! A server in place of a shard, for tests. It speaks HTTP/1.1 without TLS and reads no request bodies.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::SocketAddr;
use std::sync::Arc;

use fairlead_client::{Client, ClientOptions, Credentials, Endpoint, TrustRoots};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The server.
pub(super) struct StubShard {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

/// A response, after which the connection is closed.
pub(super) fn reply(code: u16, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {code} OK\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

impl StubShard {
    /// `respond` makes the response from the head of the request.
    pub(super) async fn start(respond: impl Fn(&str) -> String + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let known = Arc::clone(&heads);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, respond.clone(), Arc::clone(&known)));
            }
        });
        Self { address, heads, task }
    }

    /// A client of the server.
    pub(super) fn client(&self) -> Client {
        let endpoint = Endpoint::parse(&format!("http://{}", self.address)).unwrap();
        let credentials = Credentials::new(TrustRoots::Nothing).unwrap();
        Client::new(endpoint, credentials, ClientOptions::default())
    }

    /// The heads of all requests.
    pub(super) fn heads(&self) -> Vec<String> {
        self.heads.lock().clone()
    }

    /// Stops listening.
    pub(super) async fn stop(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

async fn serve(mut stream: TcpStream, respond: impl Fn(&str) -> String, heads: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let response = respond(&head);
    heads.lock().push(head);
    // The client may have gone.
    let _ = stream.write_all(response.as_bytes()).await;
    // A connection that is closed with unread data is reset, and the response with it.
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
}
