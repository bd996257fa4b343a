//! `ip()` and `cidr()`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address with the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The address, as it was written.
    pub address: IpAddr,
    /// Bits of the prefix.
    pub prefix_length: u8,
}

/// Reads an address. Zones and IPv4 addresses mapped to IPv6 are refused.
pub(crate) fn parse_ip(text: &str) -> Result<IpAddr, String> {
    if let Some((address, zone)) = text.split_once('%')
        && !zone.is_empty()
        && address.parse::<Ipv6Addr>().is_ok()
    {
        return Err(format!("IP address {text:?} with zone value is not allowed"));
    }
    let address: IpAddr = text.parse().map_err(|_| {
        format!(
            "IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): {}",
            fault(text)
        )
    })?;
    if is_mapped(address) {
        return Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"));
    }
    Ok(address)
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

fn fault(text: &str) -> &'static str {
    if !text.contains(['.', ':']) {
        return "unable to parse IP";
    }
    if !text.contains(':') && text.split('.').count() < 4 {
        return "IPv4 address too short";
    }
    "unexpected character"
}

/// Reads an address with the length of a prefix.
pub(crate) fn parse_cidr(text: &str) -> Result<Cidr, String> {
    let context = "network address parse error during conversion from string";
    let fault = |fault: &str| format!("{context}: {context}: netip.ParsePrefix({text:?}): {fault}");
    let (address, length) = text.rsplit_once('/').ok_or_else(|| fault("no '/'"))?;
    let address: IpAddr = address.parse().map_err(|_| fault("unable to parse IP"))?;
    let is_plain = length.bytes().all(|byte| byte.is_ascii_digit())
        && !length.is_empty()
        && (length.len() == 1 || !length.starts_with('0'));
    if !is_plain {
        return Err(fault(&format!("bad bits after slash: {length:?}")));
    }
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix_length = length.parse().ok().filter(|length| *length <= bits);
    let prefix_length = prefix_length.ok_or_else(|| fault("prefix length out of range"))?;
    if is_mapped(address) {
        return Err(format!("{context}: IPv4-mapped IPv6 address {text:?} is not allowed"));
    }
    Ok(Cidr { address, prefix_length })
}

impl Cidr {
    /// The network: the address without the bits behind the prefix.
    pub(crate) fn masked(self) -> Self {
        Self { address: self.network_of(self.address), ..self }
    }

    fn network_of(self, address: IpAddr) -> IpAddr {
        let length = u32::from(self.prefix_length);
        match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32_u32.saturating_sub(length)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from(u32::from(address) & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128_u32.saturating_sub(length)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from(u128::from(address) & mask))
            }
        }
    }

    pub(crate) fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && self.network_of(address) == self.network_of(self.address)
    }

    pub(crate) fn contains_cidr(self, other: Self) -> bool {
        self.prefix_length <= other.prefix_length && self.contains(other.address)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_addresses_and_networks() {
        let cidr = |text: &str| parse_cidr(text).unwrap();
        assert!(cidr("10.1.0.0/16").contains("10.1.2.3".parse().unwrap()));
        assert!(!cidr("10.1.0.0/16").contains("::1".parse().unwrap()));
        assert!(cidr("::/0").contains("fe80::1".parse().unwrap()));
        assert!(cidr("10.1.2.3/8").contains_cidr(cidr("10.9.0.0/16")));
        assert!(!cidr("10.9.0.0/16").contains_cidr(cidr("10.0.0.0/8")));
        assert_eq!(cidr("10.1.2.3/8").masked().to_string(), "10.0.0.0/8");
        for text in ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/08", "x/8", "::ffff:1.2.3.4/100", "1.2.3.4/"] {
            assert!(parse_cidr(text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_with_two_forms_are_refused() {
        for text in ["::ffff:1.2.3.4", "fe80::1%eth0", "01.2.3.4", "1.2.3", ""] {
            assert!(parse_ip(text).is_err(), "{text}");
        }
        assert!(parse_ip("2001:db8::1").is_ok());
    }
}
