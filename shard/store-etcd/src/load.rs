//! Reads the whole prefix at one revision into the local copy.

use std::sync::Arc;

use etcd_client::{Error, GetOptions};
use fairlead_store::{Record, Revision};
use tokio::sync::{mpsc, oneshot};

use crate::barrier::write_barrier;
use crate::client::Connection;
use crate::error::{EtcdError, cause, cause_of, is_compacted};
use crate::keys::KeyLayout;
use crate::owner::Claim;
use crate::view::{Command, Page};

/// Keys of the first read. Later ones have as many as fit into [`PAGE_BYTES`], by the mean of the one before.
const FIRST_PAGE_KEYS: i64 = 64;
const MAX_PAGE_KEYS: i64 = 4096;
/// Approximate size of a read, in bytes.
const PAGE_BYTES: usize = 1 << 20;
/// Pages that wait for the copy.
const PAGES: usize = 4;
/// Reads that are begun again because the revision was compacted meanwhile.
const ATTEMPTS: usize = 8;

/// The reason why the copy was not filled.
pub(crate) enum LoadError {
    Etcd(EtcdError),
    /// The local copy has failed.
    View,
}

impl From<EtcdError> for LoadError {
    fn from(error: EtcdError) -> Self {
        Self::Etcd(error)
    }
}

/// Replaces the local copy by the content of the prefix, and returns its revision, which is not before `seen`. Readers keep the
/// old content until then.
///
/// It reads at the revision of a barrier: the watches of the other replicas deliver that one, so that they pass it, too. The last
/// revision of the cluster may be one of another prefix, which they would not learn of. Without space in etcd it is used.
pub(crate) async fn load(
    connection: &Connection,
    claim: &Arc<Claim>,
    layout: &KeyLayout,
    seen: Revision,
    view: &mpsc::Sender<Command>,
) -> Result<Revision, LoadError> {
    for _ in 0..ATTEMPTS {
        let (pages, receiver) = mpsc::channel(PAGES);
        let (reply, done) = oneshot::channel();
        view.send(Command::Rebuild { pages: receiver, reply }).await.map_err(|_| LoadError::View)?;
        let barrier = write_barrier(connection.clone(), claim.clone(), layout.barrier()).await?;
        let at = barrier.map_or(0, |at| claim.offset.to_etcd(at));
        let Some(revision) = read(connection, claim, layout, at, &pages).await? else {
            tracing::info!("etcd was compacted while it was read; reading it again");
            continue;
        };
        connection.check_revision(revision, seen)?;
        pages.send(Page::End(revision)).await.map_err(|_| LoadError::View)?;
        done.await.map_err(|_| LoadError::View)?;
        return Ok(revision);
    }
    let cause = cause("it is compacted faster than it can be read");
    Err(LoadError::Etcd(EtcdError::Unreachable { cause }))
}

/// Reads at a revision of etcd, or at the last one for 0; returns it. `None`: it was compacted.
async fn read(
    connection: &Connection,
    claim: &Claim,
    layout: &KeyLayout,
    at: i64,
    pages: &mpsc::Sender<Page>,
) -> Result<Option<Revision>, LoadError> {
    let end = after(layout.prefix());
    let mut start = layout.prefix().to_vec();
    let (mut revision, mut limit) = (at, FIRST_PAGE_KEYS);
    loop {
        let options = GetOptions::new().with_range(end.clone()).with_limit(limit).with_revision(revision);
        let mut page = match tokio::time::timeout(
            connection.request_timeout(),
            connection.kv().get(start.clone(), Some(options)),
        )
        .await
        {
            Ok(Ok(page)) => page,
            Ok(Err(error)) if is_compacted(&error) => return Ok(None),
            Ok(Err(error)) => return Err(unreachable(connection, &error).into()),
            Err(_) => return Err(connection.too_slow().into()),
        };
        connection.check_cluster(claim.cluster, page.header())?;
        if revision == 0 {
            revision = page.header().map_or(0, etcd_client::ResponseHeader::revision);
        }
        let (more, found) = (page.more(), page.take_kvs());
        let Some(last) = found.last() else { break };
        start = [last.key(), &[0]].concat();
        let bytes: usize = found.iter().map(|kv| kv.key().len() + kv.value().len()).sum();
        limit = page_keys(found.len(), bytes);
        let records = found.into_iter().filter_map(|kv| {
            let key = layout.decode(kv.key())?;
            let created = claim.offset.to_store(kv.create_revision());
            let modified = claim.offset.to_store(kv.mod_revision());
            let (_, value) = kv.into_key_value();
            Some(Record { key, value: value.into(), created, modified })
        });
        pages.send(Page::Records(records.collect())).await.map_err(|_| LoadError::View)?;
        if !more {
            break;
        }
    }
    Ok(Some(claim.offset.to_store(revision)))
}

/// The number of keys to read next, after `keys` with these bytes.
fn page_keys(keys: usize, bytes: usize) -> i64 {
    let mean = bytes.div_ceil(keys.max(1)).max(1);
    i64::try_from(PAGE_BYTES / mean).unwrap_or(MAX_PAGE_KEYS).clamp(1, MAX_PAGE_KEYS)
}

fn unreachable(connection: &Connection, error: &Error) -> EtcdError {
    EtcdError::Unreachable { cause: cause(format!("{}: {}", connection.endpoint(), cause_of(error))) }
}

/// The first key after all keys with a prefix that ends with a slash.
fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_about_a_mebibyte() {
        for (keys, bytes, next) in [
            (64, 64 << 10, 1024),
            (1, 3 << 20, 1),
            (4096, 4096 * 10, 4096),
            (3, 0, 4096),
            (100, 100 * 300_000, 3),
        ] {
            assert_eq!(page_keys(keys, bytes), next, "{keys} keys of {bytes} bytes");
        }
    }
}
