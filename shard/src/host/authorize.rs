//! The authorizers of a shard, in the order of `--authorization-order`. The first one that allows or denies decides;
//! if none does, the action is denied.

use std::sync::Arc;

use fairlead_api::group;
use fairlead_apiserver::authz::{Policy, Rule};
use fairlead_apiserver::{
    Action, Attributes, Authorization, AuthorizationFuture, AuthorizationStep, Decision, Scope, ScopeSelector,
};
use fairlead_authn::UserInfo;
use fairlead_config::{AuthorizationConfig, AuthorizerKind};
use fairlead_process::Status;

use super::access_webhook::AccessWebhook;
use super::rbac_chain::{RbacChain, ReviewDepth, is_in};
use crate::index::Definitions;

const GROUPS: &str = "AlwaysAllowGroups";
const PATHS: &str = "AlwaysAllowPaths";

/// The authorizer of the shard's API server, of reviews, and of admission.
pub(crate) struct Authorizer {
    rbac: RbacChain,
    order: Vec<OrderedAuthorizer>,
}

enum OrderedAuthorizer {
    AlwaysAllowGroups(Vec<String>),
    AlwaysAllowPaths(Vec<String>),
    Rbac,
    Webhook(Box<AccessWebhook>),
}

impl Authorizer {
    /// Authorizers in the configured order. `webhook` is called where the order names it.
    pub(crate) fn new(
        config: &AuthorizationConfig,
        rbac: RbacChain,
        mut webhook: Option<AccessWebhook>,
    ) -> Self {
        let order = config.order.iter().filter_map(|kind| {
            Some(match kind {
                AuthorizerKind::AlwaysAllowGroups => {
                    OrderedAuthorizer::AlwaysAllowGroups(config.always_allow_groups.clone())
                }
                AuthorizerKind::AlwaysAllowPaths => {
                    OrderedAuthorizer::AlwaysAllowPaths(config.always_allow_paths.clone())
                }
                AuthorizerKind::Rbac => OrderedAuthorizer::Rbac,
                AuthorizerKind::Webhook => OrderedAuthorizer::Webhook(Box::new(webhook.take()?)),
            })
        });
        Self { order: order.collect(), rbac }
    }

    /// Decides on a request. Without a webhook before the deciding authorizer this is a matter of microseconds, without
    /// allocation.
    pub(crate) fn authorize<'a>(&'a self, attributes: &Attributes<'a>) -> AuthorizationFuture<'a> {
        self.review(attributes, ReviewDepth::Request)
    }

