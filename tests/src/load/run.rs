//! Loops of clients: as fast as the server responds, or at a constant rate.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fairlead_client::{Client, ClientError, Request};
use http::Method;
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};

use super::{Latencies, LoadError};

/// The amount of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scale {
    /// Shows that everything works; the figures mean nothing.
    Smoke,
    /// A fifth or less of the amounts for which the goals are set, in the measurements that take long.
    Normal,
    /// The amounts for which the goals are set.
    Full,
}

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
    let path: Arc<str> = path.into();
    let times = paced(
        clients,
        per_second,
        |number| number >= count,
        move |client, _, planned| {
            let path = path.clone();
            async move {
                client.get(&path).await?;
                Ok(planned.elapsed())
            }
        },
    );
    let mut latencies = Latencies::default();
    times.await?.into_iter().for_each(|time| latencies.add(time));
    Ok(latencies)
}

/// Runs an operation with numbers from 0 on at a constant rate, whether or not earlier ones have ended, spread over the clients.
/// The operation gets the time that was planned for it. Returns the results in the order of the numbers.
pub(super) async fn paced<T, F>(
    clients: &[Client],
    per_second: u32,
    is_over: impl Fn(usize) -> bool,
    operation: impl Fn(Client, usize, Instant) -> F,
) -> Result<Vec<T>, LoadError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, LoadError>> + Send + 'static,
{
    let mut ticks = interval(Duration::from_secs(1) / per_second);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut running = Vec::new();
    for (number, client) in clients.iter().cycle().enumerate() {
        if is_over(number) {
            break;
        }
        let planned = ticks.tick().await.into_std();
        running.push(tokio::spawn(operation(client.clone(), number, planned)));
    }
    let mut results = Vec::with_capacity(running.len());
    for one in running {
        results.push(one.await??);
    }
    Ok(results)
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

/// The JSON of an object.
pub(super) fn body(object: &Value) -> Bytes {
    object.to_string().into()
}

/// Repeats a request that the server may refuse for a short time.
pub(super) async fn retried<F: Future<Output = Result<(), ClientError>>>(
    attempt: impl Fn() -> F,
) -> Result<(), LoadError> {
    const ATTEMPTS: usize = 600;
    for _ in 1..ATTEMPTS {
        if attempt().await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(attempt().await?)
}

/// Time for work that the server does after a response.
pub(super) async fn settle() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}
