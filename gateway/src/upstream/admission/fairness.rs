//! Fairness between workspaces when one of them sends fifty times its fair share. The time is simulated, so that only the
//! queue decides: the shard processes a fixed number of requests at a time, and the speed of the machine does not matter.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::atomic::AtomicBool;

use fairlead_config::ConcurrencyConfig;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::*;

const WORKERS: u32 = 16;
/// Workspaces with one open request each: half of the shard's capacity.
const QUIET: u64 = 8;
/// Open requests of the noisy workspace: fifty times its share of the workers.
const NOISY: u64 = 50 * WORKERS as u64 / (QUIET + 1);
const REQUESTS: usize = 500;

/// A shard with its admission queue.
struct Scene {
    admission: Arc<Admission>,
    options: AdmissionOptions,
    workers: Semaphore,
    number: AtomicU32,
}

impl Scene {
    fn new(limit: ConcurrencyPolicy) -> Arc<Self> {
        let config = ConcurrencyConfig {
            policy: limit,
            max_limit: WORKERS,
            min_limit: 1,
            ..ConcurrencyConfig::default()
        };
        Arc::new(Self {
            admission: Arc::default(),
            options: AdmissionOptions::new(&config),
            workers: Semaphore::new(WORKERS as usize),
            number: AtomicU32::new(0),
        })
    }

    /// Sends one request and returns its duration.
    async fn ask(&self, flow: u64, priority: Priority) -> Duration {
        let began = tokio::time::Instant::now();
        let flow_key = FlowKey { flow, priority, writes: false };
        let permit = match self.admission.try_admit(flow_key, self.options) {
            Some(permit) => permit,
            None => self.admission.admit(flow_key, self.options).await.unwrap(),
        };
        let _worker = self.workers.acquire().await.unwrap();
        let number = self.number.fetch_add(1, Ordering::SeqCst);
        // Durations vary, because otherwise requests that began together would always end together.
        sleep(Duration::from_micros(5_000 + u64::from(number) * 3_701 % 10_000)).await;
        permit.response_started();
        began.elapsed()
    }

    /// The slowest of a hundred requests of the quiet workspaces, while another has `noisy` open requests.
    async fn p99(self: Arc<Self>, noisy: u64, urgency: Priority) -> Duration {
        let stop = Arc::<AtomicBool>::default();
        for _ in 0..noisy {
            let (scene, stop) = (Arc::clone(&self), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    scene.ask(0, urgency).await;
                }
            });
        }
        let quiet = (1..=QUIET).map(|flow| {
            let scene = Arc::clone(&self);
            tokio::spawn(async move {
                let mut times = Vec::new();
                for _ in 0..REQUESTS {
                    times.push(scene.ask(flow, Priority::Normal).await);
                }
                times
            })
        });
        let mut times = Vec::new();
        for one in quiet.collect::<Vec<_>>() {
            times.extend(one.await.unwrap());
        }
        stop.store(true, Ordering::SeqCst);
        times.sort();
        times[times.len() * 99 / 100]
    }
}

#[tokio::test(start_paused = true)]
async fn a_workspace_at_fifty_times_its_share_costs_others_less_than_half_of_their_time_more() {
    use ConcurrencyPolicy::{Fixed, None};
    let alone = Scene::new(Fixed).p99(0, Priority::Normal).await;
    for urgency in Priority::ALL {
        let disturbed = Scene::new(Fixed).p99(NOISY, urgency).await;
        let ratio = disturbed.as_secs_f64() / alone.as_secs_f64();
        println!(
            "p99 {alone:?} alone, {disturbed:?} beside {NOISY} {urgency:?} requests of another: {ratio:.2}"
        );
        assert!(ratio <= 1.5, "{urgency:?}: {ratio:.2}");
    }
    let unlimited = Scene::new(None).p99(NOISY, Priority::Normal).await;
    println!("{unlimited:?} without a limit");
    assert!(unlimited > alone * 3, "nothing is shown");
}
