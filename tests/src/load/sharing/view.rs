//! The provider's view of all consumers: events, lists, and its cost while nothing changes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::mpsc;

use super::super::report::Figure;
use super::super::run::{Size, Until, body, closed_loop, drain, millis, paced, post, settle};
use super::super::watches::open_watches;
use super::super::{Latencies, LoadError, Target};
use super::binding::Shared;
use super::cpu::CpuMeter;
use super::published::{KINDS, collection, object};
use super::site::{NEAR, Site};

/// The bytes of a field of the listed objects.
const FIELD: usize = 1_000;

/// Objects that are created in all workspaces in turn, until their events are in a watch over all of them.
pub(super) async fn delivery(site: &Site, shared: &Shared, size: Size) -> Result<Vec<Figure>, LoadError> {
    const RATE: u32 = 100;
    const KIND: usize = 1;
    let count = site.amount(size, [50, 2_000, 3_000], [50, 1_000, 1_000]);
    let view = view(site, shared).await?;
    let watches = open_watches(&view, &collection(KIND), 1, 1).await?;
    let (sender, mut arrivals) = mpsc::unbounded_channel();
    let followers: Vec<_> = watches
        .into_iter()
        .map(|mut watch| {
            let sender = sender.clone();
            tokio::spawn(async move {
                while let Some(Ok(event)) = watch.next().await {
                    let at = Instant::now();
                    let object: Value = serde_json::from_slice(&event.object).unwrap_or_default();
                    let name =
                        object["metadata"]["name"].as_str().and_then(|name| name.strip_prefix("event-"));
                    let Some(number) = name.and_then(|number| number.parse::<usize>().ok()) else { continue };
                    if sender.send((number, at)).is_err() {
                        return;
                    }
                }
            })
        })
        .collect();
    let clients = (0..4).map(|_| site.user("")).collect::<Result<Vec<_>, _>>()?;
    let consumers: Arc<[String]> = shared.near.as_slice().into();
    // A prime stride visits workspaces that were bound at different times.
    let times = paced(
        &clients,
        RATE,
        |number| number >= count,
        move |client, number, begin| {
            let consumer = consumers[number * 7_919 % consumers.len()].clone();
            async move {
                let client = client.with_prefix(&consumer);
                let object = body(&object(KIND, &format!("event-{number}"), 100));
                post(&client, &collection(KIND), object).await?;
                Ok((begin, Instant::now()))
            }
        },
    )
    .await?;
    let (mut after_response, mut after_request) = (Latencies::default(), Latencies::default());
    for arrived in 0..count {
        let next = tokio::time::timeout(Duration::from_secs(30), arrivals.recv()).await;
        let Ok(Some((number, at))) = next else {
            return Err(LoadError::Unexpected(format!("{arrived} of {count} events arrived")));
        };
        let (begin, end) = times[number];
        after_request.add(at.saturating_duration_since(begin));
        after_response.add(at.saturating_duration_since(end));
    }
    followers.iter().for_each(tokio::task::JoinHandle::abort);
    let conditions = format!(
        "{count} creates at {RATE}/s {}, in {} workspaces; after the request {}, after the response {}",
        site.entry(),
        shared.near.len(),
        after_request.summary(),
        after_response.summary(),
    );
    let p99 = millis(after_request.percentile(99.0));
    Ok(vec![
        Figure::new("create to the provider's event: p99", p99, "ms").at_most(20.0).conditions(conditions),
    ])
}

/// The list of all objects through the view, beside the same list by the identity.
pub(super) async fn list(site: &Site, shared: &Shared, size: Size) -> Result<Vec<Figure>, LoadError> {
    const LISTS: usize = 5;
    const KIND: usize = 2;
    let count = site.amount(size, [200, 20_000, 100_000], [200, 2_000, 2_000]);
    let clients = (0..4).map(|_| site.direct(NEAR, "")).collect::<Result<Vec<_>, _>>()?;
    let consumers: Arc<[String]> = shared.near.as_slice().into();
    closed_loop(&clients, 32, Until::Count(count), move |client, number| {
        let consumer = consumers[number % consumers.len()].clone();
        async move {
            let object = body(&object(KIND, &format!("listed-{number}"), FIELD));
            Ok(post(&client.with_prefix(&consumer), &collection(KIND), object).await?)
        }
    })
    .await?;
    settle().await;
    let through_view = view(site, shared).await?.connection();
    let direct = site.direct(NEAR, "/clusters/*")?;
    let by_identity = format!("{}:{}", collection(KIND), shared.published.identity);
    // Both kinds of list in turn, so that caches and the allocator are the same for both; the first pair is not measured.
    let (mut view_cpu, mut direct_cpu) = (Duration::ZERO, Duration::ZERO);
    let (mut view_bytes, mut direct_bytes) = (0, 0);
    for round in 0..=LISTS {
        let begin = site.shard().thread_time()?;
        direct_bytes = drain(&direct, &by_identity).await?;
        let between = site.shard().thread_time()?;
        view_bytes = drain(&through_view, &collection(KIND)).await?;
        let end = site.shard().thread_time()?;
        if round > 0 {
            direct_cpu += between.saturating_sub(begin);
            view_cpu += end.saturating_sub(between);
        }
    }
    let per_byte = |cpu: Duration, bytes: usize| cpu.as_secs_f64() / bytes.max(1) as f64;
    let ratio = per_byte(view_cpu, view_bytes) / per_byte(direct_cpu, direct_bytes).max(f64::MIN_POSITIVE);
    let mebibytes = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    let conditions = format!(
        "{count} objects of {} workspaces, per byte, mean of {LISTS}: view {:.0} ms for {:.1} MiB, by identity {:.0} ms for {:.1} MiB",
        shared.near.len(),
        millis(view_cpu) / LISTS as f64,
        mebibytes(view_bytes),
        millis(direct_cpu) / LISTS as f64,
        mebibytes(direct_bytes),
    );
    Ok(vec![Figure::new("list through the view: CPU", ratio, "×").at_most(1.3).conditions(conditions)])
}

/// The CPU of all processes while nothing happens, with watches of all kinds through the view.
pub(super) async fn idle(site: &Site, shared: &Shared, size: Size) -> Result<Vec<Figure>, LoadError> {
    let watches = size.of(20, 100, 100);
    let duration = Duration::from_secs(size.of(2, 20, 20) as u64);
    let view = view(site, shared).await?;
    let mut open = Vec::new();
    for kind in 0..KINDS.min(watches) {
        open.extend(open_watches(&view, &collection(kind), watches.div_ceil(KINDS), 100).await?);
    }
    // Work after the last writes, such as a checkpoint of the store, is not idle.
    tokio::time::sleep(duration / 4).await;
    let mut cpu = CpuMeter::new(site.processes());
    cpu.begin()?;
    tokio::time::sleep(duration).await;
    cpu.end()?;
    let shares: Vec<_> = cpu.shares().map(|(name, share)| format!("{name} {share:.3} %")).collect();
    let conditions = format!(
        "{} bindings, {} watches, {} s; {}",
        shared.near.len(),
        open.len(),
        duration.as_secs(),
        shares.join(", ")
    );
    let observed = cpu.shares().next().map_or(f64::NAN, |(_, share)| share);
    let figure = Figure::new("idle: CPU of the shard", observed, "%");
    Ok(vec![figure.at_most(0.1).conditions(conditions)])
}

/// The view of the shard of the provider over all logical clusters.
async fn view(site: &Site, shared: &Shared) -> Result<Target, LoadError> {
    let url = shared.published.endpoint(&site.url(NEAR)?).await?;
    site.view(&url, "/clusters/*")
}
