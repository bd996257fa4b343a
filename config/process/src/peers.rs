//! From where a listener accepts connections, and how such peers say whom they carry.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fairlead_config::{AddressQuotaConfig, AllowedPeersConfig, Networks};

use crate::quota::{AddressQuotas, Connected};
use crate::reload::{LoadError, Reloadable, Reloads};

/// The networks that connections are accepted from; by default any. A look costs one comparison per network.
#[derive(Clone, Debug, Default)]
pub struct AllowedPeers {
    networks: Option<Arc<Reloadable<Networks>>>,
    /// Whether each connection begins with a word about whose it is.
    pub(crate) proxy_protocol: bool,
    /// What each may do.
    addresses: Option<Arc<AddressQuotas>>,
}

impl AllowedPeers {
    /// Those of the settings' file, read again whenever it changes; without one, everybody. `of` says whose peers they are,
    /// for logs and metrics.
    ///
    /// # Errors
    /// [`LoadError`]; later the last good list stays.
    pub fn of(config: &AllowedPeersConfig, of: &str, reloads: &Reloads) -> Result<Self, LoadError> {
        let watch = |file: PathBuf| {
            reloads.register(&format!("peers of {of}"), [file.clone()], move || Networks::load(&file))
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

    /// Counts a client's connection, until what this returns is dropped; `None` where nothing is counted.
    pub(crate) fn connect(&self, client: IpAddr) -> Result<Option<Connected>, Duration> {
        self.addresses.as_ref().map_or(Ok(None), |addresses| addresses.connect(client))
    }

    /// Whether a connection from this address is accepted.
    pub fn admit(&self, peer: IpAddr) -> bool {
        self.networks.as_ref().is_none_or(|networks| networks.load().contain(peer))
    }
}
