//! Rules of the house that the compiler does not know: which crate may know which, and how sources are written.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

/// Each crate with those of ours that it may name; ARCHITECTURE.md says why. Tests of a crate may name others.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("fairlead-names", &[]),
    ("fairlead-cel", &[]),
    ("fairlead-store", &[]),
    ("fairlead-schema", &["cel"]),
    ("fairlead-config", &["names"]),
    ("fairlead-client", &["names"]),
    ("fairlead-certs", &[]),
    ("fairlead-lint", &["config", "client"]),
    ("fairlead-process", &["config"]),
    ("fairlead-authn", &["cel", "client"]),
    ("fairlead-api", &["names"]),
    ("fairlead-apiserver", &["names", "store", "schema", "authn", "process"]),
    (
        "fairlead-shard",
        &["names", "store", "schema", "config", "client", "certs", "process", "authn", "api", "apiserver"],
    ),
    ("fairlead-cache", &["names", "store", "schema", "config", "process", "authn", "api", "apiserver"]),
    ("fairlead-gateway", &["names", "cel", "config", "client", "certs", "process", "authn"]),
    ("fairlead-issuer", &["config", "process"]),
    ("fairlead", &["names", "config", "client", "certs", "lint"]),
    ("fairlead-tests", &["names", "config", "client", "certs", "api"]),
    ("fairlead-bench", &["certs", "tests"]),
];

/// Crates that must not be reached on any way, because of what they cost or know.
const MUST_NOT_REACH: &[(&str, &[&str])] = &[
    ("fairlead-gateway", &["fairlead-store", "fairlead-schema", "fairlead-apiserver", "k8s-openapi", "redb"]),
    ("fairlead-process", &["k8s-openapi", "redb"]),
    ("fairlead-client", &["k8s-openapi", "fairlead-process"]),
    // It knows nobody, and nobody but who runs it knows it.
    (
        "fairlead-issuer",
        &["fairlead-client", "fairlead-certs", "fairlead-authn", "k8s-openapi", "openidconnect"],
    ),
    ("fairlead-gateway", &["fairlead-issuer", "jsonwebtoken", "openidconnect"]),
    (
        "fairlead",
        &[
            "fairlead-process",
            "fairlead-shard",
            "fairlead-gateway",
            "fairlead-cache",
            "fairlead-issuer",
            "k8s-openapi",
            "reqwest",
        ],
    ),
];

/// Longer files have more than one idea.
const MOST_LINES: usize = 800;

