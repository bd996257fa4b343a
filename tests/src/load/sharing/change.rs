//! A schema change of an export with many bindings.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fairlead_client::{Client, Request, WatchStream, WriteOptions};
use futures_util::future::try_join_all;
use http::Method;
use http::header::{ACCEPT, HeaderValue};
use serde_json::Value;

use super::super::report::Figure;
use super::super::run::{Size, millis, settle};
use super::super::{Latencies, LoadError};
use super::binding::Shared;
use super::consumers::workspaces;
use super::cpu::CpuMeter;
use super::others::{Others, Outcome, Phase};
use super::published::{BINDINGS, Published, collection, object};
use super::site::{NEAR, Site};

const READS: &str = "schema change: p99 of other reads";
const WRITES: &str = "schema change: p99 of other writes";
/// The longest time without progress.
const LONGEST: Duration = Duration::from_secs(120);

/// Changes one schema of the export several times, beside reads and writes in a workspace that has not bound it.
///
/// The servers and this process share the machine, and a client that competes with the server would be measured as well. So the
/// events of the bindings are only scanned, and consumers are read after the other requests have been measured.
pub(super) async fn change(site: &Site, shared: &Shared, size: Size) -> Result<Vec<Figure>, LoadError> {
    let rate = size.of(50, 200, 200) as u32;
    // A p99 needs many requests, however short a change is.
    let wanted = Duration::from_secs(size.of(1, 8, 8) as u64);
    let (least, most) = (size.of(2, 3, 3), site.amount(size, [2, 16, 16], [2, 5, 5]));
    let quiet = Duration::from_secs(size.of(1, 2, 2) as u64);
    let other = workspaces(site, "other", NEAR, 1).await?;
    let other = other.first().map_or("", String::as_str);
    let others = Others::start(site.target(NEAR, other)?, rate);
    let mut changes = Changes::new(site);
    while changes.times.len() < least || changes.beside_time < wanted && changes.times.len() < most {
        settle().await;
        changes.quiet.begin()?;
        others.enter(Phase::Quiet);
        tokio::time::sleep(quiet).await;
        others.enter(Phase::Pause);
        changes.quiet.end()?;
        changes.one(site, shared, &others).await?;
    }
    match others.finish().await {
        // A busy kcp ends requests by its own time limit; its change has a time nevertheless.
        Err(LoadError::Client(error)) if site.kcp().is_some() => Ok(vec![
            changes.time(shared),
            Figure::absent(READS, error.to_string()),
            Figure::absent(WRITES, error.to_string()),
        ]),
        outcome => {
            let Outcome { quiet, beside } = outcome?;
            Ok(vec![
                changes.time(shared),
                changes.compared(READS, rate, quiet.reads, beside.reads),
                changes.compared(WRITES, rate, quiet.writes, beside.writes),
            ])
        }
    }
}

/// Repeated changes.
struct Changes {
    /// From the request to the last consumer.
    times: Vec<Duration>,
    /// The time in which other requests were measured.
    beside_time: Duration,
    /// Consumers that did not serve the new version at the first read.
    late: usize,
    quiet: CpuMeter,
    beside: CpuMeter,
}

impl Changes {
    fn new(site: &Site) -> Self {
        let meter = || CpuMeter::with_load(site.processes());
        Self { times: Vec::new(), beside_time: Duration::ZERO, late: 0, quiet: meter(), beside: meter() }
    }

    async fn one(&mut self, site: &Site, shared: &Shared, others: &Others) -> Result<(), LoadError> {
        let version = format!("v{}", self.times.len() + 2);
        shared.published.prepare(&version).await?;
        let places = site.shards().iter().zip([&shared.near, &shared.far]);
        let mut watches = Vec::new();
        let mut probes = Vec::new();
        for (shard, consumers) in places {
            watches.push(all(follow(site, shard).await?, consumers.len()));
            probes.push(Probes::new(site.direct(shard, "")?, consumers, &version));
        }
        self.beside.begin()?;
        others.enter(Phase::Beside);
        let begin = Instant::now();
        let changed = changed(&shared.published, &version, watches, &mut probes).await;
        others.enter(Phase::Pause);
        self.beside.end()?;
        self.beside_time += begin.elapsed();
        changed?;
        for probe in &mut probes {
            probe.all().await?;
            self.late += probe.late;
        }
        self.times.push(begin.elapsed());
        Ok(())
    }

    fn time(&self, shared: &Shared) -> Figure {
        let longest = self.times.iter().max().copied().unwrap_or_default();
        let shown: Vec<_> = self.times.iter().map(|time| format!("{:.2}", time.as_secs_f64())).collect();
        let shards = if shared.far.is_empty() { "one shard" } else { "two shards" };
        let conditions = format!(
            "{} bindings on {shards}, one of the kinds; from the request to the last workspace, {} s; {} late",
            shared.near.len() + shared.far.len(),
            shown.join(", "),
            self.late,
        );
        let figure = Figure::new("schema change: time", longest.as_secs_f64(), "s");
        figure.at_most(10.0).conditions(conditions)
    }

