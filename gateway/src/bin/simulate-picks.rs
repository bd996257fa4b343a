//! `make sim`: prints how evenly gateways spread workspaces, by policy. Fails when a promised limit is exceeded.

use std::process::ExitCode;
use std::time::Duration;

use fairlead_config::PlacementPolicy;
use fairlead_gateway::simulation::{Plan, simulate, table};

fn main() -> ExitCode {
    let plan = Plan {
        shards: 100,
        workspaces: 1_000_000,
        gateways: 3,
        configured: 3,
        view_age: Duration::from_secs(1),
        per_second: 2_000,
        seed: 1,
    };
    let all = PlacementPolicy::ALL.map(|policy| simulate(policy, &plan));
    println!("{}", table(&plan, &all));
    let violations: Vec<String> = all.iter().filter_map(|figures| figures.violation()).collect();
    for violation in &violations {
        println!("violation: {violation}");
    }
    if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
