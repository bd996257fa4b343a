//! Many idle watches, and the memory of each.

use std::time::Duration;

use fairlead_client::{Client, WatchStream};

use super::proc::{memory_rows, sample_all};
use super::{LoadError, Table, Target};

/// Watches of one collection, opened and left idle.
#[derive(Debug, Clone)]
pub struct WatchLoad {
    /// The collection, below the prefix of the kubeconfig.
    pub path: String,
    /// Number of watches.
    pub count: usize,
    /// Number of watches per connection.
    pub per_connection: usize,
    /// Time before memory is read.
    pub settle: Duration,
}

/// Opens the watches, reads memory, and closes them.
pub async fn measure_watches(target: &Target, load: &WatchLoad) -> Result<Table, LoadError> {
    // The first watch also creates shared state. It stays open and is not counted.
    let _first = open(&target.connection(), &load.path).await?;
    tokio::time::sleep(load.settle).await;
    let before = sample_all(&target.processes)?;
    let watches = open_watches(target, &load.path, load.count, load.per_connection).await?;
    tokio::time::sleep(load.settle).await;
    let mut table = Table::default();
    let note = format!("{} idle, {} per connection", load.count, load.per_connection);
    memory_rows(&mut table, "watch", &target.processes, &before, load.count as u64, &note);
    drop(watches);
    Ok(table)
}

/// Opens watches over as many connections as they need, a few at a time.
pub(super) async fn open_watches(
    target: &Target,
    path: &str,
    count: usize,
    per_connection: usize,
) -> Result<Vec<WatchStream>, LoadError> {
    const MAX_CONCURRENT: usize = 16;
    let per_connection = per_connection.max(1);
    let mut groups = (0..count).step_by(per_connection).map(|start| per_connection.min(count - start));
    let mut watches = Vec::with_capacity(count);
    loop {
        let batch: Vec<_> = groups
            .by_ref()
            .take(MAX_CONCURRENT)
            .map(|size| {
                let (client, path) = (target.connection(), path.to_owned());
                tokio::spawn(async move {
                    let mut streams = Vec::with_capacity(size);
                    for _ in 0..size {
                        streams.push(open(&client, &path).await?);
                    }
                    Ok::<_, LoadError>(streams)
                })
            })
            .collect();
        if batch.is_empty() {
            return Ok(watches);
        }
        for group in batch {
            watches.extend(group.await??);
        }
    }
}

/// A watch from now on. The list is read for its resource version only.
async fn open(client: &Client, path: &str) -> Result<WatchStream, LoadError> {
    let list: fairlead_client::List<fairlead_client::Ignored> =
        client.get_json(&format!("{path}?limit=1")).await?;
    let version = list.metadata.resource_version;
    let query =
        format!("{path}?watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds=3600");
    Ok(client.watch(&query).await?)
}