    fn compared(&self, quantity: &str, rate: u32, mut quiet: Latencies, mut beside: Latencies) -> Figure {
        let ratio = millis(beside.percentile(99.0)) / millis(quiet.percentile(99.0)).max(f64::MIN_POSITIVE);
        Figure::new(quantity, ratio, "×").at_most(1.5).conditions(format!(
            "{rate} reads/s; quiet {}: {}, CPU {}; beside {} changes {}: {}, CPU {}",
            quiet.count(),
            quiet.summary(),
            self.quiet.summary(),
            self.times.len(),
            beside.count(),
            beside.summary(),
            self.beside.summary(),
        ))
    }
}

/// Changes the schema and waits until all bindings have changed and a consumer of each shard serves the new version.
async fn changed(
    published: &Published,
    version: &str,
    watches: Vec<impl Future<Output = Result<(), LoadError>>>,
    probes: &mut [Probes],
) -> Result<(), LoadError> {
    published.change(version).await?;
    try_join_all(watches).await?;
    for probe in probes {
        probe.next().await?;
    }
    Ok(())
}

/// A watch of the metadata of all bindings of a shard, from now on.
async fn follow(site: &Site, shard: &str) -> Result<WatchStream, LoadError> {
    let client = site.direct(shard, "/clusters/*")?;
    let list: Value = client.get_json(&format!("{BINDINGS}?limit=1")).await?;
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let path = format!("{BINDINGS}?watch=1&resourceVersion={revision}");
    let metadata = HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    Ok(client.watch_with(Request::new(Method::GET, path).with_header(ACCEPT, metadata)).await?)
}

/// Waits until bindings of this many logical clusters have changed.
async fn all(mut watch: WatchStream, count: usize) -> Result<(), LoadError> {
    let mut changed = HashSet::new();
    while changed.len() < count {
        let next = tokio::time::timeout(LONGEST, watch.next()).await;
        let Ok(Some(event)) = next else {
            return Err(LoadError::Unexpected(format!("{} of {count} bindings changed", changed.len())));
        };
        let object = event?.object;
        if let Some(cluster) = cluster_of_binding(&object)
            && !changed.contains(cluster)
        {
            changed.insert(cluster.to_owned());
        }
    }
    Ok(())
}

/// The logical cluster of a binding to the export, found in its JSON without decoding it. Every workspace has bindings to exports
/// of root, too, which have other names.
fn cluster_of_binding(object: &Bytes) -> Option<&str> {
    let text = std::str::from_utf8(object).ok()?;
    text.contains(r#""name":"shared""#).then_some(())?;
    let (_, rest) = text.split_once(r#""kcp.io/cluster":""#)?;
    rest.split_once('"').map(|(cluster, _)| cluster)
}

/// Attempts to use the new field of a version in some of the consumers of a shard, one after the other.
struct Probes {
    client: Client,
    consumers: std::vec::IntoIter<String>,
    version: String,
    /// Consumers that did not serve the version at the first attempt.
    late: usize,
}

impl Probes {
    fn new(client: Client, consumers: &[String], version: &str) -> Self {
        const SOME: usize = 50;
        let some: Vec<_> = consumers.iter().step_by((consumers.len() / SOME).max(1)).cloned().collect();
        Self { client, consumers: some.into_iter(), version: version.to_owned(), late: 0 }
    }

    /// Reads from the consumers that are left.
    async fn all(&mut self) -> Result<(), LoadError> {
        while self.next().await? {}
        Ok(())
    }

    /// Waits until the next consumer serves the version; false if there is none.
    async fn next(&mut self) -> Result<bool, LoadError> {
        const PAUSE: Duration = Duration::from_millis(10);
        let Some(consumer) = self.consumers.next() else { return Ok(false) };
        let client = self.client.with_prefix(&consumer);
        let mut object = object(0, "probe", 10);
        object["spec"][&self.version] = "value".into();
        let options = WriteOptions { dry_run: true, field_manager: None };
        let begin = Instant::now();
        for attempt in 0.. {
            let created: Value = client.create(&collection(0), &object, &options).await?;
            if created["spec"][&self.version] == "value" {
                return Ok(true);
            }
            self.late += usize::from(attempt == 0);
            if begin.elapsed() > LONGEST {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(LoadError::Unexpected(format!("{consumer} does not serve {}", self.version)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_is_recognised_without_decoding_its_json() {
        let cases = [
            (r#"{"metadata":{"name":"shared","annotations":{"a":"b","kcp.io/cluster":"2a"}}}"#, Some("2a")),
            (r#"{"metadata":{"annotations":{"kcp.io/cluster":"2a"},"name":"shared"}}"#, Some("2a")),
            (r#"{"metadata":{"name":"tenancy","annotations":{"kcp.io/cluster":"2a"}}}"#, None),
            (r#"{"metadata":{"name":"shared"}}"#, None),
        ];
        for (object, cluster) in cases {
            assert_eq!(cluster_of_binding(&Bytes::from_static(object.as_bytes())), cluster, "{object}");
        }
    }
}
