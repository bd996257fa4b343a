//! One workspace that asks fifty times as much as its fair share of a shard, and what the others have of it: in requests
//! wherever this runs, and in time where `FAIRNESS_MOST` says how many times as long they may take (`make soak`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairlead_config::{ConcurrencyConfig, ConcurrencyPolicy, GatewayConfig, Timespan};
use futures_util::future::join_all;

use crate::shard::{WORKERS, Work};
use crate::world::{Another, Choices, Http2, World, connect};

/// Workspaces with one request at a time each: half of what the shard can do.
const QUIET: usize = 8;
/// Requests that the noisy one has open: fifty times its part of the shard's workers.
const NOISY: usize = 50 * WORKERS / (QUIET + 1);
/// Requests of each quiet workspace in each part of a round.
const REQUESTS: usize = 12;
const ROUNDS: usize = 4;

/// The settings that docs/gateway-limits.md shows.
fn fair(config: &mut GatewayConfig) {
    config.upstream.concurrency = ConcurrencyConfig {
        policy: ConcurrencyPolicy::Fixed,
        max_limit: u32::try_from(WORKERS).unwrap(),
        min_limit: 1,
        queue_timeout: Timespan::from_secs(30),
        ..ConcurrencyConfig::default()
    };
}

struct Tenants {
    gateway: Another,
    world: World,
    clients: Vec<Http2>,
}

impl Tenants {
    async fn start(change: fn(&mut GatewayConfig)) -> Self {
        let world = World::with(Choices { stopped: true, ..Choices::default() }).await;
        for number in 0..=QUIET {
            world.create_workspace("root", &format!("tenant-{number}"), "alpha", &id_of(number));
        }
        let gateway = world.another_gateway(change);
        gateway.gateway.ready().await;
        let user = world.user();
        let client = async || {
            let stream = connect(gateway.address, &world.serving_ca, Some(&user), b"h2").await.unwrap();
            Http2::over(stream).await
        };
        let mut clients = Vec::new();
        for _ in 0..=QUIET {
            clients.push(client().await);
        }
        Self { gateway, world, clients }
    }

    /// How long requests of the quiet ones take, one after the other in each workspace.
    async fn quiet(&self) -> Vec<Duration> {
        let tenants = (1..=QUIET).map(|number| async move {
            let mut times = Vec::new();
            for _ in 0..REQUESTS {
                let began = Instant::now();
                let answer = self.clients[number].get(&work_of(number)).await;
                assert_eq!(answer.status, 200, "{}", answer.text);
                times.push(began.elapsed());
            }
            times
        });
        join_all(tenants).await.concat()
    }

    /// The same while the noisy one asks as much as it can, and how often it was served meanwhile.
    async fn disturbed(&self) -> (Vec<Duration>, usize) {
        let stop = Arc::<AtomicBool>::default();
        let noise: Vec<_> = (0..NOISY)
            .map(|_| {
                let (client, stop) = (self.clients[0].clone(), Arc::clone(&stop));
                tokio::spawn(async move {
                    while !stop.load(Ordering::SeqCst) {
                        assert_eq!(client.get(&work_of(0)).await.status, 200);
                    }
                })
            })
            .collect();
        let before = self.asked();
        while self.asked() < before + 2 * WORKERS {
            tokio::task::yield_now().await;
        }
        let served_before = self.noise().done;
        let times = self.quiet().await;
        let served = self.noise().done - served_before;
        stop.store(true, Ordering::SeqCst);
        for one in noise {
            one.await.unwrap();
        }
        (times, served)
    }

    /// What the shard has had of the noisy one.
    fn noise(&self) -> Work {
        self.world.alpha.state.work.lock().get(&id_of(0)).copied().unwrap_or_default()
    }

    fn asked(&self) -> usize {
        self.world.alpha.state.requests.load(Ordering::SeqCst)
    }

    /// The quiet ones without the noisy one and with it, in turn.
    async fn measure(&self, rounds: usize) -> Measured {
        let (mut alone, mut disturbed, mut noise) = (Vec::new(), Vec::new(), 0);
        self.quiet().await;
        for _ in 0..rounds {
            alone.extend(self.quiet().await);
            let (times, served) = self.disturbed().await;
            disturbed.extend(times);
            noise += served;
        }
        let requests = disturbed.len();
        Measured {
            alone: p99(alone),
            disturbed: p99(disturbed),
            per_request: noise as f64 / requests as f64,
            most_open: self.noise().most_open,
        }
    }
}

/// What the quiet ones had of the noisy one.
struct Measured {
    /// The slowest of a hundred of their requests.
    alone: Duration,
    disturbed: Duration,
    /// Requests of the noisy one that were served for each of theirs.
    per_request: f64,
    /// Its requests that the shard had at the same time.
    most_open: usize,
}

impl Measured {
    fn ratio(&self) -> f64 {
        self.disturbed.as_secs_f64() / self.alone.as_secs_f64()
    }

    fn print(&self, what: &str) {
        println!(
            "{what}: p99 of {QUIET} quiet workspaces {:?} alone, {:?} beside {NOISY} requests of another: {:.2}; for each of \
             theirs {:.1} of its requests were served, and the shard had up to {} of them at a time",
            self.alone,
            self.disturbed,
            self.ratio(),
            self.per_request,
            self.most_open,
        );
    }
}

fn id_of(tenant: usize) -> String {
    format!("tenant{tenant:010}")
}

fn work_of(tenant: usize) -> String {
    format!("/clusters/root:tenant-{tenant}/api/v1/namespaces/a/configmaps/work")
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() * 99 / 100]
}

/// The quiet ones have half of the shard's workers taken, and so the noisy one has the other half: one of its requests for each of
/// theirs. Without the limit all that it asks is in front of them. The time of the quiet ones is asserted where no machine is slow
/// as well, `upstream/admission/fairness.rs`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_at_fifty_times_its_share_costs_others_little_and_without_the_limit_much() {
    let tenants = Tenants::start(fair).await;
    let fair = tenants.measure(ROUNDS).await;
    fair.print("with the limit");
    tenants.gateway.end().await;
    assert!(fair.most_open <= WORKERS, "{}", fair.most_open);
    if let Ok(most) = std::env::var("FAIRNESS_MOST") {
        assert!(fair.ratio() <= most.parse().unwrap(), "{:.2}", fair.ratio());
    }

    let unlimited = Tenants::start(|_| {}).await;
    let unlimited = unlimited.measure(1).await;
    unlimited.print("without it");
    assert!(unlimited.most_open > 3 * WORKERS, "{}", unlimited.most_open);
    assert!(
        unlimited.per_request > 2.0 * fair.per_request,
        "{:.1}, {:.1}",
        unlimited.per_request,
        fair.per_request
    );
}
