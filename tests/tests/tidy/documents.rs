//! Documents are short, and their links and paths lead to files that exist.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use crate::workspace::{files, workspace};

/// Lines of a second-level section of README.md: one screen.
const MAX_SECTION_LINES: usize = 45;
const MAX_ARCHITECTURE_LINES: usize = 200;
/// Characters of a line of ARCHITECTURE.md.
const MAX_ARCHITECTURE_WIDTH: usize = 110;
const MAX_DECISION_LINES: usize = 40;

static LINK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\]\(([^)\s]+)\)").unwrap());
static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"`([A-Za-z0-9_./-]+)`").unwrap());
/// A function with its file: "`run` (`forward/exchange/mod.rs`)".
static FUNCTION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"`([a-z0-9_]+)` \(`([A-Za-z0-9_./-]+\.rs)`\)").unwrap());

/// A name of a function or folder.
static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"`([a-z0-9_]+)`").unwrap());

#[test]
fn documents_are_short_and_lead_to_files_that_exist() {
    let read = |path: &str| std::fs::read_to_string(workspace().join(path)).unwrap();
    let mut faults = long_sections("README.md", &read("README.md"));
    faults.extend(long_architecture(&read("ARCHITECTURE.md")));
    let source = |path: &str| std::fs::read_to_string(workspace().join(path)).ok();
    faults.extend(missing_functions(&read("ARCHITECTURE.md"), source));
    let gateway = files().iter().filter(|path| path.starts_with("gateway/src/") && path.ends_with(".rs"));
    let gateway: Vec<(String, String)> = gateway.map(|path| (path.clone(), read(path))).collect();
    faults.extend(unknown_names(&read("ARCHITECTURE.md"), &gateway));
    let decisions: Vec<&str> = files()
        .iter()
        .filter_map(|path| path.strip_prefix("docs/decisions/"))
        .filter(|n| *n != "README.md")
        .collect();
    faults.extend(badly_numbered(&decisions));
    for name in decisions {
        let lines = read(&format!("docs/decisions/{name}")).lines().count();
        faults.extend(too_long(&format!("docs/decisions/{name}"), lines, MAX_DECISION_LINES));
    }
    let mut existing: BTreeSet<String> = files().iter().cloned().collect();
    for file in files() {
        let parts: Vec<&str> = file.split('/').collect();
        existing.extend((1..parts.len()).map(|length| parts[..length].join("/")));
    }
    for path in files().iter().filter(|path| path.ends_with(".md")) {
        faults.extend(dead_ends(path, &read(path), &existing));
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

fn too_long(what: &str, lines: usize, limit: usize) -> Option<String> {
    (lines > limit).then(|| format!("{what}: {lines} lines, at most {limit}"))
}

fn long_sections(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let (mut title, mut lines) = ("", 0);
    for line in text.lines().chain(["## "]) {
        if let Some(next) = line.strip_prefix("## ") {
            faults.extend(too_long(&format!("{path}: section {title:?}"), lines, MAX_SECTION_LINES));
            (title, lines) = (next, 0);
        }
        lines += 1;
    }
    faults
}

fn long_architecture(text: &str) -> Vec<String> {
    let path = "ARCHITECTURE.md";
    let wide = text.lines().enumerate().filter(|(_, line)| line.chars().count() > MAX_ARCHITECTURE_WIDTH);
    let wide = wide.map(|(index, line)| {
        let width = line.chars().count();
        format!("{path}:{}: {width} characters, at most {MAX_ARCHITECTURE_WIDTH}", index + 1)
    });
    too_long(path, text.lines().count(), MAX_ARCHITECTURE_LINES).into_iter().chain(wide).collect()
}

/// Functions that are not in the file that ARCHITECTURE.md names beside them. Paths are relative to the root or the gateway's sources.
fn missing_functions(text: &str, source: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut faults = Vec::new();
    for found in FUNCTION.captures_iter(&text) {
        let (function, path) = (&found[1], &found[2]);
        let heads = [format!("fn {function}("), format!("fn {function}<")];
        let code = source(path).or_else(|| source(&format!("gateway/src/{path}")));
        if !code.is_some_and(|code| heads.iter().any(|head| code.contains(head))) {
            faults.push(format!("ARCHITECTURE.md: no function {function} in {path}"));
        }
    }
    faults
}

/// Names in the walk of a request through the gateway that are neither a function nor a folder of its sources.
fn unknown_names(text: &str, gateway: &[(String, String)]) -> Vec<String> {
    let Some((_, walk)) = text.split_once("\n## A request through the gateway\n") else {
        return vec!["ARCHITECTURE.md: no section \"A request through the gateway\"".to_owned()];
    };
    let walk = walk.split_once("\n## ").map_or(walk, |(walk, _)| walk);
    let is_known = |name: &str| {
        let heads = [format!("fn {name}("), format!("fn {name}<")];
        gateway.iter().any(|(path, code)| {
            path.starts_with(&format!("gateway/src/{name}/")) || heads.iter().any(|head| code.contains(head))
        })
    };
    let names: BTreeSet<&str> =
        NAME.captures_iter(walk).filter_map(|found| found.get(1)).map(|name| name.as_str()).collect();
    let unknown = names.into_iter().filter(|name| !is_known(name));
    unknown.map(|name| format!("ARCHITECTURE.md: the gateway has no function or folder {name}")).collect()
}

/// The names must be `0001-title.md`, `0002-title.md`, …
fn badly_numbered(names: &[&str]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort_unstable();
    let numbered = names.iter().enumerate();
    let faults = numbered
        .filter(|(index, name)| !name.starts_with(&format!("{:04}-", index + 1)) || !name.ends_with(".md"));
    faults
        .map(|(index, name)| format!("docs/decisions/{name}: number {:04} is expected here", index + 1))
        .collect()
}

/// Relative links, and paths between backticks, that lead to no file or folder.
fn dead_ends(path: &str, text: &str, existing: &BTreeSet<String>) -> Vec<String> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let top: BTreeSet<&str> =
        existing.iter().filter_map(|path| path.split_once('/')).map(|(top, _)| top).collect();
    let exists = |base: &str, target: &str| {
        let resolved = resolve(base, target);
        resolved.is_some_and(|resolved| resolved.is_empty() || existing.contains(&resolved))
    };
    let mut faults = Vec::new();
    let mut is_example = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_example = !is_example;
        }
        if is_example {
            continue;
        }
        let number = index + 1;
        for found in LINK.captures_iter(line) {
            let target = found[1].split('#').next().unwrap_or_default();
            if !target.is_empty() && !target.contains(':') && !exists(folder, target) {
                faults.push(format!("{path}:{number}: no file {target} (link)"));
            }
        }
        for found in CODE.captures_iter(line) {
            let target = found[1].trim_end_matches(['/', '.']);
            let is_path =
                target.split_once('/').is_some_and(|(first, _)| top.contains(first) || first == "src");
            // The first component may be a folder of the repository or of the document's crate.
            if is_path && !exists("", target) && !exists(folder, target) {
                faults.push(format!("{path}:{number}: no file {target}"));
            }
        }
    }
    faults
}

