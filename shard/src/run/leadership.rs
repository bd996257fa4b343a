//! Leadership: the parts of a shard that only one of its replicas runs.
//!
//! All replicas of a shard serve reads, watches and writes. One of them leads: it runs the controllers, replicates to the
//! cache server and registers the shard. Its controllers write through a store that fences every commit by the term, so a
//! deposed leader changes nothing. A shard on a file has one process, which always leads.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use fairlead_apiserver::registry::ObjectStore;
use fairlead_client::Client;
use fairlead_config::ShardConfig;
use fairlead_names::ResourceName;
use fairlead_process::{Shutdown, Tasks};
use fairlead_store::{Election, FencedStore, Term, TermEnd};
use rustc_hash::FxHashMap;

use super::assembly::ShardParts;
use super::{ANNOTATIONS, CODEC, ShardError};
use crate::exports::RootExports;

/// How long the tasks of a term may take to end. Their commits are refused from its end on; requests to other servers are
/// aborted after this time.
const END_OF_TASKS: Duration = Duration::from_secs(1);
/// The same after a term was lost: less than what its lease has left, so that their requests end before the next term begins.
const END_OF_LOST_TASKS: Duration = Duration::from_millis(200);
/// The pause before the next campaign of a replica that could not start the leader's parts.
const PAUSE: Duration = Duration::from_secs(1);

/// The parts of a shard with the store of its leader.
pub(super) struct LeaderParts {
    parts: Arc<ShardParts>,
    /// Takes the place of the objects of [`ShardParts`].
    pub(super) objects: ObjectStore,
}

impl Deref for LeaderParts {
    type Target = ShardParts;

    fn deref(&self) -> &ShardParts {
        &self.parts
    }
}

/// Runs the leader's parts while this process leads.
pub(super) struct Leadership {
    pub(super) parts: Arc<ShardParts>,
    pub(super) config: ShardConfig,
    pub(super) cache: Client,
    pub(super) exports: RootExports,
    pub(super) tasks: Tasks,
    pub(super) shutdown: Shutdown,
}

impl Leadership {
    /// Starts the leader's parts in the only process of a shard.
    pub(super) async fn start_alone(&self) -> Result<(), ShardError> {
        self.parts.leads.set(1);
        let leader = LeaderParts { parts: self.parts.clone(), objects: self.parts.objects.clone() };
        leader.start(&self.config, &self.cache, &self.exports, &self.tasks, &self.shutdown).await
    }

    /// Campaigns and leads in turns, until the process shuts down.
    ///
    /// # Errors
    /// The configuration does not permit to lead.
    pub(super) async fn run(self, election: Arc<dyn Election>) -> Result<(), ShardError> {
        loop {
            let term = tokio::select! {
                biased;
                () = self.shutdown.announced() => return Ok(()),
                term = election.campaign() => term,
            };
            match self.lead(&*election, &term).await {
                Ok(()) => {}
                // The store was not available, or the term is over.
                Err(ShardError::Bootstrap(reason)) => {
                    tracing::warn!(%reason, "the leader's tasks could not be started");
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs the leader's parts in a term, and returns when it has ended and all of them have.
    async fn lead(&self, election: &dyn Election, term: &Term) -> Result<(), ShardError> {
        tracing::info!(term = %term.revision(), "leading the controllers of the shard");
        self.parts.leads.set(1);
        let observers = Observers::count(&self.parts);
        let (tasks, shutdown) = (self.tasks.part(), self.shutdown.part());
        let store = FencedStore::new(self.parts.objects.store().clone(), term.clone());
        let objects = ObjectStore::new(Arc::new(store), CODEC, ANNOTATIONS);
        let leader = LeaderParts { parts: self.parts.clone(), objects };
        let leading = async {
            leader.start(&self.config, &self.cache, &self.exports, &tasks, &shutdown).await?;
            std::future::pending::<Result<TermEnd, ShardError>>().await
        };
        let outcome = tokio::select! {
            biased;
            () = self.shutdown.announced() => Ok(TermEnd::Resigned),
            end = term.ended() => Ok(end),
            failed = leading => failed,
        };
        shutdown.drain_now();
        let is_lost = matches!(outcome, Ok(TermEnd::Lost(_)));
        tasks.end(if is_lost { END_OF_LOST_TASKS } else { END_OF_TASKS }).await;
        observers.remove_later_ones(&self.parts);
        self.parts.leads.set(0);
        match outcome {
            Ok(TermEnd::Lost(reason)) => {
                tracing::warn!(term = %term.revision(), %reason, "no longer leading the controllers of the shard");
                Ok(())
            }
            Ok(TermEnd::Resigned) => {
                election.resign(term).await;
                tracing::info!(term = %term.revision(), "resigned from leading the controllers of the shard");
                Ok(())
            }
            Err(error) => {
                election.resign(term).await;
                Err(error)
            }
        }
    }
}

/// The observers that exist for as long as the process. Controllers register theirs later; they are removed with the term.
struct Observers {
    hub: usize,
    bindings: usize,
    global: FxHashMap<ResourceName, usize>,
}

impl Observers {
    fn count(parts: &ShardParts) -> Self {
        Self {
            hub: parts.hub.general_observers(),
            bindings: parts.definitions.bindings().observers(),
            global: parts.global.observers(),
        }
    }

    fn remove_later_ones(&self, parts: &ShardParts) {
        parts.hub.remove_general_observers_after(self.hub);
        parts.definitions.bindings().remove_observers_after(self.bindings);
        parts.global.remove_observers_after(&self.global);
    }
}
