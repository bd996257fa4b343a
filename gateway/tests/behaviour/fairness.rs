//! Fairness between the workspaces of a shard when one sends fifty times its share: counted in requests on every machine, and
//! measured in time where `FAIRNESS_MOST` sets the largest allowed slowdown (`make soak`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairlead_config::{ConcurrencyConfig, ConcurrencyPolicy, GatewayConfig, Timespan};
use futures_util::future::join_all;

use crate::shard::{WORKERS, Work};
use crate::world::{Choices, Http2, SecondGateway, World, connect};

/// Number of quiet workspaces, with one request at a time each: half of what the shard can do.
const QUIET: usize = 8;
/// Number of open requests of the noisy workspace: fifty times its share of the shard's workers.
const NOISY: usize = 50 * WORKERS / (QUIET + 1);
/// Number of requests of each quiet workspace in each part of a round.
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
    gateway: SecondGateway,
    world: World,
    clients: Vec<Http2>,
}

impl Tenants {
    async fn start(change: fn(&mut GatewayConfig)) -> Self {
        let world = World::with(Choices { stopped: true, ..Choices::default() }).await;
        for number in 0..=QUIET {
            world.create_workspace("root", &format!("tenant-{number}"), "alpha", &id_of(number));
        }
        let gateway = world.start_second_gateway(change);
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

    /// The durations of requests of the quiet workspaces, which are sent one after the other in each workspace.
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

    /// The same while the noisy workspace sends as much as it can, and the number of its requests that were served meanwhile.
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

    /// The shard's counts of the noisy workspace's requests.
    fn noise(&self) -> Work {
        self.world.alpha.state.work.lock().get(&id_of(0)).copied().unwrap_or_default()
    }

    fn asked(&self) -> usize {
        self.world.alpha.state.requests.load(Ordering::SeqCst)
    }

    /// Measures the quiet workspaces alternately without and with the noisy one.
    async fn measure(&self, rounds: usize) -> Measurement {
        let (mut alone, mut disturbed, mut noise) = (Vec::new(), Vec::new(), 0);
        self.quiet().await;
        for _ in 0..rounds {
            alone.extend(self.quiet().await);
            let (times, served) = self.disturbed().await;
            disturbed.extend(times);
            noise += served;
        }
        let requests = disturbed.len();
        Measurement {
            alone: p99(alone),
            disturbed: p99(disturbed),
            per_request: noise as f64 / requests as f64,
            most_open: self.noise().most_open,
        }
    }
}

/// The result of a measurement.
struct Measurement {
    /// The 99th percentile of the quiet workspaces' request durations, without the noisy one and with it.
    alone: Duration,
    disturbed: Duration,
    /// Number of requests of the noisy workspace that were served per request of a quiet one.
    per_request: f64,
    /// Maximum number of requests of the noisy workspace that the shard had at the same time.
    most_open: usize,
}

impl Measurement {
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

/// The quiet workspaces occupy half of the shard's workers, so with the limit the noisy one has the other half: one of its
/// requests for each of theirs. Without the limit all of its requests are ahead of theirs. `upstream/admission/fairness.rs`
/// asserts the time of the quiet ones, independently of the speed of the machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_protects_workspaces_from_one_at_fifty_times_its_share() {
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
