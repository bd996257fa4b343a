//! The record of all operations of a round, and the objects as the clients write and read them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use fairlead_tests::history::{Action, Content, Key, Operation, Outcome, Version};
use serde_json::{Value, json};

use crate::site::Collection;

/// The record that all clients share.
#[derive(Clone)]
pub struct Recorder(Arc<Shared>);

struct Shared {
    begin: Instant,
    next_content: AtomicU64,
    operations: Mutex<Vec<Operation>>,
}

impl Recorder {
    pub fn new() -> Self {
        let operations = Mutex::default();
        Self(Arc::new(Shared { begin: Instant::now(), next_content: AtomicU64::new(1), operations }))
    }

    /// The current time in nanoseconds.
    pub fn now(&self) -> u64 {
        u64::try_from(self.0.begin.elapsed().as_nanos()).unwrap()
    }

    /// A content that no other write has.
    pub fn content(&self) -> Content {
        Content(self.0.next_content.fetch_add(1, Ordering::Relaxed))
    }

    /// Records an operation at a replica that began at `start` and has just ended.
    pub fn record(&self, key: &Key, replica: usize, action: Action, start: u64, outcome: Outcome) {
        let (key, end) = (key.clone(), self.now());
        let operation = Operation { key, replica, action, outcome, start, end };
        self.0.operations.lock().unwrap().push(operation);
    }

    /// Takes the operations of a round, at whose end the shard was ready at these times. A write without a response to an
    /// earlier process has happened or not when the next one is ready; on etcd it may still happen, so there are no times.
    pub fn take(&self, ready_at: &[u64]) -> Vec<Operation> {
        let mut operations = std::mem::take(&mut *self.0.operations.lock().unwrap());
        for operation in operations.iter_mut().filter(|operation| operation.outcome == Outcome::Unknown) {
            let decided = ready_at.iter().find(|ready| **ready >= operation.end);
            operation.end = decided.copied().unwrap_or(u64::MAX);
        }
        operations
    }
}

/// An object with a content. It is there twice, with text between, so that an object that was written in part is noticed.
pub fn object(collection: &Collection, name: &str, content: Content) -> Value {
    json!({
        "apiVersion": collection.api_version, "kind": collection.kind, "metadata": { "name": name },
        "data": data(content),
    })
}

/// The part of an object that changes.
pub fn data(content: Content) -> Value {
    let length = 100 + content.0 % 1_500;
    let filler = "x".repeat(usize::try_from(length).unwrap());
    json!({ "content": content.0.to_string(), "copy": content.0.to_string(), "filler": filler })
}

/// The name and version of an object. Panics if it was written in part.
pub fn read(object: &Value) -> (String, Version) {
    let metadata = &object["metadata"];
    let data = &object["data"];
    assert_eq!(data["content"], data["copy"], "written in part: {object}");
    let content: u64 = data["content"].as_str().unwrap_or_else(|| panic!("{object}")).parse().unwrap();
    assert_eq!(data["filler"].as_str().unwrap().len() as u64, 100 + content % 1_500, "{object}");
    let revision = metadata["resourceVersion"].as_str().unwrap().parse().unwrap();
    (metadata["name"].as_str().unwrap().to_owned(), Version { revision, content: Content(content) })
}

/// Whether the test wrote the object, not the system.
pub fn is_ours(name: &str) -> bool {
    name.starts_with("ours-")
}
