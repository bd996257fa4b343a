//! Readiness by the state of the store.
//!
//! | check | endpoints | fails |
//! |---|---|---|
//! | `store` | `/readyz`, `/healthz` | the store accepts no commits for good, or another cluster is at the address of etcd |
//! | `store-current`, on etcd only | `/readyz` | etcd has been lost for longer than `readyWithoutEtcd`; by default never |
//!
//! Neither is part of `/livez`: a restart brings neither a disk nor etcd back, and a server without etcd could not start again.

use std::sync::Arc;

use fairlead_config::StoreConfig;
use fairlead_process::{Health, Probe};
use fairlead_store::{ServerStats, Store};

/// Adds the checks of a store.
pub fn check_store(health: &Health, store: &Arc<dyn Store>, config: &StoreConfig) {
    let probed = store.clone();
    health.check("store", &[Probe::Ready, Probe::Health], move || probed.stats().failure.map_or(Ok(()), Err));
    if !config.etcd.is_used() {
        return;
    }
    let (probed, limit) = (store.clone(), config.etcd.ready_without_etcd.get());
    let server = move || probed.stats().server.unwrap_or_default();
    if limit.is_zero() {
        // Shown by `?verbose`. Another replica may be no better, so the operator has to say that it is.
        health.note("store-current", &[Probe::Ready], move || staleness(&server()));
    } else {
        health.check("store-current", &[Probe::Ready], move || {
            let server = server();
            match staleness(&server) {
                Some(reason) if server.disconnected > limit => Err(reason),
                _ => Ok(()),
            }
        });
    }
}

/// The reason why reads may be stale; `None` while there is a connection.
fn staleness(server: &ServerStats) -> Option<String> {
    let lost = server.disconnected.as_secs();
    let age = server.view_age.as_secs();
    (server.connected.is_none() && !server.disconnected.is_zero())
        .then(|| format!("etcd has been lost for {lost} s; reads are as of {age} s ago"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn reads_are_stale_only_without_a_connection() {
        let mut server = ServerStats::default();
        assert_eq!(staleness(&server), None, "a store that is being opened or closed");
        server.view_age = Duration::from_millis(14_900);
        server.disconnected = Duration::from_millis(12_100);
        let expected = "etcd has been lost for 12 s; reads are as of 14 s ago";
        assert_eq!(staleness(&server).as_deref(), Some(expected));
        server.connected = Some("http://a:2379".to_owned());
        server.disconnected = Duration::ZERO;
        assert_eq!(staleness(&server), None);
    }
}
