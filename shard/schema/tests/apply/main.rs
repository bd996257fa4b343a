//! Server-side apply and the tracking of fields, compared with Kubernetes.
//!
//! `tests/data/apply.jsonl.gz` has the answers of Kubernetes 1.36 (structured-merge-diff 6.4) to more than 100,000
//! writes. Each line is a sequence of writes by several managers: its seed, a checksum, and its answers in the form of
//! `answer.rs`. Schemas and writes are generated from the seed and the answers, so they are not in the data; the checksum
//! is that of all writes and says whether the generator still gives the same.
//!
//! More writes are compared with a program that gives Kubernetes' answers, named by `APPLY_ORACLE`:
//!
//! ```text
//! APPLY_ORACLE=<program> cargo test --release -p fairlead-schema --test apply -- --ignored --nocapture
//! ```
//!
//! `APPLY_ORACLE_SEQUENCES` is the number of sequences (4,100), `APPLY_ORACLE_SEED` the first seed (1), and
//! `APPLY_ORACLE_WRITE=1` replaces the data. The program reads lines: `{"case": {v1, v2, e1, e2, rename}}` has the schemas of
//! the following writes, `{"step": {…}, "live": …}` a write and the object before it, to which it responds with
//! `{"result": …}` or `{"error": …}`. It is a few lines of Go around `NewDefaultCRDFieldManager` of apimachinery, with
//! the types of `BuildOpenAPIV3` of apiextensions-apiserver and a conversion that renames a field.
#![allow(clippy::unwrap_used, reason = "tests")]

mod answer;
mod cases;
mod engine;
mod oracle;
mod random;
mod report;
mod schemas;
mod sequence;
mod values;

use std::io::{Read, Write};
use std::path::PathBuf;

use flate2::{Compression, Crc, read::GzDecoder, write::GzEncoder};
use serde_json::{Value, json};

use answer::{Answer, expand, shorten};
use engine::{Engine, difference};
use oracle::Oracle;
use report::Report;
use sequence::Sequence;

const WRITES_PER_SEQUENCE: usize = 25;
const SEQUENCES: u64 = 4_100;
/// Seeds of further sequences in the data, with rare answers.
const RARE: [u64; 3] = [1_001_876, 1_002_759, 1_003_093];

fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/apply.jsonl.gz")
}

#[test]
fn writes_have_the_results_of_kubernetes() {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(data()).unwrap()).read_to_string(&mut text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let report = std::thread::scope(|scope| {
        let parts: Vec<_> = lines.chunks(lines.len().div_ceil(threads)).collect();
        let workers: Vec<_> = parts.into_iter().map(|part| scope.spawn(|| compare_recorded(part))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).fold(Report::default(), Report::merge)
    });
    assert!(report.compared() >= 100_000, "only {} writes", report.compared());
    report.finish(true);
}

fn compare_recorded(lines: &[&str]) -> Report {
    let mut report = Report::default();
    for line in lines {
        let line: Value = serde_json::from_str(line).unwrap();
        let answers = line["answers"].as_array().unwrap();
        let mut answers = answers.iter();
        let checksum =
            run_sequence(line["seed"].as_u64().unwrap(), answers.len(), &mut report, |step, live, _| {
                expand(answers.next().unwrap(), step, live)
            });
        assert_eq!(
            checksum,
            line["checksum"].as_u64().unwrap(),
            "the generator has changed: record the answers again"
        );
    }
    report
}

/// Compares a sequence of writes with their answers; returns the checksum of the writes.
fn run_sequence(
    seed: u64,
    writes: usize,
    report: &mut Report,
    mut answer: impl FnMut(&sequence::Step, Option<&Value>, &str) -> Answer,
) -> u64 {
    let mut sequence = Sequence::new(seed);
    let engine = Engine::new(&sequence.schemas);
    let mut checksum = Crc::new();
    for index in 0..writes {
        let step = sequence.next_step();
        checksum.update(serde_json::to_string(&step).unwrap().as_bytes());
        let now = sequence.now();
        let theirs = answer(&step, sequence.live(), &now);
        let ours = engine.run(&step, sequence.live(), &now);
        report.count(&step, &theirs, difference(ours, &theirs), || {
            let live = sequence.live().cloned().unwrap_or_default();
            let schemas = sequence.schemas.versions(step.evolved);
            format!(
                "seed {seed} write {index} {}\n  live {live}\n  schemas {} {}",
                json!(step),
                schemas[0],
                schemas[1]
            )
        });
        sequence.finish(&step, theirs.as_ref().ok());
    }
    u64::from(checksum.sum())
}

#[test]
#[ignore = "needs the program that APPLY_ORACLE names"]
fn generated_writes_have_the_answers_of_the_oracle() {
    let Ok(program) = std::env::var("APPLY_ORACLE") else {
        eprintln!("APPLY_ORACLE is not set: nothing was compared");
        return;
    };
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
    };
    let (sequences, seed) = (number("APPLY_ORACLE_SEQUENCES", SEQUENCES), number("APPLY_ORACLE_SEED", 1));
    let is_written = std::env::var("APPLY_ORACLE_WRITE").is_ok();
    let rare = RARE.iter().copied().filter(|_| is_written);
    let mut oracle = Oracle::start(&program);
    let mut report = Report::default();
    let mut written = Vec::new();
    for seed in (seed..seed + sequences).chain(rare) {
        oracle.send(&json!({"case": Sequence::new(seed).schemas.to_json()}));
        let mut short = Vec::new();
        let checksum = run_sequence(seed, WRITES_PER_SEQUENCE, &mut report, |step, live, now| {
            let answer = oracle.ask(step, live, now);
            short.push(shorten(&answer, step, live));
            // Later writes depend on the object as it will be read from the data.
            expand(short.last().unwrap(), step, live)
        });
        written.push(json!({"seed": seed, "checksum": checksum, "answers": short}).to_string());
    }
    if is_written {
        let mut encoder = GzEncoder::new(std::fs::File::create(data()).unwrap(), Compression::best());
        encoder.write_all(written.join("\n").as_bytes()).unwrap();
        encoder.finish().unwrap();
    }
    report.finish(false);
}
