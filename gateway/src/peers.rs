//! Who may connect to a door, and what such a peer says about the client whose requests it carries.
//!
//! Costs nothing at a door that accepts everybody; else one comparison per network and connection (a provider has some
//! twenty), and one look at the headers per request.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairlead_config::DoorConfig;
use fairlead_process::{LoadError, Reloadable, Reloads};
use http::header::{HeaderMap, HeaderName, InvalidHeaderName};
use ipnet::IpNet;

/// The list of addresses that a request has come by.
pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The peers of a door.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers {
    /// Where they come from; `None` for anywhere.
    pub(crate) networks: Option<Arc<Reloadable<Networks>>>,
    /// Whether they say, before TLS, from whom a connection is.
    pub(crate) proxy_protocol: bool,
    /// How they say whose request it is.
    pub(crate) client_header: Option<HeaderName>,
}

/// Who may connect to a door cannot be said; the operator has to mend it.
#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    /// The file of networks.
    #[error(transparent)]
    Networks(#[from] LoadError),
    /// The header with the client's address.
    #[error("clientAddressHeader: {0:?} is no name of a header")]
    Header(String, #[source] InvalidHeaderName),
}

impl Peers {
    /// Of a door with these settings.
    ///
    /// # Errors
    /// [`PeersError`]; later the last good list of networks stays.
    pub(crate) fn of(door: &DoorConfig, reloads: &Reloads) -> Result<Self, PeersError> {
        let networks = match door.peers.allow.as_deref().map(Path::to_owned) {
            Some(file) => {
                let what = format!("peers of door {}", door.name);
                Some(reloads.register(&what, [file.clone()], move || Networks::load(&file))?)
            }
            None => None,
        };
        let name = |text: &String| {
            HeaderName::try_from(text).map_err(|error| PeersError::Header(text.clone(), error))
        };
        let client_header = door.peers.client_address_header.as_ref().map(name).transpose()?;
        Ok(Self { networks, client_header, proxy_protocol: door.peers.proxy_protocol })
    }

    /// Whether not everybody may connect.
    pub(crate) fn is_limited(&self) -> bool {
        self.networks.is_some()
    }

    /// Whether a connection from this address is accepted.
    pub(crate) fn admit(&self, peer: IpAddr) -> bool {
        self.networks.as_ref().is_none_or(|networks| networks.load().contain(peer))
    }

    /// Takes what a peer says about its client out of the headers, and with it what anybody else has said: from then on
    /// there is one word about it.
    ///
    /// # Errors
    /// [`Unclear`] if the peer says it in two ways, or in none that can be understood.
    pub(crate) fn client(&self, peer: IpAddr, headers: &mut HeaderMap) -> Result<IpAddr, Unclear> {
        let Some(header) = &self.client_header else { return Ok(peer) };
        let mut said = headers.get_all(header).iter();
        let client = match (said.next(), said.next()) {
            // The provider's own requests, such as probes.
            (None, _) => Some(peer),
            (Some(address), None) => address.to_str().ok().and_then(|text| text.trim().parse().ok()),
            (Some(_), Some(_)) => None,
        };
        headers.remove(header);
        headers.remove(X_FORWARDED_FOR);
        client.ok_or(Unclear)
    }
}

/// The peer's word about its client cannot be taken; the peer is to blame.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("it is not clear which client the request comes from")]
pub(crate) struct Unclear;

/// Networks, as a provider publishes them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Networks(Vec<IpNet>);

/// The file of networks cannot be used; the operator has to mend it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworksError {
    /// It cannot be read.
    #[error("{0} cannot be read")]
    Unreadable(PathBuf, #[source] std::io::Error),
    /// A line is no network.
    #[error("{}:{line}: {text:?} is no network such as 192.0.2.0/24", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// From 1.
        line: usize,
        /// What stands there.
        text: String,
    },
    /// Nobody could connect.
    #[error("{0} names no network")]
    Empty(PathBuf),
}

impl Networks {
    /// Reads a file with one network per line; an address alone is the network of it alone.
    ///
    /// # Errors
    /// [`NetworksError`] with the line.
    pub(crate) fn load(file: &Path) -> Result<Self, NetworksError> {
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

    fn contain(&self, address: IpAddr) -> bool {
        // A socket for both families shows an address of IPv4 as one of IPv6.
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
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
    fn a_list_of_networks_says_who_may_connect() {
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
    }

    #[test]
    fn faults_are_told_with_their_line() {
        let wrong = "ranges:2: \"192.0.2.0/33\" is no network such as 192.0.2.0/24";
        for (text, expected) in [
            ("192.0.2.0/24\n192.0.2.0/33", wrong),
            ("x # y", "ranges:1: \"x\" is no network such as 192.0.2.0/24"),
            ("# nothing\n", "ranges names no network"),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_peer_says_whose_request_it_is_once_or_not_at_all() {
        let header = HeaderName::from_static("cf-connecting-ip");
        let peers = Peers { client_header: Some(header.clone()), ..Peers::default() };
        let (peer, client) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([203, 0, 113, 9]));
        for (said, expected) in [
            (&[][..], Ok(peer)),
            (&["203.0.113.9"], Ok(client)),
            (&["2001:db8::1"], Ok("2001:db8::1".parse().unwrap())),
            (&["203.0.113.9", "203.0.113.9"], Err(Unclear)),
            (&["203.0.113.9, 10.0.0.1"], Err(Unclear)),
            (&["me"], Err(Unclear)),
        ] {
            let mut headers = HeaderMap::new();
            headers.append(X_FORWARDED_FOR, "198.51.100.1".parse().unwrap());
            for text in said {
                headers.append(&header, text.parse().unwrap());
            }
            let before = headers.clone();
            assert_eq!(Peers::default().client(peer, &mut headers), Ok(peer), "{said:?}");
            assert_eq!(headers, before, "{said:?}");
            assert_eq!(peers.client(peer, &mut headers), expected, "{said:?}");
            assert_eq!(headers.len(), 0, "{said:?}");
        }
    }
}
