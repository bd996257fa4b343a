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
use crate::routing::placement::policy::{Candidate, Reachability, decide};
use crate::routing::placement::reservations::Reservations;
use world::{ShardState, Traffic, World};

pub use report::{Figures, PROMISED_IMBALANCE, table};

/// Percentage of requests that have a selector.
const SELECTOR_PERCENT: u32 = 10;

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
    state: ShardState,
}

struct Gateway {
    view: Vec<ObservedShard>,
    reservations: Reservations<usize>,
    loads: Loads<usize>,
    random: fastrand::Rng,
}

/// An event that gateways see after `view_age`.
enum Observation {
    Placed { workspace: u32, shard: usize },
    Changed { shard: usize, state: ShardState },
}

/// A placement request.
#[derive(Clone, Copy)]
struct Request {
    workspace: u32,
    is_for_north: bool,
}

/// Places all workspaces by one policy.
pub fn simulate(policy: PlacementPolicy, plan: &Plan) -> Figures {
    let mut world = World::new(plan);
    let traffic = Traffic::new(plan, &world);
    let mut random = fastrand::Rng::with_seed(plan.seed ^ 0x5eed);
    let view: Vec<ObservedShard> = world
        .shards
        .iter()
        .map(|shard| ObservedShard { workspaces: shard.workspaces, state: shard.state })
        .collect();
    let mut gateways: Vec<Gateway> = (0..plan.gateways)
        .map(|_| Gateway {
            view: view.clone(),
            reservations: Reservations::default(),
            loads: Loads::default(),
            random: random.fork(),
        })
        .collect();
    let mut figures = Figures::new(policy);
    let mut observations: VecDeque<(Duration, Observation)> = VecDeque::new();
    let mut retries: VecDeque<Request> = VecDeque::new();
    let (began, step) = (Instant::now(), Duration::from_secs(1) / plan.per_second);
    let (mut now, mut placed, mut requested, mut second) = (Duration::ZERO, 0, 0, 0);
    let mut in_this_second = vec![0; plan.shards];
    while placed < plan.workspaces {
        now += step;
        let part = now.as_secs_f64() * f64::from(plan.per_second) / f64::from(plan.workspaces);
        for shard in world.pass(part) {
            observations.push_back((now, Observation::Changed { shard, state: world.shards[shard].state }));
        }
        while observations.front().is_some_and(|(at, _)| *at + plan.view_age <= now) {
            let Some((_, observation)) = observations.pop_front() else { break };
            gateways.iter_mut().for_each(|gateway| gateway.observe(&observation));
        }
        if now.as_secs() > second {
            second = now.as_secs();
            figures.record_second(&world, &mut in_this_second);
            traffic.pass(&world, plan.gateways);
        }
        let request = if requested < plan.workspaces {
            requested += 1;
            Request { workspace: requested, is_for_north: random.u32(0..100) < SELECTOR_PERCENT }
        } else {
            match retries.pop_front() {
                Some(request) => request,
                None => break,
            }
        };
        let gateway = random.usize(0..gateways.len());
        let gateway = &mut gateways[gateway];
        let picked = gateway.pick(policy, request, &world, &traffic, plan.configured, began + now);
        let Some(shard) = picked else {
            figures.refused += 1;
            retries.push_back(request);
            continue;
        };
        figures.record_placement(&gateway.view[shard].state, &world.shards[shard]);
        world.place(shard);
        in_this_second[shard] += 1;
        placed += 1;
        observations.push_back((now, Observation::Placed { workspace: request.workspace, shard }));
    }
    figures.finish(&world, placed);
    figures
}

impl Gateway {
    fn observe(&mut self, observation: &Observation) {
        match *observation {
            Observation::Placed { workspace, shard } => {
                self.view[shard].workspaces += 1;
                self.reservations.settle(&workspace.to_string());
            }
            Observation::Changed { shard, state } => self.view[shard].state = state,
        }
    }

    fn pick(
        &mut self,
        policy: PlacementPolicy,
        request: Request,
        world: &World,
        traffic: &Traffic,
        configured: u32,
        now: Instant,
    ) -> Option<usize> {
        self.reservations.expire(now);
        let known = || (0..).zip(&world.shards).zip(&self.view).filter(|(_, view)| view.state.exists);
        let names = known().map(|((place, shard), _)| (place, &*shard.name));
        self.loads.read(names, traffic, now);
        let candidates: (Vec<usize>, Vec<Candidate<'_>>) = known()
            .map(|((place, shard), view)| {
                let tally = self.reservations.tally(place);
                let candidate = Candidate {
                    name: &shard.name,
                    selected: shard.is_north || !request.is_for_north,
                    cordoned: view.state.cordoned,
                    draining: view.state.draining,
                    reachability: if view.state.has_failed {
                        Reachability::Unreachable
                    } else {
                        Reachability::Reachable
                    },
                    workspaces: view.workspaces,
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
        self.reservations.add(&request.workspace.to_string(), place, now);
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
    fn power_of_two_keeps_the_promised_limits() {
        for seed in [1, 2] {
            let figures = simulate(PlacementPolicy::PowerOfTwo, &plan(seed));
            assert_eq!(figures.violation(), None, "{}", table(&plan(seed), &[figures]));
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
    fn gateways_configured_as_single_exceed_capacities() {
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
    fn random_placement_exceeds_the_promised_imbalance() {
        let figures = simulate(PlacementPolicy::Random, &plan(1));
        assert!(figures.imbalance > PROMISED_IMBALANCE, "{}", figures.imbalance);
    }
}
