//! Who may connect to a door, and what such a peer says about the client whose requests it carries.
//!
//! Costs nothing at a door that accepts everybody; else one comparison per network and connection (a provider has some
//! twenty), and one look at the headers per request.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use fairlead_config::{DoorConfig, Networks};
use fairlead_process::{LoadError, Reloadable, Reloads};
use http::header::{HeaderMap, HeaderName, InvalidHeaderName};

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
    pub(crate) said: ClientHeader,
}

/// The header in which a peer says whose request it is, if it may. A connection keeps the one under which it was accepted:
/// who came in when another counted was not looked at for this one.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientHeader(Option<HeaderName>);

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
        Ok(Self { networks, said: ClientHeader(client_header), proxy_protocol: door.peers.proxy_protocol })
    }

    /// Whether not everybody may connect.
    pub(crate) fn is_limited(&self) -> bool {
        self.networks.is_some()
    }

    /// Whether a connection from this address is accepted.
    pub(crate) fn admit(&self, peer: IpAddr) -> bool {
        self.networks.as_ref().is_none_or(|networks| networks.load().contain(peer))
    }
}

impl ClientHeader {
    /// Takes what a peer says about its client out of the headers, and with it what anybody else has said: from then on
    /// there is one word about it.
    ///
    /// # Errors
    /// [`Unclear`] if the peer says it in two ways, or in none that can be understood.
    pub(crate) fn client_of(&self, peer: IpAddr, headers: &mut HeaderMap) -> Result<IpAddr, Unclear> {
        let Some(header) = &self.0 else { return Ok(peer) };
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_peer_says_whose_request_it_is_once_or_not_at_all() {
        let header = HeaderName::from_static("cf-connecting-ip");
        let said_by_peers = ClientHeader(Some(header.clone()));
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
            assert_eq!(ClientHeader::default().client_of(peer, &mut headers), Ok(peer), "{said:?}");
            assert_eq!(headers, before, "{said:?}");
            assert_eq!(said_by_peers.client_of(peer, &mut headers), expected, "{said:?}");
            assert_eq!(headers.len(), 0, "{said:?}");
        }
    }
}
