//! Shards, and the ways to them, fail and come back.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::timeout;

use crate::installation::Installation;
use crate::party::Party;
use crate::shard::Shard;
use crate::{LIMIT, SECOND, outage_seconds};

/// Repetitions of faults that are over at once.
const TIMES: usize = 5;

pub fn of_a_shard(installation: &Installation) -> BoxFuture<'_, ()> {
    killed_for(installation, &installation.gamma, SECOND).boxed()
}

pub fn of_the_root_shard(installation: &Installation) -> BoxFuture<'_, ()> {
    killed_for(installation, &installation.world.root, SECOND * outage_seconds()).boxed()
}

async fn killed_for(installation: &Installation, shard: &Shard, requests: u64) {
    shard.kill().await;
    is_noticed(installation.party(&shard.state.name)).await;
    installation.load.goes_on_for(requests).await;
    shard.restart().await;
}

/// The connections by which the index follows shards are cut, and nothing else.
pub fn of_the_index(installation: &Installation) -> BoxFuture<'_, ()> {
    async move {
        for _ in 0..TIMES {
            timeout(LIMIT, installation.cut_the_index()).await.expect("the index does not come back");
            installation.load.goes_on_for(SECOND / 4).await;
        }
    }
    .boxed()
}

/// The whole shard accepts, and never answers.
pub fn in_silence(installation: &Installation) -> BoxFuture<'_, ()> {
    async move {
        installation.relays.iter().for_each(|relay| relay.stop_answering());
        is_noticed(installation.party("gamma")).await;
        installation.load.goes_on_for(SECOND).await;
        installation.relays.iter().for_each(|relay| relay.answer());
    }
    .boxed()
}

/// The other side of every connection vanishes without a word; it can be called again at once.
pub fn half_open(installation: &Installation) -> BoxFuture<'_, ()> {
    async move {
        let gamma = installation.party("gamma");
        installation.relays.iter().for_each(|relay| relay.fall_silent());
        let all = u64::try_from(installation.load.watches.count(gamma)).unwrap();
        let ended = gamma.tally.until(|figures| figures.ended >= all);
        timeout(LIMIT, ended).await.expect("connections that pass nothing are kept");
    }
    .boxed()
}

/// One of two addresses of a shard accepts connections and never responds.
pub fn of_one_endpoint(installation: &Installation) -> BoxFuture<'_, ()> {
    async move {
        let gamma = installation.party("gamma");
        let watches = &installation.load.watches;
        let before = watches.ends(gamma);
        installation.relays[0].stop_answering();
        let ended = gamma.tally.until(|figures| figures.ended > 0);
        timeout(LIMIT, ended).await.expect("no watch was at the address that has fallen silent");
        installation.load.goes_on_for(SECOND).await;
        let unharmed = watches.ends(gamma).iter().zip(&before).filter(|(now, before)| now == before).count();
        assert!(unharmed > 0, "no watch was at the address that answers");
    }
    .boxed()
}

/// The gateway has noticed the fault, so it affects no request from now on.
pub fn that_is_known_already(installation: &Installation) -> BoxFuture<'_, ()> {
    installation.load.goes_on_for(SECOND * outage_seconds()).boxed()
}

pub fn over_for_one_endpoint(installation: &Installation) -> BoxFuture<'_, ()> {
    async move {
        installation.relays[0].answer();
        installation.load.goes_on_for(SECOND).await;
    }
    .boxed()
}

async fn is_noticed(party: &Party) {
    let noticed = party.tally.until(|figures| figures.refused > 0 && figures.watching == 0);
    let noticed = timeout(LIMIT, noticed).await;
    assert!(noticed.is_ok(), "{} is gone, and nobody notices: {:?}", party.name, party.tally.figures());
}
