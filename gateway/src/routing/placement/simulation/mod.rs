//! Simulation of many placements by several gateways that see each other's only later: run by `make sim`, and by a small test.
//!
//! Policies, reservations and load are the gateway's own code. Simulated are the shards, the events that change them, the
//! requests that load them, and the delay until a gateway sees anything.

mod report;
mod world;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fairlead_config::PlacementPolicy;

use crate::routing::placement::load::Loads;
use crate::routing::placement::policy::{Candidate, EligibleShards, decide};
use crate::routing::placement::reservations::Reservations;
use world::{Marks, Traffic, World};

pub use report::{Figures, PROMISED_IMBALANCE, table};

/// Percentage of requests that have a selector.
const WITH_SELECTOR: u32 = 10;

/// Parameters of a simulation.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of shards at the end.
    pub shards: usize,
    /// Number of workspaces to place.
    pub workspaces: u32,
    /// Number of gateways; each request goes to a random one.
    pub gateways: u32,
    /// Number of gateways in their configuration (`placement.gateways`).
    pub configured: u32,
    /// Age of a gateway's view.
    pub view_age: Duration,
    /// Placements per second, of all gateways together.
    pub per_second: u32,
    /// Seed of the random numbers; the same plan has the same outcome.
    pub seed: u64,
}

/// A shard as a gateway sees it.
#[derive(Clone, Copy, Default)]
struct ObservedShard {
    workspaces: u32,
    marks: Marks,
}

struct Gateway {
    seen: Vec<ObservedShard>,
    reservations: Reservations<usize>,
    loads: Loads<usize>,
    random: fastrand::Rng,
}

/// An event that gateways see after `view_age`.
enum News {
    Placed { workspace: u32, shard: usize },
    Marked { shard: usize, marks: Marks },
}

/// A placement request.
#[derive(Clone, Copy)]
struct Question {
    workspace: u32,
    is_for_north: bool,
}

/// Places all workspaces by one policy.
pub fn simulate(policy: PlacementPolicy, plan: &Plan) -> Figures {
    let mut world = World::new(plan);
    let traffic = Traffic::new(plan, &world);
    let mut chance = fastrand::Rng::with_seed(plan.seed ^ 0x5eed);
    let seen: Vec<ObservedShard> = world
        .shards
        .iter()
        .map(|shard| ObservedShard { workspaces: shard.workspaces, marks: shard.marks })
        .collect();
    let mut gateways: Vec<Gateway> = (0..plan.gateways)
        .map(|_| Gateway {
            seen: seen.clone(),
            reservations: Reservations::default(),
            loads: Loads::default(),
            random: chance.fork(),
        })
        .collect();
    let mut figures = Figures::new(policy);
    let mut news: VecDeque<(Duration, News)> = VecDeque::new();
    let mut asked_again: VecDeque<Question> = VecDeque::new();
    let (began, step) = (Instant::now(), Duration::from_secs(1) / plan.per_second);
    let (mut now, mut placed, mut asked, mut second) = (Duration::ZERO, 0, 0, 0);
    let mut in_this_second = vec![0; plan.shards];
    while placed < plan.workspaces {
        now += step;
        let part = now.as_secs_f64() * f64::from(plan.per_second) / f64::from(plan.workspaces);
        for shard in world.pass(part) {
            news.push_back((now, News::Marked { shard, marks: world.shards[shard].marks }));
        }
        while news.front().is_some_and(|(at, _)| *at + plan.view_age <= now) {
            let Some((_, news)) = news.pop_front() else { break };
            gateways.iter_mut().for_each(|gateway| gateway.learn(&news));
        }
        if now.as_secs() > second {
            second = now.as_secs();
            figures.note_second(&world, &mut in_this_second);
            traffic.pass(&world, plan.gateways);
        }
        let question = if asked < plan.workspaces {
            asked += 1;
            Question { workspace: asked, is_for_north: chance.u32(0..100) < WITH_SELECTOR }
        } else {
            match asked_again.pop_front() {
                Some(question) => question,
                None => break,
            }
        };
        let gateway = chance.usize(0..gateways.len());
        let gateway = &mut gateways[gateway];
        let picked = gateway.pick(policy, question, &world, &traffic, plan.configured, began + now);
        let Some(shard) = picked else {
            figures.refused += 1;
            asked_again.push_back(question);
            continue;
        };
        figures.note_pick(&gateway.seen[shard].marks, &world.shards[shard]);
        world.place(shard);
        in_this_second[shard] += 1;
        placed += 1;
        news.push_back((now, News::Placed { workspace: question.workspace, shard }));
    }
    figures.conclude(&world, placed);
    figures
}

