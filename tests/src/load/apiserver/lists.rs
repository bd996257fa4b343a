//! Large lists: their time, CPU and memory, and what they cost other clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::super::LoadError;
use super::super::report::Figure;
use super::super::run::{Size, drain, millis, paced_gets, post};
use super::fill::{CONFIG_MAPS, config_map, fill, workspace};
use super::server::{ROOT, Server};

/// Size of the listed objects, as of a Deployment without managedFields.
const OBJECT: usize = 2_600;

/// Lists of 9,052 objects, whole, and as a page before 20,000 others.
pub(super) async fn list(server: &mut Server, size: Size) -> Result<Vec<Figure>, LoadError> {
    let (count, behind) = (size.of(200, 9_052, 9_052), size.of(400, 20_000, 20_000));
    fill(server, ROOT, 0..count, OBJECT).await?;
    let mut figures = list_figures(server, "list", CONFIG_MAPS, &format!("{count} objects"), true).await?;
    fill(server, ROOT, count..count + behind, OBJECT).await?;
    let page = format!("{CONFIG_MAPS}?limit={count}");
    let conditions = format!("{count} objects before {behind}");
    figures.extend(list_figures(server, "page", &page, &conditions, true).await?);
    let page = format!("{CONFIG_MAPS}?limit=500");
    let conditions = format!("500 objects before {}", count + behind - 500);
    figures.extend(list_figures(server, "page of 500", &page, &conditions, false).await?);
    Ok(figures)
}

/// One kind of list, several times in a process that has done nothing else.
async fn list_figures(
    server: &mut Server,
    name: &str,
    path: &str,
    conditions: &str,
    has_goal: bool,
) -> Result<Vec<Figure>, LoadError> {
    const LISTS: usize = 20;
    server.restart().await?;
    let client = server.client(ROOT);
    // The store's cache of pages and the allocator reach their size.
    for _ in 0..10 {
        drain(&client, path).await?;
    }
    let meter = server.meter()?;
    let mut times = Vec::new();
    let mut bytes = 0;
    for _ in 0..LISTS {
        let begin = Instant::now();
        bytes = drain(&client, path).await?;
        times.push(begin.elapsed());
    }
    let usage = meter.read()?;
    times.sort_unstable();
    let cpu = millis(usage.cpu) / LISTS as f64;
    let conditions =
        format!("{conditions}, {:.1} MiB, median or mean of {LISTS}", bytes as f64 / f64::from(1 << 20));
    let figure = |what: &str, value: f64, unit, goal: f64| {
        let figure = Figure::new(format!("{name}: {what}"), value, unit).conditions(conditions.clone());
        if has_goal { figure.at_most(goal) } else { figure }
    };
    Ok(vec![
        figure("time", millis(times[LISTS / 2]), "ms", 40.0),
        figure("CPU", cpu, "ms", 50.0),
        figure("extra memory", usage.extra_memory as f64 / f64::from(1 << 20), "MiB", 1.0),
    ])
}

/// 1,000 reads per second in one workspace, alone and beside a client that lists everything of another one again and again.
pub(super) async fn fairness(server: &Server, size: Size) -> Result<Vec<Figure>, LoadError> {
    let count = size.of(300, 20_000, 100_000);
    let other = workspace(&server.client(ROOT), "large").await?;
    fill(server, &other, 0..count, OBJECT).await?;
    let readers = server.clients(ROOT, 8);
    post(&readers[0], CONFIG_MAPS, config_map("small", 300)).await?;
    let path = format!("{CONFIG_MAPS}/small");
    let rate = size.of(100, 1_000, 1_000) as u32;
    paced_gets(&readers, &path, rate, Duration::from_secs(1)).await?;
    let mut quiet = paced_gets(&readers, &path, rate, size.duration()).await?;

    let is_over = Arc::new(AtomicBool::new(false));
    let lister = tokio::spawn({
        let (client, is_over) = (server.client(&other), is_over.clone());
        async move {
            let mut lists = 0;
            while !is_over.load(Ordering::Relaxed) {
                drain(&client, CONFIG_MAPS).await?;
                lists += 1;
            }
            Ok::<_, LoadError>(lists)
        }
    });
    let beside = paced_gets(&readers, &path, rate, size.duration()).await;
    is_over.store(true, Ordering::Relaxed);
    let lists: usize = lister.await??;
    let mut beside = beside?;
    let ratio = millis(beside.percentile(99.0)) / millis(quiet.percentile(99.0)).max(f64::MIN_POSITIVE);
    let conditions = format!(
        "{count} objects, {rate} reads/s, {lists} lists; alone {}, beside {}",
        quiet.summary(),
        beside.summary()
    );
    Ok(vec![Figure::new("get beside a large list: p99", ratio, "×").at_most(2.0).conditions(conditions)])
}
