//! Form of programs: length of files, first lines of crates, and calls that are reserved for tests.

use std::path::Path;

use crate::workspace::sources;

/// A longer file should be split.
const MAX_LINES: usize = 800;

/// Macros and calls that only tests may contain.
const TESTS_ONLY: &[&str] = &[
    "todo!",
    "unimplemented!",
    "unreachable!",
    "dbg!",
    "panic!(",
    "assert!(",
    "assert_eq!(",
    "assert_ne!(",
    ".unwrap()",
    ".expect(",
];

/// Exceptions: fuzz targets fail by assertions, and the borrow checker does not see that the line before made a value.
const EXCEPTIONS: &[(&str, &str)] =
    &[("fuzzing.rs", "assert"), ("config/client/src/kubeconfig/edit.rs", "unreachable!")];

#[test]
fn sources_follow_the_rules() {
    let faults = sources().iter().flat_map(|source| {
        let kind = if source.is_test { Kind::Test } else { Kind::Program };
        faults(Path::new(&source.path), &source.text, kind)
    });
    let faults: Vec<_> = faults.collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// The purpose of a source file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Program,
    Test,
}

/// The faults of a source file; `path` is relative to the workspace.
fn faults(path: &Path, text: &str, kind: Kind) -> Vec<String> {
    let shown = path.display();
    let mut faults = Vec::new();
    let lines = text.lines().count();
    if lines > MAX_LINES {
        faults.push(format!("{shown}: {lines} lines are too many (at most {MAX_LINES}): split it"));
    }
    if path.ends_with("src/lib.rs") && !text.starts_with("//!") {
        faults.push(format!("{shown}: a crate begins with its purpose (//!)"));
    }
    if kind == Kind::Test {
        return faults;
    }
    let lines: Vec<_> = text.lines().collect();
    for (index, line) in without_tests(&lines) {
        let code = line.trim_start();
        if code.starts_with("//") {
            continue;
        }
        for word in TESTS_ONLY.iter().filter(|word| code.contains(*word)) {
            // `self.expect(..)` is a method of our parsers.
            if *word == ".expect(" && (code.contains("self.expect(") || has_allow(&lines[..index])) {
                continue;
            }
            let is_exception = |(file, what): &(&str, &str)| path.ends_with(file) && word.starts_with(what);
            let is_debug_only = code.contains(&format!("debug_{word}"));
            if is_debug_only || EXCEPTIONS.iter().any(is_exception) {
                continue;
            }
            faults.push(format!("{shown}:{}: {word} outside tests: return an error", index + 1));
        }
    }
    faults
}

/// The lines of items without `#[cfg(test)]`, with their indices. An item ends where rustfmt puts its last brace.
pub fn without_tests<'a>(lines: &'a [&'a str]) -> impl Iterator<Item = (usize, &'a str)> {
    let mut until: Option<String> = None;
    let mut attribute_seen = false;
    lines.iter().enumerate().filter_map(move |(index, line)| {
        if let Some(end) = &until {
            if line == end {
                until = None;
            }
            return None;
        }
        if line.trim() == "#[cfg(test)]" {
            attribute_seen = true;
            return None;
        }
        if attribute_seen {
            let is_attribute = line.trim_start().starts_with("#[");
            attribute_seen = is_attribute;
            if !is_attribute && line.ends_with('{') {
                let indent = &line[..line.len() - line.trim_start().len()];
                until = Some(format!("{indent}}}"));
            }
            return None;
        }
        Some((index, *line))
    })
}

/// Whether an `allow` stands shortly before.
fn has_allow(before: &[&str]) -> bool {
    let near = &before[before.len().saturating_sub(12)..];
    near.iter().any(|line| line.contains("clippy::expect_used"))
}

#[test]
fn faults_are_found_outside_tests_only() {
    let body = "\
fn a() {
    // todo!() in a comment
    b().unwrap();
    c().unwrap_or_default();
    #[allow(clippy::expect_used, reason = \"checked above\")]
    let d = e().expect(\"f\");
}

#[cfg(test)]
mod declared;

#[cfg(test)]
#[rustfmt::skip]
mod tests {
    fn g() {
        h().unwrap();
    }
}

fn i() {
    dbg!(todo!())
}
";
    let source = Path::new("a/src/b.rs");
    assert_eq!(
        faults(source, body, Kind::Program),
        [
            "a/src/b.rs:3: .unwrap() outside tests: return an error",
            "a/src/b.rs:21: todo! outside tests: return an error",
            "a/src/b.rs:21: dbg! outside tests: return an error",
        ]
    );
    assert!(faults(source, body, Kind::Test).is_empty());
    let of_program = |path: &str, text: &str| faults(Path::new(path), text, Kind::Program).len();
    let unexcused = format!("{}x.expect(\"y\")\n", "\n".repeat(13));
    assert_eq!(of_program("a/src/b.rs", &format!("// clippy::expect_used\n{unexcused}")), 1);
    assert_eq!(of_program("a/src/b.rs", "self.expect(b'x')?;\n"), 0);
    assert_eq!(faults(source, &"\n".repeat(801), Kind::Test).len(), 1, "tests may not be long either");
    assert_eq!(of_program("a/src/b.rs", &"\n".repeat(800)), 0);
    assert_eq!(of_program("a/src/lib.rs", "mod b;\n"), 1);
    assert_eq!(of_program("a/src/lib.rs", "//! For b.\nmod b;\n"), 0);
}
