//! Resolution of host names.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

/// Resolver of host names. A process has one; tests use their own, for a name with several addresses.
#[derive(Clone)]
pub struct NameResolver(Arc<LookUpFn>);

type LookUpFn = dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync;

impl NameResolver {
    /// The resolver of the operating system: `/etc/hosts`, DNS, or other sources.
    pub fn system() -> Self {
        Self::from_fn(|host, port| {
            async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) }.boxed()
        })
    }

    /// A resolver that calls `look_up` with each host and the port for the addresses.
    pub fn from_fn(
        look_up: impl Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(look_up))
    }

    /// All addresses of a host. An IP address resolves to itself.
    ///
    /// # Errors
    /// The error of the resolver.
    pub async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        match host.parse() {
            Ok(address) => Ok(vec![SocketAddr::new(address, port)]),
            Err(_) => (self.0)(host.to_owned(), port).await,
        }
    }
}

impl Default for NameResolver {
    fn default() -> Self {
        Self::system()
    }
}

impl std::fmt::Debug for NameResolver {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("NameResolver").finish_non_exhaustive()
    }
}
