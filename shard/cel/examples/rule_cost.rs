//! Measures rules: the time to compile one, to evaluate one of usual size, to evaluate a hundred on one object, and that
//! of the most expensive evaluation that the budget of an object allows.
//!
//! `cargo run --release -p fairlead-cel --example rule_cost`
#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use fairlead_cel::{Budget, DeclType, Environment, Inputs, Program, Variable};
use serde_json::{Value, json};

/// Rules as authors of CRDs write them.
const RULES: [(&str, &str); 5] = [
    ("comparison", "self.replicas <= self.max"),
    ("immutable field", "self.color == oldSelf.color"),
    ("optional field", "!has(self.mode) || self.mode in ['a', 'b', 'c'] || self.replicas > 3"),
    ("20 items", "self.ports.all(p, p.port > 0 && p.port < 65536)"),
    ("pattern", "self.host.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')"),
];

fn main() {
    let schema = schema();
    let declared = Arc::new(DeclType::from_schema(&schema, "self", false).unwrap());
    let environment = Environment::default()
        .with_variable("self", Variable::Json(Arc::clone(&declared)))
        .with_variable("oldSelf", Variable::Json(declared));
    let object = object();
    let inputs = Inputs::new(&environment).with_json("self", &object).with_json("oldSelf", &object);
    report("compile a comparison", micros(20_000, || environment.compile(RULES[0].1).unwrap()));
    for (name, rule) in RULES {
        let program = environment.compile(rule).unwrap();
        report(&format!("evaluate: {name}"), micros(200_000, || run(&program, &inputs)));
    }
    let hundred: Vec<Program> =
        (0..100).map(|index| environment.compile(RULES[index % 3].1).unwrap()).collect();
    let all = || {
        let inputs = Inputs::new(&environment).with_json("self", &object).with_json("oldSelf", &object);
        hundred.iter().for_each(|program| run(program, &inputs));
    };
    report("evaluate 100 rules on one object", micros(5_000, all));
    for expensive in [
        "[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, self.ports.all(p, self.ports.all(q, p != q || true))))",
        "self.text.matches('(a|b|c)*d')",
        "self.text.replace('a', 'bb').contains(self.text)",
    ] {
        let program = environment.compile(expensive).unwrap();
        let mut cost = 0;
        let time = micros(3, || {
            let mut budget = Budget::default();
            while program.evaluate(&inputs, &mut budget).cost <= budget.remaining() && budget.remaining() > 0
            {
            }
            cost = fairlead_cel::RUNTIME_COST_BUDGET - budget.remaining();
        });
        report(&format!("spend {cost} units: {}", &expensive[..24]), time);
    }
}

fn run(program: &Program, inputs: &Inputs<'_>) {
    let evaluation = program.evaluate(inputs, &mut Budget::default());
    black_box(evaluation.result.unwrap());
}

fn report(name: &str, micros: f64) {
    println!("{name:<52} {micros:>12.2} µs");
}

/// The mean time of a call, after as many calls for warming up as a tenth of the measured ones.
fn micros<T>(calls: u32, mut call: impl FnMut() -> T) -> f64 {
    for _ in 0..calls / 10 {
        black_box(call());
    }
    let start = Instant::now();
    for _ in 0..calls {
        black_box(call());
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(calls)
}

fn schema() -> Value {
    json!({"type": "object", "properties": {
        "replicas": {"type": "integer"}, "max": {"type": "integer"}, "color": {"type": "string"},
        "mode": {"type": "string"}, "host": {"type": "string"}, "text": {"type": "string"},
        "ports": {"type": "array", "items": {"type": "object", "properties": {
            "name": {"type": "string"}, "port": {"type": "integer"},
        }}},
    }})
}

fn object() -> Value {
    let ports: Vec<Value> = (0..20).map(|n| json!({"name": format!("p{n}"), "port": 8000 + n})).collect();
    json!({
        "replicas": 3, "max": 5, "color": "red", "mode": "b", "host": "some-host-name", "ports": ports,
        "text": "abc".repeat(10_000),
    })
}
