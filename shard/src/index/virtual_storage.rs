//! Bound resources whose objects are not stored on the shards of their consumers.

use std::sync::Arc;

use fairlead_apiserver::registry::{Registry, ServedResource};
use fairlead_apiserver::resource::{Verb, Verbs};

const READS: Verbs = Verbs::of(&[Verb::Get, Verb::List, Verb::Watch]);

/// A resource whose objects `registry` reads.
pub(crate) fn virtual_resource(bound: &ServedResource, registry: Arc<dyn Registry>) -> Arc<ServedResource> {
    Arc::new(bound.view(READS, |_| None, registry))
}
