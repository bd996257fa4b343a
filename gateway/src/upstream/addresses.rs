//! Where a server's endpoints are, and which of them are worth trying.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use fairlead_client::Names;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::time::Instant;

/// How long a name's addresses are believed.
const TTL: Duration = Duration::from_secs(30);
/// How long a look-up of a name may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);
/// For how long an endpoint that could not be connected to is tried only after the others.
const PENALTY: Duration = Duration::from_secs(10);

/// The addresses of one server.
pub(super) struct Addresses {
    names: Names,
    known: ArcSwap<Known>,
    looking_up: tokio::sync::Mutex<()>,
    /// Until when an endpoint is avoided.
    avoided: Mutex<FxHashMap<SocketAddr, Instant>>,
    turn: AtomicUsize,
}

#[derive(Debug, Default)]
struct Known {
    addresses: Vec<SocketAddr>,
    /// `None`: an address in numbers, which stays.
    expires: Option<Instant>,
}

impl Addresses {
    /// Nothing is looked up before it is asked for.
    pub(super) fn new(names: Names) -> Self {
        Self {
            names,
            known: ArcSwap::default(),
            looking_up: tokio::sync::Mutex::default(),
            avoided: Mutex::default(),
            turn: AtomicUsize::new(0),
        }
    }

    /// The addresses in the order in which they should be tried: those that failed a moment ago last, those with the
    /// least load first, equal ones in turn. Empty if the name cannot be looked up.
    ///
    /// A name is looked up again by one request when its addresses are old, while the others go on with the old ones.
    pub(super) async fn in_order(
        &self,
        host: &str,
        port: u16,
        load: impl Fn(SocketAddr) -> usize,
    ) -> Vec<SocketAddr> {
        let (unknown, old) = {
            let known = self.known.load();
            (known.addresses.is_empty(), known.expires.is_some_and(|expiry| expiry <= Instant::now()))
        };
        if unknown {
            let _turn = self.looking_up.lock().await;
            if self.known.load().addresses.is_empty() {
                self.look_up(host, port).await;
            }
        } else if old && let Ok(_turn) = self.looking_up.try_lock() {
            self.look_up(host, port).await;
        }
        let mut ordered = self.known.load().addresses.clone();
        if let 2.. = ordered.len() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % ordered.len();
            ordered.rotate_left(turn);
            let now = Instant::now();
            let avoided = self.avoided.lock();
            let is_avoided = |address| avoided.get(&address).is_some_and(|until| *until > now);
            ordered.sort_by_cached_key(|address| (is_avoided(*address), load(*address)));
        }
        ordered
    }

    /// How many endpoints there are that did not fail a moment ago; at least one.
    pub(super) fn usable(&self) -> usize {
        let known = self.known.load();
        if known.addresses.len() <= 1 {
            return 1;
        }
        let now = Instant::now();
        let avoided = self.avoided.lock();
        let usable =
            known.addresses.iter().filter(|address| avoided.get(address).is_none_or(|until| *until <= now));
        usable.count().max(1)
    }

    /// The endpoint could not be connected to.
    pub(super) fn avoid(&self, address: SocketAddr) {
        let now = Instant::now();
        let mut avoided = self.avoided.lock();
        avoided.retain(|_, until| *until > now);
        avoided.insert(address, now + PENALTY);
    }

    async fn look_up(&self, host: &str, port: u16) {
        if let Ok(address) = host.parse() {
            let addresses = vec![SocketAddr::new(address, port)];
            return self.known.store(Arc::new(Known { addresses, expires: None }));
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
        self.known.store(Arc::new(Known { addresses, expires }));
    }

    #[cfg(test)]
    fn of(addresses: &[SocketAddr]) -> Self {
        let known = Known { addresses: addresses.to_vec(), expires: None };
        Self { known: ArcSwap::from_pointee(known), ..Self::new(Names::of_the_system()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, last], 6443))
    }

    #[tokio::test]
    async fn the_least_loaded_endpoint_comes_first_and_one_that_failed_last() {
        let addresses = Addresses::of(&[address(1), address(2), address(3)]);
        let load = |of: SocketAddr| if of == address(2) { 5 } else { 9 };
        for _ in 0..3 {
            assert_eq!(addresses.in_order("", 0, load).await.first(), Some(&address(2)));
        }
        addresses.avoid(address(2));
        assert_eq!(addresses.in_order("", 0, load).await.last(), Some(&address(2)));
        assert_eq!(addresses.usable(), 2);
    }

    #[tokio::test]
    async fn equal_endpoints_take_turns() {
        let addresses = Addresses::of(&[address(1), address(2)]);
        let first = addresses.in_order("", 0, |_| 0).await;
        let second = addresses.in_order("", 0, |_| 0).await;
        assert_ne!(first.first(), second.first());
    }

    #[tokio::test]
    async fn an_address_in_numbers_needs_no_look_up() {
        let addresses = Addresses::new(Names::of_the_system());
        assert_eq!(addresses.in_order("127.0.0.1", 6443, |_| 0).await, [address(1)]);
    }
}
