//! Tests of the scheduler with a real table.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fairlead_process::Metrics;
use serde_json::{Value, json};

use super::load::ShardWork;
use super::*;
use crate::routing::placement::reservations::RESERVATION_TTL;
use crate::routing::table::{Change, ClusterRecord, Page, PlacementConstraints, ShardSpec, TableWriter};

struct World {
    writer: TableWriter,
    scheduler: Scheduler,
    unreachable: Arc<UnreachableShards>,
    registry: Metrics,
    now: Instant,
}

/// Shards that are not watched, and shards to which connections fail.
#[derive(Default)]
struct UnreachableShards {
    unwatched: Mutex<BTreeSet<ShardIndex>>,
    failing: Mutex<BTreeSet<String>>,
}

impl IndexStatus for UnreachableShards {
    fn is_watching(&self, shard: Option<ShardIndex>) -> bool {
        shard.is_none_or(|shard| !self.unwatched.lock().contains(&shard))
    }
}

impl UpstreamSignals for UnreachableShards {
    fn work(&self, _: &str) -> ShardWork {
        ShardWork::default()
    }

    fn is_failing(&self, shard: &str) -> bool {
        self.failing.lock().contains(shard)
    }
}

impl World {
    fn with(shards: &[&str]) -> Self {
        Self::configured(shards, json!({"policy": "least-workspaces"}))
    }

    fn configured(shards: &[&str], settings: Value) -> Self {
        let mut writer = TableWriter::new();
        for name in shards {
            let index = writer.put_shard(spec(name)).unwrap();
            writer.apply(vec![
                (index, Change::ListClusters(Page::whole(Vec::new()))),
                (index, Change::ListWorkspaces(Page::whole(Vec::new()))),
            ]);
        }
        writer.mark_shards_listed();
        let unreachable = Arc::new(UnreachableShards::default());
        let registry = Metrics::new("gateway", "test").unwrap();
        let scheduler = Scheduler::new(
            writer.table(),
            Arc::clone(&unreachable) as Arc<dyn IndexStatus>,
            Arc::clone(&unreachable) as Arc<dyn UpstreamSignals>,
            read(settings),
            PlacementMetrics::new(&registry).unwrap(),
        );
        Self { writer, scheduler, unreachable, registry, now: Instant::now() }
    }

    fn index(&self, shard: &str) -> ShardIndex {
        self.writer.table().load().shards().find(|known| &*known.spec.name == shard).unwrap().index
    }

    fn place(&mut self, shard: &str, id: &str) {
        let index = self.index(shard);
        let record = ClusterRecord { id: id.into(), workspace_type: None, migrating: false };
        self.writer.apply(vec![(index, Change::PutCluster(record))]);
    }

    fn set_constraints(&mut self, shard: &str, constraints: PlacementConstraints) {
        self.writer.put_shard(ShardSpec { constraints, ..spec(shard) });
    }

