//! Maintains the default objects of namespaces, and removes deleted namespaces with their content.
//!
//! A namespace that is marked for deletion refuses new objects, because a create depends on its revision
//! ([`NamespaceLifecycle`](fairlead_apiserver::registry::NamespaceLifecycle)). So the objects that are found after the
//! mark are all that can exist. The namespace is removed in the last commit.
//!
//! In a logical cluster with webhooks or policies, each object is deleted through admission instead ([`reviewed`]).

mod reviewed;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fairlead_apiserver::hub::{Hub, ObjectEvent};
use fairlead_apiserver::object::ObjectMetaRef;
use fairlead_apiserver::registry::{ObjectStore, StoredObject};
use fairlead_apiserver::{DynamicAdmission, Scope};
use fairlead_process::Status;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::deletion::{NAMESPACE_FINALIZER, Sweep, commit, commit_sweep, pause, visit_all};
use super::logical_cluster::namespace_content;
use crate::controller_runtime::{Controller, ReconcileOutcome};
use crate::index::{ClusterIndex, Definitions};
use crate::names::{BUILT_IN, CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS};
use crate::writes::Writes;

pub(crate) use reviewed::{ReviewQueue, ReviewedNamespaces};

/// Logical cluster and name of a namespace.
pub(crate) type NamespaceKey = (Box<str>, Box<str>);

/// Controller of Namespaces.
pub(crate) struct Namespaces {
    pub(crate) objects: ObjectStore,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) clusters: Arc<ClusterIndex>,
    pub(crate) hub: Hub,
    pub(crate) admission: Arc<DynamicAdmission>,
    pub(crate) reviews: Arc<ReviewQueue>,
    /// PEM bundle for `kube-root-ca.crt`.
    pub(crate) serving_ca: String,
}

impl Namespaces {
    /// The namespace to reconcile after an event of a Namespace or of one of its default objects.
    pub(crate) fn keys_of(event: &ObjectEvent) -> Option<NamespaceKey> {
        if event.resource == *NAMESPACES {
            return (!event.is_deletion()).then(|| ((*event.scope).into(), event.name.clone()));
        }
        let is_relevant = if event.resource == *SERVICE_ACCOUNTS {
            event.is_deletion() && &*event.name == "default"
        } else {
            let is_created = event.change.previous().is_none();
            event.resource == *CONFIG_MAPS && !is_created && &*event.name == "kube-root-ca.crt"
        };
        let namespace = event.namespace.clone().filter(|_| is_relevant)?;
        Some(((*event.scope).into(), namespace))
    }
}

#[async_trait]
impl Controller for Namespaces {
    type Key = NamespaceKey;

    const NAME: &'static str = "namespace";
    const WORKERS: usize = 16;

    async fn reconcile(&self, key: &NamespaceKey) -> Result<ReconcileOutcome, Status> {
        let (cluster, name) = key;
        // The `deletion` controller removes the content of a deleted logical cluster.
        if self.clusters.get(cluster).is_some_and(|state| state.is_deleted) {
            return Ok(ReconcileOutcome::Done);
        }
        let scope = Scope::new(cluster);
        let Some(stored) = self.objects.get(&NAMESPACES, &BUILT_IN, &scope, None, name)? else {
            return Ok(ReconcileOutcome::Done);
        };
        let meta = ObjectMetaRef::parse(stored.object.as_object()).map_err(Status::internal)?;
        if meta.deletion_timestamp.is_none() {
            return self.fill(&stored, name).await;
        }
        let namespace = self.objects.tree(&stored)?;
        if !has_content(&namespace) {
            return Ok(ReconcileOutcome::Done);
        }
        if self.admission.has_configurations(&scope) {
            self.reviews.add(key);
            return Ok(ReconcileOutcome::Done);
        }
        self.sweep(name, &stored, &namespace).await
    }
}

impl Namespaces {
    /// A namespace whose content is to be deleted by this controller.
    fn terminating(&self, cluster: &str, name: &str) -> Result<Option<(StoredObject, Value)>, Status> {
        if self.clusters.get(cluster).is_some_and(|state| state.is_deleted) {
            return Ok(None);
        }
        let Some(stored) = self.objects.get(&NAMESPACES, &BUILT_IN, &Scope::new(cluster), None, name)? else {
            return Ok(None);
        };
        let namespace = self.objects.tree(&stored)?;
        let is_marked = namespace["metadata"]["deletionTimestamp"].is_string();
        Ok((is_marked && has_content(&namespace)).then_some((stored, namespace)))
    }

    /// Removes the content of a terminating namespace, and then the namespace, without admission.
    async fn sweep(
        &self,
        name: &str,
        stored: &StoredObject,
        namespace: &Value,
    ) -> Result<ReconcileOutcome, Status> {
        let mut sweep = Sweep::within(self.objects.store().limits());
        let cluster = stored.scope.as_str();
        visit_all(&self.objects, (&self.definitions, &self.hub), cluster, Some(name), &mut |found| {
            sweep.add(&self.objects, found)
        })
        .await?;
        let plan = plan(namespace, &sweep, &[], Timestamp::now());
        let writes = Writes::new(&self.objects, &self.definitions);
        let done = commit_sweep(writes, sweep, (stored, namespace), plan.namespace).await?;
        Ok(if done.is_some() { plan.next } else { ReconcileOutcome::Retry })
    }

