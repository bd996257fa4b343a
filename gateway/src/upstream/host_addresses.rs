//! Addresses of hosts from the settings, for shards whose replicas have no common name in DNS.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use fairlead_client::NameResolver;
use futures_util::FutureExt as _;
use futures_util::future::join_all;

/// A resolver that knows these hosts; others are resolved by `names`, and so are host names among the addresses. A key is the host
/// of a shard's URL, or host and port, which comes first. A value has addresses with ports.
pub(crate) fn with_host_addresses(
    names: &NameResolver,
    hosts: &BTreeMap<String, Vec<String>>,
) -> NameResolver {
    if hosts.is_empty() {
        return names.clone();
    }
    let (names, hosts) = (names.clone(), Arc::new(hosts.clone()));
    NameResolver::from_fn(move |host, port| {
        let (names, hosts) = (names.clone(), Arc::clone(&hosts));
        async move {
            match hosts.get(&format!("{host}:{port}")).or_else(|| hosts.get(&host)) {
                Some(addresses) => look_up_all(&names, addresses).await,
                None => names.look_up(&host, port).await,
            }
        }
        .boxed()
    })
}

/// All addresses that can be found; an error only if there is none.
async fn look_up_all(names: &NameResolver, addresses: &[String]) -> io::Result<Vec<SocketAddr>> {
    let found = join_all(addresses.iter().map(|address| look_up(names, address))).await;
    let mut all: Vec<SocketAddr> = Vec::new();
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for result in found {
        match result {
            Ok(found) => all.extend(found),
            Err(error) => failure = error,
        }
    }
    all.sort_unstable();
    all.dedup();
    if all.is_empty() { Err(failure) } else { Ok(all) }
}

async fn look_up(names: &NameResolver, address: &str) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = address.parse() {
        return Ok(vec![address]);
    }
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, format!("{address:?} has no port"));
    let (host, port) = address.rsplit_once(':').ok_or_else(invalid)?;
    names.look_up(host, port.parse().map_err(|_| invalid())?).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[tokio::test]
    async fn settings_come_before_names() {
        let system = NameResolver::from_fn(|host, port| {
            let last = match &*host {
                "dns" => 9,
                "replica" => 3,
                _ => return async { Err(io::Error::from(io::ErrorKind::NotFound)) }.boxed(),
            };
            async move { Ok(vec![SocketAddr::from(([10, 0, 0, last], port))]) }.boxed()
        });
        let list = |addresses: &[&str]| addresses.iter().map(|one| (*one).to_owned()).collect();
        let hosts = BTreeMap::from([
            ("shard".to_owned(), list(&["10.0.0.2:1", "10.0.0.1:1", "replica:7", "unknown:1", "10.0.0.1:1"])),
            ("shard:8443".to_owned(), list(&["10.0.0.4:2"])),
            ("away".to_owned(), list(&["unknown:1"])),
        ]);
        let names = with_host_addresses(&system, &hosts);
        for (host, port, expected) in [
            ("shard", 6443, Some(vec!["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:7"])),
            ("shard", 8443, Some(vec!["10.0.0.4:2"])),
            ("dns", 5, Some(vec!["10.0.0.9:5"])),
            ("away", 6443, None),
            ("127.0.0.1", 5, Some(vec!["127.0.0.1:5"])),
        ] {
            let found = names.look_up(host, port).await.ok();
            let found = found.map(|found| found.iter().map(ToString::to_string).collect());
            let expected: Option<Vec<String>> =
                expected.map(|all| all.into_iter().map(ToOwned::to_owned).collect());
            assert_eq!(found, expected, "{host}:{port}");
        }
    }
}
