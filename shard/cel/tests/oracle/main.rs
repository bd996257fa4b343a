//! Compares this crate with Kubernetes: errors, types, estimates, results and costs of generated expressions.
//!
//! `tests/data/oracle.jsonl.gz` has the answers of Kubernetes 1.36 (cel-go 0.29) to some thousand expressions. Each line
//! is a case with `schema`, `object`, `oldObject`, `rules` and `answers`.
//!
//! More cases are compared with a program that gives Kubernetes' answers, named by `CEL_ORACLE`:
//!
//! ```text
//! CEL_ORACLE=<program> cargo test --release -p fairlead-cel --test oracle -- --ignored --nocapture
//! ```
//!
//! `CEL_ORACLE_CASES` is the number of cases of 50 expressions (2,000), `CEL_ORACLE_SEED` the first seed (1), and
//! `CEL_ORACLE_WRITE=1` replaces the file by the first cases. The program reads lines like those of the file, with
//! `"any": true`, and writes a line with the list of answers for each: `compile` (error), or `type`, `est`, `estMin`,
//! `cost` and either `result` or `err`. It is a few lines of Go around `schemacel.Compile` of apiextensions-apiserver.

mod answer;
mod generate;
mod random;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde_json::{Value as Json, json};

use answer::{Case, normalize};

const RULES_PER_CASE: usize = 50;
/// Cases in the file.
const WRITTEN_CASES: usize = 120;

/// Expressions whose answers differ on purpose, each with a part of the expression or of the answer and the reason.
const DIFFERENCES: &[(&str, &str)] = &[
    ("internal error: ", "Kubernetes panics, recovers, and reports no cause"),
    ("reference to undefined type", "Kubernetes cannot read variables that hold types"),
    ("PANIC ", "Kubernetes panics when it checks an optional element of a dynamic type"),
    ("expected string, got time.", "Kubernetes cannot read timestamps and durations of a sum of lists"),
    ("<error>", "Kubernetes cannot read lists within a sum of lists"),
    (
        "<invalid data, expected ",
        "Kubernetes reads the second list of a sum by the declaration of the first one",
    ),
    (
        "expected an array for the provided schema with type=array",
        "Kubernetes cannot read lists within a sum of lists",
    ),
    (".sub(", "Kubernetes cannot compare a difference of quantities with a quantity"),
    (".add(", "Kubernetes cannot compare a sum of quantities with a quantity"),
    ("elf.ll + ", "Kubernetes cannot read lists within a sum of lists"),
    ("+ ([[", "Kubernetes cannot read lists within a sum of lists"),
    (
        "elf.ld) + (",
        "Kubernetes reads integers of the second list by the declaration of the first one, as doubles",
    ),
    ("elf.lt + ", "Kubernetes cannot read timestamps and durations of a sum of lists"),
];

fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/oracle.jsonl.gz")
}

