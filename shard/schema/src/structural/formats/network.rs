//! Addresses of networks.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::is_hexadecimal;

/// An IPv4 address, or an IPv6 address that ends with one. As in Kubernetes, numbers may begin with zeros.
pub(super) fn is_dotted_address(text: &str) -> bool {
    let is_ipv4 = text.find(['.', ':']).is_some_and(|index| text.as_bytes().get(index) == Some(&b'.'));
    text.contains('.') && if is_ipv4 { is_padded_ipv4(text) } else { is_padded_ipv6(text) }
}

pub(super) fn is_ipv6(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok()
}

/// An address with the length of a prefix. As in Kubernetes, numbers may begin with zeros.
pub(super) fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let max = if is_padded_ipv4(address) {
        32
    } else if is_padded_ipv6(address) {
        128
    } else {
        return false;
    };
    is_decimal(length) && without_zeros(length).parse::<u8>().is_ok_and(|bits| bits <= max)
}

/// Whether the host of a URI has brackets only around an IPv6 address, and colons only there and before the port.
pub(super) fn has_regular_host(uri: &str) -> bool {
    let rest = uri.split('#').next().unwrap_or_default();
    let after_scheme = rest.split_once(':').filter(|(scheme, _)| !scheme.contains(['/', '?']));
    let rest = after_scheme.map_or(rest, |(_, rest)| rest);
    let Some(authority) = rest.strip_prefix("//") else { return true };
    let authority = authority.split(['/', '?']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    match host.strip_prefix('[') {
        Some(host) => host.rsplit_once(']').is_some_and(|(address, _)| {
            let (address, zone) = address.split_once("%25").unwrap_or((address, "zone"));
            is_ipv6(address) && !zone.is_empty()
        }),
        None => host.matches(':').count() <= 1,
    }
}

/// Six, eight or twenty bytes: without separators, in groups of one byte, or in groups of two separated by dots.
pub(super) fn is_mac(text: &str) -> bool {
    let groups = |separator: char, width: usize, counts: &[usize]| {
        let parts: Vec<&str> = text.split(separator).collect();
        counts.contains(&parts.len()) && parts.iter().all(|part| part.len() == width && is_hexadecimal(part))
    };
    let is_plain = matches!(text.len(), 12 | 16 | 40) && is_hexadecimal(text);
    is_plain || groups(':', 2, &[6, 8, 20]) || groups('-', 2, &[6, 8, 20]) || groups('.', 4, &[3, 4, 10])
}

fn is_padded_ipv4(text: &str) -> bool {
    let numbers: Vec<&str> = text.split('.').collect();
    let plain: Vec<&str> = numbers.iter().map(|number| without_zeros(number)).collect();
    numbers.iter().all(|number| is_decimal(number)) && plain.join(".").parse::<Ipv4Addr>().is_ok()
}

fn is_padded_ipv6(text: &str) -> bool {
    let groups = text.split(':').map(|group| match group.split_once('.') {
        Some(_) => group.split('.').map(without_zeros).collect::<Vec<_>>().join("."),
        None => without_zeros(group).to_owned(),
    });
    groups.collect::<Vec<_>>().join(":").parse::<Ipv6Addr>().is_ok()
}

fn is_decimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A number without the zeros at its beginning.
fn without_zeros(text: &str) -> &str {
    let significant = text.trim_start_matches('0');
    if significant.is_empty() && !text.is_empty() { "0" } else { significant }
}
