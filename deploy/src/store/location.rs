//! The place of a store: a file, or a prefix of an etcd.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The file of a store in its folder.
pub(crate) const STORE: &str = "store.redb";

/// The prefix of kcp.
const DEFAULT_PREFIX: &str = "/registry";

/// The place of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// A store file.
    File(PathBuf),
    Etcd(EtcdLocation),
}

/// A prefix of an etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EtcdLocation {
    /// URLs of the members.
    pub endpoints: Vec<String>,
    /// Begins with a slash, and ends with none.
    pub prefix: String,
}

/// A text that names no etcd.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no list of URLs with a prefix and without a query, such as http://a:2379,http://b:2379/shards/root"
)]
pub(crate) struct LocationError(String);

/// URLs are those of an etcd; anything else is the folder or, if its name ends with `.redb`, the file of a store.
pub(super) fn parse(text: &str) -> Result<Location, LocationError> {
    if text.starts_with("http://") || text.starts_with("https://") {
        return text.parse().map(Location::Etcd);
    }
    let path = Path::new(text);
    let is_file = path.extension().is_some_and(|extension| extension == "redb");
    Ok(Location::File(if is_file { path.to_owned() } else { path.join(STORE) }))
}

impl FromStr for EtcdLocation {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        let fail = || LocationError(text.to_owned());
        // No request would use a query, and as a part of the prefix it would be a surprise.
        if text.contains(['?', '#']) {
            return Err(fail());
        }
        let mut prefix = None;
        let mut endpoints = Vec::new();
        for url in text.split(',') {
            let (scheme, rest) = url.split_once("://").ok_or_else(fail)?;
            let (host, path) = rest.split_once('/').map_or((rest, None), |(host, path)| (host, Some(path)));
            // Only the last one has a path.
            if prefix.is_some() || host.is_empty() || !matches!(scheme, "http" | "https") {
                return Err(fail());
            }
            prefix = path.map(|path| path.trim_end_matches('/')).filter(|path| !path.is_empty());
            endpoints.push(format!("{scheme}://{host}"));
        }
        let prefix = prefix.map_or(DEFAULT_PREFIX.to_owned(), |prefix| format!("/{prefix}"));
        Ok(Self { endpoints, prefix })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(formatter),
            Self::Etcd(etcd) => etcd.fmt(formatter),
        }
    }
}

impl fmt::Display for EtcdLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", self.endpoints.join(","), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_a_folder_a_file_or_an_etcd() {
        for (text, shown) in [
            ("data/root", "data/root/store.redb"),
            ("old.redb", "old.redb"),
            ("http://127.0.0.1:2379", "http://127.0.0.1:2379/registry"),
            ("https://a:2379,https://b:2379/shards/root/", "https://a:2379,https://b:2379/shards/root"),
        ] {
            assert_eq!(parse(text).map(|location| location.to_string()).as_deref(), Ok(shown), "{text}");
        }
        for text in [
            "http://",
            "http://a/x,http://b/x",
            "http://a,b:2379",
            "http://a,ftp://b",
            "https://a:2379/n1?x=1",
            "https://a?x=1,https://b/n1",
            "https://a/n1#x",
        ] {
            assert_eq!(parse(text), Err(LocationError(text.to_owned())));
        }
    }
}
