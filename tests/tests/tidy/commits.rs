//! Objects are committed by `ObjectStore::commit` or `commit_each`, which give no two objects of a resource the same
//! resourceVersion. A commit of several objects that goes to the store itself would break the rule.

use std::sync::LazyLock;

use regex::Regex;

use crate::sources::without_tests;
use crate::workspace::sources;

static COMMIT_TO_STORE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\bstore(\(\))?\s*\.commit\(").unwrap());

/// Programs that store objects. Tests of theirs may write as they like.
const PROGRAMS: &[&str] = &["shard/src/", "shard/apiserver/src/", "shard/virtual/src/", "cache/src/"];

/// The implementation of the rule.
const EXCEPTION: &str = "shard/apiserver/src/registry/commits.rs";

#[test]
fn objects_are_committed_by_the_object_store() {
    let programs = sources().iter().filter(|source| {
        let is_program = PROGRAMS.iter().any(|folder| source.path.starts_with(folder)) && !source.is_test;
        is_program && source.path != EXCEPTION
    });
    let faults: Vec<_> = programs.flat_map(|source| faults(&source.path, &source.text)).collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

fn faults(path: &str, text: &str) -> Vec<String> {
    let lines: Vec<_> = text.lines().collect();
    let (numbers, program): (Vec<usize>, Vec<&str>) = without_tests(&lines).unzip();
    let program = program.join("\n");
    let found = COMMIT_TO_STORE.find_iter(&program).map(|found| {
        let line = program[..found.start()].matches('\n').count();
        format!("{path}:{}: commit objects by `ObjectStore::commit` or `commit_each`", numbers[line] + 1)
    });
    found.collect()
}

#[test]
fn commits_to_a_store_are_found() {
    let source = "\
#[cfg(test)]
mod tests {
    fn a() {
        store.commit(a);
    }
}
fn b() {
    objects.commit(a);
    objects.store().commit(a);
    objects
        .store()
        .commit(a);
    self.store.commit(a);
    restore.commit(a);
}
";
    let found = faults("a.rs", source);
    let lines: Vec<_> = found.iter().map(|fault| fault.split(": ").next().unwrap()).collect();
    assert_eq!(lines, ["a.rs:9", "a.rs:11", "a.rs:13"]);
}
