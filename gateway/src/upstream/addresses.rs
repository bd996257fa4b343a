//! The resolved endpoints of a server, and the order in which they are tried.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use fairlead_client::NameResolver;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use crate::upstream::health::{AddressHealth, Ejected, Fault, HealthOptions};

/// Time for which the addresses of a name are cached.
const TTL: Duration = Duration::from_secs(30);
/// Time limit of one look-up.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// The addresses of one server.
pub(super) struct Addresses {
    names: NameResolver,
    known: ArcSwap<KnownAddresses>,
    look_up_lock: tokio::sync::Mutex<()>,
    health: Mutex<FxHashMap<SocketAddr, Arc<AddressHealth>>>,
    /// True while ejected addresses are skipped; false if too many are ejected.
    excludes_ejected: AtomicBool,
    /// Counter for the rotation of equally loaded addresses.
    rotation: AtomicUsize,
    /// Time of the last attempt to connect to one of them.
    last_attempt: Mutex<Instant>,
}

/// The health of a server's addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndpointStatus {
    /// Number of addresses, as of the last look-up.
    pub(crate) known: usize,
    /// The ejected addresses.
    pub(crate) ejected: Vec<(SocketAddr, Ejected)>,
    /// True while the ejected addresses are skipped.
    pub(crate) excludes_ejected: bool,
}

impl EndpointStatus {
    /// True if at least one address is healthy.
    pub(crate) fn is_healthy(&self) -> bool {
        self.known == 0 || self.ejected.len() < self.known
    }
}

#[derive(Debug, Default)]
struct KnownAddresses {
    addresses: Vec<SocketAddr>,
    /// `None` for an IP address, which does not expire.
    expires: Option<Instant>,
}

impl Addresses {
    /// A set without addresses. The name is looked up at the first use.
    pub(super) fn new(names: NameResolver) -> Self {
        Self {
            names,
            known: ArcSwap::default(),
            look_up_lock: tokio::sync::Mutex::default(),
            health: Mutex::default(),
            excludes_ejected: AtomicBool::new(false),
            rotation: AtomicUsize::new(0),
            last_attempt: Mutex::new(Instant::now()),
        }
    }

    /// The addresses in the order in which they should be tried: ejected ones last, those with the least load first, equal ones in
    /// rotation. Empty if the name cannot be looked up.
    ///
    /// One request looks up a name again when its addresses have expired; the others continue with the old addresses.
    pub(super) async fn in_order(
        &self,
        host: &str,
        port: u16,
        load: impl Fn(SocketAddr) -> usize,
        options: &HealthOptions,
    ) -> Vec<SocketAddr> {
        *self.last_attempt.lock() = Instant::now();
        let (unknown, old) = {
            let known = self.known.load();
            (known.addresses.is_empty(), known.expires.is_some_and(|expiry| expiry <= Instant::now()))
        };
        if unknown {
            let _looking_up = self.look_up_lock.lock().await;
            if self.known.load().addresses.is_empty() {
                self.look_up(host, port, options).await;
            }
        } else if old && let Ok(_looking_up) = self.look_up_lock.try_lock() {
            self.look_up(host, port, options).await;
        }
        let mut ordered = self.known.load().addresses.clone();
        if let 2.. = ordered.len() {
            let offset = self.rotation.fetch_add(1, Ordering::Relaxed) % ordered.len();
            ordered.rotate_left(offset);
            let health = self.health.lock();
            ordered.sort_by_cached_key(|address| (self.is_excluded(&health, *address), load(*address)));
        }
        ordered
    }

    /// True if there is more than one address, as of the last look-up.
    pub(super) fn are_several(&self) -> bool {
        self.known.load().addresses.len() > 1
    }

    /// Number of endpoints that are not skipped; at least one.
    pub(super) fn usable(&self) -> usize {
        let known = self.known.load();
        if known.addresses.len() <= 1 {
            return 1;
        }
        let health = self.health.lock();
        known.addresses.iter().filter(|address| !self.is_excluded(&health, **address)).count().max(1)
    }

    fn is_excluded(&self, health: &FxHashMap<SocketAddr, Arc<AddressHealth>>, address: SocketAddr) -> bool {
        self.excludes_ejected.load(Ordering::Relaxed)
            && health.get(&address).is_some_and(|health| health.is_ejected())
    }

