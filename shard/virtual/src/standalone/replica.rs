//! A replica of a resource of a workspace.

use std::sync::Arc;

use fairlead_apiserver::registry::{ResourceReplica, ServedResource};
use fairlead_client::{Client, Event, ListWatch, Reflector, ReflectorOptions};
use fairlead_process::{ReadyFlag, Status};
use serde_json::Value;

/// A resource of a workspace, replicated into this process by a list and a watch. Its resourceVersions are those of the process.
#[derive(Clone)]
pub struct Replica {
    pub(super) resource: Arc<ServedResource>,
    pub(super) synced: ReadyFlag,
}

impl Replica {
    /// The resource, for the catalog of a view.
    pub fn resource(&self) -> Arc<ServedResource> {
        Arc::clone(&self.resource)
    }

    /// Whether the first list is complete; otherwise the reason for [`readiness`](crate::VirtualWorkspace::readiness).
    ///
    /// # Errors
    /// The reason.
    pub fn readiness(&self) -> Result<(), String> {
        if self.synced.is_set() {
            return Ok(());
        }
        Err(format!("{} are not replicated yet", self.resource.name))
    }

    /// Follows the collection at `path`. While the server does not respond, the last known state stays.
    pub(super) fn follow(
        &self,
        stored: Arc<ResourceReplica>,
        client: Client,
        path: String,
    ) -> impl Future<Output = Result<(), Status>> + Send + use<> {
        let synced = self.synced.clone();
        async move {
            let source = ListWatch::new(path);
            let mut reflector = Reflector::<Value>::new(client, source, ReflectorOptions::default());
            loop {
                match reflector.next().await {
                    Event::Replaced { items, .. } => {
                        stored.replace_all(items).await?;
                        synced.set();
                    }
                    Event::Applied(object) => stored.put(object).await?,
                    Event::Deleted(object) => stored.remove(&object).await?,
                    Event::Progress(_) => {}
                }
            }
        }
    }
}
