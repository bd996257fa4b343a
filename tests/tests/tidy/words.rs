//! Words that have a plain replacement must not come back: in identifiers, names of files and metrics, and everywhere
//! "door", which is a listener.

use crate::lexer::{Kind, program_tokens, tokens};
use crate::workspace::{files, sources, workspace};

/// Identifiers and their replacements.
const IDENTIFIERS: &[(&str, &str)] = &[
    ("Asked", "a noun, such as RequestView"),
    ("Asking", "Admission"),
    ("AssertionNames", "IdentityHeaderNames"),
    ("Begun", "a noun, such as StartedResponse"),
    ("Believed", "TrustedIdentityHeaders"),
    ("Carried", "TrustedProxyKind"),
    ("CertificateMeaning", "ClientCertificateUse"),
    ("Chatter", "FrameBudget"),
    ("Coalesced", "WriteCoalescer"),
    ("Gulp", "ReadAhead or BufferedReader"),
    ("HandedOn", "InheritedSockets"),
    ("Held", "a noun, such as MeterGuard"),
    ("Hungry", "NeedMore"),
    ("Keeping", "RenewalState"),
    ("Kept", "a noun, such as LogFields"),
    ("Lane", "Worker"),
    ("Lanes", "Workers"),
    ("LeftAlone", "CircuitOpen"),
    ("Noted", "RequestAnnotations"),
    ("PickMarks", "PlacementConstraints"),
    ("Rehearsal", "DryRun"),
    ("Rehearsed", "DryRun"),
    ("Seen", "a noun, such as RequestStats"),
    ("Standing", "a noun, such as EndpointStatus"),
    ("Told", "a noun, such as Reported"),
    ("Turned", "a noun, such as Rejection"),
    ("Unclear", "InvalidClientAddress"),
    ("Untaken", "ConnectionBacklog"),
    ("Wanted", "a noun, such as CertificateRequest"),
    ("What", "a noun, such as LimitKind"),
    ("Whom", "a noun, such as QuotaSubject"),
    ("farewell", "goaway_handle"),
    ("is_drawn", "sample"),
];

/// Names of modules and their replacements.
const MODULES: &[(&str, &str)] = &[
    ("chance", "random"),
    ("chatter", "frame_budget"),
    ("ending", "stream_deadline"),
    ("flights", "single_flight"),
    ("gulp", "read_ahead"),
    ("handed_on", "handed_over_sockets"),
    ("lanes", "workers"),
    ("life", "lifecycle"),
    ("moved", "resume"),
    ("rehearsal", "dry_run"),
    ("remembered", "ttl_cache"),
    ("seen", "request_stats"),
    ("spare", "retry_headers"),
    ("standing", "liveness"),
    ("told", "status"),
    ("untaken", "backlog"),
];

/// Metrics and their replacements.
const METRICS: &[(&str, &str)] = &[
    ("fairlead_gateway_forged_identity_headers_total", "fairlead_gateway_stripped_identity_headers_total"),
    ("fairlead_gateway_phase_duration_seconds", "fairlead_gateway_stage_duration_seconds"),
    ("fairlead_gateway_shard_left_alone", "fairlead_gateway_shard_circuit_open"),
    ("fairlead_gateway_untaken_answers_total", "fairlead_gateway_slow_reader_aborts_total"),
];

/// This file names the words.
const THIS_FILE: &str = "tests/tests/tidy/words.rs";

