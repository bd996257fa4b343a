//! Compares what is served without anybody having done anything: discovery and bootstrap objects.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::compare::{Difference, compare_answers};
use super::observed::Observer;
use super::recording::Recordings;
use super::replay::Sides;
use super::wire::{Answer, Wire};

/// How long controllers may take until objects are as recorded.
const PATIENCE: Duration = Duration::from_secs(2);

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// Compares discovery of a logical cluster; `prefix` leads to it.
pub async fn compare_discovery(
    recordings: &Recordings,
    place: &str,
    wire: &mut Wire,
    prefix: &str,
    sides: &mut Sides,
    observer: &mut Observer,
) {
    let folder = format!("discovery/{place}");
    let document = |name: &str| recordings.document(&format!("{folder}/{name}.json")).unwrap();
    let mut asked = vec![
        ("/api".to_owned(), "application/json", document("api.legacy")),
        ("/apis".to_owned(), "application/json", document("apis.legacy")),
        ("/api".to_owned(), AGGREGATED, document("api.aggregated")),
        ("/apis".to_owned(), AGGREGATED, document("apis.aggregated")),
    ];
    let by_name = |name: &str| document(name).as_object().unwrap().clone();
    for (group, theirs) in by_name("groups") {
        asked.push((format!("/apis/{group}"), "application/json", theirs));
    }
    for (version, theirs) in by_name("api.resources") {
        asked.push((format!("/api/{version}"), "application/json", theirs));
    }
    for (version, theirs) in by_name("apis.resources") {
        asked.push((format!("/apis/{version}"), "application/json", theirs));
    }
    for (path, accept, theirs) in asked {
        let answer = wire.get(&format!("{prefix}{path}"), accept).await;
        let kind = if accept == AGGREGATED { "AGGREGATED" } else { "GET" };
        let found = differences(theirs, &answer, sides);
        observer.note(&folder, 0, &format!("{kind} {path}"), &found);
    }
}

/// Compares the objects of a logical cluster, of every resource that was recorded.
pub async fn compare_objects(
    recordings: &Recordings,
    place: &str,
    wire: &mut Wire,
    prefix: &str,
    sides: &mut Sides,
    observer: &mut Observer,
) {
    let folder = format!("objects/{place}");
    for name in recordings.names(&folder).iter().filter(|name| *name != "_summary") {
        let theirs = recordings.document(&format!("{folder}/{name}.json")).unwrap();
        let path = match name.rsplit_once('_') {
            Some((resource, version)) => {
                let (plural, group) = resource.split_once('.').unwrap();
                format!("/apis/{group}/{version}/{plural}")
            }
            None => {
                let (plural, version) = name.split_once('.').unwrap();
                format!("/api/{version}/{plural}")
            }
        };
        let subject = format!("GET {path}");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = wire.get(&format!("{prefix}{path}"), "application/json").await;
            let found = differences(theirs.clone(), &answer, sides);
            if Observer::is_explained(&folder, 0, &subject, &found) || Instant::now() >= deadline {
                observer.note(&folder, 0, &subject, &found);
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

fn differences(theirs: Value, answer: &Answer, sides: &mut Sides) -> Vec<Difference> {
    let ours: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    sides.theirs.learn(&theirs);
    sides.ours.learn(&ours);
    // What is an old form in kcp may be a new one in ours.
    if answer.status == 200 && theirs["kind"] != ours["kind"] {
        let (theirs, ours) = (Some(theirs["kind"].clone()), Some(ours["kind"].clone()));
        return vec![Difference { at: "/body/kind".to_owned(), theirs, ours }];
    }
    let theirs = json!({"status": 200, "body": sides.theirs.value(theirs)});
    let ours = json!({"status": answer.status.as_u16(), "body": sides.ours.value(ours)});
    compare_answers(&theirs, &ours)
}
