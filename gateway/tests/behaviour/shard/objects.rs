//! The objects of a test shard and their history, for lists and watches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::State;
use super::answers::{Body, json_response, streaming};

#[derive(Default)]
pub(super) struct Log {
    objects: BTreeMap<(String, String), Value>,
    events: Vec<(u64, String, Value)>,
    revision: u64,
    /// Revision up to which the history is compacted.
    compacted: u64,
}

impl State {
    pub fn put(&self, collection: &str, key: &str, object: Value) {
        self.write(collection, key, Some(object));
    }

    pub fn delete(&self, collection: &str, key: &str) {
        self.write(collection, key, None);
    }

    /// Compacts the history: watches from earlier revisions get 410.
    pub fn compact(&self) {
        let mut log = self.log.lock();
        log.compacted = log.revision;
        log.events.clear();
    }

    pub(super) fn object(&self, collection: &str, key: &str) -> Option<Value> {
        self.log.lock().objects.get(&(collection.to_owned(), key.to_owned())).cloned()
    }

    fn write(&self, collection: &str, key: &str, object: Option<Value>) {
        let mut log = self.log.lock();
        log.revision += 1;
        let revision = log.revision;
        let place = (collection.to_owned(), key.to_owned());
        let (kind, mut object) = match object {
            Some(object) => {
                let known = log.objects.insert(place, object.clone()).is_some();
                (if known { "MODIFIED" } else { "ADDED" }, object)
            }
            None => ("DELETED", log.objects.remove(&place).unwrap()),
        };
        object["metadata"]["resourceVersion"] = json!(revision.to_string());
        log.events.push((revision, collection.to_owned(), json!({"type": kind, "object": object})));
        drop(log);
        self.changed.send_replace(revision);
    }

    fn list(&self, collection: &str, from: usize, limit: usize) -> Value {
        let log = self.log.lock();
        let all: Vec<&Value> = log
            .objects
            .iter()
            .filter(|((known, _), _)| known == collection)
            .map(|(_, object)| object)
            .collect();
        let until = (from + limit).min(all.len());
        let next = if until < all.len() { until.to_string() } else { String::new() };
        let metadata = json!({"resourceVersion": log.revision.to_string(), "continue": next});
        json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": all[from.min(until)..until]})
    }

    /// `None` if the revision is compacted.
    fn events_after(&self, collection: &str, revision: u64) -> Option<(Vec<Bytes>, u64)> {
        let log = self.log.lock();
        if revision < log.compacted {
            return None;
        }
        let first = log.events.partition_point(|(at, _, _)| *at <= revision);
        let lines = log.events[first..]
            .iter()
            .filter(|(_, known, _)| known == collection)
            .map(|(_, _, event)| Bytes::from(format!("{event}\n")))
            .collect();
        Some((lines, log.revision))
    }
}

pub(super) async fn collection_answer(
    state: Arc<State>,
    collection: &'static str,
    query: &str,
) -> Response<Body> {
    let parameter = |name: &str| {
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
    };
    if parameter("watch").is_none() {
        let number =
            |name: &str, default| parameter(name).and_then(|text| text.parse().ok()).unwrap_or(default);
        let (from, limit) = (number("continue", 0), number("limit", usize::MAX >> 1));
        if from == 0 {
            state.lists.fetch_add(1, Ordering::SeqCst);
        }
        state.held.subscribe().wait_for(|held| !held).await.unwrap();
        return json_response(&state.list(collection, from, limit));
    }
    let mut revision: u64 = parameter("resourceVersion").unwrap().parse().unwrap();
    if state.events_after(collection, revision).is_none() {
        let gone = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
        let mut response = json_response(&gone);
        *response.status_mut() = StatusCode::GONE;
        return response;
    }
    if collection != "numbers" {
        state.followed.send_modify(|count| *count += 1);
    }
    let (sender, receiver) = mpsc::channel(64);
    tokio::spawn(async move {
        let mut changed = state.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let Some((lines, until)) = state.events_after(collection, revision) else { return };
            revision = until;
            for line in lines {
                if sender.send(line).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                outcome = changed.changed() => if outcome.is_err() { return },
                () = sender.closed() => return,
            }
        }
    });
    streaming(receiver)
}
