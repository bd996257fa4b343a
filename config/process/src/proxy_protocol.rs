//! The PROXY protocol, versions 1 and 2 (haproxy's `proxy-protocol.txt`): a load balancer sends the client's address before
//! TLS.

use std::io;
use std::net::SocketAddr;

use ppp::{HeaderResult, v1, v2};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Signature of version 2; no header of version 1 is shorter.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The longest header of version 1, its line end included.
const MAX_V1_HEADER: usize = 107;
/// Longest remainder of a version 2 header that is read. Addresses take 36 bytes; the TLVs after them are ignored.
const MAX_V2_REMAINDER: usize = 2048;

/// The load balancer sent no valid header; the connection is closed.
#[derive(Debug, thiserror::Error)]
pub enum ProxyHeaderError {
    /// The connection ended before the header was complete.
    #[error("the PROXY header is incomplete")]
    Incomplete(#[from] io::Error),
    /// The bytes are no PROXY header, for example TLS.
    #[error("the connection does not begin with a PROXY header")]
    Malformed,
}

/// Reads the header of a connection and no byte more. Returns the client's address, or `peer` if the load balancer connects on
/// its own behalf.
///
/// # Errors
/// [`ProxyHeaderError`]
pub async fn proxied_client(
    stream: &mut (impl AsyncRead + Unpin),
    peer: SocketAddr,
) -> Result<SocketAddr, ProxyHeaderError> {
    let mut header = vec![0; SIGNATURE.len()];
    stream.read_exact(&mut header).await?;
    if header == SIGNATURE {
        let mut fixed = [0; 4];
        stream.read_exact(&mut fixed).await?;
        let rest = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        if rest > MAX_V2_REMAINDER {
            return Err(ProxyHeaderError::Malformed);
        }
        header.extend_from_slice(&fixed);
        let start = header.len();
        header.resize(start + rest, 0);
        stream.read_exact(&mut header[start..]).await?;
    } else if header.starts_with(b"PROXY ") {
        // Byte by byte, because the following bytes belong to TLS.
        while !header.ends_with(b"\r\n") {
            if header.len() >= MAX_V1_HEADER {
                return Err(ProxyHeaderError::Malformed);
            }
            header.push(stream.read_u8().await?);
        }
    } else {
        return Err(ProxyHeaderError::Malformed);
    }
    source(&header, peer).ok_or(ProxyHeaderError::Malformed)
}

fn source(header: &[u8], peer: SocketAddr) -> Option<SocketAddr> {
    Some(match HeaderResult::parse(header) {
        HeaderResult::V1(Ok(header)) => match header.addresses {
            v1::Addresses::Tcp4(addresses) => (addresses.source_address, addresses.source_port).into(),
            v1::Addresses::Tcp6(addresses) => (addresses.source_address, addresses.source_port).into(),
            v1::Addresses::Unknown => peer,
        },
        HeaderResult::V2(Ok(header)) => match (header.command, header.addresses) {
            (v2::Command::Proxy, v2::Addresses::IPv4(addresses)) => {
                (addresses.source_address, addresses.source_port).into()
            }
            (v2::Command::Proxy, v2::Addresses::IPv6(addresses)) => {
                (addresses.source_address, addresses.source_port).into()
            }
            // Health checks of the load balancer, and clients on its machine.
            _ => peer,
        },
        HeaderResult::V1(Err(_)) | HeaderResult::V2(Err(_)) => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn version_2(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
        let length = u16::try_from(addresses.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[0x20 | command, family], &length, addresses].concat()
    }

    #[tokio::test]
    async fn the_client_address_comes_from_the_proxy_header() {
        let peer: SocketAddr = "198.51.100.1:1".parse().unwrap();
        let v4 = [203, 0, 113, 9, 192, 0, 2, 1, 0x12, 0x34, 1, 187];
        let mut v6 = [0; 36];
        v6[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
        v6[15] = 9;
        v6[32..34].copy_from_slice(&[0x12, 0x34]);
        for (header, expected) in [
            (b"PROXY TCP4 203.0.113.9 192.0.2.1 4660 443\r\n".to_vec(), Some("203.0.113.9:4660")),
            (b"PROXY TCP6 2001:db8::9 ::1 4660 443\r\n".to_vec(), Some("[2001:db8::9]:4660")),
            (b"PROXY UNKNOWN\r\n".to_vec(), Some("198.51.100.1:1")),
            (b"PROXY UNKNOWN and more\r\n".to_vec(), Some("198.51.100.1:1")),
            (version_2(1, 0x11, &v4), Some("203.0.113.9:4660")),
            (version_2(1, 0x21, &v6), Some("[2001:db8::9]:4660")),
            (version_2(1, 0x11, &[&v4[..], &[4, 0, 1, 0]].concat()), Some("203.0.113.9:4660")),
            (version_2(0, 0x00, &[]), Some("198.51.100.1:1")),
            (version_2(1, 0x11, &v4[..8]), None),
            (version_2(1, 0x11, &[0; 4096]), None),
            (b"PROXY TCP4 203.0.113.999 192.0.2.1 4660 443\r\n".to_vec(), None),
            (b"PROXY TCP4 203.0.113.9 192.0.2.1 4660\r\n".to_vec(), None),
            ([b"PROXY TCP4 ".as_slice(), &[b'1'; 200]].concat(), None),
            (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\0".to_vec(), None),
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), None),
        ] {
            let sent = [&header[..], b"the rest"].concat();
            let mut stream = &sent[..];
            let found = proxied_client(&mut stream, peer).await;
            let shown = header.escape_ascii();
            assert_eq!(found.ok(), expected.map(|text| text.parse().unwrap()), "{shown}");
            if expected.is_some() {
                assert_eq!(stream, b"the rest", "{shown}");
            }
        }
        let mut cut = &b"PROXY TCP4 203"[..];
        assert!(matches!(proxied_client(&mut cut, peer).await, Err(ProxyHeaderError::Incomplete(_))));
    }
}
