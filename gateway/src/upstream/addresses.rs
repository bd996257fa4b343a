//! Where a server's endpoints are, and which of them are worth trying.

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

/// How long a name's addresses are believed.
const TTL: Duration = Duration::from_secs(30);
/// How long a look-up of a name may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// The addresses of one server.
pub(super) struct Addresses {
    names: NameResolver,
    known: ArcSwap<KnownAddress>,
    looking_up: tokio::sync::Mutex<()>,
    health: Mutex<FxHashMap<SocketAddr, Arc<AddressHealth>>>,
    /// Whether those that are ejected are left out. Not if they are too many.
    leaves_out: AtomicBool,
    turn: AtomicUsize,
    /// When somebody last wanted to connect to one of them.
    asked: Mutex<Instant>,
}

/// How the addresses of a server are doing.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndpointStatus {
    /// How many there are, as far as anybody has asked.
    pub(crate) known: usize,
    /// Those that are ejected.
    pub(crate) ejected: Vec<(SocketAddr, Ejected)>,
    /// Whether those are left out.
    pub(crate) leaves_out: bool,
}

impl EndpointStatus {
    /// Whether any address is as it should be.
    pub(crate) fn is_healthy(&self) -> bool {
        self.known == 0 || self.ejected.len() < self.known
    }
}

#[derive(Debug, Default)]
struct KnownAddress {
    addresses: Vec<SocketAddr>,
    /// `None`: an address in numbers, which stays.
    expires: Option<Instant>,
}

impl Addresses {
    /// Nothing is looked up before it is asked for.
    pub(super) fn new(names: NameResolver) -> Self {
        Self {
            names,
            known: ArcSwap::default(),
            looking_up: tokio::sync::Mutex::default(),
            health: Mutex::default(),
            leaves_out: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
            asked: Mutex::new(Instant::now()),
        }
    }

