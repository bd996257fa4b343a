//! Tests of the scheduler with a real table.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fairlead_process::Metrics;
use serde_json::{Value, json};

use super::load::ShardWork;
use super::*;
use crate::routing::placement::reservations::REMEMBERED;
use crate::routing::table::{Change, ClusterRecord, Page, PlacementConstraints, ShardSpec, TableWriter};

struct World {
    writer: TableWriter,
    picker: Scheduler,
    troubles: Arc<Troubles>,
    registry: Metrics,
    now: Instant,
}

/// Shards that are not watched, and shards to which connections fail.
#[derive(Default)]
struct Troubles {
    unheard: Mutex<BTreeSet<ShardIndex>>,
    failing: Mutex<BTreeSet<String>>,
}

impl IndexStatus for Troubles {
    fn is_watching(&self, shard: Option<ShardIndex>) -> bool {
        shard.is_none_or(|shard| !self.unheard.lock().contains(&shard))
    }
}

impl UpstreamSignals for Troubles {
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
        writer.shards_listed();
        let troubles = Arc::new(Troubles::default());
        let registry = Metrics::new("gateway", "test").unwrap();
        let picker = Scheduler::new(
            writer.table(),
            Arc::clone(&troubles) as Arc<dyn IndexStatus>,
            Arc::clone(&troubles) as Arc<dyn UpstreamSignals>,
            read(settings),
            PickMetrics::new(&registry).unwrap(),
        );
        Self { writer, picker, troubles, registry, now: Instant::now() }
    }

    fn index(&self, shard: &str) -> ShardIndex {
        self.writer.table().load().shards().find(|known| &*known.spec.name == shard).unwrap().index
    }

    fn place(&mut self, shard: &str, id: &str) {
        let index = self.index(shard);
        let record = ClusterRecord { id: id.into(), workspace_type: None, migrating: false };
        self.writer.apply(vec![(index, Change::PutCluster(record))]);
    }

    fn mark(&mut self, shard: &str, marks: PlacementConstraints) {
        self.writer.put_shard(ShardSpec { marks, ..spec(shard) });
    }

    fn ask(&self, uid: &str, selector: &str) -> Result<Pick, PickError> {
        let body = format!(r#"{{"workspaceUID":"{uid}","parentCluster":"root","selector":{selector}}}"#);
        let request: PickRequest = serde_json::from_str(&body).unwrap();
        self.picker.pick(&request, self.now)
    }

    fn pick(&self, uid: &str, selector: &str) -> String {
        self.ask(uid, selector).map_or_else(|error| error.to_string(), |pick| pick.shard.to_string())
    }

    fn metrics(&self) -> String {
        self.picker.note_shards(self.now);
        String::from_utf8(self.registry.text().unwrap().to_vec()).unwrap()
    }
}

fn read(settings: Value) -> PickSettings {
    PickSettings::new(serde_json::from_value(settings).unwrap())
}

