//! Authentication of a request, by the listener's authenticators and those of the workspace that it is for.

use fairlead_authn::contains_token;
use fairlead_config::KcpBehaviour;
use tokio::time::Instant;

use crate::auth::identity::{RequestIdentity, WorkspaceAuthScope, identify};
use crate::pipeline::{RequestPipeline, RequestView};
use crate::policy::quota::{Exceeded, LimitKind};
use crate::request::decision_log::{Stage, StageResult};
use crate::request::response::LocalResponse;
use crate::routing::resolver::Route;
use crate::telemetry::metrics::RequestStage;

impl RequestPipeline {
    pub(crate) fn identify(
        &self,
        view: &RequestView<'_>,
    ) -> impl Future<Output = Result<RequestIdentity, LocalResponse>> {
        self.identify_at(view, None)
    }

    /// Authenticates with the workspace's own authenticators too, if its type has any.
    pub(super) async fn identify_in(
        &self,
        view: &RequestView<'_>,
        route: &Route,
    ) -> Result<RequestIdentity, LocalResponse> {
        let Route::Shard { cluster, workspace_type: Some(workspace_type), .. } = route else {
            return self.identify(view).await;
        };
        let counts = view.connection.listener.policy.load().workspaces;
        let own = self.workspaces.as_ref().filter(|_| counts).and_then(|all| all.of(workspace_type));
        let home = own.as_deref().map(|authenticator| WorkspaceAuthScope { authenticator, cluster });
        self.identify_at(view, home.as_ref()).await
    }

    async fn identify_at(
        &self,
        view: &RequestView<'_>,
        home: Option<&WorkspaceAuthScope<'_>>,
    ) -> Result<RequestIdentity, LocalResponse> {
        if let Some(identity) = &view.identity {
            return Ok(identity.clone());
        }
        let addresses = &view.connection.listener.quotas.addresses;
        let shows_one = contains_token(view.headers);
        if shows_one {
            let limited = |wait| self.limited(view, Exceeded::of_address(LimitKind::Failures, wait));
            addresses.may_try(view.address).map_err(limited)?;
        }
        let start = Instant::now();
        let judged = identify(view.connection, view.headers, view.uri, home, view.steps).await;
        view.stats.stage(RequestStage::Auth, start.elapsed());
        if let Ok(RequestIdentity::Authenticated(identity)) = &judged {
            view.stats.identity(identity);
            let policy = view.connection.listener.policy.load();
            policy.screen.user(identity.user()).map_err(|turned| {
                view.tell(Stage::Identity, StageResult::Refused, || turned.to_string());
                LocalResponse::from(turned)
            })?;
        }
        if matches!(judged, Ok(RequestIdentity::PassThrough)) {
            view.tell(Stage::Identity, StageResult::Info, || {
                "nobody here judges what is shown: the shard gets it as it is, and says who it is".to_owned()
            });
        }
        judged.map_err(|rejected| {
            view.tell(Stage::Identity, StageResult::Refused, || rejected.to_string());
            tracing::debug!(listener = %view.connection.listener.name, peer = %view.connection.peer, %rejected, "not authenticated");
            if shows_one && view.steps.is_none() {
                addresses.failed(view.address);
            }
            // As kcp: whatever certificate was presented, the workspace's issuers saw no token.
            if home.is_some() && !shows_one && self.does(KcpBehaviour::NoCredential) {
                LocalResponse::kcp_panic()
            } else {
                LocalResponse::unauthorized()
            }
        })
    }
}
