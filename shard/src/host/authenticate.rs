//! Authentication of requests: request headers of a trusted proxy, client certificates, tokens, or anonymous.

use std::sync::Arc;

use fairlead_apiserver::serve::{identify, identify_in, is_gateway};
use fairlead_authn::{AnonymousAccess, Chain, Identity, Outcome};
use fairlead_process::{Reloadable, Status};
use http::Extensions;
use http::header::AUTHORIZATION;
use http::request::Parts;

use crate::workspace_authentication::WorkspaceAuthenticators;

/// The authenticators of all logical clusters, and the requests that need none.
pub(crate) struct Authenticators {
    pub(crate) chain: Chain,
    /// Requests without a credential that are those of `system:anonymous`; the others get 401.
    pub(crate) anonymous: AnonymousRequests,
}

/// The requests without a credential that are admitted.
pub(crate) enum AnonymousRequests {
    All,
    None,
    /// Those of an AuthenticationConfiguration.
    Configured(AnonymousAccess),
}

impl AnonymousRequests {
    fn admit(&self, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Configured(access) => access.admits(path),
        }
    }
}

/// The shard's authentication.
pub(crate) struct Authentication {
    authenticators: Arc<Reloadable<Authenticators>>,
    workspaces: Option<Arc<WorkspaceAuthenticators>>,
}

impl Authentication {
    /// Uses authenticators that can be replaced at run time, and those of workspace types if they may have any.
    pub(crate) fn new(
        authenticators: Arc<Reloadable<Authenticators>>,
        workspaces: Option<Arc<WorkspaceAuthenticators>>,
    ) -> Self {
        Self { authenticators, workspaces }
    }

    /// Whether the peer of a connection is a gateway. It is called only for requests that say so.
    pub(crate) fn is_gateway(&self, connection: &Extensions) -> bool {
        is_gateway(&self.authenticators.load().chain, connection)
    }

    /// The identity of the client. For a connection with a known certificate this allocates nothing. `cluster` finds the
    /// logical cluster of the request; it is called only for requests with a token, if workspaces may have issuers.
    ///
    /// # Errors
    /// 401 for a credential that no authenticator accepts.
    pub(crate) async fn authenticate(
        &self,
        parts: &Parts,
        cluster: impl FnOnce() -> Option<String>,
    ) -> Result<Arc<Identity>, Status> {
        let authenticators = self.authenticators.load();
        let cluster = match &self.workspaces {
            Some(workspaces) if parts.headers.contains_key(AUTHORIZATION) => {
                cluster().map(|cluster| (cluster, workspaces))
            }
            _ => None,
        };
        let workspace = match cluster {
            // Boxed, because it may ask another shard, and the future of each request would reserve 4 KiB for that.
            Some((cluster, workspaces)) => Box::pin(workspaces.of(&cluster)).await.map(|own| (cluster, own)),
            None => None,
        };
        let outcome = match &workspace {
            Some((cluster, own)) => identify_in(&authenticators.chain, parts, own, cluster).await,
            None => identify(&authenticators.chain, parts).await,
        };
        match outcome {
            Outcome::Identified(identity) => Ok(identity),
            Outcome::Anonymous if authenticators.anonymous.admit(parts.uri.path()) => {
                Ok(Identity::anonymous())
            }
            Outcome::Anonymous => Err(Status::unauthorized()),
            Outcome::Rejected(rejection) => {
                tracing::debug!(%rejection, "a credential was rejected");
                Err(Status::unauthorized())
            }
        }
    }
}
