//! Memory of bindings.

use super::super::LoadError;
use super::super::report::Figure;
use super::super::run::{Size, Until, closed_loop, settle};
use super::consumers::{bind, workspaces};
use super::published::{BINDINGS, KINDS, Published};
use super::site::{NEAR, Site};

/// The slope of the memory over bindings, each of which has one object; the store's cache is too small to hold them.
pub(super) async fn binding(site: &Site, size: Size) -> Result<Vec<Figure>, LoadError> {
    let count = size.of(20, 2_000, 10_000);
    let provider = workspaces(site, "provider", NEAR, 1).await?;
    let provider = provider.first().map_or("", String::as_str);
    let published = Published::publish(site.user(provider)?, "root:provider-0").await?;
    let consumers = workspaces(site, "near", NEAR, count).await?;
    let empty = kept_memory(site, &consumers[0]).await?;
    let (first, others) = consumers.split_at(1);
    bind(site, &published, first, 1).await?;
    let one = kept_memory(site, &consumers[0]).await?;
    let (early, late) = others.split_at(others.len() / 2);
    bind(site, &published, early, 4).await?;
    let before = kept_memory(site, &consumers[0]).await?;
    let cpu = site.thread_time(NEAR)?;
    bind(site, &published, late, 4).await?;
    let cpu = site.thread_time(NEAR)?.saturating_sub(cpu);
    let after = kept_memory(site, &consumers[0]).await?;
    let each = (after as f64 - before as f64) / late.len() as f64 / 1024.0;
    let stored = site.direct(NEAR, &consumers[0])?.get(&format!("{BINDINGS}/shared")).await?.body.len();
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let conditions = format!(
        "{KINDS} kinds with {} KiB of schemas, page cache 1 MiB, bindings {} to {count}, each with an object; \
         RSS without bindings {:.1}, with one {:.1}, {:.1} to {:.1} MiB; a binding is {:.1} KiB of JSON",
        published.schema_bytes / 1024,
        early.len() + 1,
        mebibytes(empty),
        mebibytes(one),
        mebibytes(before),
        mebibytes(after),
        stored as f64 / 1024.0,
    );
    Ok(vec![
        Figure::new("binding: memory", each, "KiB").at_most(4.0).conditions(conditions),
        Figure::new("binding and first object: CPU", cpu.as_secs_f64() * 1e3 / late.len() as f64, "ms")
            .conditions("of the shard, 4 at a time"),
    ])
}

/// The resident memory after a load: the least of several samples beside small requests, because the allocator gives memory back
/// only while its threads work.
async fn kept_memory(site: &Site, workspace: &str) -> Result<u64, LoadError> {
    settle().await;
    let clients = (0..4).map(|_| site.direct(NEAR, workspace)).collect::<Result<Vec<_>, _>>()?;
    let mut least = u64::MAX;
    for _ in 0..20 {
        closed_loop(&clients, 8, Until::Count(200), |client, _| async move {
            Ok(client.get("/api/v1/namespaces").await.map(drop)?)
        })
        .await?;
        least = least.min(site.shard().sample()?.resident);
    }
    Ok(least)
}
