use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A TCP hop in front of a server, for breaking connections.
pub struct Wire {
    pub port: u16,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, PartialEq)]
struct State {
    /// Connections of an older generation are closed.
    generation: u64,
    /// No bytes pass, and no side is notified: a half-open connection.
    frozen_generation: Option<u64>,
}

impl Wire {
    pub async fn to(server_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = watch::Sender::new(State { generation: 0, frozen_generation: None });
        let receiver = state.subscribe();
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(forward(client, server_port, receiver.clone()));
            }
        });
        Self { port, state }
    }

    /// Closes all connections; new ones are served.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.generation += 1);
    }

    /// All connections fall silent but stay open; new ones are served.
    pub fn freeze(&self) {
        self.state.send_modify(|state| {
            state.frozen_generation = Some(state.generation);
            state.generation += 1;
        });
    }
}

async fn forward(client: TcpStream, server_port: u16, mut state: watch::Receiver<State>) {
    let generation = state.borrow_and_update().generation;
    let server = TcpStream::connect(("127.0.0.1", server_port)).await.unwrap();
    let (mut client_read, mut client_write) = client.into_split();
    let (mut server_read, mut server_write) = server.into_split();
    let up = async {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = client_read.read(&mut buffer).await {
            if server_write.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
    };
    let down = async {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = server_read.read(&mut buffer).await {
            if client_write.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
    };
    let over = state.wait_for(|state| state.generation > generation);
    let frozen = tokio::select! {
        () = up => false,
        () = down => false,
        state = over => state.is_ok_and(|state| state.frozen_generation == Some(generation)),
    };
    if frozen {
        // Holds both sockets open, in silence, until the test is over.
        std::future::pending::<()>().await;
    }
}
