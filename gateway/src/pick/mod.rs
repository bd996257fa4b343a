//! Which shard gets the next workspace.
//!
//! A shard asks before it places a workspace; the gateway answers from the routing table and remembers its
//! answers, because the table shows a placement only a moment later. Pure but for one short lock.

mod selector;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::route::Freshness;
use crate::table::{Root, RoutingTable, ShardEntry, ShardIndex};

pub(crate) use selector::{LabelSelector, SelectorError};

/// How long a pick counts although the table does not show the workspace.
const RESERVATION: Duration = Duration::from_secs(30);
/// Picks remembered at once. Beyond it the oldest are forgotten, which costs balance, not correctness.
const MAX_RESERVATIONS: usize = 100_000;

/// A shard's question.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PickRequest {
    /// The UID of the Workspace object. Asking again for it gets the same answer.
    #[serde(rename = "workspaceUID")]
    pub(crate) workspace_uid: String,
    /// The id of the logical cluster that holds the object.
    #[serde(default)]
    pub(crate) parent_cluster: String,
    /// Which shards may be picked, by their labels; empty for all.
    #[serde(default)]
    pub(crate) selector: LabelSelector,
}

/// The answer.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Pick {
    /// The name of the shard.
    pub(crate) shard: Arc<str>,
    /// The policy that picked it.
    pub(crate) policy: &'static str,
    /// Why this one, for people.
    pub(crate) reason: String,
}

/// Why there is no answer.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum PickError {
    /// The request is wrong; the caller is to blame, a retry does not help.
    #[error("{0}")]
    Invalid(&'static str),
    /// The selector is wrong; the caller is to blame, a retry does not help.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// No shard may take the workspace: final until shards or the selector change.
    #[error("no shard fits: {0}")]
    NoShardFits(String),
    /// The shards that would fit have not been read yet: a retry helps.
    #[error("the shards that fit are not synced yet")]
    NotSynced,
}

/// Picks shards by the policy `least-workspaces`: the fewest workspaces and reservations, ties by name. Shards out of
/// reach are picked only when no other fits.
pub(crate) struct Picker {
    table: Arc<RoutingTable>,
    freshness: Arc<dyn Freshness>,
    reservations: Mutex<Reservations>,
}

impl Picker {
    /// A picker over a table; `freshness` tells which shards can be reached.
    pub(crate) fn new(table: Arc<RoutingTable>, freshness: Arc<dyn Freshness>) -> Self {
        Self { table, freshness, reservations: Mutex::default() }
    }

    /// Answers one question at the time `now`. Linear in the number of shards.
    ///
    /// # Errors
    /// [`PickError`] says whether a retry helps.
    pub(crate) fn pick(&self, request: &PickRequest, now: Instant) -> Result<Pick, PickError> {
        if request.workspace_uid.is_empty() {
            return Err(PickError::Invalid("workspaceUID is missing"));
        }
        request.selector.validate()?;
        let root = self.table.load();
        let mut reservations = self.reservations.lock();
        reservations.expire(now);
        let earlier = reservations.shard_of(&request.workspace_uid).and_then(|index| root.shard(index));
        if let Some(shard) = earlier {
            return Ok(answer(shard, "picked before".to_owned()));
        }
        let reachable = |shard: &ShardEntry| self.freshness.is_watching(Some(shard.index));
        let (shard, workspaces, reserved) =
            least_workspaces(&root, &request.selector, &reservations, &reachable)?;
        reservations.add(&request.workspace_uid, shard.index, now);
        Ok(answer(shard, format!("{workspaces} workspaces, {reserved} reserved")))
    }

    /// The table shows these workspaces now: their reservations no longer count, but the answers stay the same.
    pub(crate) fn placed<'u>(&self, workspace_uids: impl Iterator<Item = &'u str>) {
        let mut reservations = self.reservations.lock();
        workspace_uids.for_each(|uid| reservations.settle(uid));
    }
}

fn answer(shard: &ShardEntry, reason: String) -> Pick {
    Pick { shard: Arc::clone(&shard.spec.name), policy: "least-workspaces", reason }
}

