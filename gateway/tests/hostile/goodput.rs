//! The effect of each class of attack over HTTP/2 on other clients, and the time until the attacker is disconnected. [`crate::floods`]
//! tests each frame by frame; here [`HOSTILE`] connections attack for a while (`FLOOD_SECONDS`; `make hostile`: 30), and a
//! disconnected attacker connects again.
//!
//! Honest clients send at a pace ([`HONEST`] of them, one request each in [`PACE`]), without the attack and with it. At full speed
//! they would measure the scheduling of processes. A request without a response within ten times [`PACE`] is lost: a busy machine
//! may need that long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::attacks::{Attack, CLASSES, Class};
use crate::target::{AtRest, Target};

const HONEST: u32 = 20;
const PACE: Duration = Duration::from_millis(100);
const HOSTILE: usize = 8;
/// Time before a disconnected attacker connects again: handshakes are measured elsewhere.
const PAUSE: Duration = Duration::from_millis(100);
/// Permitted memory above idle in all, and for each hostile connection.
const MEMORY_KIB: u64 = 32 << 10;
const CONNECTION_KIB: u64 = 1 << 10;

/// The goals of a run.
struct Goals {
    length: Duration,
    /// The part of the honest requests that is served in spite of the attack.
    goodput: f64,
    /// Maximum time until an attacker is disconnected, on an idle machine.
    cut: Option<Duration>,
}

