//! Reports references to owners in other namespaces, which own nothing, by an event as Kubernetes does.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use fairlead_apiserver::Scope;
use fairlead_apiserver::object::ObjectMetaRef;
use fairlead_process::Status;
use jiff::Timestamp;
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::decide::OwnerState;
use super::graph::ObjectKey;
use super::{GarbageCollector, OwnerUid};
use crate::controllers::deletion::{commit, visit_all};
use crate::names::{BUILT_IN, NAMESPACES};
use crate::writes::Writes;

/// UIDs whose search is remembered. UIDs are assigned by the server, so one that is not found will not appear later.
const REMEMBERED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4095);
/// Absent owners of an object that are searched for, and the objects and bytes that a search visits. The report is a help for
/// users, and not worth more.
const MAX_SEARCHED: usize = 4;
const MAX_VISITED: usize = 20_000;
const MAX_VISITED_BYTES: usize = 16 << 20;

const COMPONENT: &str = "garbage-collector-controller";

/// The namespaces of owners that were searched for: `None` if there is no such object.
pub(super) struct MisplacedOwners(Mutex<LruCache<OwnerUid, Option<Box<str>>>>);

impl MisplacedOwners {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(REMEMBERED)))
    }
}

impl GarbageCollector {
    /// Writes an event for each absent owner that is an object of another namespace, for the first ones. Costs a search among the
    /// objects of the logical cluster, once per UID.
    pub(super) async fn report_misplaced_owners(
        &self,
        cluster: &str,
        key: &ObjectKey,
        object: &Value,
        owners: &[(String, OwnerState)],
    ) -> Result<(), Status> {
        let Some(namespace) = key.namespace.as_deref() else { return Ok(()) };
        let absent = owners.iter().filter(|(uid, state)| *state == OwnerState::Absent && !uid.is_empty());
        for (uid, _) in absent.take(MAX_SEARCHED) {
            let found = self.namespace_of(cluster, uid).await?;
            if found.is_none_or(|found| *found == *namespace) {
                continue;
            }
            let references = object["metadata"]["ownerReferences"].as_array();
            let Some(owner) = references.into_iter().flatten().find(|one| one["uid"] == **uid) else {
                continue;
            };
            self.write_event(cluster, namespace, event(object, namespace, owner, Timestamp::now())).await?;
        }
        Ok(())
    }

    /// Creates an event, unless its namespace is being deleted.
    async fn write_event(&self, cluster: &str, namespace: &str, event: Value) -> Result<(), Status> {
        let scope = Scope::new(cluster);
        let Some(stored) = self.objects.get(&NAMESPACES, &BUILT_IN, &scope, None, namespace)? else {
            return Ok(());
        };
        let holder = self.objects.tree(&stored)?;
        if holder["metadata"]["deletionTimestamp"].is_string() {
            return Ok(());
        }
        let mut writes = Writes::new(&self.objects, &self.definitions);
        let resource = writes.resource_of(&holder)?;
        writes.create(cluster, event)?;
        writes.fence(&resource, &stored, &holder);
        // A conflict means that the namespace has changed. The report is not worth another attempt.
        commit(writes).await.map(drop)
    }

    /// The namespace of the object with a UID.
    async fn namespace_of(&self, cluster: &str, uid: &str) -> Result<Option<Box<str>>, Status> {
        let searched = (Box::from(cluster), Box::from(uid));
        if let Some(known) = self.misplaced.0.lock().get(&searched) {
            return Ok(known.clone());
        }
        let (mut namespace, mut visited, mut bytes) = (None, 0, 0);
        visit_all(&self.objects, (&self.definitions, &self.hub), cluster, None, &mut |found| {
            visited += 1;
            bytes += found.object.map_or(0, |object| object.json().len());
            if let Some(object) = found.object
                && found.parts.namespace.is_some()
                && memchr::memmem::find(object.json(), uid.as_bytes()).is_some()
                && ObjectMetaRef::parse(object).is_ok_and(|meta| *meta.uid == *uid)
            {
                namespace = found.parts.namespace.map(Into::into);
            }
            let is_over = namespace.is_some() || visited == MAX_VISITED || bytes > MAX_VISITED_BYTES;
            if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .await?;
        self.misplaced.0.lock().put(searched, namespace.clone());
        Ok(namespace)
    }
}

fn event(object: &Value, namespace: &str, owner: &Value, now: Timestamp) -> Value {
    let metadata = &object["metadata"];
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let reference = format!(
        "[{}/{}, namespace: {namespace}, name: {}, uid: {}]",
        text("apiVersion"),
        text("kind"),
        text("name"),
        text("uid")
    );
    let name = metadata["name"].as_str().unwrap_or_default();
    let time = fairlead_api::format_time(now);
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": format!("{name}.{:x}", now.as_nanosecond()), "namespace": namespace},
        "involvedObject": {
            "apiVersion": object["apiVersion"],
            "kind": object["kind"],
            "namespace": namespace,
            "name": name,
            "uid": metadata["uid"],
        },
        "type": "Warning",
        "reason": "OwnerRefInvalidNamespace",
        "message": format!("ownerRef {reference} does not exist in namespace {namespace:?}"),
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    })
}
