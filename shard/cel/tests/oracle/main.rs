//! Compares this crate with Kubernetes: errors, types, estimates, results and costs of generated expressions.
//!
//! `tests/data/oracle.jsonl.gz` has the answers of Kubernetes 1.36 (cel-go 0.29) to more than 100,000 expressions. Each
//! line is a case: its seed, a checksum, and its answers in the form of `answer::shorten`. Schemas, objects and
//! expressions are generated from the seed, so they are not in the data; the checksum says whether the generator still
//! gives the same.
//!
//! More cases are compared with a program that gives Kubernetes' answers, named by `CEL_ORACLE`:
//!
//! ```text
//! CEL_ORACLE=<program> cargo test --release -p fairlead-cel --test oracle -- --ignored --nocapture
//! ```
//!
//! `CEL_ORACLE_CASES` is the number of cases of 50 expressions (2,060), `CEL_ORACLE_SEED` the first seed (1), and
//! `CEL_ORACLE_WRITE=1` replaces the data. The program reads lines with `schema`, `object`, `oldObject`, `rules` and
//! `"any": true`, and writes a line with the list of answers for each: `compile` (error), or `type`, `est`, `estMin`,
//! `cost` and either `result` or `err`. It is a few lines of Go around `schemacel.Compile` of apiextensions-apiserver.

#![allow(clippy::unwrap_used, reason = "tests")]

mod answer;
mod generate;
mod random;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use flate2::{Compression, Crc, read::GzDecoder, write::GzEncoder};
use serde_json::{Value as Json, json};

use answer::{Case, UNSTABLE, shorten};

const RULES_PER_CASE: usize = 50;
const CASES: u64 = 2_060;
/// Seeds of further cases in the data, with rare answers.
const RARE: [u64; 2] = [1_001_282, 1_001_362];

/// Differences on purpose.
const DIFFERENCES: &[Reason] = &[
    Reason {
        text: "Kubernetes panics, recovers, and reports no cause",
        explains: |difference| difference.theirs.contains("\t!internal error: "),
    },
    Reason {
        text: "Kubernetes panics when it checks an optional element of a dynamic type",
        explains: |difference| difference.theirs.starts_with("!PANIC "),
    },
    Reason {
        text: "Kubernetes cannot read variables that hold types",
        explains: |difference| difference.theirs.contains(": reference to undefined type: "),
    },
    Reason {
        text: "Kubernetes has no equality with a computed quantity",
        explains: |difference| {
            let is_computed = [".add(", ".sub("].iter().any(|call| difference.rule.contains(call));
            let is_refused = |answer: &str| answer.ends_with("\t!no such overload");
            is_computed && is_refused(difference.theirs) && !is_refused(difference.ours)
        },
    },
    Reason {
        text: "Kubernetes subtracts the smallest integer from a quantity as if it were added",
        explains: |difference| {
            let has_smallest = |text: &str| text.contains("-9223372036854775808");
            let inputs = [&difference.case.object, &difference.case.old_object];
            difference.rule.contains(".sub(")
                && (has_smallest(difference.rule)
                    || inputs.iter().any(|input| has_smallest(&input.to_string())))
        },
    },
    Reason {
        text: "Kubernetes reads the second list of a sum by the declaration of the first one",
        explains: |difference| {
            let is_sum =
                ["elf.ll + ", "elf.ld + ", "elf.ld) + "].iter().any(|sum| difference.rule.contains(sum));
            let is_error =
                ["invalid data, expected ", "!error during formatting: no formatting function for error"]
                    .iter()
                    .any(|error| difference.theirs.contains(error));
            !difference.theirs.starts_with('!') && (is_sum || is_error)
        },
    },
];

struct Reason {
    text: &'static str,
    explains: fn(&Difference<'_>) -> bool,
}

struct Difference<'d> {
    case: &'d Case,
    rule: &'d str,
    theirs: &'d str,
    ours: &'d str,
}

fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/oracle.jsonl.gz")
}

#[test]
fn answers_are_those_of_kubernetes() {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(data()).unwrap()).read_to_string(&mut text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let report = std::thread::scope(|scope| {
        let parts: Vec<_> = lines.chunks(lines.len().div_ceil(threads)).collect();
        let workers: Vec<_> = parts.into_iter().map(|part| scope.spawn(|| compare_recorded(part))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).fold(Report::default(), Report::merge)
    });
    assert!(report.compared >= 100_000, "only {} expressions", report.compared);
    report.finish(true);
}

fn compare_recorded(lines: &[&str]) -> Report {
    let mut report = Report::default();
    for line in lines {
        let line: Json = serde_json::from_str(line).unwrap();
        let case = generate::case(line["seed"].as_u64().unwrap(), RULES_PER_CASE);
        let checksum = line["checksum"].as_u64().unwrap();
        assert_eq!(checksum_of(&case), checksum, "the generator has changed: record the answers again");
        let answers = line["answers"].as_array().unwrap().iter();
        report.compare(&case, &answers.map(|answer| answer.as_str().unwrap().to_owned()).collect::<Vec<_>>());
    }
    report
}

