//! Scheduler: chooses the shard of a new workspace.
//!
//! A shard sends a request before it places a workspace. The gateway responds from the routing table and keeps its
//! decisions as reservations, because the table shows a placement only a moment later. `policy` and `reservations` are pure;
//! this module provides their input. One short lock per placement; client requests pay nothing.

mod load;
mod metrics;
mod policy;
mod reservations;
mod selector;
mod settings;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
#[cfg(test)]
mod tests;
mod upstream_load;

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use crate::routing::resolver::IndexStatus;
use crate::routing::table::{RoutingTable, ShardEntry, ShardIndex, TableView};
use load::Loads;
use metrics::Outcome;
use policy::{Candidate, Decision, Exclusion, Reachability, decide};
use reservations::Reservations;

pub(crate) use load::UpstreamSignals;
pub(crate) use metrics::PlacementMetrics;
pub(crate) use selector::{LabelSelector, SelectorError};
pub(crate) use settings::PlacementSettings;

/// Maximum number of selectors without a fitting shard that are kept in order to log each once.
const MAX_STARVING: usize = 256;

/// A shard's request for a placement.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlacementRequest {
    /// The UID of the Workspace object. Another request for it gets the same response.
    #[serde(rename = "workspaceUID")]
    pub(crate) workspace_uid: String,
    /// The id of the logical cluster of the object.
    #[serde(default)]
    pub(crate) parent_cluster: String,
    /// Label selector for eligible shards; empty for all.
    #[serde(default)]
    pub(crate) selector: LabelSelector,
}

/// The response: the chosen shard.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Placement {
    /// The name of the shard.
    pub(crate) shard: Arc<str>,
    /// The policy that chose it.
    pub(crate) policy: &'static str,
    /// The reason for the choice, as text.
    pub(crate) reason: String,
}

/// The reason why no shard was chosen.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum PlacementError {
    /// The request is invalid; a retry does not help.
    #[error("{0}")]
    Invalid(&'static str),
    /// The selector is invalid; a retry does not help.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// No shard may take the workspace. Final until an administrator changes a shard or the selector changes.
    #[error("no shard fits: {0}")]
    NoShardFits(String),
    /// No shard may take it now, but some may soon: a retry helps.
    #[error("no shard fits now: {0}")]
    NotNow(String),
    /// The list of shards has not been read yet: a retry helps, and a caller with a list of shards may choose without the gateway.
    #[error("the list of shards has not been read yet")]
    NotListed,
}

/// Placement status of a shard.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ShardPlacementStatus {
    /// The reason why it gets no new workspaces.
    pub(crate) exclusion: Option<&'static str>,
    /// The weight relative to other shards.
    pub(crate) weight: u32,
    /// Its maximum number of workspaces.
    pub(crate) capacity: Option<u32>,
    /// Workspaces placed on it by this gateway that the table does not show yet.
    pub(crate) reserved: u32,
    /// Reads and writes per second through this gateway.
    pub(crate) rate: f64,
    /// Average number of reads and writes in progress at the shard.
    pub(crate) busy: f64,
}

/// Chooses shards for new workspaces.
pub(crate) struct Scheduler {
    table: Arc<RoutingTable>,
    index_status: Arc<dyn IndexStatus>,
    signals: Arc<dyn UpstreamSignals>,
    settings: ArcSwap<PlacementSettings>,
    metrics: PlacementMetrics,
    state: Mutex<SchedulerState>,
}

/// The state that changes with every placement.
struct SchedulerState {
    reservations: Reservations<ShardIndex>,
    loads: Loads<ShardIndex>,
    random: fastrand::Rng,
    /// Selectors for which no shard fitted.
    starving: FxHashSet<String>,
}

