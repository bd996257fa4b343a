//! With a real Prometheus and a running installation, every query of every panel and rule has a result.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fairlead_tests::dashboards::expand_variables;
use fairlead_tests::harness::is_left_out;
use fairlead_tests::scenario::{Prometheus, Scenario};

use crate::selectors::{differences, selectors};
use crate::{panels, rules, workspace};

/// The scrape interval, and the matching window of rates in panels.
const INTERVAL: Duration = Duration::from_secs(1);
const WINDOW: &str = "30s";
/// Duration of each outage.
const OUTAGE: Duration = Duration::from_secs(4);
/// Limit for the results after all events.
const RESULT_TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_panel_and_every_rule_has_data() {
    if is_left_out("prometheus") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let rules = workspace().join("deploy/alerts/fairlead.yaml");
    // Displayed, not debug-printed: the error may name a missing program and how to get it.
    let started = Scenario::start(folder.path(), INTERVAL, &rules).await;
    let mut scenario = started.unwrap_or_else(|error| panic!("{error}"));
    scenario.run_events(OUTAGE).await.unwrap();
    let mut open = queries();
    assert!(open.len() > 80, "{}", open.len());
    let deadline = tokio::time::Instant::now() + RESULT_TIMEOUT;
    loop {
        let mut missing = BTreeMap::new();
        for (name, query) in open {
            if let Err(reason) = has_data(&query, &scenario.prometheus).await {
                missing.insert(name, (query, reason));
            }
        }
        if missing.is_empty() {
            break;
        }
        let reasons: Vec<_> = missing.iter().map(|(name, (_, reason))| format!("{name}: {reason}")).collect();
        assert!(tokio::time::Instant::now() < deadline, "no data:\n{}", reasons.join("\n"));
        open = missing.into_iter().map(|(name, (query, _))| (name, query)).collect();
        tokio::time::sleep(INTERVAL).await;
    }
    assert_eq!(scenario.prometheus.failing_rules().await.unwrap(), [""; 0]);
    assert_metrics_exist(&scenario.prometheus).await;
}

/// Succeeds if an expression has a numeric value.
async fn has_data(expr: &str, prometheus: &Prometheus) -> Result<(), String> {
    let series = prometheus.query(expr).await.map_err(|error| error.to_string())?;
    let mut samples = series.iter().flat_map(|series| series.samples());
    if samples.any(|sample| !sample.value.is_nan()) {
        Ok(())
    } else {
        Err(format!("{} series without a number: {expr}", series.len()))
    }
}

/// All queries, by panel or rule.
fn queries() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for written in panels::all() {
        for panel in written.dashboard.panels() {
            for (number, query) in panel.queries.iter().enumerate() {
                if selectors(&query.expr).iter().all(|selector| is_absent_metric(selector)) {
                    continue;
                }
                let name = format!("{} / {} {number}", written.dashboard.title, panel.title);
                all.insert(name, expand_variables(&query.expr, WINDOW));
            }
        }
        for expr in panels::events(&written) {
            all.insert(format!("event {expr}"), expr);
        }
    }
    for rule in rules::all() {
        let read = selectors(&rule.expr);
        assert!(!read.is_empty(), "{}", rule.expr);
        if read.iter().all(|selector| is_absent_metric(selector)) {
            continue;
        }
        // The expression of a silent alert has no value. The compared values exist, now or during the event.
        let (name, query) = match (rule.record, rule.alert) {
            (Some(record), _) => (format!("rule {record}"), record),
            (None, alert) => (format!("alert {}", alert.unwrap()), recent_maximum(&differences(&rule.expr))),
        };
        all.insert(name, query);
    }
    all
}

/// The largest value since the start of the scenario.
fn recent_maximum(expr: &str) -> String {
    format!("max_over_time(({expr})[5m:1s])")
}

/// Prefixes of metrics that this installation does not have, and the files that define them: those of listeners with ACME
/// certificates and of stores on etcd, which other tests have.
const ABSENT_METRICS: [(&str, &str); 2] = [
    ("fairlead_gateway_acme_", "gateway/src/listener/acme/mod.rs"),
    ("fairlead_store_etcd_", "shard/apiserver/src/metrics/store.rs"),
];

/// Whether this installation does not have a metric. Fails if such a metric is not defined.
fn is_absent_metric(selector: &str) -> bool {
    let name = selector.split('{').next().unwrap_or_default();
    let Some((_, file)) = ABSENT_METRICS.iter().find(|(prefix, _)| name.starts_with(prefix)) else {
        return false;
    };
    let source = std::fs::read_to_string(workspace().join(file)).unwrap();
    assert!(source.contains(&format!("\"{name}\"")), "{name} is not defined");
    true
}

/// Checks that all metrics in all parts of all expressions exist.
async fn assert_metrics_exist(prometheus: &Prometheus) {
    let known: BTreeSet<_> = prometheus.metrics().await.unwrap().into_iter().collect();
    let of_panels = panels::all().into_iter().flat_map(|written| {
        written.dashboard.panels().flat_map(|panel| panel.queries.clone()).collect::<Vec<_>>()
    });
    let exprs = of_panels
        .map(|query| expand_variables(&query.expr, WINDOW))
        .chain(rules::all().into_iter().map(|rule| rule.expr));
    let names = exprs
        .flat_map(|expr| selectors(&expr))
        .map(|selector| selector.split('{').next().unwrap_or_default().trim().to_owned());
    // The metric ALERTS exists only while an alert is pending or firing.
    let unknown: BTreeSet<_> =
        names.filter(|name| name != "ALERTS" && !known.contains(name) && !is_absent_metric(name)).collect();
    assert!(unknown.is_empty(), "no such metrics: {unknown:?}");
}
