//! Where the addresses of a name come from.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

/// Tells the addresses of a host. One per process; a test brings its own, for a name with several endpoints.
#[derive(Clone)]
pub struct Names(Arc<LookUp>);

type LookUp = dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync;

impl Names {
    /// As the system is set up: `/etc/hosts`, DNS, or whatever else.
    pub fn of_the_system() -> Self {
        Self::known_to(|host, port| {
            async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) }.boxed()
        })
    }

    /// By asking `look_up` for each host, with the port that the addresses are to have.
    pub fn known_to(
        look_up: impl Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(look_up))
    }

    /// All addresses of a host; one in numbers is its own address.
    ///
    /// # Errors
    /// What the system says.
    pub async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        match host.parse() {
            Ok(address) => Ok(vec![SocketAddr::new(address, port)]),
            Err(_) => (self.0)(host.to_owned(), port).await,
        }
    }
}

impl Default for Names {
    fn default() -> Self {
        Self::of_the_system()
    }
}

impl std::fmt::Debug for Names {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Names").finish_non_exhaustive()
    }
}