impl Scheduler {
    /// A scheduler for a table. `index_status` and `signals` report the reachability and the load of shards.
    pub(crate) fn new(
        table: Arc<RoutingTable>,
        index_status: Arc<dyn IndexStatus>,
        signals: Arc<dyn UpstreamSignals>,
        settings: PlacementSettings,
        metrics: PlacementMetrics,
    ) -> Self {
        // Without a random seed, gateways that start alike choose alike more often than they should; this is harmless.
        let seed = getrandom::u64().unwrap_or_default();
        let state = SchedulerState {
            reservations: Reservations::default(),
            loads: Loads::default(),
            random: fastrand::Rng::with_seed(seed),
            starving: FxHashSet::default(),
        };
        Self {
            table,
            index_status,
            signals,
            settings: ArcSwap::from_pointee(settings),
            metrics,
            state: Mutex::new(state),
        }
    }

    /// Sets the settings for the following requests.
    pub(crate) fn set_settings(&self, settings: PlacementSettings) {
        self.settings.store(Arc::new(settings));
    }

    /// Chooses a shard at the time `now`. Linear in the number of shards.
    ///
    /// # Errors
    /// [`PlacementError`]; its variants state whether a retry helps.
    pub(crate) fn pick(&self, request: &PlacementRequest, now: Instant) -> Result<Placement, PlacementError> {
        let settings = self.settings.load();
        let result = self.choose(request, &settings, now);
        let outcome = match &result {
            Ok((outcome, pick)) => {
                tracing::debug!(
                    workspace = request.workspace_uid,
                    parent = request.parent_cluster,
                    shard = %pick.shard,
                    policy = pick.policy,
                    reason = pick.reason,
                    "a workspace was placed"
                );
                *outcome
            }
            Err(error) => {
                tracing::debug!(
                    workspace = request.workspace_uid,
                    parent = request.parent_cluster,
                    selector = ?request.selector.to_string(),
                    %error,
                    "a workspace could not be placed"
                );
                error.outcome()
            }
        };
        self.metrics.record_outcome(settings.policy(), outcome);
        Ok(result?.1)
    }

