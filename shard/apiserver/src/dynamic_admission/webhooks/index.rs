//! The webhook configurations of all scopes. A scope without configurations costs nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairlead_names::ResourceName;
use fairlead_process::Status;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use serde_json::Value;

use super::super::follow::{FollowedResource, follow};
use super::configuration::{Webhook, WebhookKind};
use crate::hub::Hub;
use crate::registry::ObjectStore;

const GROUP: &str = "admissionregistration.k8s.io";
const KINDS: [(WebhookKind, &str); 2] = [
    (WebhookKind::Mutating, "mutatingwebhookconfigurations"),
    (WebhookKind::Validating, "validatingwebhookconfigurations"),
];

/// The webhooks by scope. The lock is held for a look-up or one update.
#[derive(Default)]
pub(super) struct ConfigurationIndex {
    scopes: RwLock<FxHashMap<Box<str>, Configurations>>,
}

#[derive(Default)]
struct Configurations {
    mutating: Webhooks,
    validating: Webhooks,
}

/// The configurations by name, and the webhooks of all of them in the order of their calls.
#[derive(Default)]
struct Webhooks {
    by_configuration: BTreeMap<Box<str>, Vec<Arc<Webhook>>>,
    all: Option<Arc<[Arc<Webhook>]>>,
}

impl ConfigurationIndex {
    pub(super) fn follow(
        objects: &ObjectStore,
        hub: &Hub,
    ) -> Result<(Arc<Self>, Vec<Arc<FollowedResource>>), Status> {
        let index = Arc::new(Self::default());
        let mut followed = Vec::new();
        for (kind, resource) in KINDS {
            let follower = Arc::clone(&index);
            let receiver = move |scope: &str, name: &str, configuration: Option<&Value>| match configuration {
                Some(configuration) => follower.replace(kind, scope, name, configuration),
                None => follower.remove(kind, scope, name),
            };
            followed.push(follow(objects, hub, ResourceName::new(GROUP, resource), Arc::new(receiver))?);
        }
        Ok((index, followed))
    }

    /// The webhooks of a scope in the order of their calls; `None` if it has none.
    pub(super) fn webhooks(&self, kind: WebhookKind, scope: &str) -> Option<Arc<[Arc<Webhook>]>> {
        let scopes = self.scopes.read();
        let configurations = scopes.get(scope)?;
        match kind {
            WebhookKind::Mutating => configurations.mutating.all.clone(),
            WebhookKind::Validating => configurations.validating.all.clone(),
        }
    }

    /// Whether a scope has configurations.
    pub(super) fn has_webhooks(&self, scope: &str) -> bool {
        self.scopes.read().contains_key(scope)
    }

    fn replace(&self, kind: WebhookKind, scope: &str, name: &str, configuration: &Value) {
        let webhooks = Webhook::all_of(kind, configuration);
        let mut scopes = self.scopes.write();
        let of_kind = scopes.entry(scope.into()).or_default().of(kind);
        of_kind.by_configuration.insert(name.into(), webhooks);
        of_kind.collect();
    }

    fn remove(&self, kind: WebhookKind, scope: &str, name: &str) {
        let mut scopes = self.scopes.write();
        let Some(configurations) = scopes.get_mut(scope) else { return };
        let of_kind = configurations.of(kind);
        of_kind.by_configuration.remove(name);
        of_kind.collect();
        let is_empty = configurations.mutating.by_configuration.is_empty()
            && configurations.validating.by_configuration.is_empty();
        if is_empty {
            scopes.remove(scope);
        }
    }
}

impl Configurations {
    fn of(&mut self, kind: WebhookKind) -> &mut Webhooks {
        match kind {
            WebhookKind::Mutating => &mut self.mutating,
            WebhookKind::Validating => &mut self.validating,
        }
    }
}

impl Webhooks {
    fn collect(&mut self) {
        let all: Arc<[_]> = self.by_configuration.values().flatten().cloned().collect();
        self.all = (!all.is_empty()).then_some(all);
    }
}
