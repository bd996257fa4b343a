//! A shard as the suite sees it: where it is, what is asked of it, and what came of that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use crate::shard::{Shard, State};
use crate::tally::Tally;

/// A shard with one workspace.
pub struct Party {
    pub name: String,
    /// The workspace's logical cluster.
    pub id: String,
    pub state: Arc<State>,
    pub tally: Tally,
    events: AtomicU64,
}

impl Party {
    pub fn new(shard: &Shard) -> Self {
        let name = shard.state.name.clone();
        let id = format!("at{name:0<14}");
        let state = Arc::clone(&shard.state);
        Self { name, id, state, tally: Tally::new(), events: AtomicU64::new(0) }
    }

    pub fn workspace(&self) -> String {
        format!("root:at-{}", self.name)
    }

    /// The next event for its watches.
    pub fn event(&self) {
        let number = self.events.load(Ordering::SeqCst) + 1;
        // Counted first: who has it must not be ahead of what there is.
        self.events.store(number, Ordering::SeqCst);
        self.state.put("numbers", "the-number", json!({"metadata": {}, "number": number}));
    }

    /// The number of events so far.
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::SeqCst)
    }
}
