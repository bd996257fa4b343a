//! The election of the replica that leads: one at a time, replaced when it dies or resigns, and fenced.

use std::sync::Arc;
use std::time::Duration;

use fairlead_store::{CommitError, Expect, FencedStore, LEADER_KEY, Mutation, Range, Store, Term, TermEnd};
use fairlead_store_etcd::{EtcdOptions, EtcdStore, Timing};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::backend::runtime;
use crate::contract::subject::put;
use crate::etcd::{Cluster, is_left_out, options};
use crate::proxy::Proxy;

/// A lease that does not expire during a test.
const LONG: Duration = Duration::from_secs(3600);

/// A store with the name of a replica.
async fn replica(options: EtcdOptions, name: &str, lease: Duration) -> Arc<EtcdStore> {
    let timing = Timing { lease, ..options.timing };
    Arc::new(EtcdStore::open(EtcdOptions { replica: name.to_owned(), timing, ..options }).await.unwrap())
}

async fn lead(store: &EtcdStore) -> Term {
    timeout(Duration::from_secs(60), store.election().campaign()).await.expect("no term for a minute")
}

fn campaign(store: &Arc<EtcdStore>) -> JoinHandle<Term> {
    let store = Arc::clone(store);
    tokio::spawn(async move { store.election().campaign().await })
}

async fn won(campaign: JoinHandle<Term>) -> Term {
    timeout(Duration::from_secs(60), campaign).await.expect("no term for a minute").unwrap()
}

fn fenced(store: &Arc<EtcdStore>, term: &Term) -> FencedStore {
    FencedStore::new(store.clone(), term.clone())
}

/// Two replicas, and the term of the first one.
async fn leader_and_follower(cluster: &Cluster, lease: Duration) -> (Arc<EtcdStore>, Arc<EtcdStore>, Term) {
    let one = replica(cluster.options(), "one", lease).await;
    let two = replica(cluster.options(), "two", lease).await;
    let term = lead(&one).await;
    (one, two, term)
}

/// Waits until a store knows the leader.
async fn until_leader_is(store: &EtcdStore, name: &str) {
    let known = async {
        while store.election().leader().as_deref() != Some(name) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(60), known).await.expect("another leader for a minute");
}

#[test]
fn one_replica_leads_until_it_resigns_and_the_next_one_at_once() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let (one, two, first) = leader_and_follower(&cluster, LONG).await;
        let waiting = campaign(&two);
        until_leader_is(&two, "one").await;
        fenced(&one, &first).commit(vec![Mutation::put("a", "1")]).await.unwrap();
        assert!(!waiting.is_finished() && !first.is_over());

        one.election().resign(&first).await;
        let second = won(waiting).await;
        assert!(matches!(first.ended().await, TermEnd::Resigned));
        assert!(second.revision() > first.revision());
        assert_eq!(two.get(b"a").unwrap().unwrap().value, "1", "the copy has the commits of the first term");
        until_leader_is(&one, "two").await;
        // A late resignation does not end the term of another replica.
        one.election().resign(&first).await;
        fenced(&two, &second).commit(vec![Mutation::put("a", "2")]).await.unwrap();
    });
}

#[test]
fn a_deposed_leader_commits_nothing() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let (one, two, first) = leader_and_follower(&cluster, LONG).await;
        let leader = fenced(&one, &first);
        let most = leader.limits().mutations;
        let puts = (0..most).map(|key| Mutation::put(format!("key-{key}"), "1")).collect();
        leader.commit(puts).await.unwrap();
        leader.commit(vec![Mutation::fence("key-0", Expect::Present)]).await.unwrap();
        leader.commit(vec![Mutation::delete("absent", Expect::Any)]).await.unwrap();

        one.election().resign(&first).await;
        let second = lead(&two).await;
        let changes = [
            vec![Mutation::put("key-0", "2")],
            vec![Mutation::delete("key-0", Expect::Any)],
            vec![Mutation::fence("key-0", Expect::Present)],
        ];
        for mutations in changes {
            // As in a process that has not noticed the end of its term.
            let late = FencedStore::new(one.clone(), Term::new(first.revision()));
            let refused = late.commit(mutations).await;
            assert!(matches!(refused, Err(CommitError::NotLeader)), "{refused:?}");
        }
        fenced(&two, &second).commit(vec![Mutation::put("end", "1")]).await.unwrap();
        assert_eq!(two.get(b"key-0").unwrap().unwrap().value, "1");
    });
}

#[test]
fn the_key_of_the_leader_is_in_no_read_and_no_feed() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let one = replica(cluster.options(), "one", LONG).await;
        let mut follower = one.follow(one.revision()).unwrap();
        let term = lead(&one).await;
        fenced(&one, &term).commit(vec![Mutation::put("a", "1")]).await.unwrap();
        let batch = follower.next().await.unwrap();
        assert_eq!(batch.events.iter().map(|event| &event.key[..]).collect::<Vec<_>>(), [b"a"]);
        // A copy that reads the whole prefix.
        let two = replica(cluster.options(), "two", LONG).await;
        for store in [&one, &two] {
            let keys: Vec<_> = store.list(&Range::all(), None, None).unwrap().records;
            assert_eq!(keys.iter().map(|record| &record.key[..]).collect::<Vec<_>>(), [b"a"]);
            assert_eq!(store.get(LEADER_KEY).unwrap(), None);
        }
    });
}

