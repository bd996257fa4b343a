//! A real Prometheus looks at a running installation, and every question of every panel and rule has an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fairlead_tests::dashboards::filled_in;
use fairlead_tests::harness::is_left_out;
use fairlead_tests::scene::{Prometheus, Scene};

use crate::selectors::{differences, selectors};
use crate::{panels, rules, workspace};

/// How often Prometheus looks, and what panels then call a rate's window.
const INTERVAL: Duration = Duration::from_secs(1);
const WINDOW: &str = "30s";
/// How long a server is gone.
const OUTAGE: Duration = Duration::from_secs(4);
/// How long answers may take to come after everything has happened.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_panel_and_every_rule_has_data() {
    if is_left_out("prometheus") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let rules = workspace().join("deploy/alerts/fairlead.yaml");
    // In words: it may say that a program is missing, and how to get it.
    let begun = Scene::begin(folder.path(), INTERVAL, &rules).await;
    let mut scene = begun.unwrap_or_else(|error| panic!("{error}"));
    scene.play(OUTAGE).await.unwrap();
    let mut open = questions();
    assert!(open.len() > 80, "{}", open.len());
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let mut missing = BTreeMap::new();
        for (what, question) in open {
            if let Err(reason) = has_data(&question, &scene.prometheus).await {
                missing.insert(what, (question, reason));
            }
        }
        if missing.is_empty() {
            break;
        }
        let reasons: Vec<_> = missing.iter().map(|(what, (_, reason))| format!("{what}: {reason}")).collect();
        assert!(tokio::time::Instant::now() < deadline, "no data:\n{}", reasons.join("\n"));
        open = missing.into_iter().map(|(what, (question, _))| (what, question)).collect();
        tokio::time::sleep(INTERVAL).await;
    }
    assert_eq!(scene.prometheus.failing_rules().await.unwrap(), [""; 0]);
    names_are_those_of_metrics(&scene.prometheus).await;
}

/// Whether there is a number to show.
async fn has_data(expr: &str, prometheus: &Prometheus) -> Result<(), String> {
    let series = prometheus.query(expr).await.map_err(|error| error.to_string())?;
    let mut samples = series.iter().flat_map(|series| series.samples());
    if samples.any(|sample| !sample.value.is_nan()) {
        Ok(())
    } else {
        Err(format!("{} series without a number: {expr}", series.len()))
    }
}

/// What Prometheus is asked, by what it is for.
fn questions() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for written in panels::all() {
        for panel in written.dashboard.panels() {
            for (number, query) in panel.queries.iter().enumerate() {
                let what = format!("{} / {} {number}", written.dashboard.title, panel.title);
                all.insert(what, filled_in(&query.expr, WINDOW));
            }
        }
        for expr in panels::events(&written) {
            all.insert(format!("event {expr}"), expr);
        }
    }
    for rule in rules::all() {
        let read = selectors(&rule.expr);
        assert!(!read.is_empty(), "{}", rule.expr);
        if read.iter().all(|selector| is_told_elsewhere(selector)) {
            continue;
        }
        // An alert is silent as long as all is well; what it compares is there, or was while it happened.
        let (what, question) = match (rule.record, rule.alert) {
            (Some(record), _) => (format!("rule {record}"), record),
            (None, alert) => (format!("alert {}", alert.unwrap()), lately(&differences(&rule.expr))),
        };
        all.insert(what, question);
    }
    all
}

/// The largest value since everything has begun.
fn lately(expr: &str) -> String {
    format!("max_over_time(({expr})[5m:1s])")
}

/// What only a door tells that gets its certificate from an authority; the gateway's own tests have one.
const OF_AN_AUTHORITY: &str = "fairlead_gateway_acme_";

/// Whether something is told by a door that this installation does not have; it has to be told at all.
fn is_told_elsewhere(selector: &str) -> bool {
    let name = selector.split('{').next().unwrap_or_default();
    if !name.starts_with(OF_AN_AUTHORITY) {
        return false;
    }
    let source = std::fs::read_to_string(workspace().join("gateway/src/listener/acme/mod.rs")).unwrap();
    assert!(source.contains(&format!("\"{name}\"")), "nobody tells {name}");
    true
}

/// Nobody reads what nobody tells, be it in a part of an expression that has an answer without it.
async fn names_are_those_of_metrics(prometheus: &Prometheus) {
    let known: BTreeSet<_> = prometheus.metrics().await.unwrap().into_iter().collect();
    let of_panels = panels::all().into_iter().flat_map(|written| {
        written.dashboard.panels().flat_map(|panel| panel.queries.clone()).collect::<Vec<_>>()
    });
    let exprs = of_panels
        .map(|query| filled_in(&query.expr, WINDOW))
        .chain(rules::all().into_iter().map(|rule| rule.expr));
    let names = exprs
        .flat_map(|expr| selectors(&expr))
        .map(|selector| selector.split('{').next().unwrap_or_default().trim().to_owned());
    // There are alerts only while one is pending or fires.
    let unknown: BTreeSet<_> =
        names.filter(|name| name != "ALERTS" && !known.contains(name) && !is_told_elsewhere(name)).collect();
    assert!(unknown.is_empty(), "no such metrics: {unknown:?}");
}
