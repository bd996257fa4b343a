//! Alerts: their annotations, tests that they fire and stay silent, and their entries in the runbook.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use fairlead_tests::harness::{is_left_out, tool};
use serde_json::Value;

use crate::rules::{self, Rule};
use crate::workspace;

fn alerts() -> impl Iterator<Item = (String, Rule)> {
    rules::all().into_iter().filter_map(|rule| Some((rule.alert.clone()?, rule)))
}

#[test]
fn every_alert_has_annotations_and_an_entry_in_the_runbook() {
    let runbook = std::fs::read_to_string(workspace().join("docs/runbook.md")).unwrap();
    let mut entries: BTreeMap<&str, &str> =
        runbook.split("\n### ").skip(1).map(|entry| entry.split_once('\n').unwrap()).collect();
    for (name, rule) in alerts() {
        assert!(["page", "ticket"].contains(&rule.labels.severity.as_str()), "{name}: {:?}", rule.labels);
        let annotations = rule.annotations;
        assert!(
            annotations.summary.len() > 15 && annotations.description.len() > 40,
            "{name}: {annotations:?}"
        );
        assert_eq!(annotations.runbook_url, format!("docs/runbook.md#{}", name.to_lowercase()), "{name}");
        let entry = entries.remove(name.as_str()).unwrap_or_else(|| panic!("the runbook has no {name}"));
        for part in ["- **Means**: ", "- **Look at**: ", "- **Do**: "] {
            assert!(entry.contains(part), "{name}: the runbook has no {part:?}");
        }
    }
    assert_eq!(entries.keys().collect::<Vec<_>>(), [&""; 0], "entries without an alert");
}

#[test]
fn panels_named_in_the_runbook_exist() {
    let runbook = std::fs::read_to_string(workspace().join("docs/runbook.md")).unwrap();
    let all = crate::panels::all();
    let titles: BTreeSet<_> =
        all.iter().flat_map(|written| written.dashboard.panels()).map(|panel| panel.title.as_str()).collect();
    // Emphasised text in the runbook is the title of a panel, except for one page of Prometheus.
    let words = runbook.replace("**", "");
    let named: Vec<_> = words.split('*').skip(1).step_by(2).map(|title| title.replace('\n', " ")).collect();
    assert!(named.len() > 20, "{named:?}");
    for title in named {
        let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            titles.contains(title.as_str()) || title == "Status / Targets",
            "there is no panel {title:?}"
        );
    }
}

#[test]
fn every_alert_is_tested_firing_and_silent() {
    let mut shown: BTreeMap<String, BTreeSet<bool>> = BTreeMap::new();
    for file in tests() {
        let text = std::fs::read_to_string(file).unwrap();
        let tests: Value = serde_saphyr::from_str(&text).unwrap();
        for case in tests["tests"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|test| test["alert_rule_test"].as_array().into_iter().flatten())
        {
            let fires = case["exp_alerts"].as_array().is_some_and(|alerts| !alerts.is_empty());
            shown.entry(case["alertname"].as_str().unwrap().to_owned()).or_default().insert(fires);
        }
    }
    for (name, _) in alerts() {
        assert_eq!(shown.remove(&name), Some(BTreeSet::from([false, true])), "{name}");
    }
    assert!(shown.is_empty(), "tests without an alert: {shown:?}");
}

#[test]
fn prometheus_accepts_the_rules_and_their_tests_pass() {
    if is_left_out("prometheus") {
        return;
    }
    let promtool = tool("promtool").unwrap_or_else(|error| panic!("{error}"));
    let rules = workspace().join("deploy/alerts/fairlead.yaml");
    let files: Vec<_> = tests().collect();
    assert!(files.len() >= 5);
    for (words, files) in [(["check", "rules"], vec![rules]), (["test", "rules"], files)] {
        let output = Command::new(&promtool).args(words).args(files).output().unwrap();
        let as_text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{}{}", as_text(&output.stdout), as_text(&output.stderr));
    }
}

fn tests() -> impl Iterator<Item = PathBuf> {
    let folder = std::fs::read_dir(workspace().join("deploy/alerts/tests")).unwrap();
    folder.map(|entry| entry.unwrap().path())
}
