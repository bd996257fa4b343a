//! Requests that show how far etcd is and whether it is still the same one: the barrier, and the owner's record.

use std::sync::Arc;

use etcd_client::{Event, EventType, Txn, TxnOp};
use fairlead_store::Revision;

use crate::client::Connection;
use crate::error::{EtcdError, Failure, cause};
use crate::owner::Claim;

/// Writes the barrier; returns its revision, or `None` if etcd refuses writes.
pub(crate) async fn write_barrier(
    connection: Connection,
    claim: Arc<Claim>,
    key: Vec<u8>,
) -> Result<Option<Revision>, EtcdError> {
    let mut kv = connection.kv();
    let write = [TxnOp::put(key, Vec::new(), None)];
    let written = kv.txn(Txn::new().when([claim.comparison()]).and_then(write));
    match tokio::time::timeout(connection.request_timeout(), written).await {
        Ok(Ok(response)) if response.succeeded() => {
            Ok(response.header().map(|header| claim.offset.to_store(header.revision())))
        }
        Ok(Ok(_)) => Err(replaced(&connection)),
        Ok(Err(error)) => match Failure::from(error) {
            Failure::Refused(reason) => {
                tracing::warn!(%reason, "etcd refuses writes");
                Ok(None)
            }
            failure => Err(lost(&connection, &failure.into_cause())),
        },
        Err(_) => Err(connection.too_slow()),
    }
}

/// Reads the owner's record with the agreement of a majority; returns the cluster's revision.
pub(crate) async fn verify(connection: &Connection, claim: &Claim) -> Result<Revision, EtcdError> {
    let response = connection.request(connection.kv().get(claim.key.clone(), None)).await?;
    connection.check_cluster(claim.cluster, response.header())?;
    if response.kvs().first().is_none_or(|kv| kv.value() != claim.record) {
        return Err(replaced(connection));
    }
    Ok(response.header().map(|header| claim.offset.to_store(header.revision())).unwrap_or_default())
}

/// The last of these events that replaces or deletes the owner's record, by its revision. Whatever else they tell is not of this
/// store: someone who empties the prefix deletes the record in the same transaction, and the local copies are then all that is left.
pub(crate) fn replacement(claim: &Claim, events: &[Event]) -> Option<Revision> {
    let is_replacement = |event: &&Event| {
        event.kv().is_some_and(|kv| {
            kv.key() == claim.key && (event.event_type() == EventType::Delete || kv.value() != claim.record)
        })
    };
    let last = events.iter().rfind(is_replacement)?;
    last.kv().map(|kv| claim.offset.to_store(kv.mod_revision()))
}

pub(crate) fn replaced(connection: &Connection) -> EtcdError {
    let reason = "the prefix has another owner's record, or none: its content was replaced".to_owned();
    EtcdError::Foreign { endpoint: connection.endpoint().to_string(), reason }
}

pub(crate) fn lost(connection: &Connection, reason: &dyn std::fmt::Display) -> EtcdError {
    EtcdError::Unreachable { cause: cause(format!("{}: {reason}", connection.endpoint())) }
}
