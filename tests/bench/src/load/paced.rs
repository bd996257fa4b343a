//! Requests at a fixed rate, whether or not earlier ones are complete. The latency counts from the time at which the request
//! was due, so that waiting for a slow server is included.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fairlead_tests::load::Latencies;
use tokio::sync::mpsc;

use super::{ClosedLoad, ended};
use crate::error::BenchError;
use crate::wire::Connection;

/// A number of requests per second, spread evenly over the connections of a load.
pub(crate) struct PacedLoad {
    pub(crate) load: ClosedLoad,
    pub(crate) rate: u32,
    /// Duration of the warm-up, which is not measured.
    pub(crate) warm_up: Duration,
    pub(crate) duration: Duration,
}

impl PacedLoad {
    /// Runs the whole load. Needs a `LocalSet`.
    pub(crate) async fn run(&self) -> Result<Latencies, BenchError> {
        let connections = self.load.connect().await?;
        let start = Instant::now() + Duration::from_millis(10);
        let counted_from = start + self.warm_up;
        let (mut senders, mut workers) = (Vec::new(), Vec::new());
        for connection in connections {
            let (sender, due) = mpsc::unbounded_channel();
            let work = send_and_receive(connection, due, self.load.streams, counted_from);
            workers.push(tokio::task::spawn_local(work));
            senders.push(sender);
        }
        let (rate, length) = (self.rate, self.warm_up + self.duration);
        let pacer = std::thread::spawn(move || pace(start, rate, length, &senders));
        let mut latencies = Latencies::default();
        for worker in workers {
            latencies.merge(worker.await.map_err(|error| BenchError::unexpected(error.to_string()))??);
        }
        pacer.join().map_err(|_| BenchError::unexpected("the pacer failed"))?;
        Ok(latencies)
    }
}

/// Announces due requests, on its own thread: timers of the runtime have a resolution of a millisecond.
fn pace(start: Instant, rate: u32, length: Duration, senders: &[mpsc::UnboundedSender<Instant>]) {
    let total = (f64::from(rate) * length.as_secs_f64()) as u32;
    for (number, sender) in (0..total).zip(senders.iter().cycle()) {
        let due = start + Duration::from_secs_f64(f64::from(number) / f64::from(rate));
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if sender.send(due).is_err() {
            return;
        }
    }
}

async fn send_and_receive(
    mut connection: Connection,
    mut due: mpsc::UnboundedReceiver<Instant>,
    streams: usize,
    counted_from: Instant,
) -> Result<Latencies, BenchError> {
    let mut open: Vec<(u32, Instant)> = Vec::with_capacity(streams);
    let (mut waiting, mut events) = (VecDeque::new(), Vec::new());
    let mut latencies = Latencies::default();
    let mut goes_on = true;
    while goes_on || !open.is_empty() || !waiting.is_empty() {
        tokio::select! {
            at = due.recv(), if goes_on => match at {
                Some(at) => waiting.push_back(at),
                None => goes_on = false,
            },
            outcome = connection.receive(&mut events), if !open.is_empty() => {
                outcome?;
                let now = Instant::now();
                for event in events.drain(..) {
                    let Some(stream) = ended(event)? else { continue };
                    let Some(position) = open.iter().position(|(known, _)| *known == stream) else { continue };
                    let (_, at) = open.swap_remove(position);
                    if at >= counted_from {
                        latencies.add(now - at);
                    }
                }
            }
        }
        while open.len() < streams
            && let Some(at) = waiting.pop_front()
        {
            open.push((connection.send(), at));
        }
        connection.flush().await?;
    }
    Ok(latencies)
}
