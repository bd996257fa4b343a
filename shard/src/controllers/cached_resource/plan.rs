//! The desired state of a ClusterCachedResource, as a pure function of what was observed.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fairlead_api::{
    Condition, IDENTITY_NAMESPACE, Severity, annotation, condition_type, conditions_of, finalizer,
    set_condition, write_conditions,
};
use fairlead_apiserver::request::LabelSelector;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::identity::{self, IdentityKey};

/// The state that the plan depends on, besides the ClusterCachedResource.
pub(super) struct Observed {
    pub(super) resource: ResourceState,
    /// The selection of objects, or the reason why it is invalid.
    pub(super) selector: Result<LabelSelector, String>,
    pub(super) key: IdentityKey,
    /// Whether the namespace of generated identities exists.
    pub(super) has_namespace: bool,
    /// The numbers of objects, while they are copied.
    pub(super) counts: Option<Counts>,
}

/// The resource to publish.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum ResourceState {
    /// The logical cluster does not serve it.
    Missing,
    /// It is namespaced, which cannot be published.
    Namespaced,
    Found {
        kind: Arc<str>,
    },
}

/// Numbers of selected objects and of their copies. That of the copies is unknown at first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Counts {
    pub(super) local: usize,
    pub(super) cache: Option<usize>,
}

pub(super) struct Plan {
    /// The desired ClusterCachedResource.
    pub(super) object: Value,
    /// Objects to create.
    pub(super) created: Vec<Value>,
}

/// The identity of a ClusterCachedResource of which all is stored that the cache server needs to know.
pub(super) fn recorded_identity(object: &Value, observed: &Observed) -> Option<Box<str>> {
    let ResourceState::Found { kind } = &observed.resource else { return None };
    let annotations = &object["metadata"]["annotations"];
    let is_described = annotations[annotation::CACHED_RESOURCE_KIND] == **kind
        && annotations[annotation::CACHED_RESOURCE_SCOPE] == "Cluster";
    let identity = identity::verify(object, &observed.key, None).ok()?;
    let is_recorded = object["status"]["identityHash"] == *identity;
    (has_finalizer(object) && is_described && is_recorded).then(|| identity.into())
}

/// Plans a ClusterCachedResource that is not being deleted. `new_key` is the key of one that refers to no Secret.
pub(super) fn plan(old: &Value, observed: &Observed, new_key: Option<&[u8]>, now: Timestamp) -> Plan {
    let mut object = old.clone();
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    if !has_finalizer(old) {
        push(&mut object["metadata"]["finalizers"], finalizer::CACHED_RESOURCE);
    }
    let mut conditions = conditions_of(old);
    let kind = match usable(old, observed) {
        Ok(kind) => kind,
        Err(condition) => {
            set_condition(&mut conditions, condition, now);
            write_conditions(&mut object, &conditions);
            return Plan { object, created: Vec::new() };
        }
    };
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    object["metadata"]["annotations"][annotation::CACHED_RESOURCE_KIND] = Value::from(&*kind);
    object["metadata"]["annotations"][annotation::CACHED_RESOURCE_SCOPE] = "Cluster".into();
    let name = old["metadata"]["name"].as_str().unwrap_or_default();
    if identity::secret_reference(old).is_none() {
        object["spec"]["identity"] = json!({"secretRef": {"namespace": IDENTITY_NAMESPACE, "name": name}});
    }
    let mut created = Vec::new();
    if let Some(key) = new_key {
        if !observed.has_namespace {
            created.push(fairlead_api::identity_namespace());
        }
        created.push(fairlead_api::identity_secret(name, &STANDARD.encode(key)));
    }
    let condition = match identity::verify(old, &observed.key, new_key) {
        Ok(hash) => {
            object["status"]["identityHash"] = hash.into();
            Condition::met(condition_type::IDENTITY_VALID)
        }
        Err(message) => identity::unverified(message),
    };
    set_condition(&mut conditions, condition, now);
    if let Some(counts) = observed.counts {
        let cache = match counts.cache {
            Some(count) => count.into(),
            None => old["status"]["resourceCounts"]["cache"].as_u64().unwrap_or_default().into(),
        };
        object["status"]["resourceCounts"] = json!({"local": counts.local});
        object["status"]["resourceCounts"]["cache"] = cache;
        object["status"]["phase"] = "Ready".into();
        set_condition(&mut conditions, Condition::met(condition_type::REPLICATION_STARTED), now);
        set_condition(&mut conditions, Condition::met(condition_type::RESOURCE_VALID), now);
    }
    write_conditions(&mut object, &conditions);
    Plan { object, created }
}

/// A ClusterCachedResource whose copies are being deleted.
pub(super) fn deleting(old: &Value, now: Timestamp) -> Value {
    let mut object = old.clone();
    let mut conditions = conditions_of(old);
    let condition = Condition::unmet(
        condition_type::RESOURCE_VALID,
        Severity::Error,
        "Deleting",
        "Published resource deleting",
    );
    set_condition(&mut conditions, condition, now);
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    object["status"]["phase"] = "Deleting".into();
    write_conditions(&mut object, &conditions);
    object
}

/// A deleted ClusterCachedResource without copies. `None`: nothing else keeps it.
pub(super) fn deleted(old: &Value) -> Option<Value> {
    let mut object = old.clone();
    object["status"]["phase"] = "Deleted".into();
    let finalizers = object["metadata"]["finalizers"].as_array_mut()?;
    finalizers.retain(|one| *one != finalizer::CACHED_RESOURCE);
    (!finalizers.is_empty()).then_some(object)
}

/// The kind of the resource, or the reason why it cannot be published.
fn usable(object: &Value, observed: &Observed) -> Result<Arc<str>, Condition> {
    let text = |field: &str| object["spec"][field].as_str().unwrap_or_default();
    let resource = match text("group") {
        "" => text("resource").to_owned(),
        group => format!("{}.{group}", text("resource")),
    };
    let invalid =
        |reason, message| Condition::unmet(condition_type::RESOURCE_VALID, Severity::Error, reason, message);
    match (&observed.resource, &observed.selector) {
        (ResourceState::Found { kind }, Ok(_)) => Ok(kind.clone()),
        (ResourceState::Missing, _) => {
            let message = format!("Resource {resource} is not served in version {:?}", text("version"));
            Err(invalid("NoResources", message))
        }
        (ResourceState::Namespaced, _) => {
            Err(invalid("ResourceNotClusterScoped", format!("Resource {resource} is not cluster-scoped")))
        }
        (_, Err(reason)) => Err(invalid("InvalidLabelSelector", reason.clone())),
    }
}

fn has_finalizer(object: &Value) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|all| all.iter().any(|one| *one == finalizer::CACHED_RESOURCE))
}

fn push(list: &mut Value, item: &str) {
    match list.as_array_mut() {
        Some(list) => list.push(item.into()),
        None => *list = json!([item]),
    }
}
