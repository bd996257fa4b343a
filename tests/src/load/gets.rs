//! Reads at the highest rate that the system serves.

use std::time::{Duration, Instant};

use fairlead_client::Client;

use super::proc::{cpu_rows, sample_all};
use super::{Latencies, LoadError, Table, Target};

/// A read load: `connections` × `streams` readers, each with one request at a time.
#[derive(Debug, Clone)]
pub struct GetLoad {
    /// The name in the table.
    pub name: String,
    /// The path, below the prefix of the kubeconfig.
    pub path: String,
    /// HTTP/2 connections.
    pub connections: usize,
    /// Concurrent requests per connection.
    pub streams: usize,
    /// Duration of the warm-up, which is not measured.
    pub warm_up: Duration,
    /// Duration of the measurement.
    pub duration: Duration,
}

/// Runs the load. Every response must be a success.
pub async fn measure_gets(target: &Target, load: &GetLoad) -> Result<Table, LoadError> {
    let clients: Vec<Client> = (0..load.connections).map(|_| target.connection()).collect();
    let size = match clients.first() {
        Some(client) => client.get(&load.path).await?.body.len(),
        None => return Err(LoadError::Unexpected("a load needs at least one connection".to_owned())),
    };
    run(&clients, load, load.warm_up).await?;

    let before = sample_all(&target.processes)?;
    let start = Instant::now();
    let mut latencies = run(&clients, load, load.duration).await?;
    let elapsed = start.elapsed().as_secs_f64();
    let count = latencies.count() as u64;

    let mut table = Table::default();
    let note = format!("{} × {} streams, {size} bytes, {count} requests", load.connections, load.streams);
    cpu_rows(&mut table, &load.name, &target.processes, &before, count, &note);
    table.push(format!("{} per second", load.name), format!("{:.0}", count as f64 / elapsed), &note);
    table.push(
        format!("{} latency", load.name),
        latencies.summary(),
        "p50 / p90 / p99 / max; the load is closed-loop",
    );
    Ok(table)
}

async fn run(clients: &[Client], load: &GetLoad, duration: Duration) -> Result<Latencies, LoadError> {
    let end = Instant::now() + duration;
    let readers: Vec<_> = clients
        .iter()
        .flat_map(|client| std::iter::repeat_n(client, load.streams))
        .map(|client| tokio::spawn(read_until(end, client.clone(), load.path.clone())))
        .collect();
    let mut latencies = Latencies::default();
    for reader in readers {
        latencies.merge(reader.await??);
    }
    Ok(latencies)
}

async fn read_until(end: Instant, client: Client, path: String) -> Result<Latencies, LoadError> {
    let mut latencies = Latencies::default();
    loop {
        let start = Instant::now();
        if start >= end {
            return Ok(latencies);
        }
        client.get(&path).await?;
        latencies.add(start.elapsed());
    }
}
