//! The settings of authorization at a shard.

use serde::{Deserialize, Serialize};

use crate::authentication::ReviewVersion;
use crate::check::Checker;
use crate::setting::{plain_settings, settings};
use crate::units::Timespan;
use crate::values::SecretFile;

settings! {
    /// Authorizers of a shard.
    pub struct AuthorizationConfig {
        /// The order of authorizers: AlwaysAllowGroups, AlwaysAllowPaths, RBAC, Webhook. The first decision counts.
        /// Flag: --authorization-order.
        order ("order"): Vec<AuthorizerKind> = AuthorizerKind::ALL.into();
        /// Paths that everybody may read, exact or with * at the end. Flag: --authorization-always-allow-paths.
        always_allow_paths ("alwaysAllowPaths"): Vec<String> = ALWAYS_ALLOW_PATHS.map(str::to_owned).into();
        /// Groups whose members may do everything.
        always_allow_groups ("alwaysAllowGroups"): Vec<String> = vec!["system:masters".to_owned()];
        /// A webhook that reviews access.
        webhook ("webhook"): Option<AuthorizationWebhookConfig> = None;
    }

    /// A webhook that reviews access.
    pub struct AuthorizationWebhookConfig {
        /// Kubeconfig with its URL and credentials. Flag: --authorization-webhook-config-file.
        kubeconfig ("kubeconfig"): SecretFile = "authorization-webhook.kubeconfig".into();
        /// Version of SubjectAccessReview: v1beta1 or v1. Flag: --authorization-webhook-version.
        version ("version"): ReviewVersion = ReviewVersion::V1beta1;
        /// Time for which an allowed access is cached. Flag: --authorization-webhook-cache-authorized-ttl.
        authorized_ttl ("authorizedTTL"): Timespan = Timespan::from_secs(300);
        /// Time for which a denied access is cached. Flag: --authorization-webhook-cache-unauthorized-ttl.
        unauthorized_ttl ("unauthorizedTTL"): Timespan = Timespan::from_secs(30);
    }
}

/// Paths that everybody may read.
pub(crate) const ALWAYS_ALLOW_PATHS: [&str; 3] = ["/healthz", "/readyz", "/livez"];

/// An authorizer of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthorizerKind {
    /// Allows every request of certain groups.
    AlwaysAllowGroups,
    /// Allows certain paths for everybody.
    AlwaysAllowPaths,
    /// Roles and bindings.
    #[serde(rename = "RBAC")]
    Rbac,
    /// A webhook.
    Webhook,
}

impl AuthorizerKind {
    /// All authorizers, in the default order.
    pub const ALL: [Self; 4] = [Self::AlwaysAllowGroups, Self::AlwaysAllowPaths, Self::Rbac, Self::Webhook];
}

plain_settings!(AuthorizerKind);

impl AuthorizationConfig {
    pub(crate) fn check(&self, checker: &mut Checker) {
        if self.order.is_empty() {
            let message = "without an authorizer every request is denied";
            checker.fault("order", message, "name at least AlwaysAllowGroups and RBAC");
        }
        for (index, kind) in self.order.iter().enumerate() {
            if self.order[..index].contains(kind) {
                let key = format!("order[{index}]");
                checker.fault(&key, "this authorizer is named twice", "name each authorizer once");
            }
        }
        if self.webhook.is_some() && !self.order.contains(&AuthorizerKind::Webhook) {
            checker.fault("webhook", "order does not name the webhook", "add Webhook to order");
        }
    }
}
