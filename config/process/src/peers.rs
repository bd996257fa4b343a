//! From where a listener accepts connections.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairlead_config::Networks;

use crate::reload::{LoadError, Reloadable, Reloads};

/// The networks that connections are accepted from; by default any. A look costs one comparison per network.
#[derive(Clone, Debug, Default)]
pub struct AllowedPeers(Option<Arc<Reloadable<Networks>>>);

impl AllowedPeers {
    /// Those of a file, read again whenever it changes; without one, everybody. `of` says whose peers they are, for logs and
    /// metrics.
    ///
    /// # Errors
    /// [`LoadError`]; later the last good list stays.
    pub fn of(file: Option<&Path>, of: &str, reloads: &Reloads) -> Result<Self, LoadError> {
        let watch = |file: PathBuf| {
            reloads.register(&format!("peers of {of}"), [file.clone()], move || Networks::load(&file))
        };
        Ok(Self(file.map(Path::to_owned).map(watch).transpose()?))
    }

    /// Whether a connection from this address is accepted.
    pub fn admit(&self, peer: IpAddr) -> bool {
        self.0.as_ref().is_none_or(|networks| networks.load().contain(peer))
    }
}