fn least_workspaces<'t>(
    root: &'t Root,
    selector: &LabelSelector,
    reservations: &Reservations,
    reachable: &dyn Fn(&ShardEntry) -> bool,
) -> Result<(&'t ShardEntry, u32, u32), PickError> {
    let selected: Vec<&ShardEntry> =
        root.shards().filter(|shard| selector.matches(&shard.spec.labels)).collect();
    let open: Vec<&ShardEntry> = selected.iter().copied().filter(|shard| !shard.spec.cordoned).collect();
    let best = open
        .iter()
        .filter(|shard| shard.is_synced())
        .map(|shard| (*shard, root.counts(shard.index).clusters, reservations.open_on(shard.index)))
        .min_by_key(|(shard, workspaces, reserved)| {
            (!reachable(shard), workspaces + reserved, Arc::clone(&shard.spec.name))
        });
    best.ok_or_else(|| match (selected.len(), open.len()) {
        (0, _) => PickError::NoShardFits(format!("none of {} matches the selector", root.shards().count())),
        (selected, 0) => PickError::NoShardFits(format!("{selected} matched, all are unschedulable")),
        _ => PickError::NotSynced,
    })
}

/// Answers given, by workspace.
#[derive(Debug, Default)]
struct Reservations {
    by_workspace: FxHashMap<Arc<str>, Reservation>,
    /// In the order of their expiry, which is the order in which they were made.
    expiry: VecDeque<(Instant, Arc<str>)>,
    open: FxHashMap<ShardIndex, u32>,
}

#[derive(Debug)]
struct Reservation {
    shard: ShardIndex,
    settled: bool,
}

impl Reservations {
    fn shard_of(&self, workspace: &str) -> Option<ShardIndex> {
        self.by_workspace.get(workspace).map(|reservation| reservation.shard)
    }

    fn open_on(&self, shard: ShardIndex) -> u32 {
        self.open.get(&shard).copied().unwrap_or_default()
    }

    fn add(&mut self, workspace: &str, shard: ShardIndex, now: Instant) {
        if self.expiry.len() >= MAX_RESERVATIONS {
            self.forget_oldest();
        }
        // A pick for a shard that has been removed meanwhile is replaced.
        self.settle(workspace);
        let workspace: Arc<str> = workspace.into();
        *self.open.entry(shard).or_default() += 1;
        self.expiry.push_back((now + RESERVATION, Arc::clone(&workspace)));
        self.by_workspace.insert(workspace, Reservation { shard, settled: false });
    }

    fn settle(&mut self, workspace: &str) {
        let Some(reservation) = self.by_workspace.get_mut(workspace) else {
            return;
        };
        if !std::mem::replace(&mut reservation.settled, true)
            && let Some(open) = self.open.get_mut(&reservation.shard)
        {
            *open = open.saturating_sub(1);
        }
    }

