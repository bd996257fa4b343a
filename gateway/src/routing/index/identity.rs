//! Reads the identity hash of the export that serves workspaces. Paths for reading workspaces across logical clusters
//! contain it.

use std::sync::Arc;
use std::time::Duration;

use fairlead_client::{Backoff, Client};
use tokio::sync::watch;

use crate::routing::index::objects::ExportIdentity;

/// Interval of checks once the identity hash is known.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Reads the identity hash, with retries until it is found, then at an interval. `candidates` returns the shards to ask, in
/// order; it is called each time, because the shard of the root workspace may change.
pub(super) async fn read_identity(
    candidates: impl Fn() -> Vec<Client> + Send,
    identity: watch::Sender<Option<Arc<str>>>,
) {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
    loop {
        let mut found = None;
        for client in candidates() {
            found = read_hash(&client).await;
            if found.is_some() {
                break;
            }
        }
        let delay = match found {
            Some(hash) => {
                backoff.reset();
                identity.send_if_modified(|known| {
                    let changed = known.as_deref() != Some(hash.as_str());
                    *known = Some(hash.into());
                    changed
                });
                CHECK_INTERVAL
            }
            None => backoff.next_delay(),
        };
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = identity.closed() => return,
        }
    }
}

/// `client` addresses a shard that may have the root workspace, without a logical cluster.
async fn read_hash(client: &Client) -> Option<String> {
    let root = client.with_prefix("/clusters/root");
    match root.get("/apis/apis.kcp.io/v1alpha2/apiexports/tenancy.kcp.io").await {
        Ok(response) => match serde_json::from_slice::<ExportIdentity>(&response.body) {
            Ok(export) => export.into_hash(),
            Err(error) => {
                tracing::warn!(%error, "the export of workspaces does not decode");
                None
            }
        },
        Err(error) => {
            tracing::debug!(%error, "the export of workspaces cannot be read");
            None
        }
    }
}
