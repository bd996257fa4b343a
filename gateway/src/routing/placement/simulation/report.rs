//! Results of a simulation, and the check against the promised limits.

use std::time::Duration;

use fairlead_config::PlacementPolicy;

use crate::routing::placement::simulation::Plan;
use crate::routing::placement::simulation::world::{Shard, ShardState, World};

/// Limit of `Figures::imbalance` with `power-of-two`.
pub const PROMISED_IMBALANCE: f64 = 1.05;

/// Results of a simulation. Imbalance covers the shards that are eligible at the end, relative to their weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// The simulated policy.
    pub policy: PlacementPolicy,
    /// Number of placed workspaces.
    pub placed: u32,
    /// Number of requests that got no shard at first.
    pub refused: u32,
    /// Fill of the fullest shard relative to the mean.
    pub imbalance: f64,
    /// The 99th percentile of the shards' load relative to the mean.
    pub load_p99: f64,
    /// Maximum number of workspaces that one shard got within one second, relative to its share.
    pub peak_share: f64,
    /// Number of workspaces that would have to move to make all shards equally full.
    pub moves: u64,
    /// Placements on a shard that the gateway saw as cordoned, drained, failed or missing.
    pub on_excluded: u32,
    /// Placements on such a shard before the gateway saw its state.
    pub not_yet_observed: u32,
    /// Number of workspaces beyond the capacities of shards.
    pub beyond_capacity: u32,
    /// Number of shards filled up to their capacity, except one workspace per gateway.
    pub filled: u32,
}

impl Figures {
    pub(super) fn new(policy: PlacementPolicy) -> Self {
        Self {
            policy,
            placed: 0,
            refused: 0,
            imbalance: 0.0,
            load_p99: 0.0,
            peak_share: 0.0,
            moves: 0,
            on_excluded: 0,
            not_yet_observed: 0,
            beyond_capacity: 0,
            filled: 0,
        }
    }

    /// Records a placement before it is applied.
    pub(super) fn record_placement(&mut self, view: &ShardState, shard: &Shard) {
        if !view.is_eligible() {
            self.on_excluded += 1;
        } else if !shard.state.is_eligible() {
            self.not_yet_observed += 1;
        }
        if shard.capacity.is_some_and(|capacity| shard.workspaces >= capacity) {
            self.beyond_capacity += 1;
        }
    }

    /// Records the number of workspaces that each shard got within one second.
    pub(super) fn record_second(&mut self, world: &World, got: &mut [u32]) {
        let all: u32 = got.iter().sum();
        let open = world.shards.iter().filter(|shard| shard.state.is_eligible());
        let weights: u32 = open.map(|shard| shard.weight).sum();
        for (got, shard) in got.iter_mut().zip(&world.shards) {
            let share = f64::from(all) * f64::from(shard.weight) / f64::from(weights);
            // Below this, random variation dominates.
            if share >= 10.0 {
                self.peak_share = self.peak_share.max(f64::from(*got) / share);
            }
            *got = 0;
        }
    }

    pub(super) fn finish(&mut self, world: &World, placed: u32) {
        self.placed = placed;
        let has_room = |shard: &Shard| shard.capacity.is_none_or(|capacity| shard.workspaces + 4 < capacity);
        self.filled = world.shards.iter().filter(|shard| !has_room(shard)).count() as u32;
        let level: Vec<&Shard> =
            world.shards.iter().filter(|shard| shard.state.is_eligible() && has_room(shard)).collect();
        let weights: f64 = level.iter().map(|shard| f64::from(shard.weight)).sum();
        let sum = |of: fn(&Shard) -> f64| level.iter().map(|shard| of(shard)).sum::<f64>();
        let (workspaces, load) = (sum(|shard| f64::from(shard.workspaces)), sum(|shard| shard.load));
        let beside_mean =
            |value: f64, all: f64, shard: &Shard| value / f64::from(shard.weight) / (all / weights);
        let fills = level.iter().map(|shard| beside_mean(shard.workspaces.into(), workspaces, shard));
        self.imbalance = fills.fold(0.0, f64::max);
        let mut loads: Vec<f64> = level.iter().map(|shard| beside_mean(shard.load, load, shard)).collect();
        loads.sort_by(f64::total_cmp);
        self.load_p99 =
            loads.get((loads.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default();
        let above = level.iter().map(|shard| {
            (f64::from(shard.workspaces) - workspaces / weights * f64::from(shard.weight)).max(0.0)
        });
        self.moves = above.sum::<f64>() as u64;
    }

    /// The first promised limit that is exceeded.
    pub fn violation(&self) -> Option<String> {
        let name = self.policy;
        match () {
            () if self.on_excluded > 0 => {
                Some(format!("{name}: {} workspaces on shards that were excluded", self.on_excluded))
            }
            () if self.beyond_capacity > 0 => {
                Some(format!("{name}: {} workspaces on full shards", self.beyond_capacity))
            }
            () if self.policy == PlacementPolicy::PowerOfTwo && self.imbalance > PROMISED_IMBALANCE => {
                Some(format!(
                    "{name}: the fullest shard has {:.3} of the mean, not {PROMISED_IMBALANCE}",
                    self.imbalance
                ))
            }
            () => None,
        }
    }
}

/// A table of the results of several policies.
pub fn table(plan: &Plan, all: &[Figures]) -> String {
    let Plan { shards, workspaces, gateways, view_age, per_second, .. } = plan;
    let age = Duration::as_secs_f64(view_age);
    let mut text = format!(
        "{workspaces} workspaces on {shards} shards, {per_second} a second through {gateways} gateways whose view is {age} s old\n\n\
         | policy | fullest, of mean | p99 of load, of mean | peak per second, of share | moves to level | on excluded | not seen yet | beyond capacity | filled | retried |\n\
         |---|---|---|---|---|---|---|---|---|---|\n"
    );
    for figures in all {
        let Figures { policy, imbalance, load_p99, peak_share, moves, .. } = figures;
        let Figures { on_excluded, not_yet_observed, beyond_capacity, filled, refused, .. } = figures;
        text.push_str(&format!(
            "| {policy} | {imbalance:.3} | {load_p99:.2} | {peak_share:.2} | {moves} | {on_excluded} | {not_yet_observed} | {beyond_capacity} | {filled} | {refused} |\n"
        ));
    }
    text
}