    fn expire(&mut self, now: Instant) {
        while self.expiry.front().is_some_and(|(expiry, _)| *expiry <= now) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, workspace)) = self.expiry.pop_front() {
            self.settle(&workspace);
            self.by_workspace.remove(&workspace);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use std::collections::BTreeMap;

    use super::*;
    use crate::table::{Change, ClusterRecord, Page, ShardSpec, TableWriter};

    struct World {
        writer: TableWriter,
        picker: Picker,
        out_of_reach: Arc<OutOfReach>,
        now: Instant,
    }

    #[derive(Default)]
    struct OutOfReach(Mutex<Vec<ShardIndex>>);

    impl Freshness for OutOfReach {
        fn is_watching(&self, shard: Option<ShardIndex>) -> bool {
            shard.is_none_or(|shard| !self.0.lock().contains(&shard))
        }
    }

    impl World {
        fn with(shards: &[&str]) -> Self {
            let mut writer = TableWriter::new();
            for name in shards {
                let index = writer.put_shard(spec(name)).unwrap();
                writer.apply(vec![
                    (index, Change::ListClusters(Page::whole(Vec::new()))),
                    (index, Change::ListWorkspaces(Page::whole(Vec::new()))),
                ]);
            }
            let out_of_reach = Arc::new(OutOfReach::default());
            let picker = Picker::new(writer.table(), Arc::clone(&out_of_reach) as Arc<dyn Freshness>);
            Self { writer, picker, out_of_reach, now: Instant::now() }
        }

        fn index(&self, shard: &str) -> ShardIndex {
            self.writer.table().load().shards().find(|known| &*known.spec.name == shard).unwrap().index
        }

        fn place(&mut self, shard: &str, id: &str) {
            let index = self.index(shard);
            let record = ClusterRecord { id: id.into(), workspace_type: None, migrating: false };
            self.writer.apply(vec![(index, Change::PutCluster(record))]);
        }

        fn pick(&self, uid: &str, selector: &str) -> String {
            let body = format!(r#"{{"workspaceUID":"{uid}","parentCluster":"root","selector":{selector}}}"#);
            let request: PickRequest = serde_json::from_str(&body).unwrap();
            match self.picker.pick(&request, self.now) {
                Ok(pick) => pick.shard.to_string(),
                Err(error) => error.to_string(),
            }
        }
    }

    fn spec(name: &str) -> ShardSpec {
        ShardSpec {
            name: name.into(),
            url: "https://x.example".into(),
            labels: Arc::new(BTreeMap::from([("name".to_owned(), name.to_owned())])),
            cordoned: false,
            marks: crate::table::PickMarks::default(),
        }
    }

    #[test]
    fn picks_spread_before_the_table_shows_them() {
        let mut world = World::with(&["root", "alpha"]);
        // Clusters that are nobody's workspace do not count.
        world.place("root", "root");
        world.place("root", "system:admin");
        let picked: Vec<_> = ["1", "2", "3", "4"].iter().map(|uid| world.pick(uid, "{}")).collect();
        assert_eq!(picked, ["alpha", "root", "alpha", "root"]);
    }

    #[test]
    fn the_shard_with_the_fewest_workspaces_wins() {
        let mut world = World::with(&["a", "b"]);
        world.place("a", "c1");
        world.place("a", "c2");
        assert_eq!(world.pick("1", "{}"), "b");
        // The pick is now a workspace of the table, and no longer a reservation.
        world.place("b", "c3");
        world.picker.placed(["1"].into_iter());
        assert_eq!(world.pick("2", "{}"), "b");
        assert_eq!(world.pick("3", "{}"), "a");
    }

    #[test]
    fn asking_again_gets_the_same_answer_also_when_placed() {
        let mut world = World::with(&["a", "b"]);
        assert_eq!(world.pick("1", "{}"), "a");
        assert_eq!(world.pick("1", "{}"), "a");
        assert_eq!(world.pick("2", "{}"), "b");
        world.place("a", "c1");
        world.picker.placed(["1"].into_iter());
        world.picker.placed(["1"].into_iter());
        assert_eq!(world.pick("1", "{}"), "a");
        assert_eq!(world.pick("3", "{}"), "a");
    }

    #[test]
    fn a_shard_out_of_reach_is_the_last_choice() {
        let world = World::with(&["a", "b"]);
        let lost = world.index("a");
        world.out_of_reach.0.lock().push(lost);
        assert_eq!([world.pick("1", "{}"), world.pick("2", "{}")], ["b", "b"]);
        assert_eq!(world.pick("3", r#"{"matchLabels": {"name": "a"}}"#), "a", "there is no other");
        world.out_of_reach.0.lock().clear();
        assert_eq!(world.pick("4", "{}"), "a");
    }

    #[test]
    fn a_reservation_ends_by_itself() {
        let mut world = World::with(&["a", "b"]);
        assert_eq!(world.pick("1", "{}"), "a");
        world.now += RESERVATION - Duration::from_millis(1);
        assert_eq!(world.pick("2", "{}"), "b");
        world.now += Duration::from_millis(1);
        // The first is forgotten, the second still counts.
        assert_eq!(world.pick("3", "{}"), "a");
        assert_eq!(world.pick("4", "{}"), "a");
    }

    #[test]
    fn a_pick_for_a_removed_shard_is_made_again() {
        let mut world = World::with(&["a", "b"]);
        assert_eq!(world.pick("1", "{}"), "a");
        let gone = world.index("a");
        world.writer.remove_shard(gone);
        assert_eq!(world.pick("1", "{}"), "b");
        assert_eq!(world.pick("1", "{}"), "b");
    }

    #[test]
    fn selectors_cordons_and_unread_shards() {
        let mut world = World::with(&["a", "b"]);
        let only_b = r#"{"matchLabels":{"name":"b"}}"#;
        assert_eq!(world.pick("1", only_b), "b");
        assert_eq!(world.pick("2", only_b), "b");
        assert_eq!(
            world.pick("3", r#"{"matchLabels":{"name":"c"}}"#),
            "no shard fits: none of 2 matches the selector"
        );
        world.writer.put_shard(ShardSpec { cordoned: true, ..spec("b") });
        assert_eq!(world.pick("4", only_b), "no shard fits: 1 matched, all are unschedulable");
        assert_eq!(world.pick("4", "{}"), "a");
        world.writer.put_shard(spec("c"));
        assert_eq!(world.pick("5", r#"{"matchLabels":{"name":"c"}}"#), PickError::NotSynced.to_string());
        assert_eq!(world.pick("", "{}"), "workspaceUID is missing");
        assert_eq!(
            world.pick("6", r#"{"matchExpressions":[{"key":"a","operator":"Near"}]}"#),
            "\"Near\" is not a selector operator"
        );
    }
}