    /// The addresses in the order in which they should be tried: those that are ejected last, those with the
    /// least load first, equal ones in turn. Empty if the name cannot be looked up.
    ///
    /// A name is looked up again by one request when its addresses are old, while the others go on with the old ones.
    pub(super) async fn in_order(
        &self,
        host: &str,
        port: u16,
        load: impl Fn(SocketAddr) -> usize,
        options: &HealthOptions,
    ) -> Vec<SocketAddr> {
        *self.asked.lock() = Instant::now();
        let (unknown, old) = {
            let known = self.known.load();
            (known.addresses.is_empty(), known.expires.is_some_and(|expiry| expiry <= Instant::now()))
        };
        if unknown {
            let _turn = self.looking_up.lock().await;
            if self.known.load().addresses.is_empty() {
                self.look_up(host, port, options).await;
            }
        } else if old && let Ok(_turn) = self.looking_up.try_lock() {
            self.look_up(host, port, options).await;
        }
        let mut ordered = self.known.load().addresses.clone();
        if let 2.. = ordered.len() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % ordered.len();
            ordered.rotate_left(turn);
            let health = self.health.lock();
            ordered.sort_by_cached_key(|address| (self.is_left_out(&health, *address), load(*address)));
        }
        ordered
    }

    /// How many endpoints there are that are not left out; at least one.
    pub(super) fn usable(&self) -> usize {
        let known = self.known.load();
        if known.addresses.len() <= 1 {
            return 1;
        }
        let health = self.health.lock();
        known.addresses.iter().filter(|address| !self.is_left_out(&health, **address)).count().max(1)
    }

    fn is_left_out(&self, health: &FxHashMap<SocketAddr, Arc<AddressHealth>>, address: SocketAddr) -> bool {
        self.leaves_out.load(Ordering::Relaxed) && health.get(&address).is_some_and(|health| health.is_out())
    }

    /// How an endpoint is doing, to be told of more.
    pub(super) fn health_of(&self, address: SocketAddr) -> Arc<AddressHealth> {
        Arc::clone(self.health.lock().entry(address).or_default())
    }

    /// Something failed at an endpoint. Returns until when it is ejected, if it is from now on.
    pub(super) fn failed(
        &self,
        address: SocketAddr,
        fault: Fault,
        options: &HealthOptions,
    ) -> Option<Instant> {
        let until = self.health_of(address).failed(fault, options)?;
        self.judge(options);
        Some(until)
    }

    /// Something was answered at an endpoint. Where nobody is left out, that is the end of an ejection.
    pub(super) fn succeeded(&self, health: &AddressHealth, options: &HealthOptions) {
        if health.succeeded() && !self.leaves_out() {
            health.put_back();
            self.judge(options);
        }
    }

    /// An ejected endpoint is used again.
    pub(super) fn put_back(&self, address: SocketAddr, options: &HealthOptions) {
        self.health_of(address).put_back();
        self.judge(options);
    }

    /// Until when an endpoint is ejected, if it is.
    pub(super) fn ejected_until(&self, address: SocketAddr) -> Option<Instant> {
        self.health.lock().get(&address)?.out().map(|out| out.until)
    }

    /// Whether endpoints that are ejected are left out.
    pub(super) fn leaves_out(&self) -> bool {
        self.leaves_out.load(Ordering::Relaxed)
    }

    /// Whether a look-up still finds an endpoint.
    pub(super) fn knows(&self, address: SocketAddr) -> bool {
        self.known.load().addresses.contains(&address)
    }

    /// For how long nobody has wanted to connect to any.
    pub(super) fn not_asked_for(&self) -> Duration {
        self.asked.lock().elapsed()
    }

    /// How they are doing.
    pub(super) fn standing(&self) -> EndpointStatus {
        let known = self.known.load();
        let health = self.health.lock();
        let ejected =
            known.addresses.iter().filter_map(|address| Some((*address, health.get(address)?.out()?)));
        EndpointStatus {
            known: known.addresses.len(),
            ejected: ejected.collect(),
            leaves_out: self.leaves_out(),
        }
    }

    /// Decides whether those that are ejected are left out.
    fn judge(&self, options: &HealthOptions) {
        let EndpointStatus { known, ejected, .. } = self.standing();
        let leaves_out = known > 1 && !ejected.is_empty() && !options.panics(ejected.len(), known);
        if self.leaves_out.swap(leaves_out, Ordering::Relaxed) && !leaves_out && !ejected.is_empty() {
            tracing::warn!(known, ejected = ejected.len(), "too many addresses fail: all are used");
        }
    }

    async fn look_up(&self, host: &str, port: u16, options: &HealthOptions) {
        if let Ok(address) = host.parse() {
            let addresses = vec![SocketAddr::new(address, port)];
            return self.known.store(Arc::new(KnownAddress { addresses, expires: None }));
        }
        let expires = Some(Instant::now() + TTL);
        let looked_up = tokio::time::timeout(LOOKUP_TIMEOUT, self.names.look_up(host, port)).await;
        let found = looked_up.ok().and_then(Result::ok).unwrap_or_default();
        let addresses = if found.is_empty() {
            tracing::warn!(host, "the address cannot be looked up");
            // What is known stays in use; it is not looked up again with every request.
            self.known.load().addresses.clone()
        } else {
            found
        };
        // An answer may name some of them only: whoever is out stays out, and what connections hold is what is told of more.
        self.health.lock().retain(|address, health| {
            addresses.contains(address) || health.is_out() || Arc::strong_count(health) > 1
        });
        self.known.store(Arc::new(KnownAddress { addresses, expires }));
        self.judge(options);
    }

    #[cfg(test)]
    fn of(addresses: &[SocketAddr]) -> Self {
        let known = KnownAddress { addresses: addresses.to_vec(), expires: None };
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
        addresses.put_back(address(2), &options());
        assert_eq!(addresses.usable(), 3);
    }

    #[tokio::test]
    async fn when_most_endpoints_fail_none_is_left_out_and_an_answer_is_the_end_of_it() {
        let addresses = Addresses::of(&[address(1), address(2), address(3)]);
        let standing = || {
            let EndpointStatus { ejected, leaves_out, .. } = addresses.standing();
            (ejected.len(), leaves_out)
        };
        assert!(addresses.failed(address(1), Fault::Connect, &options()).is_some());
        assert_eq!(standing(), (1, true));
        addresses.succeeded(&addresses.health_of(address(1)), &options());
        assert_eq!(standing(), (1, true), "of a request from before");
        assert!(addresses.failed(address(2), Fault::Connect, &options()).is_some());
        assert_eq!((standing(), addresses.usable()), ((2, false), 3));
        addresses.succeeded(&addresses.health_of(address(2)), &options());
        assert_eq!((standing(), addresses.usable()), ((1, true), 2));
        assert!(addresses.failed(address(2), Fault::Connect, &options()).is_some());
        assert!(addresses.failed(address(3), Fault::Connect, &options()).is_some());
        assert!(!addresses.standing().is_healthy());
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_up_that_finds_some_of_them_forgets_nothing_of_the_others() {
        let found = Arc::new(Mutex::new(vec![address(1), address(2), address(3)]));
        let answers = Arc::clone(&found);
        let names = NameResolver::from_fn(move |_, _| {
            let found = answers.lock().clone();
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
        assert_eq!((addresses.leaves_out(), addresses.usable()), (true, 2));
        look_up(&[address(2)]).await;
        assert!(!addresses.leaves_out(), "nobody who is known is out");
        look_up(&[address(1)]).await;
        assert!(!addresses.leaves_out(), "it is the only one");
        assert_eq!(look_up(&all).await.last(), Some(&address(1)));
        assert_eq!((addresses.leaves_out(), addresses.usable()), (true, 2));
        assert!(Arc::ptr_eq(&held, &addresses.health_of(address(3))), "its connections tell of the same one");
        let before = addresses.health_of(address(2));
        let replaced = Arc::downgrade(&before);
        drop(before);
        look_up(&[address(1), address(3)]).await;
        assert!(replaced.upgrade().is_none(), "nothing is kept of who is gone");
    }

    #[tokio::test]
    async fn equal_endpoints_take_turns() {
        let addresses = Addresses::of(&[address(1), address(2)]);
        let first = addresses.in_order("", 0, |_| 0, &options()).await;
        let second = addresses.in_order("", 0, |_| 0, &options()).await;
        assert_ne!(first.first(), second.first());
    }

    #[tokio::test]
    async fn an_address_in_numbers_needs_no_look_up() {
        let addresses = Addresses::new(NameResolver::system());
        assert_eq!(addresses.in_order("127.0.0.1", 6443, |_| 0, &options()).await, [address(1)]);
    }
}