#[test]
fn the_term_of_a_leader_without_connection_is_over_before_the_next_one() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let proxy = Proxy::start(cluster.client_port(0)).await;
        let one = replica(options(vec![proxy.url()]), "one", Duration::from_secs(2)).await;
        let two = replica(cluster.options(), "two", Duration::from_secs(2)).await;
        let first = lead(&one).await;
        let waiting = campaign(&two);
        until_leader_is(&two, "one").await;
        // A short interruption changes nothing.
        proxy.lead_to(None);
        proxy.lead_to(Some(cluster.client_port(0)));
        crate::etcd::commit_when_available(&*one, vec![Mutation::put("a", "0")]).await;
        assert!(!first.is_over() && !waiting.is_finished());

        proxy.lead_to(None);
        let second = won(waiting).await;
        assert!(first.is_over());
        assert!(matches!(first.ended().await, TermEnd::Lost(_)));
        put(&*two, "a", "1").await;
        proxy.lead_to(Some(cluster.client_port(0)));
        crate::etcd::commit_when_available(&*one, vec![Mutation::put("b", "1")]).await;
        let late = FencedStore::new(one.clone(), Term::new(first.revision()));
        let refused = late.commit(vec![Mutation::put("a", "2")]).await;
        assert!(matches!(refused, Err(CommitError::NotLeader)), "{refused:?}");
        two.election().resign(&second).await;
        let third = lead(&one).await;
        fenced(&one, &third).commit(vec![Mutation::put("a", "3")]).await.unwrap();
    });
}

#[test]
fn a_replica_leads_again_after_etcd_was_started_again() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let mut cluster = Cluster::start(1).await;
        let (one, two, first) = leader_and_follower(&cluster, Duration::from_secs(2)).await;
        let waiting = campaign(&two);
        cluster.kill(0);
        let lost = timeout(Duration::from_secs(60), first.ended()).await.unwrap();
        assert!(matches!(lost, TermEnd::Lost(_)), "{lost}");
        cluster.start_member(0);
        // The first replica takes its own key over, or the lease has expired and the other one is faster.
        let (store, term) = tokio::select! {
            term = lead(&one) => (&one, term),
            term = won(waiting) => (&two, term),
        };
        assert!(term.revision() > first.revision());
        fenced(store, &term).commit(vec![Mutation::put("a", "1")]).await.unwrap();
    });
}

#[test]
fn a_dropped_campaign_holds_nothing() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let (one, two, first) = leader_and_follower(&cluster, LONG).await;
        let dropped = campaign(&two);
        until_leader_is(&two, "one").await;
        dropped.abort();
        assert!(dropped.await.unwrap_err().is_cancelled());
        one.election().resign(&first).await;
        let second = lead(&one).await;
        assert!(second.revision() > first.revision());
    });
}

/// Prints how long a shard is without a leader. `cargo test --release -p fairlead-store-etcd --test suite -- --ignored
/// --nocapture without_a_leader`
#[test]
#[ignore = "a measurement"]
fn times_without_a_leader() {
    const ROUNDS: u32 = 20;
    runtime().block_on(async {
        for (members, settings) in
            [(1, "its defaults"), (3, "its defaults"), (3, "an election timeout of 0.5 s")]
        {
            let defaults: &[&str] = &["--heartbeat-interval", "100", "--election-timeout", "1000"];
            let arguments = if settings == "its defaults" { defaults } else { &[] };
            let cluster = Cluster::start_with(members, arguments).await;
            let urls = |cluster: &Cluster| (0..members).map(|member| cluster.client_url(member)).collect();
            let timed = EtcdOptions { timing: Timing::default(), ..options(urls(&cluster)) };
            let two = replica(timed.clone(), "two", Duration::from_secs(2)).await;
            let mut times = [Vec::new(), Vec::new()];
            for round in 0..ROUNDS {
                for (is_resignation, times) in [false, true].into_iter().zip(&mut times) {
                    let proxy = Proxy::start(cluster.client_port(round as usize % members)).await;
                    let dying = EtcdOptions { endpoints: vec![proxy.url()], ..timed.clone() };
                    let one = replica(dying, "one", Duration::from_secs(2)).await;
                    let term = lead(&one).await;
                    let waiting = campaign(&two);
                    until_leader_is(&two, "one").await;
                    // The age of the lease differs from round to round.
                    tokio::time::sleep(Duration::from_millis(u64::from(137 * round % 500))).await;
                    let started = Instant::now();
                    if is_resignation {
                        one.election().resign(&term).await
                    } else {
                        proxy.lead_to(None)
                    }
                    let term = won(waiting).await;
                    times.push(started.elapsed());
                    two.election().resign(&term).await;
                }
            }
            for (what, times) in ["death", "resignation"].into_iter().zip(&mut times) {
                times.sort();
                println!(
                    "etcd with {members} members, {settings}: {what}: median {:?}, longest {:?} of {}",
                    times[times.len() / 2],
                    times[times.len() - 1],
                    times.len()
                );
            }
        }
    });
}
