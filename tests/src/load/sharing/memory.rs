//! Memory of bindings.

use super::super::LoadError;
use super::super::proc::mebibytes;
use super::super::report::Figure;
use super::super::run::{Size, Until, closed_loop, settle};
use super::consumers::{bind, workspaces};
use super::published::{BINDINGS, KINDS, Published};
use super::site::{NEAR, Site};

/// The slope of the memory over bindings, each of which has one object; the store's cache is too small to hold them. That of a
/// kcp is the slope of its live heap.
pub(super) async fn binding(site: &Site, size: Size) -> Result<Vec<Figure>, LoadError> {
    let count = site.amount(size, [20, 2_000, 10_000], [6, 50, 50]);
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
    let cpu = site.shard().thread_time()?;
    bind(site, &published, late, 4).await?;
    let cpu = site.shard().thread_time()?.saturating_sub(cpu);
    let after = kept_memory(site, &consumers[0]).await?;
    let each = (after.bytes() as f64 - before.bytes() as f64) / late.len() as f64 / 1024.0;
    let stored = site.direct(NEAR, &consumers[0])?.get(&format!("{BINDINGS}/shared")).await?.body.len();
    let server = match site.kcp() {
        None => "page cache 1 MiB",
        Some(_) => "the live heap of all in one process, with etcd",
    };
    let conditions = format!(
        "{KINDS} kinds with {} KiB of schemas, {server}, bindings {} to {count}, each with an object; \
         {} without bindings, {} with one, {} to {}; a binding is {:.1} KiB of JSON",
        published.schema_bytes / 1024,
        early.len() + 1,
        empty.shown(),
        one.shown(),
        before.shown(),
        after.shown(),
        stored as f64 / 1024.0,
    );
    Ok(vec![
        Figure::new("binding: memory", each, "KiB").at_most(4.0).conditions(conditions),
        Figure::new("binding and first object: CPU", cpu.as_secs_f64() * 1e3 / late.len() as f64, "ms")
            .conditions(match site.kcp() {
                None => "of the shard, 4 at a time".to_owned(),
                Some(_) => format!("of the process, {} bindings", late.len()),
            }),
    ])
}

/// The memory after a load.
struct MemoryUse {
    resident: u64,
    /// The live heap of a Go process.
    heap: Option<u64>,
}

impl MemoryUse {
    /// The bytes that are compared.
    fn bytes(&self) -> u64 {
        self.heap.unwrap_or(self.resident)
    }

    fn shown(&self) -> String {
        let heap = self.heap.map(|heap| format!("heap {} and ", mebibytes(heap))).unwrap_or_default();
        format!("{heap}RSS {}", mebibytes(self.resident))
    }
}

/// The least of several samples beside small requests, because the allocator gives memory back only while its threads work.
async fn kept_memory(site: &Site, workspace: &str) -> Result<MemoryUse, LoadError> {
    settle().await;
    let clients = (0..4).map(|_| site.direct(NEAR, workspace)).collect::<Result<Vec<_>, _>>()?;
    let rounds = if site.kcp().is_some() { 4 } else { 20 };
    let mut kept = MemoryUse { resident: u64::MAX, heap: None };
    for _ in 0..rounds {
        closed_loop(&clients, 8, Until::Count(200), |client, _| async move {
            Ok(client.get("/api/v1/namespaces").await.map(drop)?)
        })
        .await?;
        if let Some(kcp) = site.kcp() {
            let live = kcp.live_heap().await?;
            kept.heap = Some(kept.heap.map_or(live, |least| least.min(live)));
        }
        kept.resident = kept.resident.min(site.shard().sample()?.resident);
    }
    Ok(kept)
}