/// What no program may contain outside its tests.
const BANNED: &[&str] = &[
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

/// Where some of it may be all the same: what fuzzing asks for fails by assertions, and the borrow checker cannot see what the line
/// before has made.
const EXCUSED: &[(&str, &str)] =
    &[("fuzzing.rs", "assert"), ("config/client/src/kubeconfig/edit.rs", "unreachable!")];

#[test]
fn crates_know_only_what_they_may() {
    assert_eq!(forbidden_edges(&metadata()), [""; 0]);
}

#[test]
fn crates_do_not_reach_what_they_must_not() {
    assert_eq!(forbidden_reach(&metadata()), [""; 0]);
}

#[test]
fn sources_follow_the_rules_of_the_house() {
    let sources = sources();
    assert!(sources.len() > 50, "the sources were not found: {sources:?}");
    let root = workspace();
    let texts = sources
        .iter()
        .map(|path| (path.strip_prefix(&root).unwrap(), std::fs::read_to_string(path).unwrap()));
    let texts: Vec<_> = texts.collect();
    let of_tests: BTreeSet<_> = texts.iter().flat_map(|(path, text)| modules_of_tests(path, text)).collect();
    let faults = texts.iter().flat_map(|(path, text)| {
        let kind = if is_test(path) || of_tests.contains(*path) { Kind::Test } else { Kind::Program };
        faults(path, text, kind)
    });
    let faults: Vec<_> = faults.collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// Edges between our crates that the table does not have, and crates that are not in it.
fn forbidden_edges(metadata: &Value) -> Vec<String> {
    let table: BTreeMap<_, _> = MAY_KNOW.iter().copied().collect();
    let mut faults = Vec::new();
    for package in members(metadata) {
        let name = package["name"].as_str().unwrap();
        let Some(allowed) = table.get(name) else {
            faults.push(format!("{name} is not in the table of crates"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().unwrap();
        let ours = dependencies
            .iter()
            .filter(|dependency| dependency["kind"] != "dev")
            .filter_map(|dependency| dependency["name"].as_str()?.strip_prefix("fairlead-"));
        for dependency in ours.filter(|dependency| !allowed.contains(dependency)) {
            faults.push(format!("{name} must not know fairlead-{dependency}"));
        }
    }
    faults
}

/// Ways, through whatever crates, to what must not be reached.
fn forbidden_reach(metadata: &Value) -> Vec<String> {
    let name_of: BTreeMap<&str, &str> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| (package["id"].as_str().unwrap(), package["name"].as_str().unwrap()))
        .collect();
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in metadata["resolve"]["nodes"].as_array().unwrap() {
        let from = name_of[node["id"].as_str().unwrap()];
        for dependency in node["deps"].as_array().unwrap() {
            let kinds = dependency["dep_kinds"].as_array().unwrap();
            if kinds.iter().any(|kind| kind["kind"] != "dev") {
                edges.entry(from).or_default().insert(name_of[dependency["pkg"].as_str().unwrap()]);
            }
        }
    }
    let mut faults = Vec::new();
    for (from, banned) in MUST_NOT_REACH {
        let mut ways = BTreeMap::from([(*from, (*from).to_owned())]);
        let mut open = vec![*from];
        while let Some(here) = open.pop() {
            for next in edges.get(here).into_iter().flatten() {
                if !ways.contains_key(next) {
                    ways.insert(next, format!("{} -> {next}", ways[here]));
                    open.push(next);
                }
            }
        }
        faults
            .extend(banned.iter().filter_map(|banned| Some(format!("forbidden way: {}", ways.get(banned)?))));
    }
    faults
}

/// What a source file belongs to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Program,
    Test,
}

/// What is wrong with a source file; `path` is relative to the workspace.
fn faults(path: &Path, text: &str, kind: Kind) -> Vec<String> {
    let shown = path.display();
    let mut faults = Vec::new();
    let lines = text.lines().count();
    if lines > MOST_LINES {
        faults.push(format!("{shown}: {lines} lines are too many (at most {MOST_LINES}): split it"));
    }
    if path.ends_with("src/lib.rs") && !text.starts_with("//!") {
        faults.push(format!("{shown}: a crate begins by saying what it is for (//!)"));
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
        for word in BANNED.iter().filter(|word| code.contains(*word)) {
            // `self.expect(..)` is a method of ours, which parsers have.
            if *word == ".expect(" && (code.contains("self.expect(") || is_excused(&lines[..index])) {
                continue;
            }
            let is_excused = |(file, what): &(&str, &str)| path.ends_with(file) && word.starts_with(what);
            let is_of_builds_for_tests = code.contains(&format!("debug_{word}"));
            if is_of_builds_for_tests || EXCUSED.iter().any(is_excused) {
                continue;
            }
            faults.push(format!("{shown}:{}: {word} outside tests: return an error", index + 1));
        }
    }
    faults
}

/// The files of modules that a file declares for its tests only.
fn modules_of_tests(path: &Path, text: &str) -> Vec<PathBuf> {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let names = lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]").filter_map(|pair| {
        let (_, name) = pair[1].strip_suffix(';')?.split_once("mod ")?;
        Some(name)
    });
    let folder = path.parent().unwrap();
    let folder = match path.file_stem().and_then(|stem| stem.to_str()) {
        Some("mod" | "lib" | "main") | None => folder.to_owned(),
        Some(stem) => folder.join(stem),
    };
    names.flat_map(|name| [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")]).collect()
}

/// Files that only tests, benchmarks and examples are made of.
fn is_test(path: &Path) -> bool {
    let is_folder = |name: &str| path.components().any(|component| component.as_os_str() == name);
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    ["tests", "benches", "examples"].into_iter().any(is_folder) || stem == "tests" || stem.ends_with("_tests")
}

/// The lines that are not below `#[cfg(test)]`, with their indices. An item ends where rustfmt puts its last brace.
fn without_tests<'a>(lines: &'a [&'a str]) -> impl Iterator<Item = (usize, &'a str)> {
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

/// Whether an `allow` with its reason stands shortly before.
fn is_excused(before: &[&str]) -> bool {
    let near = &before[before.len().saturating_sub(12)..];
    near.iter().any(|line| line.contains("clippy::expect_used"))
}

fn members(metadata: &Value) -> impl Iterator<Item = &Value> {
    let members = &metadata["workspace_members"];
    let packages = metadata["packages"].as_array().unwrap();
    packages.iter().filter(|package| members.as_array().unwrap().contains(&package["id"]))
}

fn metadata() -> Value {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["metadata", "--format-version=1", "--locked", "--filter-platform", &host()])
        .current_dir(workspace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The platform that we are built for: crates of others need not even be downloaded.
fn host() -> String {
    let output =
        Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into())).arg("-vV").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// All Rust sources of the workspace.
fn sources() -> Vec<PathBuf> {
    let (mut sources, mut folders) = (Vec::new(), vec![workspace()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                folders.push(path);
            } else if name.ends_with(".rs") {
                sources.push(path);
            }
        }
    }
    sources.sort();
    sources
}

// The rules themselves, on inputs that break them.

#[test]
fn an_edge_upwards_is_found() {
    let package =
        |name: &str, dependencies: Value| json!({ "id": name, "name": name, "dependencies": dependencies });
    let metadata = json!({
        "workspace_members": ["fairlead-gateway", "fairlead-new"],
        "packages": [
            package("fairlead-gateway", json!([
                { "name": "fairlead-names", "kind": null },
                { "name": "fairlead-store", "kind": null },
                { "name": "fairlead-api", "kind": "build" },
                { "name": "fairlead-shard", "kind": "dev" },
                { "name": "serde", "kind": null },
            ])),
            package("fairlead-new", json!([])),
            package("somebody-else", json!([{ "name": "fairlead-shard", "kind": null }])),
        ],
    });
    assert_eq!(
        forbidden_edges(&metadata),
        [
            "fairlead-gateway must not know fairlead-store",
            "fairlead-gateway must not know fairlead-api",
            "fairlead-new is not in the table of crates",
        ]
    );
}

#[test]
fn a_way_round_is_found() {
    let normal = json!([{ "kind": null }]);
    let dev = json!([{ "kind": "dev" }]);
    let names = ["fairlead-gateway", "middle", "k8s-openapi", "redb"];
    let metadata = json!({
        "packages": names.map(|name| json!({ "id": format!("{name} 1"), "name": name })),
        "resolve": { "nodes": [
            { "id": "fairlead-gateway 1", "deps": [
                { "pkg": "middle 1", "dep_kinds": normal },
                { "pkg": "redb 1", "dep_kinds": dev },
            ] },
            { "id": "middle 1", "deps": [{ "pkg": "k8s-openapi 1", "dep_kinds": normal }] },
            { "id": "k8s-openapi 1", "deps": [] },
            { "id": "redb 1", "deps": [] },
        ] },
    });
    assert_eq!(forbidden_reach(&metadata), ["forbidden way: fairlead-gateway -> middle -> k8s-openapi"]);
}

#[test]
fn faults_of_sources_are_found_outside_tests_only() {
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
    for path in ["a/tests/b.rs", "a/src/tests.rs", "a/src/b/property_tests.rs", "a/benches/b.rs"] {
        assert!(is_test(Path::new(path)), "{path}");
    }
    assert!(!is_test(source) && faults(source, body, Kind::Test).is_empty());
    let of_program = |path: &str, text: &str| faults(Path::new(path), text, Kind::Program).len();
    let unexcused = format!("{}x.expect(\"y\")\n", "\n".repeat(13));
    assert_eq!(of_program("a/src/b.rs", &format!("// clippy::expect_used\n{unexcused}")), 1);
    assert_eq!(of_program("a/src/b.rs", "self.expect(b'x')?;\n"), 0);
    assert_eq!(faults(source, &"\n".repeat(801), Kind::Test).len(), 1, "tests may not be long either");
    assert_eq!(of_program("a/src/b.rs", &"\n".repeat(800)), 0);
    assert_eq!(of_program("a/src/lib.rs", "mod b;\n"), 1);
    assert_eq!(of_program("a/src/lib.rs", "//! For b.\nmod b;\n"), 0);
}

#[test]
fn files_declared_for_tests_are_tests() {
    let text =
        "mod a;\n\n#[cfg(test)]\nmod b;\n    #[cfg(test)]\n    pub(crate) mod c;\n#[cfg(test)]\nmod d {\n";
    let files = ["x/src/b.rs", "x/src/b/mod.rs", "x/src/c.rs", "x/src/c/mod.rs"].map(PathBuf::from);
    assert_eq!(modules_of_tests(Path::new("x/src/lib.rs"), text), files);
    let files = modules_of_tests(Path::new("x/src/y.rs"), text);
    assert_eq!(files[0], Path::new("x/src/y/b.rs"));
}