#[test]
fn answers_are_those_of_kubernetes() {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(data()).unwrap()).read_to_string(&mut text).unwrap();
    let mut report = Report::default();
    for line in text.lines() {
        let line: Json = serde_json::from_str(line).unwrap();
        let rules = line["rules"].as_array().unwrap().iter().map(|rule| rule.as_str().unwrap().to_owned());
        let case = Case {
            schema: line["schema"].clone(),
            object: line["object"].clone(),
            old_object: line["oldObject"].clone(),
            rules: rules.collect(),
        };
        report.compare(&case, line["answers"].as_array().unwrap());
    }
    assert!(report.compared >= 2_000, "only {} expressions", report.compared);
    report.finish();
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
    let (cases, seed) = (number("CEL_ORACLE_CASES", 2_000), number("CEL_ORACLE_SEED", 1));
    let mut child =
        Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the oracle runs");
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut written = Vec::new();
    let mut report = Report::default();
    for seed in seed..seed + cases {
        let case = generate::case(seed, RULES_PER_CASE);
        let mut line = case.to_json();
        writeln!(input, "{line}").unwrap();
        let mut answer = String::new();
        output.read_line(&mut answer).unwrap();
        let answers: Vec<Json> = serde_json::from_str(&answer).unwrap();
        report.compare(&case, &answers);
        if written.len() < WRITTEN_CASES {
            let stable = answers.iter().map(|answer| !answer["unstable"].as_bool().unwrap_or(false));
            let pairs: Vec<_> = case.rules.iter().zip(answers.iter().map(normalize)).zip(stable).collect();
            let kept = || pairs.iter().filter(|(_, is_stable)| *is_stable);
            line["rules"] = kept().map(|((rule, _), _)| Json::from(rule.as_str())).collect();
            line["answers"] = kept().map(|((_, answer), _)| answer.clone()).collect();
            line.as_object_mut().unwrap().remove("any");
            written.push(line.to_string());
        }
    }
    drop(input);
    child.wait().unwrap();
    if std::env::var("CEL_ORACLE_WRITE").is_ok() {
        let mut encoder = GzEncoder::new(std::fs::File::create(data()).unwrap(), Compression::best());
        encoder.write_all(written.join("\n").as_bytes()).unwrap();
        encoder.finish().unwrap();
    }
    report.finish();
}

#[derive(Default)]
struct Report {
    compared: usize,
    unstable: usize,
    /// The number of explained differences of each reason.
    explained: BTreeMap<&'static str, usize>,
    valid: usize,
    evaluated: usize,
    differences: Vec<Json>,
}

impl Report {
    fn compare(&mut self, case: &Case, answers: &[Json]) {
        assert_eq!(case.rules.len(), answers.len(), "{answers:?}");
        for ((rule, theirs), ours) in case.rules.iter().zip(answers).zip(case.answers()) {
            // Maps of Go have no order, so some results change from time to time.
            if theirs["unstable"].as_bool().unwrap_or(false) {
                self.unstable += 1;
                continue;
            }
            self.compared += 1;
            let (theirs, ours) = (normalize(theirs), normalize(&ours));
            self.valid += usize::from(theirs["compile"].is_null());
            self.evaluated += usize::from(!theirs["result"].is_null());
            if theirs == ours {
                continue;
            }
            let known = |(part, _): &&(&str, &str)| rule.contains(part) || theirs.to_string().contains(part);
            if let Some((_, reason)) = DIFFERENCES.iter().find(known) {
                *self.explained.entry(reason).or_default() += 1;
                continue;
            }
            let mut difference = json!({ "rule": rule });
            for field in ["compile", "type", "est", "estMin", "cost", "result", "err"] {
                if theirs[field] != ours[field] {
                    difference[field] = json!({ "theirs": theirs[field], "ours": ours[field] });
                }
            }
            if std::env::var("CEL_ORACLE_OBJECTS").is_ok() {
                difference["object"] = case.object.clone();
            }
            self.differences.push(difference);
        }
    }

    fn finish(self) {
        eprintln!(
            "{} expressions compared, {} without a stable answer, {} valid, {} with a result, {} explained differences, {} others",
            self.compared,
            self.unstable,
            self.valid,
            self.evaluated,
            self.explained.values().sum::<usize>(),
            self.differences.len()
        );
        for (reason, count) in &self.explained {
            eprintln!("{count} differ because {reason}");
        }
        let mut fields: BTreeMap<String, usize> = BTreeMap::new();
        for difference in &self.differences {
            let names = difference.as_object().into_iter().flat_map(|fields| fields.keys());
            let names = names.filter(|name| *name != "rule");
            *fields.entry(names.cloned().collect::<Vec<_>>().join(" ")).or_default() += 1;
        }
        let mut shortest = self.differences.clone();
        shortest.sort_by_key(|difference| difference["rule"].as_str().map_or(0, str::len));
        let shown: Vec<String> = shortest.iter().take(60).map(Json::to_string).collect();
        assert!(self.differences.is_empty(), "{fields:?}\n{}", shown.join("\n"));
    }
}