fn checksum_of(case: &Case) -> u64 {
    let mut checksum = Crc::new();
    checksum.update(case.to_json().to_string().as_bytes());
    u64::from(checksum.sum())
}

#[test]
#[ignore = "needs the program that CEL_ORACLE names"]
fn generated_expressions_have_the_answers_of_the_oracle() {
    let Ok(program) = std::env::var("CEL_ORACLE") else {
        eprintln!("CEL_ORACLE is not set: nothing was compared");
        return;
    };
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
    };
    let (cases, seed) = (number("CEL_ORACLE_CASES", CASES), number("CEL_ORACLE_SEED", 1));
    let is_written = std::env::var("CEL_ORACLE_WRITE").is_ok();
    let rare = RARE.iter().copied().filter(|_| is_written);
    let mut child =
        Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the oracle runs");
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut written = Vec::new();
    let mut report = Report::default();
    for seed in (seed..seed + cases).chain(rare) {
        let case = generate::case(seed, RULES_PER_CASE);
        writeln!(input, "{}", case.to_json()).unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let answers: Vec<Json> = serde_json::from_str(&line).unwrap();
        assert_eq!(case.rules.len(), answers.len(), "{answers:?}");
        let answers: Vec<String> =
            case.rules.iter().zip(&answers).map(|(rule, answer)| shorten(answer, rule)).collect();
        report.compare(&case, &answers);
        written.push(json!({ "seed": seed, "checksum": checksum_of(&case), "answers": answers }).to_string());
    }
    drop(input);
    child.wait().unwrap();
    if is_written {
        let mut encoder = GzEncoder::new(std::fs::File::create(data()).unwrap(), Compression::best());
        encoder.write_all(written.join("\n").as_bytes()).unwrap();
        encoder.finish().unwrap();
    }
    report.finish(false);
}

#[derive(Default)]
struct Report {
    compared: usize,
    unstable: usize,
    /// The number of explained differences of each reason, and the seed of the first one.
    explained: BTreeMap<&'static str, (usize, u64)>,
    valid: usize,
    evaluated: usize,
    differences: Vec<String>,
}

impl Report {
    fn compare(&mut self, case: &Case, answers: &[String]) {
        assert_eq!(case.rules.len(), answers.len(), "{answers:?}");
        for ((rule, theirs), ours) in case.rules.iter().zip(answers).zip(case.answers()) {
            // Maps of Go have no order, so some results change from time to time.
            if theirs == UNSTABLE {
                self.unstable += 1;
                continue;
            }
            self.compared += 1;
            let ours = shorten(&ours, rule);
            self.valid += usize::from(!theirs.starts_with('!'));
            self.evaluated += usize::from(theirs.contains('\t') && !theirs.contains("\t!"));
            if *theirs == ours {
                continue;
            }
            let difference = Difference { case, rule, theirs, ours: &ours };
            if let Some(reason) = DIFFERENCES.iter().find(|reason| (reason.explains)(&difference)) {
                self.explained.entry(reason.text).or_insert((0, case.seed)).0 += 1;
                continue;
            }
            let mut text = format!("{rule}\n  seed   {}\n  theirs {theirs:?}\n  ours   {ours:?}", case.seed);
            if std::env::var("CEL_ORACLE_OBJECTS").is_ok() {
                text.push_str(&format!("\n  object {}", case.object));
            }
            self.differences.push(text);
        }
    }

    fn merge(mut self, other: Self) -> Self {
        self.compared += other.compared;
        self.unstable += other.unstable;
        self.valid += other.valid;
        self.evaluated += other.evaluated;
        self.differences.extend(other.differences);
        for (reason, (count, seed)) in other.explained {
            self.explained.entry(reason).or_insert((0, seed)).0 += count;
        }
        self
    }

    /// Prints the counts, and fails on differences; `with_all_reasons`: also if a reason explains none.
    fn finish(self, with_all_reasons: bool) {
        println!(
            "{} expressions compared, {} without a stable answer, {} valid, {} with a result, {} explained differences, {} others",
            self.compared,
            self.unstable,
            self.valid,
            self.evaluated,
            self.explained.values().map(|(count, _)| count).sum::<usize>(),
            self.differences.len()
        );
        for (reason, (count, seed)) in &self.explained {
            println!("{count} differ because {reason} (first in case {seed})");
        }
        let mut shortest: Vec<&str> = self.differences.iter().map(String::as_str).collect();
        shortest.sort_by_key(|text| text.len());
        shortest.truncate(60);
        assert!(self.differences.is_empty(), "{}", shortest.join("\n"));
        if with_all_reasons {
            for Reason { text, .. } in DIFFERENCES {
                assert!(self.explained.contains_key(text), "no expression differs because {text}");
            }
        }
    }
}