/// The path of `target` from the root; `None` if it leads out of the repository.
fn resolve(folder: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for component in Path::new(target).components() {
        match component.as_os_str().to_str()? {
            ".." => drop(parts.pop()?),
            "." | "/" => {}
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[test]
fn long_documents_are_found() {
    let section = "line\n".repeat(MAX_SECTION_LINES);
    let text = format!("# A\n\n## Short\n## Long\n{section}## Last\n");
    assert_eq!(long_sections("README.md", &text), ["README.md: section \"Long\": 46 lines, at most 45"]);
    let text = format!("{}\n{}", "x".repeat(111), "y\n".repeat(200));
    assert_eq!(
        long_architecture(&text),
        ["ARCHITECTURE.md: 201 lines, at most 200", "ARCHITECTURE.md:1: 111 characters, at most 110"]
    );
}

#[test]
fn a_function_that_is_not_in_its_file_is_found() {
    let source = |path: &str| (path == "gateway/src/a.rs").then(|| "fn run() {}\nfn send<T>() {}".to_owned());
    let text = "`run` (`a.rs`), `send`\n   (`a.rs`), `stop` (`a.rs`), `run` (`b.rs`), `other`, (`a.rs`)";
    assert_eq!(
        missing_functions(text, source),
        ["ARCHITECTURE.md: no function stop in a.rs", "ARCHITECTURE.md: no function run in b.rs"]
    );
}

#[test]
fn an_unknown_name_in_the_walk_of_a_request_is_found() {
    let gateway =
        [("gateway/src/http/serve.rs".to_owned(), "pub(crate) async fn serve<C: D>() {}".to_owned())];
    let text =
        "# A\n`other`\n## A request through the gateway\n`http`, `serve`, `ask`, `Upper`\n## Next\n`more`\n";
    assert_eq!(unknown_names(text, &gateway), ["ARCHITECTURE.md: the gateway has no function or folder ask"]);
    assert_eq!(unknown_names("# A\n", &gateway).len(), 1);
}

#[test]
fn a_gap_in_the_numbers_of_decisions_is_found() {
    assert_eq!(badly_numbered(&["0002-b.md", "0001-a.md"]), [""; 0]);
    assert_eq!(
        badly_numbered(&["0001-a.md", "0003-c.md"]),
        ["docs/decisions/0003-c.md: number 0002 is expected here"]
    );
    assert_eq!(badly_numbered(&["one.md"]).len(), 1);
}

#[test]
fn links_and_paths_to_nothing_are_found() {
    let existing =
        ["a", "a/README.md", "a/src", "a/src/lib.rs", "docs", "docs/b.md"].map(str::to_owned).into();
    let text = "\
[b](../docs/b.md#part), [c](../docs/c.md), [d](https://example.com/c.md), [e](#part), [out](../../x)
`docs/b.md`, `docs/c.md`, `src/lib.rs`, `src/x.rs`, `a/src/`, `text/plain`, `a/b`
```text
`docs/c.md`
```
";
    assert_eq!(
        dead_ends("a/README.md", text, &existing),
        [
            "a/README.md:1: no file ../docs/c.md (link)",
            "a/README.md:1: no file ../../x (link)",
            "a/README.md:2: no file docs/c.md",
            "a/README.md:2: no file src/x.rs",
            "a/README.md:2: no file a/b",
        ]
    );
}
