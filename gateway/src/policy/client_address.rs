//! Peers of a listener: the networks that may connect, and the client address that a trusted proxy reports.
//!
//! Costs nothing at a listener that accepts every peer; else one comparison per network and connection (a provider has some
//! twenty), and one look at each header name per request, which mostly ends at its first letter.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use fairlead_config::{ListenerConfig, Networks};
use fairlead_process::{LoadError, Reloadable, Reloads};
use http::header::{HeaderMap, HeaderName, InvalidHeaderName};

use crate::request::{has_header_prefix, is_same_header};

/// Addresses of the client and the proxies that forwarded a request.
pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The peers of a listener.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerPolicy {
    /// Networks that may connect; `None` for any.
    pub(crate) networks: Option<Arc<Reloadable<Networks>>>,
    /// Whether connections begin with a PROXY protocol header.
    pub(crate) proxy_protocol: bool,
    /// The source of the client's address.
    pub(crate) client_address: ClientAddressSource,
}

/// The header in which a trusted proxy reports the client's address. A connection keeps the one with which it was accepted: its
/// peer was not checked against the peers of a later configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientAddressSource {
    header: Option<HeaderName>,
    /// The kind of proxy. Headers about addresses and certificates that the clients of proxies set are removed.
    proxy_kind: TrustedProxyKind,
}

/// Whether the peers of a listener are proxies.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum TrustedProxyKind {
    /// They are treated as clients: their headers about addresses and certificates are forwarded, as in kcp.
    #[default]
    None,
    /// Proxies with their own certificate, which terminate the TLS of clients.
    Certificate,
    /// Proxies that report the client's address in a header.
    Address,
}

