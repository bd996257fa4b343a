//! Checks of dashboards that need no data.

use std::collections::BTreeSet;

use fairlead_tests::dashboards::{GeneratedDashboard, Kind, dashboards};
use serde_json::Value;

use crate::workspace;

pub fn all() -> Vec<GeneratedDashboard> {
    dashboards(&workspace().join("deploy/dashboards")).unwrap()
}

/// The expressions of a dashboard's lines across all panels.
pub fn events(written: &GeneratedDashboard) -> Vec<String> {
    let whole: Value = serde_json::from_str(&written.text).unwrap();
    let all = whole["annotations"]["list"].as_array().unwrap();
    all.iter().map(|event| event["expr"].as_str().unwrap().to_owned()).collect()
}

/// Grafana's names of the used units.
const UNITS: [&str; 9] = ["none", "s", "d", "reqps", "cps", "Bps", "bytes", "percentunit", "short"];

#[test]
fn the_files_for_grafana_are_generated_from_the_sources() {
    for written in all() {
        let existing = std::fs::read_to_string(&written.file).unwrap_or_default();
        assert!(existing == written.text, "{}: run `make dashboards`", written.file.display());
    }
}

#[test]
fn every_panel_has_a_question_and_an_action() {
    let all = all();
    let uids: BTreeSet<_> = all.iter().map(|written| written.dashboard.uid.as_str()).collect();
    assert_eq!(uids.len(), all.len(), "uids are unique");
    assert_eq!(all.len(), 7);
    for written in &all {
        let dashboard = &written.dashboard;
        let mut titles = BTreeSet::new();
        for panel in dashboard.panels() {
            let what = format!("{} / {}", dashboard.title, panel.title);
            assert!(titles.insert(&panel.title), "{what}: there are two");
            assert!(panel.question.contains('?') && panel.question.len() < 140, "{what}: {}", panel.question);
            assert!(
                panel.action.ends_with(['.', '-']) && panel.action.len() > 20,
                "{what}: {}",
                panel.action
            );
            assert!((3..=24).contains(&panel.width) && !panel.queries.is_empty(), "{what}");
            assert!(UNITS.contains(&panel.unit.as_str()), "{what}: {}", panel.unit);
            assert!(panel.more.as_deref().is_none_or(|uid| uids.contains(uid)), "{what}: {:?}", panel.more);
            let is_table = panel.kind == Kind::Table;
            assert_eq!(is_table, !panel.columns.is_empty(), "{what}: tables have columns");
            for query in &panel.queries {
                assert_eq!(is_table, query.legend.is_empty(), "{what}: every series has a legend");
                assert_eq!(is_table, !query.title.is_empty(), "{what}: every column has a title");
                for variable in ["gateway", "server", "listener", "shard"] {
                    let has = dashboard.variables.iter().any(|known| known.name() == variable);
                    let names = query.expr.contains(&format!("${variable}"));
                    assert!(has || !names, "{what}: there is no variable {variable}");
                }
            }
        }
    }
}

/// Requirements of Grafana beyond JSON.
#[test]
fn panels_have_unique_ids_and_do_not_overlap() {
    for written in all() {
        let whole: Value = serde_json::from_str(&written.text).unwrap();
        assert!(whole["schemaVersion"].as_u64().unwrap() >= 36 && whole["templating"]["list"].is_array());
        let panels = whole["panels"].as_array().unwrap();
        let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), panels.len());
        let mut cells = BTreeSet::new();
        for panel in panels {
            let part = |name: &str| panel["gridPos"][name].as_u64().unwrap();
            assert!(part("x") + part("w") <= 24, "{}", panel["title"]);
            for cell in (part("x")..part("x") + part("w"))
                .flat_map(|x| (part("y")..part("y") + part("h")).map(move |y| (x, y)))
            {
                assert!(cells.insert(cell), "{} overlaps another", panel["title"]);
            }
            if panel["type"] != "row" {
                assert_eq!(panel["datasource"]["uid"], "${datasource}");
                assert!(panel["description"].as_str().unwrap().starts_with("**"));
            }
        }
    }
}