    /// Creates or restores the default objects of a namespace that is not being deleted.
    async fn fill(&self, stored: &StoredObject, name: &str) -> Result<ReconcileOutcome, Status> {
        if self.is_filled(&stored.scope, name)? {
            return Ok(ReconcileOutcome::Done);
        }
        let cluster = stored.scope.as_str();
        let namespace = &self.objects.tree(stored)?;
        let mut writes = Writes::new(&self.objects, &self.definitions);
        for desired in namespace_content(namespace, &self.serving_ca) {
            let resource = writes.resource_of(&desired)?;
            match writes.stored(&resource, cluster, &desired)? {
                None => writes.create(cluster, desired)?,
                Some(found) if desired["data"].is_object() => {
                    let mut present = self.objects.tree(&found)?;
                    present["data"] = desired["data"].clone();
                    writes.replace(&resource, &found, present)?;
                }
                Some(_) => {}
            }
        }
        if writes.is_empty() {
            return Ok(ReconcileOutcome::Done);
        }
        let resource = writes.resource_of(namespace)?;
        writes.fence(&resource, stored, namespace);
        Ok(if commit(writes).await?.is_some() { ReconcileOutcome::Done } else { ReconcileOutcome::Retry })
    }

    /// Whether the default objects exist. It builds no trees, because most namespaces are created with these objects.
    fn is_filled(&self, scope: &Scope, name: &str) -> Result<bool, Status> {
        let get = |resource, object| self.objects.get(resource, &BUILT_IN, scope, Some(name), object);
        let Some(bundle) = get(&CONFIG_MAPS, "kube-root-ca.crt")? else { return Ok(false) };
        let data: Result<WireConfigMap<'_>, _> = serde_json::from_slice(bundle.object.as_object().json());
        let is_current = data.is_ok_and(|map| map.data.bundle.is_some_and(|pem| pem == self.serving_ca));
        Ok(is_current && get(&SERVICE_ACCOUNTS, "default")?.is_some())
    }
}

#[derive(Deserialize)]
struct WireConfigMap<'a> {
    #[serde(borrow, default)]
    data: WireData<'a>,
}

#[derive(Default, Deserialize)]
struct WireData<'a> {
    #[serde(borrow, default, rename = "ca.crt")]
    bundle: Option<Cow<'a, str>>,
}

/// The change to a terminating namespace, in the last commit of a sweep.
#[derive(Debug, PartialEq)]
struct Plan {
    /// The desired namespace; `None` removes it.
    namespace: Option<Value>,
    next: ReconcileOutcome,
}

/// Whether content is still to be deleted before the namespace.
fn has_content(namespace: &Value) -> bool {
    finalizers(namespace).any(|one| one == NAMESPACE_FINALIZER)
}

/// Decides about a terminating namespace after a pass over its content. `failures` are the messages of failed deletions.
fn plan(old: &Value, sweep: &Sweep, failures: &[String], now: Timestamp) -> Plan {
    let mut new = old.clone();
    if sweep.is_truncated() {
        return Plan { namespace: Some(new), next: ReconcileOutcome::RequeueAfter(Duration::ZERO) };
    }
    set_conditions(&mut new, sweep, failures, now);
    if !sweep.leaves_nothing() {
        return Plan { namespace: Some(new), next: ReconcileOutcome::RequeueAfter(pause(old, now)) };
    }
    if let Some(all) = new["spec"]["finalizers"].as_array_mut() {
        all.retain(|one| one != NAMESPACE_FINALIZER);
    }
    let has_finalizers = finalizers(&new).next().is_some();
    if !has_finalizers && let Some(spec) = new["spec"].as_object_mut() {
        spec.remove("finalizers");
    }
    let is_kept =
        has_finalizers || new["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
    Plan { namespace: is_kept.then_some(new), next: ReconcileOutcome::Done }
}

/// Sets the conditions of Kubernetes' namespace controller, in its order and with its messages.
fn set_conditions(namespace: &mut Value, sweep: &Sweep, failures: &[String], now: Timestamp) {
    let remaining = sweep.remaining().map(|all| format!("Some resources are remaining: {all}"));
    let finalizers = sweep
        .finalizers()
        .map(|all| format!("Some content in the namespace has finalizers remaining: {all}"));
    let failed = (!failures.is_empty()).then(|| {
        let (count, all) = (failures.len(), failures.join(", "));
        ("ContentDeletionFailed", format!("Failed to delete all resource types, {count} remaining: {all}"))
    });
    let conditions = [
        (
            "NamespaceDeletionDiscoveryFailure",
            "ResourcesDiscovered",
            "All resources successfully discovered",
            None,
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
            None,
        ),
        (
            "NamespaceDeletionContentFailure",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
            failed,
        ),
        (
            "NamespaceContentRemaining",
            "ContentRemoved",
            "All content successfully removed",
            remaining.map(|message| ("SomeResourcesRemain", message)),
        ),
        (
            "NamespaceFinalizersRemaining",
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
            finalizers.map(|message| ("SomeFinalizersRemain", message)),
        ),
    ];
    let mut all = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    for (kind, reason, message, problem) in conditions {
        let (status, reason, message) = match &problem {
            Some((reason, message)) => ("True", *reason, message.as_str()),
            None => ("False", reason, message),
        };
        let present = all.iter_mut().find(|one| one["type"] == kind);
        let since = present.as_ref().filter(|one| one["status"] == status);
        let since = since
            .map_or_else(|| fairlead_api::format_time(now).into(), |one| one["lastTransitionTime"].clone());
        let condition = json!({
            "type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message,
        });
        match present {
            Some(present) => *present = condition,
            None => all.push(condition),
        }
    }
    namespace["status"]["conditions"] = all.into();
}

/// The finalizers in a namespace's spec.
fn finalizers(namespace: &Value) -> impl Iterator<Item = &Value> {
    namespace["spec"]["finalizers"].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests;
