//! Compares the state of an installation right after its start: discovery and bootstrap objects.

use std::time::Duration;

use fairlead_tests::recordings::{Document, Recordings};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::compare::{Difference, compare_responses};
use super::raw_client::{RawClient, Response};
use super::replay::NamePairs;
use super::report::Report;

/// Time that controllers have until objects are as recorded.
const CONTROLLER_TIMEOUT: Duration = Duration::from_secs(2);

/// Compares the discovery documents of a place, a logical cluster on one server; `prefix` is the path to it.
pub async fn compare_discovery(
    recordings: &Recordings,
    place: &str,
    client: &mut RawClient,
    prefix: &str,
    names: &mut NamePairs,
    report: &mut Report,
) {
    for Document { path, accept, body } in recordings.discovery(place).unwrap() {
        let response = client.get(&format!("{prefix}{path}"), &accept).await;
        let kind = if accept.contains("APIGroupDiscoveryList") { "AGGREGATED" } else { "GET" };
        let found = differences(body, &response, names);
        report.add(&format!("discovery/{place}"), 0, &format!("{kind} {path}"), &found);
    }
}

/// Compares the objects of a logical cluster, of every recorded resource.
pub async fn compare_objects(
    recordings: &Recordings,
    place: &str,
    client: &mut RawClient,
    prefix: &str,
    names: &mut NamePairs,
    report: &mut Report,
) {
    let folder = format!("objects/{place}");
    for Document { path, accept, body } in recordings.objects(place).unwrap() {
        let subject = format!("GET {path}");
        let deadline = Instant::now() + CONTROLLER_TIMEOUT;
        loop {
            let response = client.get(&format!("{prefix}{path}"), &accept).await;
            let found = differences(body.clone(), &response, names);
            if Report::is_explained(&folder, 0, &subject, &found) || Instant::now() >= deadline {
                report.add(&folder, 0, &subject, &found);
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

fn differences(theirs: Value, response: &Response, names: &mut NamePairs) -> Vec<Difference> {
    let ours: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    names.theirs.learn(&theirs);
    names.ours.learn(&ours);
    // The kinds differ if only one side supports aggregated discovery. Then nothing else is comparable.
    if response.status == 200 && theirs["kind"] != ours["kind"] {
        let (theirs, ours) = (Some(theirs["kind"].clone()), Some(ours["kind"].clone()));
        return vec![Difference { at: "/body/kind".to_owned(), theirs, ours }];
    }
    let theirs = json!({"status": 200, "body": names.theirs.value(theirs)});
    let ours = json!({"status": response.status.as_u16(), "body": names.ours.value(ours)});
    compare_responses(&theirs, &ours)
}
