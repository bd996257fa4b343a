use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The objects of one resource in all logical clusters of a server, with their history.
#[derive(Default)]
pub struct Collection {
    revision: u64,
    /// The server refuses watches from earlier revisions.
    oldest: u64,
    expiry: Expiry,
    objects: BTreeMap<String, Value>,
    history: Vec<(u64, Value)>,
    /// How often all watches were ended.
    ends: u64,
    requests: Vec<String>,
}

/// The form in which the server reports that it has forgotten a revision.
#[derive(Clone, Copy, Debug, Default)]
pub enum Expiry {
    /// By an event of the watch, as shards do.
    #[default]
    Event,
    /// By the status of the response, as gateways do.
    Response,
}

/// The next part of a watch.
pub(super) enum Next {
    /// An event and its revision.
    Event(u64, Value),
    /// The event that ends the watch.
    Expired(Value),
    /// There is no event yet.
    Nothing,
}

impl Collection {
    pub fn apply(&mut self, cluster: &str, name: &str, content: Value) {
        self.revision += 1;
        let mut object = json!({
            "apiVersion": "harbour.example.com/v1", "kind": "Anchor",
            "metadata": {
                "name": name, "namespace": "default", "uid": format!("{cluster}/{name}"),
                "resourceVersion": self.revision.to_string(),
                "annotations": { "kcp.io/cluster": cluster },
            },
        });
        object.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
        let earlier = self.objects.insert(format!("{cluster}/{name}"), object.clone());
        self.record(if earlier.is_some() { "MODIFIED" } else { "ADDED" }, object);
    }

    pub fn delete(&mut self, cluster: &str, name: &str) {
        let mut object = self.objects.remove(&format!("{cluster}/{name}")).unwrap();
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.record("DELETED", object);
    }

    /// Changes the status of an object; `None` if it does not exist.
    pub fn patch_status(&mut self, cluster: &str, name: &str, patch: &Value) -> Option<Value> {
        let mut object = self.objects.get(&format!("{cluster}/{name}"))?.clone();
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        object["status"] = patch["status"].clone();
        self.objects.insert(format!("{cluster}/{name}"), object.clone());
        self.record("MODIFIED", object.clone());
        Some(object)
    }

    /// The revision moves on by writes of other resources, which a bookmark reports.
    pub fn bookmark(&mut self) {
        self.revision += 100;
        let version = self.revision.to_string();
        let mark = json!({
            "apiVersion": "harbour.example.com/v1", "kind": "Anchor", "metadata": { "resourceVersion": version },
        });
        self.record("BOOKMARK", mark);
    }

    /// Forgets the history before the current revision. Watches that are further behind end.
    pub fn compact(&mut self, expiry: Expiry) {
        (self.oldest, self.expiry) = (self.revision, expiry);
        self.history.clear();
    }

    /// Ends all watches with the event of an expired revision.
    pub fn expire_watches(&mut self) {
        self.revision += 1;
        self.compact(Expiry::Event);
    }

    /// Ends all watches after the events that they have not got yet, as servers do after some minutes.
    pub fn end_watches(&mut self) {
        self.ends += 1;
    }

    pub fn object(&self, cluster: &str, name: &str) -> Value {
        self.objects[&format!("{cluster}/{name}")].clone()
    }

    /// The requests since they were taken last: `list`, `watch 7` from revision 7, `patch <cluster>`.
    pub fn requests(&self) -> &[String] {
        &self.requests
    }

    pub fn take_requests(&mut self) -> Vec<String> {
        std::mem::take(&mut self.requests)
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn note(&mut self, request: String) {
        self.requests.push(request);
    }

    pub(super) fn ends(&self) -> u64 {
        self.ends
    }

    pub(super) fn list(&self) -> Value {
        json!({
            "apiVersion": "harbour.example.com/v1", "kind": "AnchorList",
            "metadata": { "resourceVersion": self.revision.to_string() },
            "items": self.objects.values().collect::<Vec<_>>(),
        })
    }

    /// The status of the response to a watch; `None` if the watch begins.
    pub(super) fn refusal(&self, from: u64) -> Option<Value> {
        let is_refused = from < self.oldest && matches!(self.expiry, Expiry::Response);
        is_refused.then(expired)
    }

    /// The first event after a revision.
    pub(super) fn after(&self, revision: u64) -> Next {
        if revision < self.oldest {
            return Next::Expired(json!({ "type": "ERROR", "object": expired() }));
        }
        let next = self.history.iter().find(|(at, _)| *at > revision);
        next.map_or(Next::Nothing, |(at, event)| Next::Event(*at, event.clone()))
    }

    fn record(&mut self, kind: &str, object: Value) {
        self.history.push((self.revision, json!({ "type": kind, "object": object })));
    }
}

fn expired() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 410, "reason": "Expired",
        "message": "too old resource version", "metadata": {},
    })
}