    /// The health record of an endpoint, which its connections report to.
    pub(super) fn health_of(&self, address: SocketAddr) -> Arc<AddressHealth> {
        Arc::clone(self.health.lock().entry(address).or_default())
    }

    /// Records a failure at an endpoint. Returns the end of the ejection if this failure ejects it.
    pub(super) fn failed(
        &self,
        address: SocketAddr,
        fault: Fault,
        options: &HealthOptions,
    ) -> Option<Instant> {
        let until = self.health_of(address).failed(fault, options)?;
        self.evaluate(options);
        Some(until)
    }

    /// Records a response from an endpoint. While ejected endpoints are not skipped, it ends the ejection.
    pub(super) fn succeeded(&self, health: &AddressHealth, options: &HealthOptions) {
        if health.succeeded() && !self.excludes_ejected() {
            health.end_ejection();
            self.evaluate(options);
        }
    }

    /// Ends the ejection of an endpoint.
    pub(super) fn end_ejection(&self, address: SocketAddr, options: &HealthOptions) {
        self.health_of(address).end_ejection();
        self.evaluate(options);
    }

    /// The end of an endpoint's ejection, if it is ejected.
    pub(super) fn ejected_until(&self, address: SocketAddr) -> Option<Instant> {
        self.health.lock().get(&address)?.ejection().map(|ejection| ejection.until)
    }

    /// True while ejected endpoints are skipped.
    pub(super) fn excludes_ejected(&self) -> bool {
        self.excludes_ejected.load(Ordering::Relaxed)
    }

    /// True if the last look-up contained the endpoint.
    pub(super) fn contains(&self, address: SocketAddr) -> bool {
        self.known.load().addresses.contains(&address)
    }

    /// Time since the last attempt to connect to any endpoint.
    pub(super) fn time_since_attempt(&self) -> Duration {
        self.last_attempt.lock().elapsed()
    }

    /// The current health of the addresses.
    pub(super) fn status(&self) -> EndpointStatus {
        let known = self.known.load();
        let health = self.health.lock();
        let ejected =
            known.addresses.iter().filter_map(|address| Some((*address, health.get(address)?.ejection()?)));
        EndpointStatus {
            known: known.addresses.len(),
            ejected: ejected.collect(),
            excludes_ejected: self.excludes_ejected(),
        }
    }

    /// Decides whether the ejected addresses are skipped.
    fn evaluate(&self, options: &HealthOptions) {
        let EndpointStatus { known, ejected, .. } = self.status();
        let excludes_ejected =
            known > 1 && !ejected.is_empty() && !options.exceeds_panic_threshold(ejected.len(), known);
        if self.excludes_ejected.swap(excludes_ejected, Ordering::Relaxed)
            && !excludes_ejected
            && !ejected.is_empty()
        {
            tracing::warn!(known, ejected = ejected.len(), "too many addresses fail: all are used");
        }
    }

    async fn look_up(&self, host: &str, port: u16, options: &HealthOptions) {
        if let Ok(address) = host.parse() {
            let addresses = vec![SocketAddr::new(address, port)];
            return self.known.store(Arc::new(KnownAddresses { addresses, expires: None }));
        }
        let expires = Some(Instant::now() + TTL);
        let looked_up = tokio::time::timeout(LOOKUP_TIMEOUT, self.names.look_up(host, port)).await;
        let found = looked_up.ok().and_then(Result::ok).unwrap_or_default();
        let addresses = if found.is_empty() {
            tracing::warn!(host, "the host name cannot be resolved");
            // The known addresses stay in use, with a new expiry, so that not every request looks the name up again.
            self.known.load().addresses.clone()
        } else {
            found
        };
        // A DNS response may contain a subset of the addresses: ejected ones are kept, and so are records that connections hold.
        self.health.lock().retain(|address, health| {
            addresses.contains(address) || health.is_ejected() || Arc::strong_count(health) > 1
        });
        self.known.store(Arc::new(KnownAddresses { addresses, expires }));
        self.evaluate(options);
    }