#[test]
fn words_with_a_plain_replacement_are_not_used() {
    let mut faults = Vec::new();
    for source in sources().iter().filter(|source| source.path != THIS_FILE) {
        faults.extend(identifiers(&source.path, &source.text));
        faults.extend(module_name(&source.path));
    }
    for path in files().iter().filter(|path| is_text(path) && *path != THIS_FILE) {
        let text = std::fs::read_to_string(workspace().join(path)).unwrap();
        faults.extend(words(path, &text));
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

fn is_text(path: &str) -> bool {
    let endings =
        [".rs", ".md", ".yaml", ".yml", ".sh", ".toml", ".json", ".js", ".html", "Makefile", ".ci/run"];
    endings.iter().any(|ending| path.ends_with(ending))
}

fn identifiers(path: &str, text: &str) -> Vec<String> {
    let all = tokens(text);
    let mut faults = Vec::new();
    for token in program_tokens(&all).iter().filter(|token| token.kind == Kind::Identifier) {
        if let Some((word, instead)) = IDENTIFIERS.iter().find(|(word, _)| *word == token.text) {
            faults.push(format!("{path}:{}: `{word}`: say {instead}", token.line));
        }
    }
    faults
}

fn module_name(path: &str) -> Option<String> {
    let path_of_module = path.trim_end_matches("/mod.rs").trim_end_matches(".rs");
    let name = path_of_module.rsplit('/').next()?;
    let (word, instead) = MODULES.iter().find(|(word, _)| *word == name)?;
    Some(format!("{path}: module `{word}`: say {instead}"))
}

fn words(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        for (metric, instead) in METRICS.iter().filter(|(metric, _)| line.contains(metric)) {
            faults.push(format!("{path}:{number}: {metric}: say {instead}"));
        }
        if parts(line).any(|part| part.eq_ignore_ascii_case("door") || part.eq_ignore_ascii_case("doors")) {
            faults.push(format!("{path}:{number}: door: say listener"));
        }
    }
    faults
}

/// The words of a line, and the words of which its identifiers are made.
fn parts(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_alphabetic()).flat_map(|mut word| {
        let mut parts = Vec::new();
        while !word.is_empty() {
            // An upper-case letter after a lower-case one begins a new part.
            let bytes = word.as_bytes();
            let end = (1..bytes.len())
                .find(|i| bytes[*i].is_ascii_uppercase() && bytes[i - 1].is_ascii_lowercase());
            let (part, rest) = word.split_at(end.unwrap_or(word.len()));
            parts.push(part);
            word = rest;
        }
        parts
    })
}

#[test]
fn a_forbidden_identifier_is_found_in_code_only() {
    let text = "\
// Seen from here.
struct Kept { asked: Asked<What> }
fn is_drawn() -> &'static str { \"Whom\" }
#[cfg(test)]
mod tests { struct Seen; }
";
    assert_eq!(
        identifiers("a.rs", text),
        [
            "a.rs:2: `Kept`: say a noun, such as LogFields",
            "a.rs:2: `Asked`: say a noun, such as RequestView",
            "a.rs:2: `What`: say a noun, such as LimitKind",
            "a.rs:3: `is_drawn`: say sample",
        ]
    );
}

#[test]
fn a_forbidden_module_or_metric_is_found() {
    assert_eq!(module_name("a/src/gulp.rs").unwrap(), "a/src/gulp.rs: module `gulp`: say read_ahead");
    assert_eq!(module_name("a/src/life/mod.rs").unwrap(), "a/src/life/mod.rs: module `life`: say lifecycle");
    assert_eq!(module_name("a/src/lifecycle.rs"), None);
    let found = words("a.yaml", "expr: x\nexpr: sum(fairlead_gateway_shard_left_alone)\n");
    assert_eq!(
        found,
        ["a.yaml:2: fairlead_gateway_shard_left_alone: say fairlead_gateway_shard_circuit_open"]
    );
}

#[test]
fn a_door_is_found_in_any_form() {
    for line in ["a door", "Doors:", "struct BoundDoor;", "door_policy", "perDoor", "DOOR", "`doors/`"] {
        assert_eq!(words("a.md", line), ["a.md:1: door: say listener"], "{line}");
    }
    for line in ["outdoor", "indoors", "dooring"] {
        assert_eq!(words("a.md", line), [""; 0], "{line}");
    }
}
