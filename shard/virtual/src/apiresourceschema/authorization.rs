//! The permissions in the view of a consumer: those on its APIBindings.

use fairlead_apiserver::{Action, Attributes, Authorization, Scope, ScopeSelector};

use super::APIS_GROUP;
use crate::shard::Shard;

const AUTHORIZER: &str = "virtual.apiresourceschema.authorization.kcp.io";

/// Permits reads to a user who may get APIBindings in the logical cluster, with the same rules as a request to it.
pub(super) async fn authorize(
    shard: &dyn Shard,
    attributes: &Attributes<'_>,
    consumer: &Scope,
) -> Authorization {
    let (Action::Resource { verb, .. } | Action::NonResource { verb, .. }) = attributes.action;
    if !matches!(verb, "get" | "list" | "watch") {
        return Authorization::deny(AUTHORIZER, "only read-only access is allowed to apiresourceschemas");
    }
    let scopes = ScopeSelector::One(consumer.clone());
    let action = Action::Resource {
        verb: "get",
        group: APIS_GROUP,
        version: "v1alpha2",
        resource: "apibindings",
        subresource: None,
        namespace: None,
        name: None,
    };
    let in_cluster = Attributes::new(attributes.user, Some(&scopes), action);
    shard.host().authorize(&in_cluster).decided().await
}