    #[cfg(test)]
    fn of(addresses: &[SocketAddr]) -> Self {
        let known = KnownAddresses { addresses: addresses.to_vec(), expires: None };
        Self { known: ArcSwap::from_pointee(known), ..Self::new(NameResolver::system()) }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn options() -> HealthOptions {
        HealthOptions::new(&fairlead_config::HealthConfig::default())
    }

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, last], 6443))
    }

    #[tokio::test]
    async fn the_least_loaded_endpoint_comes_first_and_one_that_failed_last() {
        let addresses = Addresses::of(&[address(1), address(2), address(3)]);
        let load = |of: SocketAddr| if of == address(2) { 5 } else { 9 };
        for _ in 0..3 {
            assert_eq!(addresses.in_order("", 0, load, &options()).await.first(), Some(&address(2)));
        }
        assert!(addresses.failed(address(2), Fault::Connect, &options()).is_some());
        assert_eq!(addresses.in_order("", 0, load, &options()).await.last(), Some(&address(2)));
        assert_eq!(addresses.usable(), 2);
        addresses.end_ejection(address(2), &options());
        assert_eq!(addresses.usable(), 3);
    }

    #[tokio::test]
    async fn if_most_endpoints_fail_none_is_skipped_and_a_response_ends_an_ejection() {
        let addresses = Addresses::of(&[address(1), address(2), address(3)]);
        let status = || {
            let EndpointStatus { ejected, excludes_ejected, .. } = addresses.status();
            (ejected.len(), excludes_ejected)
        };
        assert!(addresses.failed(address(1), Fault::Connect, &options()).is_some());
        assert_eq!(status(), (1, true));
        addresses.succeeded(&addresses.health_of(address(1)), &options());
        assert_eq!(status(), (1, true), "of a request from before");
        assert!(addresses.failed(address(2), Fault::Connect, &options()).is_some());
        assert_eq!((status(), addresses.usable()), ((2, false), 3));
        addresses.succeeded(&addresses.health_of(address(2)), &options());
        assert_eq!((status(), addresses.usable()), ((1, true), 2));
        assert!(addresses.failed(address(2), Fault::Connect, &options()).is_some());
        assert!(addresses.failed(address(3), Fault::Connect, &options()).is_some());
        assert!(!addresses.status().is_healthy());
    }

    #[tokio::test(start_paused = true)]
    async fn a_partial_look_up_keeps_the_health_of_the_other_addresses() {
        let found = Arc::new(Mutex::new(vec![address(1), address(2), address(3)]));
        let resolved = Arc::clone(&found);
        let names = NameResolver::from_fn(move |_, _| {
            let found = resolved.lock().clone();
            async move { Ok(found) }.boxed()
        });
        let (addresses, options) = (Addresses::new(names), options());
        let look_up = async |all: &[SocketAddr]| {
            *found.lock() = all.to_vec();
            tokio::time::advance(TTL).await;
            addresses.in_order("shard", 6443, |_| 0, &options).await
        };
        let all = [address(1), address(2), address(3)];
        look_up(&all).await;
        let held = addresses.health_of(address(3));
        assert!(addresses.failed(address(1), Fault::Connect, &options).is_some());
        assert_eq!((addresses.excludes_ejected(), addresses.usable()), (true, 2));
        look_up(&[address(2)]).await;
        assert!(!addresses.excludes_ejected(), "no known address is ejected");
        look_up(&[address(1)]).await;
        assert!(!addresses.excludes_ejected(), "it is the only one");
        assert_eq!(look_up(&all).await.last(), Some(&address(1)));
        assert_eq!((addresses.excludes_ejected(), addresses.usable()), (true, 2));
        assert!(Arc::ptr_eq(&held, &addresses.health_of(address(3))), "its connections tell of the same one");
        let before = addresses.health_of(address(2));
        let replaced = Arc::downgrade(&before);
        drop(before);
        look_up(&[address(1), address(3)]).await;
        assert!(replaced.upgrade().is_none(), "the record of a removed address is dropped");
    }

    #[tokio::test]
    async fn equally_loaded_endpoints_are_used_in_rotation() {
        let addresses = Addresses::of(&[address(1), address(2)]);
        let first = addresses.in_order("", 0, |_| 0, &options()).await;
        let second = addresses.in_order("", 0, |_| 0, &options()).await;
        assert_ne!(first.first(), second.first());
    }

    #[tokio::test]
    async fn an_ip_address_needs_no_look_up() {
        let addresses = Addresses::new(NameResolver::system());
        assert_eq!(addresses.in_order("127.0.0.1", 6443, |_| 0, &options()).await, [address(1)]);
    }
}
