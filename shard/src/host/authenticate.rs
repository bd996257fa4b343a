//! Authentication of requests: request headers of a trusted proxy, client certificates, tokens, or anonymous.

use std::sync::Arc;

use fairlead_apiserver::serve::identify;
use fairlead_authn::{Chain, Identity, Outcome};
use fairlead_process::{Reloadable, Status};
use http::request::Parts;

/// The shard's authenticators.
pub(crate) struct Authentication(Arc<Reloadable<Chain>>);

impl Authentication {
    /// Uses a chain that can be replaced at run time.
    pub(crate) fn new(chain: Arc<Reloadable<Chain>>) -> Self {
        Self(chain)
    }

    /// The identity of the client. For a connection with a known certificate this allocates nothing.
    ///
    /// # Errors
    /// 401 for a credential that no authenticator accepts.
    pub(crate) async fn authenticate(&self, parts: &Parts) -> Result<Arc<Identity>, Status> {
        match identify(&self.0.load(), parts).await {
            Outcome::Identified(identity) => Ok(identity),
            Outcome::Anonymous => Ok(Identity::anonymous()),
            Outcome::Rejected(rejection) => {
                tracing::debug!(%rejection, "a credential was rejected");
                Err(Status::unauthorized())
            }
        }
    }
}
