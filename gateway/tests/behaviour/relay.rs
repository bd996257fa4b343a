//! Something between the gateway and a shard: counts what the gateway sends, and can fall silent in the middle.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct Relay {
    pub address: SocketAddr,
    /// Bytes towards the shard.
    pub sent: watch::Sender<usize>,
    silenced: watch::Sender<usize>,
    /// Whether new connections are accepted and nothing more.
    mute: watch::Sender<bool>,
}

impl Relay {
    pub async fn to(shard: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let relay = Self {
            address,
            sent: watch::Sender::new(0),
            silenced: watch::Sender::new(0),
            mute: watch::Sender::new(false),
        };
        let (sent, silenced, mute) = (relay.sent.clone(), relay.silenced.clone(), relay.mute.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (sent, mut silence, is_mute) = (sent.clone(), silenced.subscribe(), *mute.borrow());
                tokio::spawn(async move {
                    if is_mute {
                        let _ = silence.wait_for(|_| false).await;
                        return drop(client);
                    }
                    let Ok(server) = TcpStream::connect(shard).await else { return };
                    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::select! {
                        () = count(&mut from_client, &mut to_server, &sent) => return,
                        _ = copy(&mut from_server, &mut to_client) => return,
                        _ = silence.changed() => {}
                    }
                    // Both connections stand, and nothing comes over them, until the test is over.
                    let _ = silence.wait_for(|_| false).await;
                    drop((from_client, to_client, from_server, to_server));
                });
            }
        });
        relay
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The connections that there are pass nothing on any more; new ones do.
    pub fn fall_silent(&self) {
        self.silenced.send_modify(|count| *count += 1);
    }

    /// Neither do new ones, from now on: they are accepted and not answered.
    pub fn stop_answering(&self) {
        self.mute.send_replace(true);
        self.fall_silent();
    }

    /// New connections work again.
    pub fn answer(&self) {
        self.mute.send_replace(false);
    }
}

async fn count(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, sent: &watch::Sender<usize>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(size @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..size]).await.is_err() {
            return;
        }
        sent.send_modify(|bytes| *bytes += size);
    }
}
