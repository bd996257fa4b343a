//! Peers that a listener accepts: allowed networks, PROXY protocol, connection quotas per address.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fairlead_config::{AddressQuotaConfig, AllowedPeersConfig, Networks};

use crate::quota::{AddressQuotas, ConnectionGuard};
use crate::reload::{LoadError, Reloadable, Reloads};

/// The networks that connections are accepted from; by default any. A check costs one comparison per network.
#[derive(Clone, Debug, Default)]
pub struct AllowedPeers {
    networks: Option<Arc<Reloadable<Networks>>>,
    /// Whether each connection begins with a PROXY protocol header.
    pub(crate) proxy_protocol: bool,
    /// Quotas per address.
    addresses: Option<Arc<AddressQuotas>>,
}

impl AllowedPeers {
    /// Peers as configured. The file of networks is reloaded whenever it changes; without a file every address is allowed.
    /// `listener` names the listener in logs and metrics.
    ///
    /// # Errors
    /// [`LoadError`]; later the last good list stays.
    pub fn of(config: &AllowedPeersConfig, listener: &str, reloads: &Reloads) -> Result<Self, LoadError> {
        let watch = |file: PathBuf| {
            reloads.register(&format!("peers of {listener}"), [file.clone()], move || Networks::load(&file))
        };
        let networks = config.allow.as_ref().map(|file| file.to_path_buf()).map(watch).transpose()?;
        let quota = AddressQuotaConfig {
            connections_per_second: config.per_address.connections_per_second,
            connections: config.per_address.connections,
            failures_per_second: None,
        };
        let addresses =
            (quota != AddressQuotaConfig::default()).then(|| Arc::new(AddressQuotas::new(&quota)));
        Ok(Self { networks, proxy_protocol: config.proxy_protocol, addresses })
    }

    /// Counts a connection of a client until the guard is dropped; `None` without a quota.
    pub(crate) fn connect(&self, client: IpAddr) -> Result<Option<ConnectionGuard>, Duration> {
        self.addresses.as_ref().map_or(Ok(None), |addresses| addresses.connect(client))
    }

    /// Whether a connection from this address is accepted.
    pub fn admit(&self, peer: IpAddr) -> bool {
        self.networks.as_ref().is_none_or(|networks| networks.load().contain(peer))
    }
}
