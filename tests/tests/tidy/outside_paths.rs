//! No file of the repository refers to files outside of it.

use std::sync::LazyLock;

use regex::Regex;

use crate::lexer::{Kind, Token, tokens};
use crate::workspace::{files, sources, workspace};

/// Folders of the machine on which the repository was written.
static MACHINE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"\.\./shared\b|(^|[^\w./<-])/work(/|["'`\s)]|$)"#).unwrap());

static UPWARDS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(\.\./)*\.\.(/|\b|$)").unwrap());

/// This file has examples.
const THIS_FILE: &str = "tests/tests/tidy/outside_paths.rs";

#[test]
fn no_path_leads_out_of_the_repository() {
    let mut faults = Vec::new();
    for source in sources().iter().filter(|source| source.path != THIS_FILE) {
        faults.extend(in_source(&source.path, crate_depth(&source.path), &source.text));
    }
    let endings = [".md", ".yaml", ".yml", ".sh", ".toml", ".json", "Makefile", ".ci/run", ".service"];
    for path in files().iter().filter(|path| endings.iter().any(|ending| path.ends_with(ending))) {
        faults.extend(in_text(path, &std::fs::read_to_string(workspace().join(path)).unwrap()));
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// The number of folders above the manifest of the crate to which a source belongs.
fn crate_depth(path: &str) -> usize {
    let folders: Vec<&str> = path.split('/').collect();
    let is_crate = |depth: &usize| workspace().join(folders[..*depth].join("/")).join("Cargo.toml").is_file();
    (1..folders.len()).rev().find(is_crate).unwrap_or(0)
}

/// String literals are relative to the file after `include_str!(` and `path =`, otherwise to the crate.
fn in_source(path: &str, crate_depth: usize, text: &str) -> Vec<String> {
    let file_depth = path.matches('/').count();
    let code: Vec<Token<'_>> = tokens(text).into_iter().filter(|token| token.kind != Kind::Comment).collect();
    let mut faults = Vec::new();
    for (index, token) in code.iter().enumerate().filter(|(_, token)| token.kind == Kind::Text) {
        let before = |offset: usize| index.checked_sub(offset).map_or("", |index| code[index].text);
        let is_relative_to_file = before(2) == "path" && before(1) == "="
            || before(3).starts_with("include") && before(2) == "!" && before(1) == "(";
        let depth = if is_relative_to_file { file_depth } else { crate_depth };
        // `.join("..").join("..")` is one path.
        let mut whole = token.text.to_owned();
        let mut at = index;
        while before_is_join(&code, at) && at >= 5 && code[at - 4].text == ")" {
            at -= 5;
            if code[at].kind != Kind::Text || !before_is_join(&code, at) {
                break;
            }
            whole = format!("{}/{whole}", code[at].text);
        }
        let ups = leading_ups(&whole);
        if ups > depth {
            faults.push(format!("{path}:{}: {:?} leads out of the repository", token.line, token.text));
        }
    }
    faults.dedup_by_key(|fault| fault.split('"').next().unwrap_or_default().to_owned());
    faults.extend(of_machine(path, text));
    faults
}

/// Whether the literal at `at` is the argument of `.join(`.
fn before_is_join(code: &[Token<'_>], at: usize) -> bool {
    at >= 3 && code[at - 1].text == "(" && code[at - 2].text == "join" && code[at - 3].text == "."
}

/// The number of `..` at the beginning.
fn leading_ups(literal: &str) -> usize {
    literal.trim_start_matches('/').split('/').take_while(|part| *part == "..").count()
}

/// Paths in documents, scripts and manifests are relative to their folder.
fn in_text(path: &str, text: &str) -> Vec<String> {
    let depth = path.matches('/').count();
    let mut faults = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let ups = UPWARDS.find_iter(line).map(|found| found.as_str().matches("..").count()).max();
        if ups.is_some_and(|ups| ups > depth) && line.contains("../") {
            faults.push(format!("{path}:{}: {:?} leads out of the repository", index + 1, line.trim()));
        }
    }
    faults.extend(of_machine(path, text));
    faults
}

fn of_machine(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().enumerate().filter(|(_, line)| MACHINE.is_match(line));
    lines
        .map(|(index, line)| format!("{path}:{}: {:?} is not in the repository", index + 1, line.trim()))
        .collect()
}

#[test]
fn paths_out_of_the_repository_are_found() {
    let source = r#"
fn a() {
    include_str!("../../../x");
    include_str!("../../x");
    root.join("../../x");
    root.join("../x").join("..");
    root.join("..").join("..").join("x");
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../x");
    let traversal = ["../x", "a/../../../x", "/clusters/../../../x"]; // ../../..
}
#[path = "../../../x.rs"]
mod x;
const DATA: &str = "/work/data";
const WORKSPACE: &str = "/workspaces/x";
"#;
    let lines: Vec<String> = in_source("a/src/b.rs", 1, source)
        .iter()
        .map(|fault| fault.split(':').nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(lines, ["3", "5", "7", "8", "11", "13"]);
}

#[test]
fn paths_out_of_the_repository_are_found_in_documents_and_scripts() {
    let text = "[a](../../b.md)\n[a](../../../b.md)\ncp ../shared/x .\ncd /work\ncd ..\n10..20 and ...\n";
    let faults = in_text("a/b/c.md", text);
    let lines: Vec<&str> = faults.iter().map(|fault| fault.split(':').nth(1).unwrap()).collect();
    assert_eq!(lines, ["2", "3", "4"]);
    assert_eq!(in_text("Makefile", "cd ../x\n").len(), 1);
}
