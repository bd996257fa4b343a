//! Loops of clients: as fast as the server responds, or at a constant rate.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fairlead_client::{Client, ClientError, Request};
use http::Method;
use tokio::time::{MissedTickBehavior, interval};

use super::super::{Latencies, LoadError};
use super::Scale;

/// The amounts of a scale.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size(pub(super) Scale);

impl Size {
    /// One of three amounts.
    pub(super) fn of(self, smoke: usize, normal: usize, full: usize) -> usize {
        match self.0 {
            Scale::Smoke => smoke,
            Scale::Normal => normal,
            Scale::Full => full,
        }
    }

    /// Duration of a load without an amount.
    pub(super) fn duration(self) -> Duration {
        Duration::from_secs(self.of(1, 5, 10) as u64)
    }
}

/// The result of a loop.
pub(super) struct Outcome {
    pub(super) elapsed: Duration,
    pub(super) latencies: Latencies,
}

/// The end of a loop.
#[derive(Clone, Copy)]
pub(super) enum Until {
    Count(usize),
    Elapsed(Duration),
}

/// Runs an operation with numbers from 0 on, `workers` at a time, spread over the clients.
pub(super) async fn closed_loop<F>(
    clients: &[Client],
    workers: usize,
    until: Until,
    operation: impl Fn(Client, usize) -> F + Clone + Send + 'static,
) -> Result<Outcome, LoadError>
where
    F: Future<Output = Result<(), LoadError>> + Send + 'static,
{
    let next = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let workers = clients.iter().cycle().take(workers).map(|client| {
        let (client, next, operation) = (client.clone(), next.clone(), operation.clone());
        tokio::spawn(async move {
            let mut latencies = Latencies::default();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let is_over = match until {
                    Until::Count(count) => number >= count,
                    Until::Elapsed(duration) => start.elapsed() >= duration,
                };
                if is_over {
                    return Ok::<_, LoadError>(latencies);
                }
                let begin = Instant::now();
                operation(client.clone(), number).await?;
                latencies.add(begin.elapsed());
            }
        })
    });
    let mut latencies = Latencies::default();
    for worker in workers.collect::<Vec<_>>() {
        latencies.merge(worker.await??);
    }
    Ok(Outcome { elapsed: start.elapsed(), latencies })
}

/// Reads a path at a constant rate, whether or not earlier requests have a response. Latencies count from the planned time.
pub(super) async fn paced_gets(
    clients: &[Client],
    path: &str,
    per_second: u32,
    duration: Duration,
) -> Result<Latencies, LoadError> {
    let count = (f64::from(per_second) * duration.as_secs_f64()) as usize;
    let mut ticks = interval(Duration::from_secs(1) / per_second);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut requests = Vec::with_capacity(count);
    for client in clients.iter().cycle().take(count) {
        let planned = ticks.tick().await.into_std();
        let (client, path) = (client.clone(), path.to_owned());
        requests.push(tokio::spawn(async move {
            client.get(&path).await?;
            Ok::<_, ClientError>(planned.elapsed())
        }));
    }
    let mut latencies = Latencies::default();
    for request in requests {
        latencies.add(request.await??);
    }
    Ok(latencies)
}

/// Sends a body; the response is read and dropped.
pub(super) async fn send(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &'static str,
    body: Bytes,
) -> Result<(), ClientError> {
    client.request(Request::new(method, path).with_body(content_type, body)).await.map(drop)
}

pub(super) async fn post(client: &Client, path: &str, body: Bytes) -> Result<(), ClientError> {
    send(client, Method::POST, path, "application/json", body).await
}

/// Reads a response of any size without keeping it; returns its size.
pub(super) async fn drain(client: &Client, path: &str) -> Result<usize, LoadError> {
    let mut response = client.stream(Request::new(Method::GET, path)).await?;
    let mut size = 0;
    while let Some(chunk) = response.body.chunk().await {
        size += chunk?.len();
    }
    Ok(size)
}

pub(super) fn micros(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e6 / count.max(1) as f64
}

pub(super) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
