//! Files of networks, one per line, as providers publish them.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;

/// Networks that may connect. A check costs one comparison per network; a provider has about twenty.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Networks(Vec<IpNet>);

/// The file of networks cannot be used; the operator has to repair it.
#[derive(Debug, thiserror::Error)]
pub enum NetworksError {
    /// The file cannot be read.
    #[error("{0} cannot be read")]
    Unreadable(PathBuf, #[source] std::io::Error),
    /// A line is not a network.
    #[error("{}:{line}: {text:?} is not a network such as 192.0.2.0/24", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Content of the line.
        text: String,
    },
    /// The file is empty, so no peer could connect.
    #[error("{0} has no network")]
    Empty(PathBuf),
}

impl Networks {
    /// Reads a file with one network per line; a single address is a network of one address.
    ///
    /// # Errors
    /// [`NetworksError`] with the line.
    pub fn load(file: &Path) -> Result<Self, NetworksError> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| NetworksError::Unreadable(file.to_owned(), error))?;
        Self::parse(&text, file)
    }

    fn parse(text: &str, file: &Path) -> Result<Self, NetworksError> {
        let mut networks = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let text = line.split('#').next().unwrap_or_default().trim();
            if text.is_empty() {
                continue;
            }
            let network = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
            networks.push(network.ok_or_else(|| NetworksError::Line {
                file: file.to_owned(),
                line: index + 1,
                text: text.to_owned(),
            })?);
        }
        if networks.is_empty() {
            return Err(NetworksError::Empty(file.to_owned()));
        }
        Ok(Self(IpNet::aggregate(&networks)))
    }

    /// Whether an address is in one of them.
    pub fn contain(&self, address: IpAddr) -> bool {
        // A dual-stack socket reports IPv4 addresses as IPv4-mapped IPv6 addresses.
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Whether they contain every address of a family, and so exclude no peer.
    pub fn contain_everything(&self) -> bool {
        self.0.iter().any(|network| network.prefix_len() == 0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn parse(text: &str) -> Result<Networks, String> {
        Networks::parse(text, Path::new("ranges")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_list_of_networks_limits_peers() {
        let networks = parse("# v4\n192.0.2.0/25\n 198.51.100.7 # one\n\n2001:db8::/32\n").unwrap();
        for (address, expected) in [
            ("192.0.2.1", true),
            ("::ffff:192.0.2.1", true),
            ("192.0.2.128", false),
            ("198.51.100.7", true),
            ("198.51.100.8", false),
            ("2001:db8::1", true),
            ("2001:db9::1", false),
        ] {
            assert_eq!(networks.contain(address.parse().unwrap()), expected, "{address}");
        }
        assert!(!networks.contain_everything());
        // Two halves of the address space are all of it.
        for all in ["0.0.0.0/0", "192.0.2.0/24\n::/0", "0.0.0.0/1\n128.0.0.0/1"] {
            assert!(parse(all).unwrap().contain_everything(), "{all}");
        }
    }

    #[test]
    fn faults_are_reported_with_their_line() {
        let wrong = "ranges:2: \"192.0.2.0/33\" is not a network such as 192.0.2.0/24";
        for (text, expected) in [
            ("192.0.2.0/24\n192.0.2.0/33", wrong),
            ("x # y", "ranges:1: \"x\" is not a network such as 192.0.2.0/24"),
            ("# nothing\n", "ranges has no network"),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected, "{text:?}");
        }
    }
}
