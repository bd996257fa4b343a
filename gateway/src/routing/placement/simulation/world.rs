//! The simulated world: shards with their workspaces and load, and the events that change them.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::routing::placement::load::{ShardWork, UpstreamSignals};
use crate::routing::placement::simulation::Plan;

/// Percentage of shards that are added late.
const LATE: usize = 10;
const WITH_CAPACITY: usize = 6;
/// One percent of the workspaces has this many times the load of the others.
const BUSY_WORKSPACE: f64 = 50.0;
/// The workspaces of every tenth shard have this many times the average load, as of a special tenant.
const BUSY_SHARD: f64 = 4.0;
/// Service time of a request without queueing, in seconds.
const SERVICE: f64 = 0.005;

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
    pub(super) marks: Marks,
}

/// The properties of a shard that events change.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Marks {
    pub(super) is_there: bool,
    pub(super) is_dead: bool,
    pub(super) cordoned: bool,
    pub(super) draining: bool,
}

impl Marks {
    pub(super) fn may_be_had(self) -> bool {
        self.is_there && !self.is_dead && !self.cordoned && !self.draining
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
    Appears,
    Dies,
    Returns,
    IsCordoned(bool),
    IsDrained,
}

impl World {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut random = fastrand::Rng::with_seed(plan.seed);
        let percent = |count: usize| (plan.shards * count).div_ceil(100);
        let weight = |place: usize| [1, 1, 1, 2, 1, 1, 2, 1, 4, 2][place % 10];
        let total: u32 = (0..plan.shards).map(weight).sum();
        let fair = |weight: u32| f64::from(plan.workspaces) * f64::from(weight) / f64::from(total);
        let first_late = plan.shards - percent(LATE);
        let shards = (0..plan.shards).map(|place| {
            let (weight, is_there) = (weight(place), place < first_late);
            // A few shards have many workspaces already, most have few.
            let before = if is_there { 0.6 * fair(weight) / (1 + place % 30) as f64 } else { 0.0 };
            let is_limited = (20..20 + percent(WITH_CAPACITY)).contains(&place);
            Shard {
                name: format!("shard-{place}").into(),
                is_north: place % 7 == 0,
                weight,
                capacity: is_limited.then(|| (fair(weight) / 2.0) as u32),
                workspaces: before as u32,
                load: before * busyness(place),
                marks: Marks { is_there, ..Marks::default() },
            }
        });
        let mut world = Self { shards: shards.collect(), events: Vec::new(), random: random.fork() };
        world.foresee(plan, first_late, &mut random);
        world
    }

    /// Schedules the events: shards are added, cordoned for good or for a while, drained, fail and recover.
    fn foresee(&mut self, plan: &Plan, first_late: usize, random: &mut fastrand::Rng) {
        let mut events = vec![
            (0.2, 3, Event::IsCordoned(true)),
            (0.2, 5, Event::IsCordoned(true)),
            (0.5, 5, Event::IsCordoned(false)),
            (0.4, 6, Event::IsDrained),
        ];
        for place in first_late..plan.shards {
            events.push((if place % 2 == 0 { 0.3 } else { 0.6 }, place, Event::Appears));
        }
        for number in 0..40 {
            let (at, for_how_long) = (0.02 * f64::from(number), 0.01 + 0.05 * random.f64());
            let place = random.usize(0..first_late);
            events.push((at, place, Event::Dies));
            events.push((at + for_how_long, place, Event::Returns));
        }
        events.sort_by(|one, other| other.0.total_cmp(&one.0));
        self.events = events;
    }

    /// Applies the events that are due and returns the shards that changed.
    pub(super) fn pass(&mut self, part: f64) -> Vec<usize> {
        let mut touched = Vec::new();
        while let Some((_, place, event)) = self.events.pop_if(|(at, ..)| *at <= part) {
            let marks = &mut self.shards[place].marks;
            match event {
                Event::Appears => marks.is_there = true,
                Event::Dies => marks.is_dead = true,
                Event::Returns => marks.is_dead = false,
                Event::IsCordoned(cordoned) => marks.cordoned = cordoned,
                Event::IsDrained => marks.draining = true,
            }
            touched.push(place);
        }
        touched
    }

    /// Adds a workspace to a shard.
    pub(super) fn place(&mut self, place: usize) {
        let busy = if self.random.u32(0..100) == 0 { BUSY_WORKSPACE } else { 1.0 };
        let shard = &mut self.shards[place];
        shard.workspaces += 1;
        shard.load += busy * busyness(place);
    }
}

fn busyness(place: usize) -> f64 {
    if place % 10 == 1 { BUSY_SHARD } else { 1.0 }
}

/// A gateway's view of the requests that pass through it: an equal part of all.
pub(super) struct Traffic {
    work: Mutex<Vec<ShardWork>>,
    /// Requests per second and unit of weight that saturate a shard.
    most: f64,
}

impl Traffic {
    pub(super) fn new(plan: &Plan, world: &World) -> Self {
        let weights: u32 = world.shards.iter().map(|shard| shard.weight).sum();
        // Twice the final load.
        let most = 2.0 * 1.8 * f64::from(plan.workspaces) / f64::from(weights);
        Self { work: Mutex::new(vec![ShardWork::default(); world.shards.len()]), most }
    }

    /// Simulates the requests of one second.
    pub(super) fn pass(&self, world: &World, gateways: u32) {
        for (work, shard) in self.work.lock().iter_mut().zip(&world.shards) {
            let requests = shard.load / f64::from(gateways);
            let used = (shard.load / (self.most * f64::from(shard.weight))).min(0.98);
            work.answered += requests as u64;
            work.waited += requests * SERVICE / (1.0 - used);
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
