//! Single requests: reads, creations, applies, and creations with CEL rules.

use std::time::Duration;

use fairlead_client::{PatchType, WriteOptions};
use http::Method;
use serde_json::{Value, json};

use super::super::LoadError;
use super::super::report::Figure;
use super::super::run::{Size, Until, body, closed_loop, micros, post, send};
use super::fill::{CONFIG_MAPS, collection, config_map, define, definition};
use super::server::{ROOT, Server};

/// A config map of 400 B over HTTP/2.
pub(super) async fn get(server: &Server, size: Size) -> Result<Vec<Figure>, LoadError> {
    let clients = server.clients(ROOT, 4);
    post(&clients[0], CONFIG_MAPS, config_map("small", 300)).await?;
    let path = format!("{CONFIG_MAPS}/small");
    let bytes = clients[0].get(&path).await?.body.len();
    let read = move |client: fairlead_client::Client, _| {
        let path = path.clone();
        async move { Ok(client.get(&path).await.map(drop)?) }
    };
    closed_loop(&clients, 32, Until::Elapsed(Duration::from_secs(1)), read.clone()).await?;
    let meter = server.meter()?;
    let mut outcome = closed_loop(&clients, 32, Until::Elapsed(size.duration()), read).await?;
    let (count, cpu) = (outcome.latencies.count(), meter.read()?.cpu);
    let rate = count as f64 / outcome.elapsed.as_secs_f64();
    let conditions =
        format!("{bytes} B, 4 connections × 8 streams, {rate:.0}/s, {}", outcome.latencies.summary());
    Ok(vec![Figure::new("get: CPU", micros(cpu, count), "µs").at_most(25.0).conditions(conditions)])
}

/// Config maps of 2 KiB from 32 writers, each acknowledged after it is on disk.
pub(super) async fn create(server: &Server, size: Size) -> Result<Vec<Figure>, LoadError> {
    let clients = server.clients(ROOT, 4);
    let count = size.of(300, 20_000, 50_000);
    let make = |prefix: &'static str| {
        move |client: fairlead_client::Client, number: usize| async move {
            Ok(post(&client, CONFIG_MAPS, config_map(&format!("{prefix}-{number}"), 2_048)).await?)
        }
    };
    closed_loop(&clients, 32, Until::Count(count / 10), make("first")).await?;
    let meter = server.meter()?;
    let mut outcome = closed_loop(&clients, 32, Until::Count(count), make("second")).await?;
    let cpu = meter.read()?.cpu;
    let conditions = format!("2 KiB, 32 writers, {count} objects, {}", outcome.latencies.summary());
    Ok(vec![
        Figure::new("create: rate", count as f64 / outcome.elapsed.as_secs_f64(), "/s")
            .at_least(8_000.0)
            .conditions(conditions.clone()),
        Figure::new("create: CPU", micros(cpu, count), "µs").at_most(100.0).conditions(conditions),
    ])
}

/// A config map with 300 entries in 20 KiB, of which each apply changes one.
pub(super) async fn apply(server: &Server, size: Size) -> Result<Vec<Figure>, LoadError> {
    const QUANTITY: &str = "server-side apply: CPU";
    let client = server.client(ROOT);
    let count = size.of(20, 500, 2_000);
    let path = format!("{CONFIG_MAPS}/applied");
    let object = |changed: usize| {
        let entry = |index: usize| {
            let version = if index == changed % 300 { changed } else { 0 };
            (format!("entry-{index:03}"), format!("{version:08}-{}", "x".repeat(42)).into())
        };
        let data: serde_json::Map<String, Value> = (0..300).map(entry).collect();
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "applied" }, "data": data })
    };
    let options = WriteOptions { field_manager: Some("bench".to_owned()), dry_run: false };
    if let Err(error) = client.patch::<Value>(&path, PatchType::Apply, &object(0), &options).await {
        let refused = error.status().is_some();
        return if refused { Ok(vec![Figure::absent(QUANTITY, "not served")]) } else { Err(error.into()) };
    }
    let applied = format!("{path}?fieldManager=bench");
    let meter = server.meter()?;
    let begin = std::time::Instant::now();
    for number in 1..=count {
        let content_type = PatchType::Apply.content_type();
        send(&client, Method::PATCH, &applied, content_type, body(&object(number))).await?;
    }
    let each = begin.elapsed() / u32::try_from(count).unwrap_or(u32::MAX);
    let conditions = format!(
        "{} B, 300 fields, one changed, {count} applies one after the other, {each:.1?} each",
        object(0).to_string().len()
    );
    Ok(vec![
        Figure::new(QUANTITY, micros(meter.read()?.cpu, count), "µs").at_most(1_000.0).conditions(conditions),
    ])
}