    fn request(&self, uid: &str, selector: &str) -> Result<Placement, PlacementError> {
        let body = format!(r#"{{"workspaceUID":"{uid}","parentCluster":"root","selector":{selector}}}"#);
        let request: PlacementRequest = serde_json::from_str(&body).unwrap();
        self.scheduler.pick(&request, self.now)
    }

    fn pick(&self, uid: &str, selector: &str) -> String {
        self.request(uid, selector).map_or_else(|error| error.to_string(), |pick| pick.shard.to_string())
    }

    fn metrics(&self) -> String {
        self.scheduler.update_shard_metrics(self.now);
        String::from_utf8(self.registry.text().unwrap().to_vec()).unwrap()
    }
}

fn read(settings: Value) -> PlacementSettings {
    PlacementSettings::new(serde_json::from_value(settings).unwrap())
}

fn spec(name: &str) -> ShardSpec {
    ShardSpec {
        name: name.into(),
        url: "https://x.example".into(),
        labels: Arc::new(BTreeMap::from([("name".to_owned(), name.to_owned())])),
        cordoned: false,
        constraints: PlacementConstraints::default(),
    }
}

const ONLY_B: &str = r#"{"matchLabels":{"name":"b"}}"#;

#[test]
fn picks_spread_before_the_table_shows_them() {
    for policy in ["least-workspaces", "power-of-two"] {
        let mut world = World::configured(&["root", "alpha"], json!({ "policy": policy }));
        // Logical clusters without a workspace do not count.
        world.place("root", "root");
        world.place("root", "system:admin");
        for pair in [["1", "2"], ["3", "4"]] {
            let picked: BTreeSet<_> = pair.map(|uid| world.pick(uid, "{}")).into();
            assert_eq!(picked, ["alpha", "root"].map(str::to_owned).into(), "{policy}");
        }
    }
}

#[test]
fn the_shard_with_the_fewest_workspaces_wins() {
    let mut world = World::with(&["a", "b"]);
    world.place("a", "c1");
    world.place("a", "c2");
    assert_eq!(world.pick("1", "{}"), "b");
    // The placement is a workspace of the table now, and no longer a reservation.
    world.place("b", "c3");
    world.scheduler.placed(["1"].into_iter());
    assert_eq!(world.pick("2", "{}"), "b");
    assert_eq!(world.pick("3", "{}"), "a");
}

#[test]
fn a_repeated_request_gets_the_same_shard() {
    let mut world = World::with(&["a", "b"]);
    assert_eq!(world.pick("1", "{}"), "a");
    assert_eq!(world.request("1", "{}").unwrap().reason, "picked before");
    assert_eq!(world.pick("2", "{}"), "b");
    world.place("a", "c1");
    world.scheduler.placed(["1"].into_iter());
    world.scheduler.placed(["1"].into_iter());
    assert_eq!(world.pick("1", "{}"), "a");
    assert_eq!(world.pick("3", "{}"), "a");
}

#[test]
fn a_repeated_request_gets_another_shard_when_the_first_is_excluded() {
    let cordoned = |world: &mut World| {
        world.writer.put_shard(ShardSpec { cordoned: true, ..spec("a") });
    };
    let draining = |world: &mut World| {
        world.set_constraints("a", PlacementConstraints { draining: true, ..PlacementConstraints::default() })
    };
    let gone = |world: &mut World| {
        let index = world.index("a");
        world.writer.remove_shard(index);
    };
    let silent = |world: &mut World| {
        let index = world.index("a");
        world.unreachable.unwatched.lock().insert(index);
    };
    let failing = |world: &mut World| _ = world.unreachable.failing.lock().insert("a".to_owned());
    type WorldChange<'h> = &'h dyn Fn(&mut World);
    let cases: [(&str, WorldChange<'_>); 5] = [
        ("cordoned", &cordoned),
        ("draining", &draining),
        ("gone", &gone),
        ("silent", &silent),
        ("failing", &failing),
    ];
    for (what, happen) in cases {
        let mut world = World::with(&["a", "b"]);
        assert_eq!(world.pick("1", "{}"), "a", "{what}");
        happen(&mut world);
        assert_eq!([world.pick("1", "{}"), world.pick("1", "{}")], ["b", "b"], "{what}");
    }
    // The workspace stays on a shard that has become full with it.
    let mut world = World::with(&["a", "b"]);
    assert_eq!(world.pick("1", "{}"), "a");
    world.set_constraints("a", PlacementConstraints { capacity: Some(1), ..PlacementConstraints::default() });
    assert_eq!([world.pick("1", "{}"), world.pick("2", "{}")], ["a", "b"]);
}

#[test]
fn an_unreachable_shard_gets_nothing_until_it_is_reachable() {
    let world = World::with(&["a", "b"]);
    let lost = world.index("a");
    world.unreachable.unwatched.lock().insert(lost);
    assert_eq!([world.pick("1", "{}"), world.pick("2", "{}")], ["b", "b"]);
    let only_a = r#"{"matchLabels": {"name": "a"}}"#;
    let not_now = "no shard fits now: of 2 shards 1 not selected, 1 out of reach";
    assert_eq!(world.pick("3", only_a), not_now);
    world.unreachable.unwatched.lock().clear();
    world.unreachable.failing.lock().insert("a".to_owned());
    assert_eq!(world.pick("3", only_a), not_now, "connections to it fail");
    world.unreachable.failing.lock().clear();
    assert_eq!([world.pick("3", only_a), world.pick("4", "{}")], ["a", "a"]);
}

#[test]
fn a_reservation_expires() {
    let mut world = World::with(&["a", "b"]);
    assert_eq!(world.pick("1", "{}"), "a");
    world.now += RESERVATION_TTL - Duration::from_millis(1);
    assert_eq!(world.pick("2", "{}"), "b");
    world.now += Duration::from_millis(1);
    // The first reservation has expired, the second still counts.
    assert_eq!(world.pick("3", "{}"), "a");
    assert_eq!(world.pick("4", "{}"), "a");
}

#[test]
fn selectors_cordons_drains_and_unread_shards() {
    let mut world = World::with(&["a", "b"]);
    assert_eq!([world.pick("1", ONLY_B), world.pick("2", ONLY_B)], ["b", "b"]);
    let selects_none = r#"{"matchLabels":{"name":"c"}}"#;
    assert_eq!(world.pick("3", selects_none), "no shard fits: of 2 shards 2 not selected");
    world.writer.put_shard(ShardSpec { cordoned: true, ..spec("b") });
    assert_eq!(world.pick("4", ONLY_B), "no shard fits: of 2 shards 1 not selected, 1 cordoned");
    assert_eq!(world.pick("4", "{}"), "a");
    world.set_constraints("b", PlacementConstraints { draining: true, ..PlacementConstraints::default() });
    assert_eq!(world.pick("5", ONLY_B), "no shard fits: of 2 shards 1 not selected, 1 draining");
    world.writer.put_shard(spec("c"));
    assert_eq!(
        world.pick("6", selects_none),
        "no shard fits now: of 3 shards 2 not selected, 1 not read yet"
    );
    assert_eq!(world.pick("", "{}"), "workspaceUID is missing");
    let invalid_operator = r#"{"matchExpressions":[{"key":"a","operator":"Near"}]}"#;
    assert_eq!(world.pick("7", invalid_operator), "\"Near\" is not a selector operator");
}

#[test]
fn before_the_list_of_shards_is_read_nothing_is_final() {
    let writer = TableWriter::new();
    let unreachable = Arc::new(UnreachableShards::default());
    let metrics = PlacementMetrics::new(&Metrics::new("gateway", "test").unwrap()).unwrap();
    let (index_status, signals) = (Arc::clone(&unreachable), unreachable);
    let scheduler =
        Scheduler::new(writer.table(), index_status, signals, PlacementSettings::default(), metrics);
    let request: PlacementRequest = serde_json::from_str(r#"{"workspaceUID":"1"}"#).unwrap();
    assert_eq!(scheduler.pick(&request, Instant::now()), Err(PlacementError::NotListed));
}

#[test]
fn weights_and_capacities_come_from_annotations_before_the_configuration() {
    let settings =
        json!({"policy": "least-workspaces", "shards": [{"name": "a", "weight": 3}, {"capacity": 4}]});
    let mut world = World::configured(&["a", "b"], settings);
    let counts = |world: &World, uids: std::ops::Range<u32>| {
        let picked: Vec<String> = uids.map(|uid| world.pick(&uid.to_string(), "{}")).collect();
        ["a", "b", "no shard fits now: of 2 shards 2 about to be full"]
            .map(|wanted| picked.iter().filter(|one| *one == wanted).count())
    };
    assert_eq!(counts(&world, 0..4), [3, 1, 0], "three times as much on a");
    assert_eq!(counts(&world, 4..10), [1, 3, 2], "until they have four each");
    world.set_constraints("b", PlacementConstraints { capacity: Some(6), ..PlacementConstraints::default() });
    assert_eq!(counts(&world, 8..11), [0, 2, 1], "there is room for two more");
}

#[test]
fn a_full_shard_gets_no_more_workspaces() {
    let mut world = World::configured(&["a"], json!({"shards": [{"capacity": 2}]}));
    assert_eq!([world.pick("1", "{}"), world.pick("2", "{}")], ["a", "a"]);
    assert_eq!(world.pick("3", "{}"), "no shard fits now: of 1 shards 1 about to be full");
    world.place("a", "c1");
    world.place("a", "c2");
    world.scheduler.placed(["1", "2"].into_iter());
    assert_eq!(world.pick("3", "{}"), "no shard fits: of 1 shards 1 full");
    // The capacity of an expired reservation is free again.
    let mut world = World::configured(&["a"], json!({"shards": [{"capacity": 1}]}));
    assert_eq!(world.pick("1", "{}"), "a");
    world.now += RESERVATION_TTL;
    assert_eq!(world.pick("2", "{}"), "a");
}

#[test]
fn a_new_policy_applies_to_the_next_request() {
    let mut world = World::with(&["a", "b"]);
    world.place("a", "c1");
    assert_eq!(world.request("1", "{}").unwrap().policy, "least-workspaces");
    world.scheduler.set_settings(read(json!({"policy": "random"})));
    let picked: BTreeSet<String> = (2..100).map(|uid| world.pick(&uid.to_string(), "{}")).collect();
    assert_eq!(picked.len(), 2);
    assert_eq!(world.request("200", "{}").unwrap().policy, "random");
    world.scheduler.set_settings(PlacementSettings::default());
    assert_eq!(world.request("201", "{}").unwrap().policy, "power-of-two");
}

#[test]
fn outcomes_and_exclusions_are_counted() {
    let mut world = World::with(&["a", "b", "c", "d"]);
    world.writer.put_shard(ShardSpec { cordoned: true, ..spec("b") });
    world.set_constraints("c", PlacementConstraints { capacity: Some(0), ..PlacementConstraints::default() });
    let d = world.index("d");
    world.unreachable.unwatched.lock().insert(d);
    for (uid, selector) in [("1", "{}"), ("1", "{}"), ("2", ONLY_B), ("", "{}")] {
        world.pick(uid, selector);
    }
    world.pick("3", r#"{"matchLabels":{"name":"d"}}"#);
    let text = world.metrics();
    for line in [
        "fairlead_gateway_shard_picks_total{outcome=\"picked\",policy=\"least-workspaces\"} 1\n",
        "fairlead_gateway_shard_picks_total{outcome=\"repeated\",policy=\"least-workspaces\"} 1\n",
        "fairlead_gateway_shard_picks_total{outcome=\"no_shard_fits\",policy=\"least-workspaces\"} 1\n",
        "fairlead_gateway_shard_picks_total{outcome=\"not_now\",policy=\"least-workspaces\"} 1\n",
        "fairlead_gateway_shard_picks_total{outcome=\"invalid\",policy=\"least-workspaces\"} 1\n",
        "fairlead_gateway_shard_excluded{reason=\"cordoned\",shard=\"b\"} 1\n",
        "fairlead_gateway_shard_excluded{reason=\"full\",shard=\"c\"} 1\n",
        "fairlead_gateway_shard_excluded{reason=\"out_of_reach\",shard=\"d\"} 1\n",
        "fairlead_gateway_shard_reserved{shard=\"a\"} 1\n",
        "fairlead_gateway_shard_busy{shard=\"a\"} 0\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    world.writer.put_shard(spec("b"));
    assert!(!world.metrics().contains("reason=\"cordoned\""));
    let status = world.scheduler.status(world.index("c")).unwrap();
    assert_eq!((status.exclusion, status.capacity, status.weight), (Some("full"), Some(0), 1));
}
