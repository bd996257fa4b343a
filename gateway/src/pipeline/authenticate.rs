//! Who asks, judged where the request has come to.

use fairlead_authn::shows_token;
use fairlead_config::KcpBehaviour;
use tokio::time::Instant;

use crate::auth::identity::{Home, Sender, identify};
use crate::pipeline::{Asked, RequestPipeline};
use crate::policy::quota::{Exceeded, What};
use crate::request::decision_log::{At, Outcome};
use crate::request::response::Answer;
use crate::routing::resolver::Route;
use crate::telemetry::metrics::Phase;

impl RequestPipeline {
    pub(crate) fn identify(&self, asked: &Asked<'_>) -> impl Future<Output = Result<Sender, Answer>> {
        self.identify_at(asked, None)
    }

    /// In a workspace whose type has authenticators of its own, they have a say, too.
    pub(super) async fn identify_in(&self, asked: &Asked<'_>, route: &Route) -> Result<Sender, Answer> {
        let Route::Shard { cluster, workspace_type: Some(workspace_type), .. } = route else {
            return self.identify(asked).await;
        };
        let counts = asked.connection.door.policy.load().workspaces;
        let own = self.workspaces.as_ref().filter(|_| counts).and_then(|all| all.of(workspace_type));
        let home = own.as_deref().map(|authenticator| Home { authenticator, cluster });
        self.identify_at(asked, home.as_ref()).await
    }

    async fn identify_at(&self, asked: &Asked<'_>, home: Option<&Home<'_>>) -> Result<Sender, Answer> {
        if let Some(sender) = &asked.sender {
            return Ok(sender.clone());
        }
        let addresses = &asked.connection.door.quotas.addresses;
        let shows_one = shows_token(asked.headers);
        if shows_one {
            let limited = |wait| self.limited(asked, Exceeded::of_address(What::Failures, wait));
            addresses.may_try(asked.address).map_err(limited)?;
        }
        let start = Instant::now();
        let judged = identify(asked.connection, asked.headers, asked.uri, home, asked.steps).await;
        asked.seen.phase(Phase::Auth, start.elapsed());
        if let Ok(Sender::Known(identity)) = &judged {
            asked.seen.identity(identity);
            let policy = asked.connection.door.policy.load();
            policy.screen.user(identity.user()).map_err(|turned| {
                asked.tell(At::Identity, Outcome::Refused, || turned.to_string());
                Answer::from(turned)
            })?;
        }
        if matches!(judged, Ok(Sender::PassedOn)) {
            asked.tell(At::Identity, Outcome::Noted, || {
                "nobody here judges what is shown: the shard gets it as it is, and says who it is".to_owned()
            });
        }
        judged.map_err(|rejected| {
            asked.tell(At::Identity, Outcome::Refused, || rejected.to_string());
            tracing::debug!(door = %asked.connection.door.name, peer = %asked.connection.peer, %rejected, "not authenticated");
            if shows_one && asked.steps.is_none() {
                addresses.failed(asked.address);
            }
            // Whatever certificate there is: the workspace's issuers were asked about no token.
            if home.is_some() && !shows_one && self.does(KcpBehaviour::NoCredential) {
                Answer::kcp_panic()
            } else {
                Answer::unauthorized()
            }
        })
    }
}