/// Custom objects without rules, with one rule and with a hundred, created without being stored. A rule costs a hundredth of a
/// request, so the three take short turns and the median of the differences counts: the machine's speed changes within a second.
pub(super) async fn rules(server: &Server, size: Size) -> Result<Vec<Figure>, LoadError> {
    const RESOURCES: [(&str, &str, usize); 3] =
        [("plains", "Plain", 0), ("ruleds", "Ruled", 1), ("stricts", "Strict", 100)];
    let clients = server.clients(ROOT, 4);
    for (plural, kind, rules) in RESOURCES {
        define(&clients[0], plural, &definition(plural, kind, &ruled_spec(rules))).await?;
    }
    let (rounds, count) = (size.of(3, 81, 201), size.of(20, 400, 500));
    let mut spent: [Vec<Duration>; 3] = Default::default();
    // The first rounds fill caches.
    let unmeasured = rounds.div_ceil(10);
    for round in 0..unmeasured + rounds {
        for turn in 0..RESOURCES.len() {
            let index = if round % 2 == 0 { turn } else { RESOURCES.len() - 1 - turn };
            let (plural, kind, _) = RESOURCES[index];
            let object = body(&json!({
                "apiVersion": "bench.example.com/v1", "kind": kind, "metadata": { "name": "object" },
                "spec": { "replicas": 3, "minReplicas": 1, "maxReplicas": 5, "name": "server", "image": "registry.example.com/a:1" },
            }));
            let path = format!("{}?dryRun=All", collection(plural));
            let before = server.thread_time()?;
            closed_loop(&clients, 16, Until::Count(count), move |client, _| {
                let (path, object) = (path.clone(), object.clone());
                async move { Ok(post(&client, &path, object).await?) }
            })
            .await?;
            if round >= unmeasured {
                spent[index].push(server.thread_time()?.saturating_sub(before));
            }
        }
    }
    let [plain, one, hundred] =
        spent.map(|spent| spent.into_iter().map(|spent| micros(spent, count)).collect::<Vec<_>>());
    let above =
        |ruled: &[f64]| median(ruled.iter().zip(&plain).map(|(ruled, plain)| ruled - plain).collect());
    let (one, hundred) = (above(&one), above(&hundred));
    let conditions = format!(
        "median of {rounds} rounds of {count} creations with dry run per CRD; {:.1} µs each without rules",
        median(plain)
    );
    Ok(vec![
        Figure::new("CEL, one rule: CPU", one, "µs").at_most(2.0).conditions(conditions),
        Figure::new("CEL, 100 rules: CPU", hundred, "µs").at_most(200.0).conditions("the same run"),
        Figure::new("CEL, each further rule: CPU", (hundred - one) / 99.0, "µs").conditions("the same run"),
    ])
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// A spec as of a scaled workload, with rules as they are usual.
fn ruled_spec(rules: usize) -> Value {
    let usual = [
        "self.minReplicas <= self.replicas && self.replicas <= self.maxReplicas",
        "self.name.startsWith('server') || self.replicas == 1",
        "!has(self.image) || self.image.contains(':')",
        "self.replicas > 0",
    ];
    let rules = (0..rules).map(
        |index| json!({ "rule": usual[index % usual.len()], "message": format!("rule {index} is not met") }),
    );
    json!({
        "type": "object",
        "required": ["replicas", "minReplicas", "maxReplicas", "name"],
        "properties": {
            "replicas": { "type": "integer" }, "minReplicas": { "type": "integer" },
            "maxReplicas": { "type": "integer" }, "name": { "type": "string", "maxLength": 64 },
            "image": { "type": "string", "maxLength": 256 },
        },
        "x-kubernetes-validations": rules.collect::<Vec<_>>(),
    })
}
