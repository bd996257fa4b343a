//! Comments are sentences with a subject that has a name.

use std::sync::LazyLock;

use regex::Regex;

use crate::lexer::{Kind, tokens};
use crate::workspace::{files, workspace};

static FORBIDDEN_BEGINNING: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(Who|Whoever|Whom|Whose|What is|What was|That which|Nobody)\b").unwrap());

/// A client, user or peer is "it".
static PERSON: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?i)\b(he|him|his|himself)\b").unwrap());

static SINGLE_WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^[A-Za-z][A-Za-z'-]*[.!?]?$").unwrap());

#[test]
fn comments_are_sentences_with_a_subject() {
    let mut faults = Vec::new();
    for path in files() {
        let is_rust = path.ends_with(".rs");
        let has_hashes = [".yaml", ".yml", ".sh", ".toml", "Makefile", ".ci/run"]
            .iter()
            .any(|ending| path.ends_with(ending));
        if !is_rust && !has_hashes {
            continue;
        }
        let text = std::fs::read_to_string(workspace().join(path)).unwrap();
        let comments = if is_rust { rust_comments(&text) } else { hash_comments(&text) };
        faults.extend(comment_faults(path, &comments));
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// A line of a comment.
struct Comment<'a> {
    line: usize,
    text: &'a str,
    /// `///`: it documents an item.
    is_item_documentation: bool,
}

fn rust_comments(source: &str) -> Vec<Comment<'_>> {
    let mut comments = Vec::new();
    for token in tokens(source).into_iter().filter(|token| token.kind == Kind::Comment) {
        for (index, text) in token.text.lines().enumerate() {
            let is_item_documentation = text.starts_with("///");
            let text = text.trim_start_matches(['/', '*', '!', ' ', '-']).trim_end();
            comments.push(Comment { line: token.line + index, text, is_item_documentation });
        }
    }
    comments
}

fn hash_comments(text: &str) -> Vec<Comment<'_>> {
    let lines = text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with('#'));
    lines
        .map(|(index, line)| Comment {
            line: index + 1,
            text: line.trim_start_matches(['#', ' ', '\t', '-']).trim_end(),
            is_item_documentation: false,
        })
        .collect()
}

fn comment_faults(path: &str, comments: &[Comment<'_>]) -> Vec<String> {
    let mut faults = Vec::new();
    for (index, comment) in comments.iter().enumerate() {
        let Comment { line, text, is_item_documentation } = comment;
        if let Some(found) = FORBIDDEN_BEGINNING.find(text) {
            let found = found.as_str();
            faults.push(format!("{path}:{line}: a comment begins with `{found}`: name the subject"));
        }
        if let Some(found) = PERSON.find(text) {
            faults.push(format!("{path}:{line}: `{}`: a client or user is `it`", found.as_str()));
        }
        let is_adjacent = |other: Option<&Comment<'_>>| {
            other.is_some_and(|other| other.is_item_documentation && other.line.abs_diff(*line) == 1)
        };
        let is_alone = !is_adjacent(comments.get(index + 1))
            && !is_adjacent(index.checked_sub(1).and_then(|index| comments.get(index)));
        if *is_item_documentation && is_alone && SINGLE_WORD.is_match(text) {
            faults.push(format!(
                "{path}:{line}: `{text}` is no documentation: write a phrase with its subject"
            ));
        }
    }
    faults
}

#[test]
fn comments_without_a_subject_are_found() {
    let source = "\
//! Whose this is.
/// Once.
fn a() {
    // The client gets his response.
    let text = \"// Who asks.\"; // What was asked.
}

/// Once,
/// per request.
///
/// # Errors
/// [`Error`]
fn b() {} // Whether it works. What works. Nobody's

/// `json`.
/// - Nobody waits.
struct C;
";
    let found = comment_faults("a.rs", &rust_comments(source));
    assert_eq!(
        found,
        [
            "a.rs:1: a comment begins with `Whose`: name the subject",
            "a.rs:2: `Once.` is no documentation: write a phrase with its subject",
            "a.rs:4: `his`: a client or user is `it`",
            "a.rs:5: a comment begins with `What was`: name the subject",
            "a.rs:16: a comment begins with `Nobody`: name the subject",
        ]
    );
    let script = "#!/bin/sh\n# Who runs this.\necho '# What is'\n## Whom it concerns\nkey: value # Nobody\n";
    let found = comment_faults("a.sh", &hash_comments(script));
    assert_eq!(
        found,
        [
            "a.sh:2: a comment begins with `Who`: name the subject",
            "a.sh:4: a comment begins with `Whom`: name the subject",
        ]
    );
}
