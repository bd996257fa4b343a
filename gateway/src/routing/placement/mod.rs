//! Which shard gets the next workspace.
//!
//! A shard asks before it places a workspace; the gateway answers from the routing table and remembers its
//! answers, because the table shows a placement only a moment later. `policy` decides and `reservations` remember, both
//! pure; here is what they are given. One short lock per question; requests of clients pay nothing.

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
use crate::routing::table::{Root, RoutingTable, ShardEntry, ShardIndex};
use load::Loads;
use metrics::Outcome;
use policy::{Candidate, Decision, EligibleShards, Exclusion, decide};
use reservations::Reservations;

pub(crate) use load::UpstreamSignals;
pub(crate) use metrics::PickMetrics;
pub(crate) use selector::{LabelSelector, SelectorError};
pub(crate) use settings::PickSettings;

/// Selectors that nothing fits are told of once each; so many are remembered.
const MAX_STARVING: usize = 256;

/// A shard's question.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PickRequest {
    /// The UID of the Workspace object. Asking again for it gets the same answer.
    #[serde(rename = "workspaceUID")]
    pub(crate) workspace_uid: String,
    /// The id of the logical cluster that holds the object.
    #[serde(default)]
    pub(crate) parent_cluster: String,
    /// Which shards may be picked, by their labels; empty for all.
    #[serde(default)]
    pub(crate) selector: LabelSelector,
}

/// The answer.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Pick {
    /// The name of the shard.
    pub(crate) shard: Arc<str>,
    /// The policy that picked it.
    pub(crate) policy: &'static str,
    /// Why this one, for people.
    pub(crate) reason: String,
}

/// Why there is no answer.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum PickError {
    /// The request is wrong; the caller is to blame, a retry does not help.
    #[error("{0}")]
    Invalid(&'static str),
    /// The selector is wrong; the caller is to blame, a retry does not help.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// No shard may take the workspace: final until an administrator changes a shard, or the selector is another.
    #[error("no shard fits: {0}")]
    NoShardFits(String),
    /// None may take it now, but some of them may soon: a retry helps.
    #[error("no shard fits now: {0}")]
    NotNow(String),
    /// Which shards there are is not known yet: a retry helps, and who knows them may pick without us.
    #[error("the list of shards has not been read yet")]
    NotListed,
}

/// How a shard stands with regard to picks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ShardPlacementStatus {
    /// Why it gets no new workspaces.
    pub(crate) exclusion: Option<&'static str>,
    /// Its share beside that of others.
    pub(crate) weight: u32,
    /// The most workspaces that it gets.
    pub(crate) capacity: Option<u32>,
    /// Workspaces picked for it here that the table does not show yet.
    pub(crate) reserved: u32,
    /// Reads and writes per second through this gateway.
    pub(crate) rate: f64,
    /// Those that wait for it at any moment.
    pub(crate) busy: f64,
}

/// Picks shards.
pub(crate) struct Scheduler {
    table: Arc<RoutingTable>,
    freshness: Arc<dyn IndexStatus>,
    signs: Arc<dyn UpstreamSignals>,
    settings: ArcSwap<PickSettings>,
    metrics: PickMetrics,
    desk: Mutex<SchedulerState>,
}

/// What changes with every question.
struct SchedulerState {
    reservations: Reservations<ShardIndex>,
    loads: Loads<ShardIndex>,
    random: fastrand::Rng,
    /// Selectors that nothing fitted.
    starving: FxHashSet<String>,
}

impl Scheduler {
    /// A picker over a table; `freshness` and `signs` tell which shards can be reached, and how busy they are.
    pub(crate) fn new(
        table: Arc<RoutingTable>,
        freshness: Arc<dyn IndexStatus>,
        signs: Arc<dyn UpstreamSignals>,
        settings: PickSettings,
        metrics: PickMetrics,
    ) -> Self {
        // Without a random number, gateways that begin alike agree more often than they should, which is no harm.
        let seed = getrandom::u64().unwrap_or_default();
        let desk = SchedulerState {
            reservations: Reservations::default(),
            loads: Loads::default(),
            random: fastrand::Rng::with_seed(seed),
            starving: FxHashSet::default(),
        };
        Self {
            table,
            freshness,
            signs,
            settings: ArcSwap::from_pointee(settings),
            metrics,
            desk: Mutex::new(desk),
        }
    }

    /// From the next question on these settings count.
    pub(crate) fn set_settings(&self, settings: PickSettings) {
        self.settings.store(Arc::new(settings));
    }

    /// Answers one question at the time `now`. Linear in the number of shards.
    ///
    /// # Errors
    /// [`PickError`] says whether a retry helps.
    pub(crate) fn pick(&self, request: &PickRequest, now: Instant) -> Result<Pick, PickError> {
        let settings = self.settings.load();
        let answer = self.answer(request, &settings, now);
        let outcome = match &answer {
            Ok((outcome, pick)) => {
                tracing::debug!(
                    workspace = request.workspace_uid,
                    parent = request.parent_cluster,
                    shard = %pick.shard,
                    policy = pick.policy,
                    reason = pick.reason,
                    "a shard was picked"
                );
                *outcome
            }
            Err(error) => {
                tracing::debug!(
                    workspace = request.workspace_uid,
                    parent = request.parent_cluster,
                    selector = ?request.selector.to_string(),
                    %error,
                    "no shard was picked"
                );
                error.outcome()
            }
        };
        self.metrics.answered(settings.policy(), outcome);
        Ok(answer?.1)
    }

