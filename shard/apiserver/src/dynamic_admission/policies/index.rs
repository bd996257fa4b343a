//! The policies and bindings of all scopes. A scope without policies costs nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairlead_names::ResourceName;
use fairlead_process::Status;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use serde_json::Value;

use super::super::follow::{FollowedResource, follow};
use super::binding::Binding;
use super::policy::{Policy, PolicyKind};
use crate::hub::Hub;
use crate::registry::ObjectStore;
use crate::scope::Scope;

const GROUP: &str = "admissionregistration.k8s.io";
const KINDS: [(PolicyKind, &str, &str); 2] = [
    (PolicyKind::Mutating, "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
    (PolicyKind::Validating, "validatingadmissionpolicies", "validatingadmissionpolicybindings"),
];

/// The policies by scope. The lock is held for a look-up or one update.
#[derive(Default)]
pub(in crate::dynamic_admission) struct PolicyIndex {
    scopes: RwLock<FxHashMap<Box<str>, ScopePolicies>>,
}

#[derive(Default)]
struct ScopePolicies {
    mutating: Policies,
    validating: Policies,
}

/// The policies of one kind, and those that have bindings.
#[derive(Default)]
struct Policies {
    policies: BTreeMap<Box<str>, Arc<Policy>>,
    bindings: BTreeMap<Box<str>, Arc<Binding>>,
    bound: Option<Arc<[BoundPolicy]>>,
}

/// A policy with its bindings. A policy without bindings reviews nothing.
#[derive(Clone, Debug)]
pub(super) struct BoundPolicy {
    pub(super) policy: Arc<Policy>,
    pub(super) bindings: Vec<Arc<Binding>>,
}

impl PolicyIndex {
    pub(in crate::dynamic_admission) fn follow(
        objects: &ObjectStore,
        hub: &Hub,
    ) -> Result<(Arc<Self>, Vec<Arc<FollowedResource>>), Status> {
        let index = Arc::new(Self::default());
        let mut followed = Vec::new();
        for (kind, policies, bindings) in KINDS {
            let follower = Arc::clone(&index);
            let receiver = move |scope: &str, name: &str, policy: Option<&Value>| {
                let policy = policy.map(|policy| Arc::new(Policy::parse(name, policy)));
                follower.change(kind, scope, |known| replace(&mut known.policies, name, policy));
            };
            followed.push(follow(objects, hub, ResourceName::new(GROUP, policies), Arc::new(receiver))?);
            let follower = Arc::clone(&index);
            let receiver = move |scope: &str, name: &str, binding: Option<&Value>| {
                let binding = binding.map(|binding| Arc::new(Binding::parse(name, binding)));
                follower.change(kind, scope, |known| replace(&mut known.bindings, name, binding));
            };
            followed.push(follow(objects, hub, ResourceName::new(GROUP, bindings), Arc::new(receiver))?);
        }
        Ok((index, followed))
    }

    /// Whether a scope has policies or bindings: a map look-up.
    pub(in crate::dynamic_admission) fn has_policies(&self, scope: &Scope) -> bool {
        self.scopes.read().contains_key(scope.as_str())
    }

    /// The bound policies of a scope in the order of their names; `None` if it has none.
    pub(super) fn bound(&self, kind: PolicyKind, scope: &str) -> Option<Arc<[BoundPolicy]>> {
        let scopes = self.scopes.read();
        let policies = scopes.get(scope)?;
        match kind {
            PolicyKind::Mutating => policies.mutating.bound.clone(),
            PolicyKind::Validating => policies.validating.bound.clone(),
        }
    }

    /// A policy by its name.
    pub(super) fn policy(&self, kind: PolicyKind, scope: &str, name: &str) -> Option<Arc<Policy>> {
        let scopes = self.scopes.read();
        let policies = scopes.get(scope)?;
        let of_kind = match kind {
            PolicyKind::Mutating => &policies.mutating,
            PolicyKind::Validating => &policies.validating,
        };
        of_kind.policies.get(name).cloned()
    }

    fn change(&self, kind: PolicyKind, scope: &str, change: impl FnOnce(&mut Policies)) {
        let mut scopes = self.scopes.write();
        let of_scope = scopes.entry(scope.into()).or_default();
        let policies = match kind {
            PolicyKind::Mutating => &mut of_scope.mutating,
            PolicyKind::Validating => &mut of_scope.validating,
        };
        change(policies);
        policies.bind();
        if of_scope.mutating.is_empty() && of_scope.validating.is_empty() {
            scopes.remove(scope);
        }
    }
}

fn replace<T>(known: &mut BTreeMap<Box<str>, Arc<T>>, name: &str, object: Option<Arc<T>>) {
    match object {
        Some(object) => known.insert(name.into(), object),
        None => known.remove(name),
    };
}

impl Policies {
    fn is_empty(&self) -> bool {
        self.policies.is_empty() && self.bindings.is_empty()
    }

    fn bind(&mut self) {
        let mut by_policy: FxHashMap<&str, Vec<Arc<Binding>>> = FxHashMap::default();
        for binding in self.bindings.values() {
            by_policy.entry(&*binding.policy).or_default().push(Arc::clone(binding));
        }
        let bound = self.policies.iter().filter_map(|(name, policy)| {
            let bindings = by_policy.remove(&**name)?;
            Some(BoundPolicy { policy: Arc::clone(policy), bindings })
        });
        let bound: Arc<[BoundPolicy]> = bound.collect();
        self.bound = (!bound.is_empty()).then_some(bound);
    }
}