fn spec(name: &str) -> ShardSpec {
    ShardSpec {
        name: name.into(),
        url: "https://x.example".into(),
        labels: Arc::new(BTreeMap::from([("name".to_owned(), name.to_owned())])),
        cordoned: false,
        marks: PlacementConstraints::default(),
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
    world.picker.placed(["1"].into_iter());
    assert_eq!(world.pick("2", "{}"), "b");
    assert_eq!(world.pick("3", "{}"), "a");
}

#[test]
fn asking_again_gets_the_same_answer_also_when_placed() {
    let mut world = World::with(&["a", "b"]);
    assert_eq!(world.pick("1", "{}"), "a");
    assert_eq!(world.ask("1", "{}").unwrap().reason, "picked before");
    assert_eq!(world.pick("2", "{}"), "b");
    world.place("a", "c1");
    world.picker.placed(["1"].into_iter());
    world.picker.placed(["1"].into_iter());
    assert_eq!(world.pick("1", "{}"), "a");
    assert_eq!(world.pick("3", "{}"), "a");
}

#[test]
fn asking_again_gets_another_answer_when_the_first_one_cannot_be_had_any_more() {
    let cordoned = |world: &mut World| {
        world.writer.put_shard(ShardSpec { cordoned: true, ..spec("a") });
    };
    let draining = |world: &mut World| {
        world.mark("a", PlacementConstraints { draining: true, ..PlacementConstraints::default() })
    };
    let gone = |world: &mut World| {
        let index = world.index("a");
        world.writer.remove_shard(index);
    };
    let silent = |world: &mut World| {
        let index = world.index("a");
        world.troubles.unheard.lock().insert(index);
    };
    let failing = |world: &mut World| _ = world.troubles.failing.lock().insert("a".to_owned());
    type Happening<'h> = &'h dyn Fn(&mut World);
    let cases: [(&str, Happening<'_>); 5] = [
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
    world.mark("a", PlacementConstraints { capacity: Some(1), ..PlacementConstraints::default() });
    assert_eq!([world.pick("1", "{}"), world.pick("2", "{}")], ["a", "b"]);
}

#[test]
fn a_shard_out_of_reach_gets_nothing_and_may_be_asked_for_later() {
    let world = World::with(&["a", "b"]);
    let lost = world.index("a");
    world.troubles.unheard.lock().insert(lost);
    assert_eq!([world.pick("1", "{}"), world.pick("2", "{}")], ["b", "b"]);
    let only_a = r#"{"matchLabels": {"name": "a"}}"#;
    let not_now = "no shard fits now: of 2 shards 1 not selected, 1 out of reach";
    assert_eq!(world.pick("3", only_a), not_now);
    world.troubles.unheard.lock().clear();
    world.troubles.failing.lock().insert("a".to_owned());
    assert_eq!(world.pick("3", only_a), not_now, "connections to it fail");
    world.troubles.failing.lock().clear();
    assert_eq!([world.pick("3", only_a), world.pick("4", "{}")], ["a", "a"]);
}

#[test]
fn a_reservation_ends_by_itself() {
    let mut world = World::with(&["a", "b"]);
    assert_eq!(world.pick("1", "{}"), "a");
    world.now += REMEMBERED - Duration::from_millis(1);
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
    let nobody = r#"{"matchLabels":{"name":"c"}}"#;
    assert_eq!(world.pick("3", nobody), "no shard fits: of 2 shards 2 not selected");
    world.writer.put_shard(ShardSpec { cordoned: true, ..spec("b") });
    assert_eq!(world.pick("4", ONLY_B), "no shard fits: of 2 shards 1 not selected, 1 cordoned");
    assert_eq!(world.pick("4", "{}"), "a");
    world.mark("b", PlacementConstraints { draining: true, ..PlacementConstraints::default() });
    assert_eq!(world.pick("5", ONLY_B), "no shard fits: of 2 shards 1 not selected, 1 draining");
    world.writer.put_shard(spec("c"));
    assert_eq!(world.pick("6", nobody), "no shard fits now: of 3 shards 2 not selected, 1 not read yet");
    assert_eq!(world.pick("", "{}"), "workspaceUID is missing");
    let odd = r#"{"matchExpressions":[{"key":"a","operator":"Near"}]}"#;
    assert_eq!(world.pick("7", odd), "\"Near\" is not a selector operator");
}

#[test]
fn before_the_list_of_shards_is_read_nothing_is_final() {
    let writer = TableWriter::new();
    let troubles = Arc::new(Troubles::default());
    let metrics = PickMetrics::new(&Metrics::new("gateway", "test").unwrap()).unwrap();
    let (freshness, signs) = (Arc::clone(&troubles), troubles);
    let picker = Scheduler::new(writer.table(), freshness, signs, PickSettings::default(), metrics);
    let request: PickRequest = serde_json::from_str(r#"{"workspaceUID":"1"}"#).unwrap();
    assert_eq!(picker.pick(&request, Instant::now()), Err(PickError::NotListed));
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
    world.mark("b", PlacementConstraints { capacity: Some(6), ..PlacementConstraints::default() });
    assert_eq!(counts(&world, 8..11), [0, 2, 1], "there is room for two more");
}

#[test]
fn a_full_shard_gets_nothing_more_and_says_so_finally() {
    let mut world = World::configured(&["a"], json!({"shards": [{"capacity": 2}]}));
    assert_eq!([world.pick("1", "{}"), world.pick("2", "{}")], ["a", "a"]);
    assert_eq!(world.pick("3", "{}"), "no shard fits now: of 1 shards 1 about to be full");
    world.place("a", "c1");
    world.place("a", "c2");
    world.picker.placed(["1", "2"].into_iter());
    assert_eq!(world.pick("3", "{}"), "no shard fits: of 1 shards 1 full");
    // The capacity of an expired reservation is free again.
    let mut world = World::configured(&["a"], json!({"shards": [{"capacity": 1}]}));
    assert_eq!(world.pick("1", "{}"), "a");
    world.now += REMEMBERED;
    assert_eq!(world.pick("2", "{}"), "a");
}

#[test]
fn another_policy_is_in_force_from_the_next_question_on() {
    let mut world = World::with(&["a", "b"]);
    world.place("a", "c1");
    assert_eq!(world.ask("1", "{}").unwrap().policy, "least-workspaces");
    world.picker.set_settings(read(json!({"policy": "random"})));
    let picked: BTreeSet<String> = (2..100).map(|uid| world.pick(&uid.to_string(), "{}")).collect();
    assert_eq!(picked.len(), 2);
    assert_eq!(world.ask("200", "{}").unwrap().policy, "random");
    world.picker.set_settings(PickSettings::default());
    assert_eq!(world.ask("201", "{}").unwrap().policy, "power-of-two");
}

#[test]
fn everything_is_counted() {
    let mut world = World::with(&["a", "b", "c", "d"]);
    world.writer.put_shard(ShardSpec { cordoned: true, ..spec("b") });
    world.mark("c", PlacementConstraints { capacity: Some(0), ..PlacementConstraints::default() });
    let d = world.index("d");
    world.troubles.unheard.lock().insert(d);
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
    let standing = world.picker.standing(world.index("c")).unwrap();
    assert_eq!((standing.exclusion, standing.capacity, standing.weight), (Some("full"), Some(0), 1));
}
