//! Deletes events some time after their last occurrence.
//!
//! Each event has one entry in the queue of this controller, ordered by time: some 300 bytes. A workspace without events costs
//! nothing.

use std::borrow::Cow;
use std::time::Duration;

use async_trait::async_trait;
use fairlead_apiserver::Scope;
use fairlead_apiserver::hub::ObjectEvent;
use fairlead_apiserver::registry::ObjectStore;
use fairlead_process::Status;
use fairlead_store::{CommitError, Expect, Mutation};
use jiff::Timestamp;
use serde::Deserialize;

use crate::controller_runtime::{Controller, ReconcileOutcome};
use crate::names::{BUILT_IN, EVENTS};

/// Logical cluster, namespace and name of an event.
pub(crate) type EventKey = (Box<str>, Box<str>, Box<str>);

/// Controller of events.
pub(crate) struct EventExpiry {
    pub(crate) objects: ObjectStore,
    /// The time that an event is kept.
    pub(crate) keep: Duration,
}

impl EventExpiry {
    /// The event that was written.
    pub(crate) fn key_of(event: &ObjectEvent) -> Option<EventKey> {
        let namespace = event.namespace.clone()?;
        (!event.is_deletion()).then(|| ((*event.scope).into(), namespace, event.name.clone()))
    }
}

#[async_trait]
impl Controller for EventExpiry {
    type Key = EventKey;

    const NAME: &'static str = "event-expiry";
    const WORKERS: usize = 64;

    async fn reconcile(&self, (cluster, namespace, name): &EventKey) -> Result<ReconcileOutcome, Status> {
        let scope = Scope::new(cluster);
        let stored = self.objects.get(&EVENTS, &BUILT_IN, &scope, Some(namespace), name)?;
        let Some(stored) = stored else { return Ok(ReconcileOutcome::Done) };
        if let Some(rest) = remaining(stored.object.as_object().json(), Timestamp::now(), self.keep) {
            return Ok(ReconcileOutcome::RequeueAfter(rest));
        }
        let key = self.objects.key(&EVENTS, &BUILT_IN, cluster, Some(namespace), name);
        let delete = Mutation::delete(key, Expect::At(stored.revision));
        match self.objects.commit(vec![delete]).await {
            Ok(_) => Ok(ReconcileOutcome::Done),
            Err(CommitError::Conflict { .. }) => Ok(ReconcileOutcome::Retry),
            Err(error) => Err(Status::internal(error)),
        }
    }
}

/// The time until the event expires; `None` if it has expired. Clients set the times of occurrence, so one in the future does not
/// count.
fn remaining(json: &[u8], now: Timestamp, keep: Duration) -> Option<Duration> {
    let event: WireEvent<'_> = serde_json::from_slice(json).unwrap_or_default();
    let times = [event.metadata.created, event.last, event.time, event.series.and_then(|series| series.last)];
    let parsed = times.iter().flatten().filter_map(|text| text.parse::<Timestamp>().ok());
    let last = parsed.filter(|time| *time <= now).max().unwrap_or(Timestamp::UNIX_EPOCH);
    let age = Duration::try_from(now.duration_since(last)).unwrap_or_default();
    keep.checked_sub(age).filter(|rest| !rest.is_zero())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireEvent<'a> {
    #[serde(borrow)]
    metadata: WireMetadata<'a>,
    #[serde(borrow, rename = "lastTimestamp")]
    last: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "eventTime")]
    time: Option<Cow<'a, str>>,
    #[serde(borrow)]
    series: Option<WireSeries<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireMetadata<'a> {
    #[serde(borrow, rename = "creationTimestamp")]
    created: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireSeries<'a> {
    #[serde(borrow, rename = "lastObservedTime")]
    last: Option<Cow<'a, str>>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::{Value, json};

    use super::super::testing::Shard;
    use super::*;

    #[test]
    fn an_event_expires_after_its_last_occurrence() {
        let at = |seconds: i64| fairlead_api::format_time(Timestamp::from_second(seconds).unwrap());
        let (now, keep) = (Timestamp::from_second(1000).unwrap(), Duration::from_secs(600));
        let created = |seconds| json!({"creationTimestamp": at(seconds)});
        for (event, expected) in [
            (json!({"metadata": created(900)}), Some(500)),
            (json!({"metadata": created(400)}), None),
            (json!({"metadata": created(400), "lastTimestamp": at(700)}), Some(300)),
            (json!({"metadata": created(400), "series": {"lastObservedTime": at(800)}}), Some(400)),
            (json!({"metadata": created(900), "eventTime": at(100)}), Some(500)),
            (json!({"metadata": created(400), "lastTimestamp": at(5000)}), None),
        ] {
            let rest = remaining(event.to_string().as_bytes(), now, keep);
            assert_eq!(rest.map(|rest| rest.as_secs()), expected, "{event}");
        }
    }

    fn event(name: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"namespace": "default"}, "reason": "Test", "type": "Normal",
        })
    }

    #[tokio::test(start_paused = true)]
    async fn expired_events_are_deleted_and_other_objects_stay() {
        let shard = Shard::start().await;
        shard.workspace("abc").await;
        let exists = |name: &str| shard.get("abc", "events", Some("default"), name).is_some();
        // The clock of the test stands still for the store, so the event is old from the beginning.
        let mut writes = crate::writes::Writes::new(&shard.objects, &shard.definitions);
        let mut old = event("old");
        old["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
        writes.create("abc", old).unwrap();
        writes.commit().await.unwrap();
        shard.create("abc", "events", event("new")).await.unwrap();
        shard.until("the old event is gone", || !exists("old")).await;
        assert!(exists("new"));
        assert!(shard.get("abc", "configmaps", Some("default"), "kube-root-ca.crt").is_some());
    }
}