    /// The table shows these workspaces now: their reservations no longer count, but the answers stay the same.
    pub(crate) fn placed<'u>(&self, workspace_uids: impl Iterator<Item = &'u str>) {
        let mut desk = self.desk.lock();
        workspace_uids.for_each(|uid| desk.reservations.settle(uid));
    }

    /// How a shard stands with regard to a question that selects it.
    pub(crate) fn standing(&self, shard: ShardIndex) -> Option<ShardPlacementStatus> {
        let (settings, root) = (self.settings.load(), self.table.load());
        let entry = root.shard(shard)?;
        let desk = self.desk.lock();
        let candidate = self.candidate(&root, entry, &LabelSelector::default(), &desk, &settings);
        let load = desk.loads.of(shard);
        Some(ShardPlacementStatus {
            exclusion: candidate.exclusion(settings.gateways()).map(Exclusion::as_str),
            weight: candidate.weight,
            capacity: candidate.capacity,
            reserved: candidate.reserved,
            rate: load.rate,
            busy: load.busy,
        })
    }

    /// Brings the metrics of shards up to date.
    pub(crate) fn note_shards(&self, now: Instant) {
        let (settings, root) = (self.settings.load(), self.table.load());
        let mut desk = self.desk.lock();
        desk.catch_up(&root, &*self.signs, now);
        self.metrics.forget_shards();
        for entry in root.shards() {
            let candidate = self.candidate(&root, entry, &LabelSelector::default(), &desk, &settings);
            let exclusion = candidate.exclusion(settings.gateways());
            self.metrics.shard(candidate.name, exclusion, candidate.reserved, candidate.busy);
        }
    }

    fn answer(
        &self,
        request: &PickRequest,
        settings: &PickSettings,
        now: Instant,
    ) -> Result<(Outcome, Pick), PickError> {
        if request.workspace_uid.is_empty() {
            return Err(PickError::Invalid("workspaceUID is missing"));
        }
        request.selector.validate()?;
        let root = self.table.load();
        if !root.is_listed() {
            return Err(PickError::NotListed);
        }
        let mut desk = self.desk.lock();
        desk.catch_up(&root, &*self.signs, now);
        let entries: Vec<&ShardEntry> = root.shards().collect();
        let candidates: Vec<Candidate<'_>> = entries
            .iter()
            .map(|entry| self.candidate(&root, entry, &request.selector, &desk, settings))
            .collect();
        let pick = |entry: &ShardEntry, reason| Pick {
            shard: Arc::clone(&entry.spec.name),
            policy: settings.policy().as_str(),
            reason,
        };
        let earlier = desk.reservations.shard_of(&request.workspace_uid);
        let again = entries.iter().zip(&candidates).find(|(entry, candidate)| {
            // Its own place is part of what fills the shard.
            let still_fits = || candidate.exclusion(settings.gateways()).is_none_or(Exclusion::is_about_room);
            Some(entry.index) == earlier && still_fits()
        });
        if let Some((entry, _)) = again {
            return Ok((Outcome::Repeated, pick(entry, "picked before".to_owned())));
        }
        let decided = decide(settings.policy(), &candidates, settings.gateways(), &mut desk.random);
        desk.note_starving(&request.selector, decided.as_ref().err());
        match decided {
            Ok(decision @ Decision { chosen, .. }) => {
                desk.reservations.add(&request.workspace_uid, entries[chosen].index, now);
                Ok((Outcome::Picked, pick(entries[chosen], decision.explain(&candidates))))
            }
            Err(excluded) if excluded.is_empty() => {
                Err(PickError::NoShardFits("there is no shard".to_owned()))
            }
            Err(excluded) => {
                let reason = format!("of {} shards {excluded}", entries.len());
                Err(match excluded.is_temporary() {
                    true => PickError::NotNow(reason),
                    false => PickError::NoShardFits(reason),
                })
            }
        }
    }

    fn candidate<'t>(
        &self,
        root: &Root,
        entry: &'t ShardEntry,
        selector: &LabelSelector,
        desk: &SchedulerState,
        settings: &PickSettings,
    ) -> Candidate<'t> {
        let ShardEntry { index, spec, .. } = entry;
        let worth = settings.worth(spec);
        let tally = desk.reservations.on(*index);
        let all_fail = || self.signs.panics(&mut root.shards().map(|entry| &*entry.spec.name));
        let fails = || self.signs.is_failing(&spec.name) && !all_fail();
        let is_heard = || self.freshness.is_watching(Some(*index)) && !fails();
        Candidate {
            name: &spec.name,
            selected: selector.matches(&spec.labels),
            cordoned: spec.cordoned,
            draining: spec.marks.draining,
            reach: match () {
                () if !entry.is_synced() => EligibleShards::NotRead,
                () if is_heard() => EligibleShards::Heard,
                () => EligibleShards::Lost,
            },
            workspaces: root.counts(*index).clusters,
            reserved: tally.open,
            settled: tally.settled,
            weight: worth.weight,
            capacity: worth.capacity,
            busy: desk.loads.of(*index).busy,
        }
    }
}

impl SchedulerState {
    fn catch_up(&mut self, root: &Root, signs: &dyn UpstreamSignals, now: Instant) {
        self.reservations.expire(now);
        let shards = root.shards().map(|shard| (shard.index, &*shard.spec.name));
        self.loads.read(shards, signs, now);
    }

    /// Says when nothing fits a selector any more, and when something does again.
    fn note_starving(&mut self, selector: &LabelSelector, excluded: Option<&policy::Excluded>) {
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

impl PickError {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Invalid(_) | Self::Selector(_) => Outcome::Invalid,
            Self::NoShardFits(_) => Outcome::NoShardFits,
            Self::NotNow(_) => Outcome::NotNow,
            Self::NotListed => Outcome::NotListed,
        }
    }
}
