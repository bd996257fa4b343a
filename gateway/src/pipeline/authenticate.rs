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
        let scope = own.as_deref().map(|authenticator| WorkspaceAuthScope { authenticator, cluster });
        self.identify_at(view, scope.as_ref()).await
    }

    async fn identify_at(
        &self,
        view: &RequestView<'_>,
        scope: Option<&WorkspaceAuthScope<'_>>,
    ) -> Result<RequestIdentity, LocalResponse> {
        if let Some(identity) = &view.identity {
            return Ok(identity.clone());
        }
        let addresses = &view.connection.listener.quotas.addresses;
        let presents_credential = contains_token(view.headers);
        if presents_credential {
            let limited = |wait| self.limited(view, Exceeded::of_address(LimitKind::Failures, wait));
            addresses.may_try(view.address).map_err(limited)?;
        }
        let start = Instant::now();
        let outcome = identify(view.connection, view.headers, view.uri, scope, view.decision_log).await;
        view.stats.stage(RequestStage::Auth, start.elapsed());
        if let Ok(RequestIdentity::Authenticated(identity)) = &outcome {
            view.stats.identity(identity);
            let policy = view.connection.listener.policy.load();
            policy.request_filter.user(identity.user()).map_err(|rejection| {
                view.log_decision(Stage::Identity, StageResult::Refused, || rejection.to_string());
                LocalResponse::from(rejection)
            })?;
        }
        if matches!(outcome, Ok(RequestIdentity::PassThrough)) {
            view.log_decision(Stage::Identity, StageResult::Info, || {
                "the listener does not authenticate this credential: the shard does".to_owned()
            });
        }
        outcome.map_err(|rejected| {
            view.log_decision(Stage::Identity, StageResult::Refused, || rejected.to_string());
            tracing::debug!(listener = %view.connection.listener.name, peer = %view.connection.peer, %rejected, "not authenticated");
            if presents_credential && view.decision_log.is_none() {
                addresses.failed(view.address);
            }
            // As kcp: whatever certificate was presented, the workspace's issuers saw no token.
            if scope.is_some() && !presents_credential && self.emulates_kcp(KcpBehaviour::NoCredential) {
                LocalResponse::kcp_panic()
            } else {
                LocalResponse::unauthorized()
            }
        })
    }
}