    /// Decides on an action, as far as the depth of the review requires.
    pub(crate) fn review<'a>(
        &'a self,
        attributes: &Attributes<'a>,
        depth: ReviewDepth,
    ) -> AuthorizationFuture<'a> {
        let mut undecided = Undecided::default();
        for (index, authorizer) in self.order.iter().enumerate() {
            let Some(authorization) = self.without_io(authorizer, attributes, depth) else {
                let attributes = *attributes;
                return AuthorizationFuture::Pending(Box::pin(async move {
                    self.review_from(index, attributes, depth, undecided).await
                }));
            };
            match authorization.decision {
                Decision::NoOpinion => undecided.add(authorization),
                Decision::Allow | Decision::Deny(_) => return AuthorizationFuture::Ready(authorization),
            }
        }
        AuthorizationFuture::Ready(undecided.into_authorization())
    }

    /// Whether the authorizers without I/O allow an action, for expressions, which cannot wait for a webhook.
    pub(crate) fn is_allowed_locally(&self, attributes: &Attributes<'_>) -> bool {
        for authorizer in &self.order {
            match self.without_io(authorizer, attributes, ReviewDepth::Request) {
                Some(Authorization { decision: Decision::Allow, .. }) => return true,
                Some(Authorization { decision: Decision::Deny(_), .. }) => return false,
                Some(_) | None => {}
            }
        }
        false
    }

    async fn review_from(
        &self,
        first: usize,
        attributes: Attributes<'_>,
        depth: ReviewDepth,
        mut undecided: Undecided,
    ) -> Authorization {
        for authorizer in self.order.iter().skip(first) {
            let authorization = match (self.without_io(authorizer, &attributes, depth), authorizer) {
                (Some(authorization), _) => authorization,
                (None, OrderedAuthorizer::Webhook(webhook)) => webhook.authorize(&attributes).await,
                (None, _) => continue,
            };
            match authorization.decision {
                Decision::NoOpinion => undecided.add(authorization),
                Decision::Allow | Decision::Deny(_) => return authorization,
            }
        }
        undecided.into_authorization()
    }

    /// The result of an authorizer; `None` for a webhook, which has to be called. As in Kubernetes, members of
    /// `system:masters` never reach the webhook.
    fn without_io(
        &self,
        authorizer: &OrderedAuthorizer,
        attributes: &Attributes<'_>,
        depth: ReviewDepth,
    ) -> Option<Authorization> {
        Some(match authorizer {
            OrderedAuthorizer::AlwaysAllowGroups(groups) => {
                if groups.iter().any(|group| is_in(attributes.user, group)) {
                    Authorization::allow(GROUPS, "members of this group may do everything")
                } else {
                    Authorization::no_opinion(GROUPS, "")
                }
            }
            OrderedAuthorizer::AlwaysAllowPaths(paths) => match attributes.action {
                Action::NonResource { path, .. } if paths.iter().any(|known| is_path(known, path)) => {
                    Authorization::allow(PATHS, "everybody may read this path")
                }
                _ => Authorization::no_opinion(PATHS, ""),
            },
            OrderedAuthorizer::Rbac => self.rbac.authorize(attributes, depth),
            OrderedAuthorizer::Webhook(_) if is_in(attributes.user, group::MASTERS) => {
                Authorization::allow("Webhook", "members of system:masters may do everything")
            }
            OrderedAuthorizer::Webhook(_) => return None,
        })
    }

    /// The steps of the RBAC chain, for the audit log.
    pub(crate) fn steps(&self, attributes: &Attributes<'_>) -> Vec<AuthorizationStep> {
        self.rbac.steps(attributes)
    }

    /// Whether a user has a permission in another logical cluster, whether or not it has access to that: kcp's deep
    /// SubjectAccessReview.
    pub(crate) async fn permits_deep(&self, user: &UserInfo, cluster: &str, action: &Action<'_>) -> bool {
        let scopes = ScopeSelector::One(Scope::new(cluster));
        let attributes = Attributes::new(user, Some(&scopes), *action);
        self.review(&attributes, ReviewDepth::Deep).decided().await.is_allowed()
    }

    /// Whether a user has a permission in the logical cluster of its request.
    pub(crate) async fn permits(&self, user: &UserInfo, scope: &Scope, action: &Action<'_>) -> bool {
        let scopes = ScopeSelector::One(scope.clone());
        let attributes = Attributes::new(user, Some(&scopes), *action);
        self.review(&attributes, ReviewDepth::Request).decided().await.is_allowed()
    }

    /// Whether probes have to be authorized: if a webhook may deny them, or if they are not allowed to everybody.
    pub(crate) fn restricts_probes(&self) -> bool {
        for authorizer in &self.order {
            match authorizer {
                OrderedAuthorizer::AlwaysAllowPaths(paths) => {
                    let probes = ["/healthz", "/livez", "/readyz"];
                    return !probes.iter().all(|probe| paths.iter().any(|known| is_path(known, probe)));
                }
                OrderedAuthorizer::Webhook(_) => return true,
                OrderedAuthorizer::AlwaysAllowGroups(_) | OrderedAuthorizer::Rbac => {}
            }
        }
        true
    }

    /// The rules that a user has by RBAC in a logical cluster.
    pub(crate) fn rules(
        &self,
        user: &UserInfo,
        cluster: &str,
        namespace: Option<&str>,
    ) -> Result<Vec<Rule>, Status> {
        self.rbac.rules(user, cluster, namespace)
    }

    /// The policies that grant permissions in a logical cluster: its own and the global one.
    pub(crate) fn policies(&self, cluster: &str) -> Result<(Arc<Policy>, Arc<Policy>), Status> {
        self.rbac.policies(cluster)
    }

    /// The resources of all logical clusters.
    pub(crate) fn definitions(&self) -> &Definitions {
        &self.rbac.definitions
    }

    /// Whether the rules of [`rules`](Self::rules) are all that a user has: a webhook may grant more.
    pub(crate) fn knows_all_rules(&self) -> bool {
        !self.order.iter().any(|authorizer| matches!(authorizer, OrderedAuthorizer::Webhook(_)))
    }
}

/// The results of authorizers that neither allow nor deny.
#[derive(Default)]
struct Undecided(Option<Authorization>);

impl Undecided {
    /// Keeps the result that explains most: that of a webhook, or else of RBAC.
    fn add(&mut self, authorization: Authorization) {
        let explains = !authorization.reason.is_empty();
        if explains && self.0.as_ref().is_none_or(|_| authorization.is_disclosed) {
            self.0 = Some(authorization);
        }
    }

    fn into_authorization(self) -> Authorization {
        self.0.unwrap_or_else(|| Authorization::no_opinion("union", "no authorizer allows it"))
    }
}

/// Whether a path is allowed: exactly, or below a prefix that ends in `*`.
fn is_path(allowed: &str, path: &str) -> bool {
    let (allowed, path) = (allowed.trim_start_matches('/'), path.trim_start_matches('/'));
    match allowed.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => allowed == path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_exact_or_prefixes() {
        for (allowed, path, expected) in [
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/etcd", false),
            ("healthz", "/healthz", true),
            ("/readyz*", "/readyz/ping", true),
            ("/readyz/*", "/readyz", false),
            ("/*", "/anything", true),
        ] {
            assert_eq!(is_path(allowed, path), expected, "{allowed} {path}");
        }
    }

    #[test]
    fn the_reason_of_a_webhook_explains_a_denial() {
        let mut undecided = Undecided::default();
        undecided.add(Authorization::no_opinion(GROUPS, ""));
        undecided.add(Authorization::no_opinion("05-local", "no role permits it"));
        assert_eq!(undecided.0.as_ref().map(|known| known.authorizer), Some("05-local"));
        let mut webhook = Authorization::no_opinion("Webhook", "not on Sundays");
        webhook.is_disclosed = true;
        undecided.add(webhook);
        assert_eq!(undecided.into_authorization().client_reason(), "not on Sundays");
        assert_eq!(Undecided::default().into_authorization().client_reason(), "access denied");
    }
}
