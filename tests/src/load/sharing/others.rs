//! Requests of other clients beside a measured change, at a constant rate.
//!
//! They have two threads of their own. Thus they do not wait for tasks that follow the change, and are not sent by a timer of
//! the executor, whose resolution of a millisecond is as long as a request and would hide a difference. Writes that overlap have
//! different objects, because a server repeats a conflicting one.

use std::thread;
use std::time::{Duration, Instant};

use fairlead_client::{Client, ClientError};
use http::Method;
use serde_json::json;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::super::run::{body, post, send};
use super::super::{Latencies, LoadError, Target};

/// The part of a measurement to which a request belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its time is not counted.
    Pause,
    /// Nothing else happens.
    Quiet,
    /// The change happens.
    Beside,
}

/// Times of requests, which count from the planned time, whether or not earlier ones have ended.
#[derive(Default)]
pub(super) struct Times {
    pub(super) reads: Latencies,
    pub(super) writes: Latencies,
}

/// The times of both phases that count.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) quiet: Times,
    pub(super) beside: Times,
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The number of config maps, which are written in turn.
const WRITTEN: usize = 64;

/// Clients that read a namespace at a rate and write config maps at a fifth of it, until they are dropped.
pub(super) struct Others {
    phase: watch::Sender<Phase>,
    outcome: oneshot::Receiver<Result<Outcome, LoadError>>,
}

/// The phase and the planned time of a request.
type Planned = (Phase, Instant);

impl Others {
    /// Starts them at the path of a workspace, in [`Phase::Pause`].
    pub(super) fn start(target: Target, reads_per_second: u32) -> Self {
        let (phase, phases) = watch::channel(Phase::Pause);
        let (planned, requests) = unbounded_channel();
        let (sender, outcome) = oneshot::channel();
        thread::spawn(move || plan(reads_per_second + reads_per_second / 5, phases, &planned));
        thread::spawn(move || {
            // The receiver is gone if the measurement has failed.
            let _ = sender.send(run(&target, requests));
        });
        Self { phase, outcome }
    }

    /// Begins a phase.
    pub(super) fn enter(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// Ends the requests and returns their times.
    pub(super) async fn finish(self) -> Result<Outcome, LoadError> {
        drop(self.phase);
        let outcome = self.outcome.await;
        outcome.map_err(|_| LoadError::Unexpected("the thread of the other clients failed".to_owned()))?
    }
}

/// Sends the times of requests until the phases end.
fn plan(per_second: u32, mut phases: watch::Receiver<Phase>, planned: &UnboundedSender<Planned>) {
    let interval = Duration::from_secs(1) / per_second;
    let mut next = Instant::now();
    while phases.has_changed().is_ok() {
        next += interval;
        thread::sleep(next.saturating_duration_since(Instant::now()));
        let phase = *phases.borrow_and_update();
        if planned.send((phase, next)).is_err() {
            return;
        }
    }
}

fn run(target: &Target, requests: UnboundedReceiver<Planned>) -> Result<Outcome, LoadError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| LoadError::Unexpected(error.to_string()))?;
    runtime.block_on(send_all(target, requests))
}

async fn send_all(target: &Target, mut requests: UnboundedReceiver<Planned>) -> Result<Outcome, LoadError> {
    const CONNECTIONS: usize = 4;
    let clients: Vec<Client> = (0..CONNECTIONS).map(|_| target.connection()).collect();
    for number in 0..WRITTEN {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("written-{number}") },
        });
        post(&clients[number % CONNECTIONS], CONFIG_MAPS, body(&object)).await?;
    }
    let mut sent = JoinSet::new();
    let mut number = 0;
    while let Some((phase, planned)) = requests.recv().await {
        let client = clients[number % CONNECTIONS].clone();
        sent.spawn(async move {
            let is_write = number % 6 == 5;
            if is_write {
                write(&client, number).await?
            } else {
                read(&client).await?
            }
            Ok::<_, ClientError>((phase, is_write, planned.elapsed()))
        });
        number += 1;
    }
    let mut outcome = Outcome::default();
    while let Some(done) = sent.join_next().await {
        let (phase, is_write, time) = done??;
        let times = match phase {
            Phase::Pause => continue,
            Phase::Quiet => &mut outcome.quiet,
            Phase::Beside => &mut outcome.beside,
        };
        if is_write { times.writes.add(time) } else { times.reads.add(time) }
    }
    Ok(outcome)
}

async fn read(client: &Client) -> Result<(), ClientError> {
    client.get("/api/v1/namespaces/default").await.map(drop)
}

async fn write(client: &Client, number: usize) -> Result<(), ClientError> {
    let patch = json!({ "data": { "number": number.to_string() } });
    let path = format!("{CONFIG_MAPS}/written-{}", number / 6 % WRITTEN);
    send(client, Method::PATCH, &path, "application/merge-patch+json", body(&patch)).await
}
