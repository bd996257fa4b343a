//! The LogicalClusters that wait for an initializer or terminator.

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::registry::{Catalog, ServedResource, Target};
use fairlead_apiserver::request::LabelSelector;
use fairlead_apiserver::resource::{Verb, Verbs};
use fairlead_apiserver::{Attributes, Authorization};
use fairlead_authn::{AuthenticationMethod, Identity, UserInfo};
use fairlead_process::Status;
use serde_json::Value;

use super::status::check_change;
use super::{Controller, Lifecycle};
use crate::filtered::{ViewRules, filtered};
use crate::shard::Shard;
use crate::workspace::View;

/// The user of status changes: the shard itself, as in kcp, because a controller has no permission in the logical cluster. The audit
/// log has the client.
const SYSTEM_USER: &str = "system:apiserver";
const MASTERS: &str = "system:masters";

/// The logical clusters of a view.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Extent {
    /// All logical clusters of the shard.
    EveryCluster,
    /// One logical cluster.
    OneCluster,
}

/// The view of one initializer or terminator.
pub(super) struct LifecycleView {
    controller: Controller,
    catalog: Arc<Catalog>,
    shard: Arc<dyn Shard>,
}

struct LifecycleRules {
    controller: Controller,
    labels: LabelSelector,
    system: Arc<Identity>,
}

impl LifecycleView {
    pub(super) fn new(
        controller: Controller,
        extent: Extent,
        logical_clusters: Arc<ServedResource>,
        shard: Arc<dyn Shard>,
    ) -> Self {
        let (verbs, status_verbs) = match extent {
            Extent::EveryCluster => (Verbs::of(&[Verb::Get, Verb::List, Verb::Watch]), Verbs::default()),
            Extent::OneCluster => {
                (Verbs::of(&[Verb::Get]), Verbs::of(&[Verb::Get, Verb::Patch, Verb::Update]))
            }
        };
        let rules = Arc::new(LifecycleRules::new(controller.clone()));
        let resource = filtered(logical_clusters, verbs, |_| Some(status_verbs), rules);
        Self { controller, catalog: Arc::new(Catalog::new(vec![Arc::new(resource)])), shard }
    }
}

#[async_trait]
impl View for LifecycleView {
    fn catalog(&self) -> Result<Arc<Catalog>, Status> {
        Ok(Arc::clone(&self.catalog))
    }

    async fn authorize(&self, attributes: &Attributes<'_>) -> Authorization {
        let authorizer = self.controller.lifecycle.service();
        if self.controller.admits(attributes.user, &*self.shard).await {
            Authorization::allow(authorizer, "a role permits the verb on the WorkspaceType")
        } else {
            Authorization::no_opinion(authorizer, "no role permits the verb on the WorkspaceType")
        }
    }
}

impl LifecycleRules {
    fn new(controller: Controller) -> Self {
        let (key, value) = controller.label();
        // The label of the controller selects fewest objects, so it is the first.
        let own = LabelSelector::of_labels([(&*key, &*value)]);
        let labels = match controller.lifecycle {
            Lifecycle::Initializing => {
                own.and(&LabelSelector::of_labels([(fairlead_api::label::PHASE, "Initializing")]))
            }
            Lifecycle::Terminating => own,
        };
        let user = UserInfo {
            name: SYSTEM_USER.to_owned(),
            groups: vec![MASTERS.to_owned()],
            ..UserInfo::default()
        };
        let system = Arc::new(Identity::new(user, AuthenticationMethod::ClientCertificate, None));
        Self { controller, labels, system }
    }
}

impl ViewRules for LifecycleRules {
    fn labels(&self) -> &LabelSelector {
        &self.labels
    }

    fn only_deleting(&self) -> bool {
        self.controller.lifecycle == Lifecycle::Terminating
    }

    fn identity(&self, target: &Target) -> Arc<Identity> {
        Arc::clone(if target.verb.is_write() { &self.system } else { &target.identity })
    }

    fn change(
        &self,
        _target: &Target,
        name: &str,
        old: Option<&Value>,
        new: &mut Value,
    ) -> Result<(), Status> {
        // A view without creates has the old state.
        check_change(&self.controller, name, old.unwrap_or(&Value::Null), new)
    }
}