/// The `peers` setting is invalid; the operator has to correct it.
#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    /// The file of networks cannot be loaded.
    #[error(transparent)]
    Networks(#[from] LoadError),
    /// The name of the header with the client's address is invalid.
    #[error("clientAddressHeader: {0:?} is not a header name")]
    Header(String, #[source] InvalidHeaderName),
}

impl PeerPolicy {
    /// The peers in these settings.
    ///
    /// # Errors
    /// [`PeersError`]; on errors after a reload the last good list of networks stays.
    pub(crate) fn of(listener: &ListenerConfig, reloads: &Reloads) -> Result<Self, PeersError> {
        let networks = match listener.peers.allow.as_deref().map(Path::to_owned) {
            Some(file) => {
                let what = format!("peers of listener {}", listener.name);
                Some(reloads.register(&what, [file.clone()], move || Networks::load(&file))?)
            }
            None => None,
        };
        let name = |text: &String| {
            HeaderName::try_from(text).map_err(|error| PeersError::Header(text.clone(), error))
        };
        let client_header = listener.peers.client_address_header.as_ref().map(name).transpose()?;
        let proxy_kind = match (&client_header, &listener.tls.transport_client_ca) {
            (Some(_), _) => TrustedProxyKind::Address,
            (None, Some(_)) => TrustedProxyKind::Certificate,
            (None, None) => TrustedProxyKind::None,
        };
        let client_address = ClientAddressSource { header: client_header, proxy_kind };
        Ok(Self { networks, client_address, proxy_protocol: listener.peers.proxy_protocol })
    }

    /// Whether peers are CDNs or proxies that send requests of others.
    pub(crate) fn are_trusted_proxies(&self) -> bool {
        self.client_address.proxy_kind != TrustedProxyKind::None
    }

    /// Whether peers are restricted.
    pub(crate) fn is_limited(&self) -> bool {
        self.networks.is_some()
    }

    /// Whether a connection from this address is accepted.
    pub(crate) fn admit(&self, peer: IpAddr) -> bool {
        self.networks.as_ref().is_none_or(|networks| networks.load().contain(peer))
    }
}

impl ClientAddressSource {
    /// Removes the client's address from the headers and returns it. Other headers about addresses are removed too, so that servers
    /// behind the gateway see one address only.
    ///
    /// # Errors
    /// [`InvalidClientAddress`] if the header is repeated or cannot be parsed.
    pub(crate) fn client_of(
        &self,
        peer: IpAddr,
        headers: &mut HeaderMap,
    ) -> Result<IpAddr, InvalidClientAddress> {
        let client = match &self.header {
            Some(header) => client_address_in(header, peer, headers),
            None => Ok(peer),
        };
        let is_stripped = |name: &&HeaderName| match self.proxy_kind {
            TrustedProxyKind::None => false,
            TrustedProxyKind::Certificate => is_certificate_header(name.as_str()),
            TrustedProxyKind::Address => is_proxy_header(name.as_str()),
        };
        if self.proxy_kind != TrustedProxyKind::None {
            // Collected, because the map cannot be changed while it is read; there are rarely many.
            for name in headers.keys().filter(is_stripped).cloned().collect::<Vec<_>>() {
                headers.remove(name);
            }
        }
        client
    }
}

fn client_address_in(
    header: &HeaderName,
    peer: IpAddr,
    headers: &mut HeaderMap,
) -> Result<IpAddr, InvalidClientAddress> {
    let mut values = headers.get_all(header).iter();
    let client = match (values.next(), values.next()) {
        // Requests of the proxy itself, such as health probes, have no header.
        (None, _) => Some(peer),
        (Some(address), None) => address.to_str().ok().and_then(|text| text.trim().parse().ok()),
        (Some(_), Some(_)) => None,
    };
    headers.remove(header);
    client.ok_or(InvalidClientAddress)
}

/// Whether proxies and CDNs report addresses or client certificates in this header (lower case). Kubernetes' audit reads
/// `X-Forwarded-For` and `X-Real-IP`; the others are those of RFC 7239, RFC 9440 and of products, for servers behind a shard.
pub(crate) fn is_proxy_header(name: &str) -> bool {
    const ADDRESSES: [&str; 8] = [
        "fastly-client-ip",
        "forwarded",
        "true-client-ip",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-forwarded-for",
        "x-original-forwarded-for",
        "x-real-ip",
    ];
    may_be_proxy_header(name)
        && (ADDRESSES.iter().any(|known| is_same_header(name, known))
            || has_header_prefix(name, "cf-connecting-ip")
            || is_certificate_header(name))
}

/// Whether the header is about the client's certificate.
fn is_certificate_header(name: &str) -> bool {
    const PREFIXES: [&str; 9] = [
        "cf-client-cert",
        "client-cert",
        "ssl-client",
        "x-amzn-mtls",
        "x-client-cert",
        "x-client-verify",
        "x-forwarded-client-cert",
        "x-forwarded-tls-client-cert",
        "x-ssl-client",
    ];
    may_be_proxy_header(name) && PREFIXES.iter().any(|known| has_header_prefix(name, known))
}

/// A quick check by the first letter, which excludes most headers.
fn may_be_proxy_header(name: &str) -> bool {
    matches!(name.as_bytes().first(), Some(b'c' | b'f' | b's' | b't' | b'x'))
}

/// The reported client address is invalid, which is an error of the peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the client address of the request is ambiguous")]
pub(crate) struct InvalidClientAddress;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_peer_says_whose_request_it_is_once_or_not_at_all() {
        let header = HeaderName::from_static("cf-connecting-ip");
        let from_peers =
            ClientAddressSource { header: Some(header.clone()), proxy_kind: TrustedProxyKind::Address };
        let (peer, client) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([203, 0, 113, 9]));
        for (values, expected) in [
            (&[][..], Ok(peer)),
            (&["203.0.113.9"], Ok(client)),
            (&["2001:db8::1"], Ok("2001:db8::1".parse().unwrap())),
            (&["203.0.113.9", "203.0.113.9"], Err(InvalidClientAddress)),
            (&["203.0.113.9, 10.0.0.1"], Err(InvalidClientAddress)),
            (&["me"], Err(InvalidClientAddress)),
        ] {
            let mut headers = HeaderMap::new();
            headers.append(X_FORWARDED_FOR, "198.51.100.1".parse().unwrap());
            for text in values {
                headers.append(&header, text.parse().unwrap());
            }
            let before = headers.clone();
            assert_eq!(ClientAddressSource::default().client_of(peer, &mut headers), Ok(peer), "{values:?}");
            assert_eq!(headers, before, "{values:?}");
            assert_eq!(from_peers.client_of(peer, &mut headers), expected, "{values:?}");
            assert_eq!(headers.len(), 0, "{values:?}");
        }
    }
    #[test]
    fn what_is_said_of_clients_ends_where_peers_carry_for_others() {
        let header = Some(HeaderName::from_static("cf-connecting-ip"));
        for (name, with_address, with_certificate) in [
            ("x-forwarded-for", true, false),
            ("x_forwarded_for", true, false),
            ("x-real-ip", true, false),
            ("forwarded", true, false),
            ("true-client-ip", true, false),
            ("cf-connecting-ipv6", true, false),
            ("client-cert", true, true),
            ("client-cert-chain", true, true),
            ("cf-client-cert-der-base64", true, true),
            ("x_client_cert", true, true),
            ("x-client-verify", true, true),
            ("x-forwarded-client-cert", true, true),
            ("x-forwarded-proto", false, false),
            ("user-agent", false, false),
            ("content-type", false, false),
            ("x-mine", false, false),
        ] {
            for (header, proxy_kind, goes) in [
                (header.clone(), TrustedProxyKind::Address, with_address),
                (None, TrustedProxyKind::Certificate, with_certificate),
                (None, TrustedProxyKind::None, false),
            ] {
                let mut headers = HeaderMap::new();
                headers.append(HeaderName::from_static(name), "x".parse().unwrap());
                let client_address = ClientAddressSource { header, proxy_kind };
                client_address.client_of(IpAddr::from([192, 0, 2, 1]), &mut headers).unwrap();
                assert_eq!(headers.is_empty(), goes, "{name}, {proxy_kind:?}");
            }
        }
    }
}