impl Goals {
    fn of_environment() -> Self {
        let number = |name: &str| {
            std::env::var(name).ok().map(|text| text.parse::<f64>().expect("a number is needed"))
        };
        Self {
            length: Duration::from_secs_f64(number("FLOOD_SECONDS").unwrap_or(1.5)),
            goodput: number("FLOOD_GOODPUT").unwrap_or(0.5),
            cut: number("FLOOD_CUT_SECONDS").map(Duration::from_secs_f64),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_clients_are_served_during_each_attack() {
    let goals = Goals::of_environment();
    let only = std::env::var("FLOOD_CLASS").unwrap_or_default();
    let target = Arc::new(Target::start().await);
    // Memory that is kept for reuse is allocated by the first run.
    honest(&target, goals.length).await;
    let idle = target.at_rest().await;
    let mut faults = Vec::new();
    for class in CLASSES.iter().filter(|class| class.name.contains(&only)) {
        let quiet = honest(&target, goals.length).await;
        let memory = Memory::watch(&target);
        let attack = on_own_thread(attack(Arc::clone(&target), class, goals.length));
        let disturbed = honest(&target, goals.length).await;
        let ends = attack.await.unwrap();
        let measurement = Measurement { quiet, disturbed, most_kib: memory.peak(), ends };
        faults.extend(measurement.evaluate(class, &goals, &idle));
        target.at_rest().await;
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Runs on a thread of its own, because an attack on the threads of the test shards would slow the shards first.
fn on_own_thread<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::spawn_blocking(move || runtime.block_on(work))
}

/// The number of honest requests served in this time.
async fn honest(target: &Arc<Target>, length: Duration) -> usize {
    let target = Arc::clone(target);
    let clients = async move {
        let clients = (0..HONEST).map(|number| {
            let target = &target;
            async move {
                let client = target.honest().await;
                sleep(PACE * number / HONEST).await;
                let mut pace = interval(PACE);
                pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
                let (began, mut served) = (Instant::now(), 0);
                while began.elapsed() < length {
                    pace.tick().await;
                    let answer = timeout(10 * PACE, client.get("/clusters/root:org/api")).await;
                    served += usize::from(answer.is_ok_and(|answer| answer.status == 200));
                }
                served
            }
        });
        join_all(clients).await.into_iter().sum()
    };
    on_own_thread(clients).await.unwrap()
}

/// The peak memory of the gateway.
struct Memory {
    peak: Arc<AtomicU64>,
    watching: JoinHandle<()>,
}

impl Memory {
    fn watch(target: &Arc<Target>) -> Self {
        let (target, peak) = (Arc::clone(target), Arc::<AtomicU64>::default());
        let measurement = Arc::clone(&peak);
        let watching = tokio::spawn(async move {
            loop {
                measurement.fetch_max(target.memory_kib(), Ordering::Relaxed);
                sleep(Duration::from_millis(20)).await;
            }
        });
        Self { peak, watching }
    }

    fn peak(&self) -> u64 {
        self.watching.abort();
        self.peak.load(Ordering::Relaxed)
    }
}

/// The ends of an attack's connections.
#[derive(Default)]
struct ConnectionEnds {
    opened: usize,
    /// Connections that the gateway closed, and those that got a GOAWAY.
    cut: usize,
    got_goaway: usize,
    /// Maximum per connection: frames until the end of the connection or of the attack, and the time.
    max_frames: usize,
    longest: Duration,
}

/// Attacks over all hostile connections, each with the next variant of the class.
async fn attack(
    target: Arc<Target>,
    class: &'static Class,
    length: Duration,
) -> BTreeMap<&'static str, ConnectionEnds> {
    let end = Instant::now() + length;
    let connections = (0..HOSTILE).map(|number| {
        let (target, attack) = (&target, &class.attacks[number % class.attacks.len()]);
        async move { (attack.name, attack_over_connections(target, attack, end).await) }
    });
    let mut ends = BTreeMap::<_, ConnectionEnds>::new();
    for (name, of_connection) in join_all(connections).await {
        let all = ends.entry(name).or_default();
        all.opened += of_connection.opened;
        all.cut += of_connection.cut;
        all.got_goaway += of_connection.got_goaway;
        all.max_frames = all.max_frames.max(of_connection.max_frames);
        all.longest = all.longest.max(of_connection.longest);
    }
    ends
}

async fn attack_over_connections(target: &Target, attack: &Attack, end: Instant) -> ConnectionEnds {
    let mut ends = ConnectionEnds::default();
    while Instant::now() < end {
        let mut connection = target.http2(None).await;
        ends.opened += 1;
        let (began, mut frames) = (Instant::now(), 0);
        let until_the_end = async {
            let first = (attack.first)(&mut connection);
            connection.write(&first).await;
            while !connection.ended && connection.goaway.is_none() {
                let more = (attack.more)(&mut connection);
                if more.is_empty() {
                    // All has been written; the connection stays open.
                    if connection.next().await.is_none() {
                        break;
                    }
                    continue;
                }
                connection.write(&more).await;
                frames += attack.frames;
                while attack.reads
                    && let Some(Some(frame)) = connection.next().now_or_never()
                {
                    if frame.kind == crate::frames::GOAWAY {
                        connection.goaway = Some(0);
                    }
                }
                tokio::task::yield_now().await;
            }
        };
        // An attacker that flow control stops does not finish writing.
        let has_ended = timeout(end.saturating_duration_since(Instant::now()), until_the_end).await.is_ok();
        if has_ended {
            ends.cut += usize::from(connection.ended);
            ends.got_goaway += usize::from(!connection.ended);
        }
        ends.max_frames = ends.max_frames.max(frames);
        ends.longest = ends.longest.max(began.elapsed());
        drop(connection);
        if has_ended {
            sleep(PAUSE.min(end.saturating_duration_since(Instant::now()))).await;
        }
    }
    ends
}

/// The measurements of one class.
struct Measurement {
    quiet: usize,
    disturbed: usize,
    most_kib: u64,
    ends: BTreeMap<&'static str, ConnectionEnds>,
}

impl Measurement {
    /// Prints the measurements; returns the missed goals.
    fn evaluate(&self, class: &Class, goals: &Goals, idle: &AtRest) -> Vec<String> {
        let goodput = self.disturbed as f64 / self.quiet as f64;
        let grown = self.most_kib.saturating_sub(idle.memory_kib);
        println!(
            "{}: {} of {} honest requests served ({:.1} %), {grown} KiB above idle",
            class.name,
            self.disturbed,
            self.quiet,
            100.0 * goodput,
        );
        let mut faults = Vec::new();
        let (part, connection_kib) = match &class.miss {
            Some(miss) => {
                println!("  known: {}", miss.why);
                (miss.goodput, miss.connection_kib)
            }
            None => (1.0, CONNECTION_KIB),
        };
        if goodput < part * goals.goodput {
            faults.push(format!("{}: goodput is {goodput:.2}", class.name));
        }
        if grown > MEMORY_KIB + HOSTILE as u64 * connection_kib {
            faults.push(format!("{}: {grown} KiB above idle", class.name));
        }
        for attack in class.attacks {
            let Some(ends) = self.ends.get(attack.name) else { continue };
            let ConnectionEnds { opened, cut, got_goaway, max_frames, longest } = ends;
            println!(
                "  {}: {opened} connections, {cut} closed, {got_goaway} with GOAWAY; at most {max_frames} frames and {longest:?} each",
                attack.name
            );
            let Some(peak) = attack.max_frames else { continue };
            if cut + got_goaway == 0 || *max_frames > peak {
                faults.push(format!("{}, {}: not cut off within {peak} frames", class.name, attack.name));
            }
            if goals.cut.is_some_and(|cut| *longest > cut) {
                faults.push(format!("{}, {}: it took {longest:?} to cut it off", class.name, attack.name));
            }
        }
        faults
    }
}
