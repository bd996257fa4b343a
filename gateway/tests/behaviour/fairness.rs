//! One workspace that asks fifty times as much as its fair share of a shard, and what the others have of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairlead_config::{ConcurrencyConfig, ConcurrencyPolicy, GatewayConfig, Timespan};
use futures_util::future::join_all;

use crate::shard::WORKERS;
use crate::world::{Another, Choices, Http2, World, connect};

/// Workspaces with one request at a time each: half of what the shard can do.
const QUIET: usize = 8;
/// Requests that the noisy one has open: fifty times its part of the shard's workers.
const NOISY: usize = 50 * WORKERS / (QUIET + 1);
/// Requests of each quiet workspace in each part of a round.
const REQUESTS: usize = 12;
const ROUNDS: usize = 4;

/// The settings that README.md shows.
fn fair(config: &mut GatewayConfig) {
    config.upstream.concurrency = ConcurrencyConfig {
        limit: ConcurrencyPolicy::Fixed,
        most: u32::try_from(WORKERS).unwrap(),
        least: 1,
        patience: Timespan::from_secs(30),
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
            let id = format!("tenant{number:010}");
            world.create_workspace("root", &format!("tenant-{number}"), "alpha", &id);
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

    /// The same while the noisy one asks as much as it can.
    async fn disturbed(&self) -> Vec<Duration> {
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
        let times = self.quiet().await;
        stop.store(true, Ordering::SeqCst);
        for one in noise {
            one.await.unwrap();
        }
        times
    }

    fn asked(&self) -> usize {
        self.world.alpha.state.requests.load(Ordering::SeqCst)
    }

    /// The slowest of a hundred of the quiet ones, without the noisy one and with it, in turn.
    async fn measure(&self, rounds: usize) -> (Duration, Duration) {
        let (mut alone, mut disturbed) = (Vec::new(), Vec::new());
        self.quiet().await;
        for _ in 0..rounds {
            alone.extend(self.quiet().await);
            disturbed.extend(self.disturbed().await);
        }
        (p99(alone), p99(disturbed))
    }
}

fn work_of(tenant: usize) -> String {
    format!("/clusters/root:tenant-{tenant}/api/v1/namespaces/a/configmaps/work")
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() * 99 / 100]
}

fn ratio((alone, disturbed): (Duration, Duration)) -> f64 {
    disturbed.as_secs_f64() / alone.as_secs_f64()
}

/// The figure itself, 1.5, is asserted where no machine is slow: `upstream/admission/fairness.rs`. Here it is printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_at_fifty_times_its_share_costs_others_little_and_without_the_limit_much() {
    let tenants = Tenants::start(fair).await;
    let times = tenants.measure(ROUNDS).await;
    let fair = ratio(times);
    println!(
        "p99 of {QUIET} quiet workspaces: {:?} alone, {:?} beside {NOISY} requests of another: {fair:.2}",
        times.0, times.1
    );
    tenants.gateway.end().await;

    // Without them the shard has everything at once, and the quiet ones stand behind it all.
    let unlimited = Tenants::start(|_| {}).await;
    let times = unlimited.measure(1).await;
    println!("the same without these settings: {:?}, {:?}: {:.2}", times.0, times.1, ratio(times));
    assert!(ratio(times) > 1.5 * fair, "{fair:.2}, {times:?}");
}
