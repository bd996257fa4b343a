//! The simulated world: shards with their workspaces and load, and the events that change them.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::routing::placement::load::{ShardWork, UpstreamSignals};
use crate::routing::placement::simulation::Plan;

/// Percentage of shards that are added late.
const LATE_PERCENT: usize = 10;
const CAPACITY_PERCENT: usize = 6;
/// One percent of the workspaces has this many times the load of the others.
const BUSY_WORKSPACE_FACTOR: f64 = 50.0;
/// The workspaces of every tenth shard have this many times the average load, as of a special tenant.
const BUSY_SHARD_FACTOR: f64 = 4.0;
/// Service time of a request without queueing, in seconds.
const SERVICE_TIME: f64 = 0.005;

/// A simulated shard.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    pub(super) name: Arc<str>,
    /// Whether the selector of the simulation matches it.
    pub(super) is_north: bool,
    pub(super) weight: u32,
    pub(super) capacity: Option<u32>,
    pub(super) workspaces: u32,
    /// Requests per second.
    pub(super) load: f64,
    pub(super) state: ShardState,
}

/// The properties of a shard that events change.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct ShardState {
    pub(super) exists: bool,
    pub(super) has_failed: bool,
    pub(super) cordoned: bool,
    pub(super) draining: bool,
}

impl ShardState {
    pub(super) fn is_eligible(self) -> bool {
        self.exists && !self.has_failed && !self.cordoned && !self.draining
    }
}

/// All shards and the events to come.
pub(super) struct World {
    pub(super) shards: Vec<Shard>,
    /// In reverse order of time; times are fractions of the whole run.
    events: Vec<(f64, usize, Event)>,
    random: fastrand::Rng,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Added,
    Fails,
    Recovers,
    Cordoned(bool),
    Drained,
}

impl World {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut random = fastrand::Rng::with_seed(plan.seed);
        let percent = |count: usize| (plan.shards * count).div_ceil(100);
        let weight = |place: usize| [1, 1, 1, 2, 1, 1, 2, 1, 4, 2][place % 10];
        let total: u32 = (0..plan.shards).map(weight).sum();
        let fair = |weight: u32| f64::from(plan.workspaces) * f64::from(weight) / f64::from(total);
        let first_late = plan.shards - percent(LATE_PERCENT);
        let shards = (0..plan.shards).map(|place| {
            let (weight, exists) = (weight(place), place < first_late);
            // A few shards have many workspaces already, most have few.
            let before = if exists { 0.6 * fair(weight) / (1 + place % 30) as f64 } else { 0.0 };
            let is_limited = (20..20 + percent(CAPACITY_PERCENT)).contains(&place);
            Shard {
                name: format!("shard-{place}").into(),
                is_north: place % 7 == 0,
                weight,
                capacity: is_limited.then(|| (fair(weight) / 2.0) as u32),
                workspaces: before as u32,
                load: before * load_factor(place),
                state: ShardState { exists, ..ShardState::default() },
            }
        });
        let mut world = Self { shards: shards.collect(), events: Vec::new(), random: random.fork() };
        world.schedule_events(plan, first_late, &mut random);
        world
    }

    /// Schedules the events: shards are added, cordoned for good or for a while, drained, fail and recover.
    fn schedule_events(&mut self, plan: &Plan, first_late: usize, random: &mut fastrand::Rng) {
        let mut events = vec![
            (0.2, 3, Event::Cordoned(true)),
            (0.2, 5, Event::Cordoned(true)),
            (0.5, 5, Event::Cordoned(false)),
            (0.4, 6, Event::Drained),
        ];
        for place in first_late..plan.shards {
            events.push((if place % 2 == 0 { 0.3 } else { 0.6 }, place, Event::Added));
        }
        for number in 0..40 {
            let (at, duration) = (0.02 * f64::from(number), 0.01 + 0.05 * random.f64());
            let place = random.usize(0..first_late);
            events.push((at, place, Event::Fails));
            events.push((at + duration, place, Event::Recovers));
        }
        events.sort_by(|one, other| other.0.total_cmp(&one.0));
        self.events = events;
    }

    /// Applies the events that are due and returns the shards that changed.
    pub(super) fn pass(&mut self, part: f64) -> Vec<usize> {
        let mut touched = Vec::new();
        while let Some((_, place, event)) = self.events.pop_if(|(at, ..)| *at <= part) {
            let state = &mut self.shards[place].state;
            match event {
                Event::Added => state.exists = true,
                Event::Fails => state.has_failed = true,
                Event::Recovers => state.has_failed = false,
                Event::Cordoned(cordoned) => state.cordoned = cordoned,
                Event::Drained => state.draining = true,
            }
            touched.push(place);
        }
        touched
    }

    /// Adds a workspace to a shard.
    pub(super) fn place(&mut self, place: usize) {
        let busy = if self.random.u32(0..100) == 0 { BUSY_WORKSPACE_FACTOR } else { 1.0 };
        let shard = &mut self.shards[place];
        shard.workspaces += 1;
        shard.load += busy * load_factor(place);
    }
}

fn load_factor(place: usize) -> f64 {
    if place % 10 == 1 { BUSY_SHARD_FACTOR } else { 1.0 }
}

/// A gateway's view of the requests that pass through it: an equal part of all.
pub(super) struct Traffic {
    work: Mutex<Vec<ShardWork>>,
    /// Requests per second and unit of weight that saturate a shard.
    saturation: f64,
}

impl Traffic {
    pub(super) fn new(plan: &Plan, world: &World) -> Self {
        let weights: u32 = world.shards.iter().map(|shard| shard.weight).sum();
        // Twice the final load.
        let saturation = 2.0 * 1.8 * f64::from(plan.workspaces) / f64::from(weights);
        Self { work: Mutex::new(vec![ShardWork::default(); world.shards.len()]), saturation }
    }

    /// Simulates the requests of one second.
    pub(super) fn pass(&self, world: &World, gateways: u32) {
        for (work, shard) in self.work.lock().iter_mut().zip(&world.shards) {
            let requests = shard.load / f64::from(gateways);
            let used = (shard.load / (self.saturation * f64::from(shard.weight))).min(0.98);
            work.responses += requests as u64;
            work.waited += requests * SERVICE_TIME / (1.0 - used);
        }
    }
}

impl UpstreamSignals for Traffic {
    fn work(&self, shard: &str) -> ShardWork {
        let place = shard.rsplit_once('-').and_then(|(_, place)| place.parse::<usize>().ok());
        place.and_then(|place| self.work.lock().get(place).copied()).unwrap_or_default()
    }

    fn is_failing(&self, _: &str) -> bool {
        false
    }
}
