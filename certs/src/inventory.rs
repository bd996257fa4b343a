//! The inventory of an installation: its servers and their host names.

use std::{collections::BTreeSet, fmt, net::IpAddr, str::FromStr};

use thiserror::Error;

/// The servers of an installation and their host names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    pub(crate) shards: BTreeSet<ShardName>,
    pub(crate) hosts: BTreeSet<Host>,
    pub(crate) has_issuer: bool,
    pub(crate) has_etcd: bool,
}

impl Inventory {
    /// Parses names. `hosts` are added to those of every server (`localhost`, `127.0.0.1`, `::1`); repeating one of them is
    /// allowed, repeating a shard is an error.
    pub fn parse<S, H>(
        shards: impl IntoIterator<Item = S>,
        hosts: impl IntoIterator<Item = H>,
    ) -> Result<Self, InventoryError>
    where
        S: AsRef<str>,
        H: AsRef<str>,
    {
        let mut inventory = Self::default();
        for shard in shards {
            let name: ShardName = shard.as_ref().parse()?;
            if !inventory.shards.insert(name.clone()) {
                return Err(InventoryError::RepeatedShard(name));
            }
        }
        for host in hosts {
            inventory.hosts.insert(host.as_ref().parse()?);
        }
        Ok(inventory)
    }

    /// Adds a development issuer.
    #[must_use]
    pub fn with_issuer(self) -> Self {
        Self { has_issuer: true, ..self }
    }

    /// Adds a development etcd.
    #[must_use]
    pub fn with_etcd(self) -> Self {
        Self { has_etcd: true, ..self }
    }

    /// The shards, in the order of their names.
    pub fn shards(&self) -> impl Iterator<Item = &ShardName> {
        self.shards.iter()
    }
}

/// An invalid name in the caller's input; a retry does not help.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InventoryError {
    /// The name of a shard is not a DNS label (RFC 1123), which file names and certificates require.
    #[error(
        "shard name {0:?} is not valid: use up to 40 lower-case letters, digits and dashes, beginning and \
         ending with a letter or digit"
    )]
    ShardName(String),
    /// A shard is listed twice.
    #[error("shard {0} is named twice")]
    RepeatedShard(ShardName),
    /// A host is neither an IP address nor a DNS name.
    #[error("host {0:?} is neither an IP address nor a DNS name (no port, no scheme)")]
    Host(String),
}

/// A shard's name: a DNS label of at most 40 characters, so that `CN=shard-<name>-picker` fits into the 64
/// characters that X.520 allows for a common name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardName(String);

impl ShardName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ShardName {
    type Err = InventoryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() <= 40 && is_label(text) && !text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InventoryError::ShardName(text.to_owned()))
        }
    }
}

impl fmt::Display for ShardName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A host name of a server; one subject alternative name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A DNS name in lower case, possibly with a leading `*.`.
    Name(String),
    /// An IP address.
    Address(IpAddr),
}

impl FromStr for Host {
    type Err = InventoryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse() {
            return Ok(Self::Address(address));
        }
        let labels = text.strip_prefix("*.").unwrap_or(text);
        // A last label of digits only would be a mistyped IPv4 address, which no client would match.
        let last_label_is_name =
            labels.rsplit('.').next().is_some_and(|label| !label.bytes().all(|byte| byte.is_ascii_digit()));
        if text.len() <= 253 && labels.split('.').all(is_label) && last_label_is_name {
            Ok(Self::Name(text.to_ascii_lowercase()))
        } else {
            Err(InventoryError::Host(text.to_owned()))
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_names_are_labels() {
        for good in ["root", "a", "shard-1", "0", &"a".repeat(40)] {
            assert_eq!(good.parse::<ShardName>().map(|name| name.to_string()).as_deref(), Ok(good));
        }
        for bad in ["", "-a", "a-", "Root", "a.b", "../x", "a/b", "a b", "ä", &"a".repeat(41)] {
            assert_eq!(bad.parse::<ShardName>(), Err(InventoryError::ShardName(bad.to_owned())));
        }
    }

    #[test]
    fn hosts_are_addresses_or_names() {
        let cases = [
            ("10.0.0.1", Some("10.0.0.1")),
            ("::1", Some("::1")),
            ("[fd00::1]", Some("fd00::1")),
            ("KCP.Example.com", Some("kcp.example.com")),
            ("*.example.com", Some("*.example.com")),
            ("box", Some("box")),
            ("", None),
            ("10.0.0", None),
            ("10.0.0.1:6443", None),
            ("https://kcp", None),
            ("a..b", None),
            ("a.*.b", None),
            ("a b", None),
        ];
        for (text, expected) in cases {
            let parsed = text.parse::<Host>().ok().map(|host| host.to_string());
            assert_eq!(parsed.as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_repeated_shard_is_refused_and_a_repeated_host_is_not() {
        assert!(Inventory::parse(["a", "a"], [] as [&str; 0]).is_err());
        assert!(Inventory::parse(["a"], ["localhost", "localhost"]).is_ok());
    }
}
