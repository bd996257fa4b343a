//! Whether the local copy and the cluster have the same history.
//!
//! A cluster that was set back, such as by a restored backup, can keep its identifier and has the same owner's record. Its
//! revisions are lower at first; once others have written to it, they are not. Then a copy from before would continue with
//! commits that do not follow its own. So each session compares the last changes of the copy with the same keys in the
//! cluster, as they were at the last revision that the copy has seen.
//!
//! Cost: one request, and the last rows of the copy's log. A copy whose log is compacted is read once: some 0.3 µs for each
//! record.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use bytes::Bytes;
use etcd_client::{GetOptions, Txn, TxnOp, TxnOpResponse};
use fairlead_store::{Advance, Range, ReadError, Record, Replica, Revision};

use crate::client::Connection;
use crate::error::{EtcdError, cause, cause_of, is_compacted};
use crate::keys::KeyLayout;
use crate::owner::Claim;

/// Keys that are compared, in one transaction. Every etcd allows two operations, without which there is no commit.
const KEYS: usize = 2;
/// Revisions before the last one among which a change is looked for at first.
const FIRST_DISTANCE: u64 = 64;
/// Batches that are read at most, which bounds the time in a copy that is far behind its own log.
const BATCHES: usize = 4096;

/// The comparison of a copy with its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum History {
    Same,
    /// The cluster has compacted the revision of the copy.
    Compacted,
}

/// Compares the last changes of the copy with the cluster at `position`, up to which the copy has everything.
///
/// # Errors
/// [`EtcdError::Foreign`]: the cluster has gone another way than the copy.
pub(crate) async fn compare_history(
    connection: &Connection,
    claim: &Claim,
    layout: &KeyLayout,
    replica: &Replica,
    position: Revision,
) -> Result<History, EtcdError> {
    let at = replica.revision();
    let failed = |error: ReadError| EtcdError::Unreachable {
        cause: cause(format!("the local copy cannot be read: {error}")),
    };
    let keys = changed_keys(replica, at).await.map_err(failed)?;
    if keys.is_empty() {
        return Ok(History::Same);
    }
    let options = GetOptions::new().with_revision(claim.offset.to_etcd(position.max(at)));
    let reads: Vec<_> =
        keys.iter().map(|key| TxnOp::get(layout.encode(key), Some(options.clone()))).collect();
    let mut kv = connection.kv();
    let read = kv.txn(Txn::new().and_then(reads));
    let response = match tokio::time::timeout(connection.request_timeout(), read).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) if is_compacted(&error) => return Ok(History::Compacted),
        Ok(Err(error)) => {
            let cause = cause(format!("{}: {}", connection.endpoint(), cause_of(&error)));
            return Err(EtcdError::Unreachable { cause });
        }
        Err(_) => return Err(connection.too_slow()),
    };
    connection.check_cluster(claim.cluster, response.header())?;
    let found = response.op_responses();
    if found.len() != keys.len() {
        return Err(connection.malformed());
    }
    for (key, found) in keys.iter().zip(found) {
        let TxnOpResponse::Get(found) = found else { return Err(connection.malformed()) };
        let copied = record_at(replica, key, at).map_err(failed)?;
        let is_same = match (&copied, found.kvs().first()) {
            (None, None) => true,
            (Some(copied), Some(kv)) => {
                copied.modified == claim.offset.to_store(kv.mod_revision()) && copied.value == kv.value()
            }
            _ => false,
        };
        if !is_same {
            let reason =
                format!("at revision {at} it has other data than the local copy: a backup was restored");
            return Err(EtcdError::Foreign { endpoint: connection.endpoint().to_string(), reason });
        }
    }
    Ok(History::Same)
}

/// Some of the keys that were changed last, up to a revision. None in an empty copy.
async fn changed_keys(replica: &Replica, at: Revision) -> Result<VecDeque<Bytes>, ReadError> {
    let oldest = replica.compacted();
    let mut distance = FIRST_DISTANCE;
    loop {
        let after = Revision(at.0.saturating_sub(distance)).max(oldest).min(at);
        let keys = keys_in_log(replica, after, at).await?;
        if !keys.is_empty() {
            return Ok(keys);
        }
        if after == oldest || after == Revision(0) {
            break;
        }
        distance = distance.saturating_mul(4);
    }
    let replica = replica.clone();
    let newest = tokio::task::spawn_blocking(move || newest_key(&replica, at)).await;
    newest.map_err(|error| ReadError::Io(std::sync::Arc::new(error)))?
}

async fn keys_in_log(replica: &Replica, after: Revision, at: Revision) -> Result<VecDeque<Bytes>, ReadError> {
    let mut keys = VecDeque::new();
    let mut follower = replica.follow(after)?;
    for _ in 0..BATCHES {
        if follower.position() >= at {
            break;
        }
        match follower.advance().await {
            Ok(Advance::Batch(batch)) if batch.revision <= at => {
                for event in &batch.events {
                    keys.retain(|known| *known != event.key);
                    keys.push_back(event.key.clone());
                    keys.drain(..keys.len().saturating_sub(KEYS));
                }
            }
            Ok(Advance::Batch(_)) => break,
            Ok(Advance::Position(_)) => {}
            // A compaction came first: what was found is as good.
            Err(_) => break,
        }
    }
    Ok(keys)
}

/// The key that was modified last, of those that exist.
fn newest_key(replica: &Replica, at: Revision) -> Result<VecDeque<Bytes>, ReadError> {
    let mut newest: Option<(Revision, Vec<u8>)> = None;
    replica.scan(&Range::all(), Some(at), &mut |record| {
        if newest.as_ref().is_none_or(|(modified, _)| *modified < record.modified) {
            newest = Some((record.modified, record.key.to_vec()));
        }
        ControlFlow::Continue(())
    })?;
    Ok(newest.into_iter().map(|(_, key)| key.into()).collect())
}

fn record_at(replica: &Replica, key: &[u8], at: Revision) -> Result<Option<Record>, ReadError> {
    let mut found = None;
    let only = Range::between(key.to_vec(), [key, &[0]].concat());
    replica.scan(&only, Some(at), &mut |record| {
        found = Some(record.to_record());
        ControlFlow::Break(())
    })?;
    Ok(found)
}