    /// The table shows these workspaces now: their reservations no longer count, but repeated requests get the same response.
    pub(crate) fn placed<'u>(&self, workspace_uids: impl Iterator<Item = &'u str>) {
        let mut state = self.state.lock();
        workspace_uids.for_each(|uid| state.reservations.settle(uid));
    }

    /// Placement status of a shard, for a request whose selector matches it.
    pub(crate) fn status(&self, shard: ShardIndex) -> Option<ShardPlacementStatus> {
        let (settings, view) = (self.settings.load(), self.table.load());
        let entry = view.shard(shard)?;
        let state = self.state.lock();
        let candidate = self.candidate(&view, entry, &LabelSelector::default(), &state, &settings);
        let load = state.loads.of(shard);
        Some(ShardPlacementStatus {
            exclusion: candidate.exclusion(settings.gateways()).map(Exclusion::as_str),
            weight: candidate.weight,
            capacity: candidate.capacity,
            reserved: candidate.reserved,
            rate: load.rate,
            busy: load.busy,
        })
    }

    /// Updates the metrics of shards.
    pub(crate) fn update_shard_metrics(&self, now: Instant) {
        let (settings, view) = (self.settings.load(), self.table.load());
        let mut state = self.state.lock();
        state.refresh(&view, &*self.signals, now);
        self.metrics.reset_shards();
        for entry in view.shards() {
            let candidate = self.candidate(&view, entry, &LabelSelector::default(), &state, &settings);
            let exclusion = candidate.exclusion(settings.gateways());
            self.metrics.shard(candidate.name, exclusion, candidate.reserved, candidate.busy);
        }
    }

    fn choose(
        &self,
        request: &PlacementRequest,
        settings: &PlacementSettings,
        now: Instant,
    ) -> Result<(Outcome, Placement), PlacementError> {
        if request.workspace_uid.is_empty() {
            return Err(PlacementError::Invalid("workspaceUID is missing"));
        }
        request.selector.validate()?;
        let view = self.table.load();
        if !view.is_listed() {
            return Err(PlacementError::NotListed);
        }
        let mut state = self.state.lock();
        state.refresh(&view, &*self.signals, now);
        let entries: Vec<&ShardEntry> = view.shards().collect();
        let candidates: Vec<Candidate<'_>> = entries
            .iter()
            .map(|entry| self.candidate(&view, entry, &request.selector, &state, settings))
            .collect();
        let pick = |entry: &ShardEntry, reason| Placement {
            shard: Arc::clone(&entry.spec.name),
            policy: settings.policy().as_str(),
            reason,
        };
        let earlier = state.reservations.shard_of(&request.workspace_uid);
        let again = entries.iter().zip(&candidates).find(|(entry, candidate)| {
            // The workspace itself is part of what fills the shard.
            let still_fits = || candidate.exclusion(settings.gateways()).is_none_or(Exclusion::is_capacity);
            Some(entry.index) == earlier && still_fits()
        });
        if let Some((entry, _)) = again {
            return Ok((Outcome::Repeated, pick(entry, "picked before".to_owned())));
        }
        let decided = decide(settings.policy(), &candidates, settings.gateways(), &mut state.random);
        state.log_starving(&request.selector, decided.as_ref().err());
        match decided {
            Ok(decision @ Decision { chosen, .. }) => {
                state.reservations.add(&request.workspace_uid, entries[chosen].index, now);
                Ok((Outcome::Picked, pick(entries[chosen], decision.explain(&candidates))))
            }
            Err(excluded) if excluded.is_empty() => {
                Err(PlacementError::NoShardFits("there is no shard".to_owned()))
            }
            Err(excluded) => {
                let reason = format!("of {} shards {excluded}", entries.len());
                Err(match excluded.is_temporary() {
                    true => PlacementError::NotNow(reason),
                    false => PlacementError::NoShardFits(reason),
                })
            }
        }
    }

    fn candidate<'t>(
        &self,
        view: &TableView,
        entry: &'t ShardEntry,
        selector: &LabelSelector,
        state: &SchedulerState,
        settings: &PlacementSettings,
    ) -> Candidate<'t> {
        let ShardEntry { index, spec, .. } = entry;
        let shard_settings = settings.shard_settings(spec);
        let tally = state.reservations.tally(*index);
        let all_fail =
            || self.signals.is_panic_threshold_exceeded(&mut view.shards().map(|entry| &*entry.spec.name));
        let fails = || self.signals.is_failing(&spec.name) && !all_fail();
        let is_reachable = || self.index_status.is_watching(Some(*index)) && !fails();
        Candidate {
            name: &spec.name,
            selected: selector.matches(&spec.labels),
            cordoned: spec.cordoned,
            draining: spec.constraints.draining,
            reachability: match () {
                () if !entry.is_synced() => Reachability::NotRead,
                () if is_reachable() => Reachability::Reachable,
                () => Reachability::Unreachable,
            },
            workspaces: view.counts(*index).clusters,
            reserved: tally.open,
            settled: tally.settled,
            weight: shard_settings.weight,
            capacity: shard_settings.capacity,
            busy: state.loads.of(*index).busy,
        }
    }
}

impl SchedulerState {
    fn refresh(&mut self, view: &TableView, signals: &dyn UpstreamSignals, now: Instant) {
        self.reservations.expire(now);
        let shards = view.shards().map(|shard| (shard.index, &*shard.spec.name));
        self.loads.read(shards, signals, now);
    }

    /// Logs when no shard fits a selector any more, and when one does again.
    fn log_starving(&mut self, selector: &LabelSelector, excluded: Option<&policy::Excluded>) {
        if excluded.is_none() && self.starving.is_empty() {
            return;
        }
        let selector = selector.to_string();
        match excluded {
            None if self.starving.remove(&selector) => tracing::info!(?selector, "a shard fits again"),
            Some(excluded) if self.starving.len() < MAX_STARVING && !self.starving.contains(&selector) => {
                tracing::info!(?selector, %excluded, "no shard fits a workspace");
                self.starving.insert(selector);
            }
            None | Some(_) => {}
        }
    }
}

impl PlacementError {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Invalid(_) | Self::Selector(_) => Outcome::Invalid,
            Self::NoShardFits(_) => Outcome::NoShardFits,
            Self::NotNow(_) => Outcome::NotNow,
            Self::NotListed => Outcome::NotListed,
        }
    }
}