impl Gateway {
    fn learn(&mut self, news: &News) {
        match *news {
            News::Placed { workspace, shard } => {
                self.seen[shard].workspaces += 1;
                self.reservations.settle(&workspace.to_string());
            }
            News::Marked { shard, marks } => self.seen[shard].marks = marks,
        }
    }

    fn pick(
        &mut self,
        policy: PlacementPolicy,
        question: Question,
        world: &World,
        traffic: &Traffic,
        configured: u32,
        now: Instant,
    ) -> Option<usize> {
        self.reservations.expire(now);
        let known = || (0..).zip(&world.shards).zip(&self.seen).filter(|(_, seen)| seen.marks.is_there);
        let names = known().map(|((place, shard), _)| (place, &*shard.name));
        self.loads.read(names, traffic, now);
        let candidates: (Vec<usize>, Vec<Candidate<'_>>) = known()
            .map(|((place, shard), seen)| {
                let tally = self.reservations.on(place);
                let candidate = Candidate {
                    name: &shard.name,
                    selected: shard.is_north || !question.is_for_north,
                    cordoned: seen.marks.cordoned,
                    draining: seen.marks.draining,
                    reach: if seen.marks.is_dead { EligibleShards::Lost } else { EligibleShards::Heard },
                    workspaces: seen.workspaces,
                    reserved: tally.open,
                    settled: tally.settled,
                    weight: shard.weight,
                    capacity: shard.capacity,
                    busy: self.loads.of(place).busy,
                };
                (place, candidate)
            })
            .unzip();
        let decision = decide(policy, &candidates.1, configured, &mut self.random).ok()?;
        let place = candidates.0[decision.chosen];
        self.reservations.add(&question.workspace.to_string(), place, now);
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(seed: u64) -> Plan {
        Plan {
            shards: 40,
            workspaces: 120_000,
            gateways: 3,
            configured: 3,
            view_age: Duration::from_secs(1),
            per_second: 400,
            seed,
        }
    }

    #[test]
    fn power_of_two_keeps_what_is_promised() {
        for seed in [1, 2] {
            let figures = simulate(PlacementPolicy::PowerOfTwo, &plan(seed));
            assert_eq!(figures.missed(), None, "{}", table(&plan(seed), &[figures]));
        }
    }

    #[test]
    fn no_policy_places_on_a_shard_that_is_excluded() {
        for policy in PlacementPolicy::ALL {
            let figures = simulate(policy, &plan(3));
            assert_eq!((figures.on_excluded, figures.beyond_capacity), (0, 0), "{policy}");
            assert_eq!(figures.placed, 120_000, "{policy}");
        }
    }

    /// Shows that `beyond_capacity` in the test above is meaningful.
    #[test]
    fn gateways_that_think_to_be_alone_go_beyond_capacities() {
        let figures = simulate(PlacementPolicy::PowerOfTwo, &Plan { configured: 1, ..plan(3) });
        assert!(figures.beyond_capacity > 0);
    }

    #[test]
    fn the_same_plan_has_the_same_outcome() {
        let once = || simulate(PlacementPolicy::PowerOfTwo, &Plan { workspaces: 10_000, ..plan(4) });
        assert_eq!(once(), once());
    }

    /// Shows that `PROMISED_IMBALANCE` is not met trivially.
    #[test]
    fn chance_alone_misses_it() {
        let figures = simulate(PlacementPolicy::Random, &plan(1));
        assert!(figures.imbalance > PROMISED_IMBALANCE, "{}", figures.imbalance);
    }
}
