#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use super::*;
use crate::request::Reference;

/// A table with helpers that read like the events of the index.
struct World {
    writer: TableWriter,
    shards: Vec<(&'static str, ShardIndex)>,
}

impl World {
    /// Shards of these names, all synced and empty.
    fn with(names: &[&'static str]) -> Self {
        let mut world = Self { writer: TableWriter::new(), shards: Vec::new() };
        for name in names {
            let index = world.writer.put_shard(spec(name)).unwrap();
            world.shards.push((name, index));
            world.apply(name, Change::ReplaceClusters(Vec::new()));
            world.apply(name, Change::ReplaceWorkspaces(Vec::new()));
        }
        world.writer.shards_listed();
        world
    }

    fn shard(&self, name: &str) -> ShardIndex {
        self.shards.iter().find(|(known, _)| *known == name).unwrap().1
    }

    fn apply(&mut self, shard: &str, change: Change) -> Vec<TableKey> {
        self.writer.apply(vec![(self.shard(shard), change)])
    }

    fn cluster(&mut self, shard: &str, id: &str) {
        self.apply(shard, Change::PutCluster(cluster_record(id)));
    }

    fn workspace(&mut self, shard: &str, parent: &str, name: &str, child: &str) {
        self.apply(shard, Change::PutWorkspace(workspace_record(parent, name, child)));
    }

    fn resolve(&self, reference: &str) -> String {
        let root = self.writer.table().load();
        outcome(&root.resolve(&Reference::parse(reference).unwrap()))
    }

    fn counts(&self, shard: &str) -> (u32, u32) {
        let counts = self.writer.table().load().counts(self.shard(shard));
        (counts.clusters, counts.workspaces)
    }
}

fn spec(name: &str) -> ShardSpec {
    ShardSpec {
        name: name.into(),
        url: format!("https://{name}.example").into(),
        labels: Arc::default(),
        cordoned: false,
    }
}

fn cluster_record(id: &str) -> ClusterRecord {
    ClusterRecord { id: id.into(), workspace_type: Some("root:universal".into()), migrating: false }
}

fn workspace_record(parent: &str, name: &str, child: &str) -> WorkspaceRecord {
    WorkspaceRecord {
        parent: parent.into(),
        name: name.into(),
        target: WorkspaceTarget::Cluster(child.into()),
        unavailable: false,
    }
}

fn outcome(resolution: &Resolution<'_>) -> String {
    match resolution {
        Resolution::Found(found) => format!("{}/{}", found.shard.spec.name, found.cluster),
        Resolution::Mount(url) => format!("mount {url}"),
        Resolution::Unavailable => "unavailable".into(),
        Resolution::NotSynced => "not synced".into(),
        Resolution::Unknown(missing) if missing.below_known => "unknown below".into(),
        Resolution::Unknown(_) => "unknown".into(),
    }
}

/// root on `a`; org (c1) on `b`; team (c2) below it on `a`.
fn tree() -> World {
    let mut world = World::with(&["a", "b"]);
    world.cluster("a", "root");
    world.cluster("b", "c1");
    world.cluster("a", "c2");
    world.workspace("a", "root", "org", "c1");
    world.workspace("b", "c1", "team", "c2");
    world
}

#[test]
fn paths_and_ids_are_resolved_across_shards() {
    let world = tree();
    for (reference, expected) in [
        ("root", "a/root"),
        ("root:org", "b/c1"),
        ("root:org:team", "a/c2"),
        ("c1", "b/c1"),
        ("c1:team", "a/c2"),
        ("c2", "a/c2"),
        ("root:nope", "unknown below"),
        ("root:org:nope:x", "unknown below"),
        ("nope", "unknown"),
        ("org", "unknown"),
        ("system:admin", "unknown"),
    ] {
        assert_eq!(world.resolve(reference), expected, "{reference}");
    }
    let table = world.writer.table();
    let root = table.load();
    let reference = Reference::parse("root:org").unwrap();
    let Resolution::Found(found) = root.resolve(&reference) else { panic!("not found") };
    assert_eq!(found.workspace_type, Some("root:universal"));
    assert_eq!(&*found.shard.spec.url, "https://b.example");
}

#[test]
fn nothing_is_unknown_before_it_could_be_known() {
    let mut world = World { writer: TableWriter::new(), shards: Vec::new() };
    assert_eq!(world.resolve("root"), "not synced");
    for name in ["a", "b"] {
        let index = world.writer.put_shard(spec(name)).unwrap();
        world.shards.push((name, index));
    }
    world.apply("a", Change::ReplaceClusters(vec![cluster_record("root")]));
    assert_eq!(world.resolve("root"), "a/root");
    assert_eq!(world.resolve("root:org"), "not synced");
    world.apply("a", Change::ReplaceWorkspaces(vec![workspace_record("root", "org", "c1")]));
    assert_eq!(world.resolve("root:nope"), "unknown below");
    // Its logical cluster may be on the shard that has not spoken yet.
    assert_eq!(world.resolve("root:org"), "not synced");
    assert_eq!(world.resolve("c1"), "not synced");
    world.apply("b", Change::ReplaceClusters(Vec::new()));
    world.apply("b", Change::ReplaceWorkspaces(Vec::new()));
    assert_eq!(world.resolve("c1"), "not synced");
    world.writer.shards_listed();
    assert_eq!(world.resolve("c1"), "unknown");
    assert_eq!(world.resolve("root:org"), "unknown below");
}

#[test]
fn an_unavailable_workspace_covers_what_lies_below_but_not_its_id() {
    let mut world = tree();
    let mut record = workspace_record("root", "org", "c1");
    record.unavailable = true;
    world.apply("a", Change::PutWorkspace(record.clone()));
    for (reference, expected) in [
        ("root:org", "unavailable"),
        ("root:org:team", "unavailable"),
        ("root:org:nope", "unknown below"),
        ("c1", "b/c1"),
        ("c1:team", "a/c2"),
    ] {
        assert_eq!(world.resolve(reference), expected, "{reference}");
    }
    record.unavailable = false;
    world.apply("a", Change::PutWorkspace(record));
    assert_eq!(world.resolve("root:org:team"), "a/c2");
}

#[test]
fn mounts_are_leaves_and_a_cleared_mount_is_gone() {
    let mut world = tree();
    let mut record = workspace_record("root", "m", "");
    record.target = WorkspaceTarget::Mount("https://x.example/clusters/y".into());
    world.apply("a", Change::PutWorkspace(record.clone()));
    assert_eq!(world.resolve("root:m"), "mount https://x.example/clusters/y");
    assert_eq!(world.resolve("root:m:below"), "unknown");
    record.unavailable = true;
    world.apply("a", Change::PutWorkspace(record.clone()));
    assert_eq!(world.resolve("root:m"), "unavailable");
    record.target = WorkspaceTarget::None;
    world.apply("a", Change::PutWorkspace(record));
    assert_eq!(world.resolve("root:m"), "unknown below");
    assert_eq!(world.counts("a"), (1, 1));
}

#[test]
fn a_workspace_that_moves_to_another_cluster_leaves_nothing_behind() {
    let mut world = tree();
    world.cluster("a", "c9");
    world.workspace("a", "root", "org", "c9");
    assert_eq!(world.resolve("root:org"), "a/c9");
    world.apply("a", Change::RemoveWorkspace { parent: "root".into(), name: "org".into() });
    assert_eq!(world.resolve("root:org"), "unknown below");
    assert_eq!(world.counts("a"), (2, 0));
}

#[test]
fn only_the_parents_shard_speaks_about_its_workspaces() {
    let mut world = tree();
    // A stale copy of the parent on another shard says something else about the same name.
    world.workspace("b", "root", "org", "c2");
    assert_eq!(world.resolve("root:org"), "b/c1");
    world.apply("b", Change::RemoveWorkspace { parent: "root".into(), name: "org".into() });
    assert_eq!(world.resolve("root:org"), "b/c1");
}

#[test]
fn two_shards_with_the_same_logical_cluster() {
    let mut world = tree();
    // The second shard does not take over, not even on a resync.
    world.cluster("a", "c1");
    assert_eq!(world.resolve("c1"), "b/c1");
    world.apply("a", Change::ReplaceClusters(["root", "c1", "c2"].map(cluster_record).into()));
    assert_eq!(world.resolve("c1"), "b/c1");
    // A delete on the shard that does not own it changes nothing.
    world.apply("a", Change::RemoveCluster("c1".into()));
    assert_eq!(world.resolve("c1"), "b/c1");
    // The delete at the old owner completes the move.
    world.cluster("a", "c1");
    world.apply("b", Change::RemoveCluster("c1".into()));
    assert_eq!(world.resolve("c1"), "a/c1");
    assert_eq!(world.counts("a"), (2, 1));
    assert_eq!(world.counts("b"), (0, 1));
}

#[test]
fn a_copy_that_is_being_moved_yields() {
    let mut world = tree();
    world.cluster("a", "c1");
    let moving = ClusterRecord { migrating: true, ..cluster_record("c1") };
    world.apply("b", Change::PutCluster(moving.clone()));
    assert_eq!(world.resolve("c1"), "a/c1");
    // Both marked: no flip.
    world.apply("a", Change::PutCluster(moving));
    assert_eq!(world.resolve("c1"), "a/c1");
    world.cluster("b", "c1");
    assert_eq!(world.resolve("c1"), "b/c1");
}

#[test]
fn a_replacement_that_drops_the_owner_elects_the_other_shard() {
    let mut world = tree();
    world.cluster("a", "c1");
    world.apply("b", Change::ReplaceClusters(Vec::new()));
    assert_eq!(world.resolve("c1"), "a/c1");
    assert_eq!(world.counts("b"), (0, 1));
}

#[test]
fn a_replacement_is_all_that_the_shard_has() {
    let mut world = tree();
    world.apply(
        "a",
        Change::ReplaceWorkspaces(vec![
            workspace_record("root", "new", "c2"),
            workspace_record("root", "org", "c1"),
        ]),
    );
    assert_eq!(world.resolve("root:new"), "a/c2");
    assert_eq!(world.resolve("root:org"), "b/c1");
    world.apply("a", Change::ReplaceWorkspaces(vec![workspace_record("root", "new", "c2")]));
    assert_eq!(world.resolve("root:org"), "unknown below");
    assert_eq!(world.resolve("c1:team"), "a/c2");
    assert_eq!(world.counts("a"), (1, 1));
}

#[test]
fn a_removed_shard_takes_its_entries_and_a_changed_url_keeps_them() {
    let mut world = tree();
    let moved = ShardSpec { url: "https://elsewhere.example".into(), ..spec("b") };
    assert_eq!(world.writer.put_shard(moved), Some(world.shard("b")));
    assert_eq!(world.resolve("root:org"), "b/c1");
    let table = world.writer.table();
    assert_eq!(&*table.load().shard(world.shard("b")).unwrap().spec.url, "https://elsewhere.example");

    let gone = world.shard("b");
    world.writer.remove_shard(gone);
    assert_eq!(world.resolve("root:org"), "unknown below");
    assert_eq!(world.resolve("c1"), "unknown");
    assert_eq!(world.resolve("c2"), "a/c2");
    // Late news of the removed shard is dropped, and its place is not given away.
    world.cluster("b", "c1");
    assert_eq!(world.resolve("c1"), "unknown");
    assert_ne!(world.writer.put_shard(spec("b")), Some(gone));
    assert_eq!(world.resolve("c2"), "a/c2");
    assert_eq!(world.resolve("c1"), "not synced");
}

#[test]
fn a_reader_keeps_its_view() {
    let mut world = tree();
    let table = world.writer.table();
    let before = table.load_full_for_test();
    world.apply("b", Change::RemoveCluster("c1".into()));
    let reference = Reference::parse("root:org").unwrap();
    assert_eq!(outcome(&before.resolve(&reference)), "b/c1");
    assert_eq!(outcome(&table.load().resolve(&reference)), "unknown below");
}

#[test]
fn a_batch_reports_the_keys_that_a_miss_names() {
    let mut world = tree();
    let table = world.writer.table();
    let missing = |reference: &str| match table.load().resolve(&Reference::parse(reference).unwrap()) {
        Resolution::Unknown(missing) => missing.key,
        other => panic!("{other:?}"),
    };
    let (edge, id) = (missing("root:later"), missing("c7"));
    assert_eq!(world.apply("a", Change::PutWorkspace(workspace_record("root", "later", "c7"))), [edge]);
    assert_eq!(missing("root:later"), id);
    assert_eq!(world.apply("b", Change::PutCluster(cluster_record("c7"))), [id]);
    assert_eq!(world.resolve("root:later"), "b/c7");
}

#[test]
fn unchanged_records_do_not_copy_a_bucket() {
    let mut world = tree();
    let table = world.writer.table();
    let before = table.load_full_for_test();
    world.apply("a", Change::ReplaceClusters(["root", "c2"].map(cluster_record).into()));
    world.workspace("a", "root", "org", "c1");
    let after = table.load_full_for_test();
    assert!(before.buckets.iter().zip(&after.buckets).all(|(before, after)| Arc::ptr_eq(before, after)));
}

#[test]
fn a_workspace_costs_less_than_200_bytes() {
    let mut world = World::with(&["a"]);
    let shard = world.shard("a");
    let empty = world.writer.table().load().heap_bytes();
    let count = 100_000;
    let id = |number: usize| format!("{number:016x}");
    let clusters = (0..count).map(|number| cluster_record(&id(number))).collect();
    let workspaces = (0..count)
        .map(|number| workspace_record(&id(number / 50), &format!("workspace-{number}"), &id(number)))
        .collect();
    world.writer.apply(vec![
        (shard, Change::ReplaceClusters(clusters)),
        (shard, Change::ReplaceWorkspaces(workspaces)),
    ]);
    assert_eq!(world.counts("a"), (count as u32, count as u32));
    let each = (world.writer.table().load().heap_bytes() - empty) / count;
    assert!((60..=200).contains(&each), "{each} bytes per workspace");
    assert_eq!(world.resolve(&format!("{}:workspace-77", id(1))), format!("a/{}", id(77)));
}

/// `cargo test --release -p fairlead-gateway -- --ignored --nocapture a_million`
#[test]
#[ignore = "a measurement"]
fn a_million_workspaces_in_figures() {
    let mut world = World::with(&["a"]);
    let shard = world.shard("a");
    let count = 1_000_000_usize;
    let id = |number: usize| format!("{number:016x}");
    let clusters = (0..count).map(|number| cluster_record(&id(number))).collect();
    let name = |number: usize| format!("workspace-{number}");
    let workspaces = (1..count).map(|number| workspace_record(&id(number / 50), &name(number), &id(number)));
    let workspaces = workspaces.collect();
    let began = std::time::Instant::now();
    world.writer.apply(vec![
        (shard, Change::ReplaceClusters(clusters)),
        (shard, Change::ReplaceWorkspaces(workspaces)),
    ]);
    println!("replaced everything in {:?}", began.elapsed());
    let table = world.writer.table();
    println!("{} bytes per workspace", table.load().heap_bytes() / count);

    let references: Vec<_> = (0..100_000_usize)
        .map(|number| number * 7919 % (count - 1) + 1)
        .map(|number| Reference::parse(format!("{}:{}", id(number / 50), name(number))).unwrap())
        .collect();
    let began = std::time::Instant::now();
    for reference in &references {
        assert!(matches!(table.load().resolve(reference), Resolution::Found(_)));
    }
    println!("{:?} per look-up of a path with one step", began.elapsed() / references.len() as u32);

    let began = std::time::Instant::now();
    for number in 0..1000 {
        world.workspace("a", "root", &name(number), &id(number));
    }
    println!("{:?} per batch of one change", began.elapsed() / 1000);
}

impl RoutingTable {
    fn load_full_for_test(&self) -> Arc<Root> {
        self.root.load_full()
    }
}
