#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use super::*;
use crate::request::Reference;

/// A table with helper functions that correspond to the events of the index.
struct World {
    writer: TableWriter,
    shards: Vec<(&'static str, ShardIndex)>,
}

impl World {
    /// A table with these shards, all synced and empty.
    fn with(names: &[&'static str]) -> Self {
        let mut world = Self { writer: TableWriter::new(), shards: Vec::new() };
        for name in names {
            let index = world.writer.put_shard(spec(name)).unwrap();
            world.shards.push((name, index));
            world.apply(name, Change::ListClusters(Page::whole(Vec::new())));
            world.apply(name, Change::ListWorkspaces(Page::whole(Vec::new())));
        }
        world.writer.mark_shards_listed();
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
        constraints: crate::routing::table::PlacementConstraints::default(),
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

fn all_clusters(ids: &[&str]) -> Change {
    Change::ListClusters(Page::whole(ids.iter().copied().map(cluster_record).collect()))
}

fn all_workspaces(records: Vec<WorkspaceRecord>) -> Change {
    Change::ListWorkspaces(Page::whole(records))
}

fn outcome(resolution: &Resolution<'_>) -> String {
    match resolution {
        Resolution::Found(found) => format!("{}/{}", found.shard.spec.name, found.cluster),
        Resolution::Mount(mount) => {
            let unavailable = if mount.unavailable { "unavailable " } else { "" };
            let missing_behind = if mount.missing_behind.is_some() { ", and more" } else { "" };
            format!("{unavailable}mount {}{missing_behind}", mount.url)
        }
        Resolution::Unavailable => "unavailable".into(),
        Resolution::NotSynced => "not synced".into(),
        Resolution::NotFound(missing) if missing.is_parent_known => "unknown below".into(),
        Resolution::NotFound(_) => "unknown".into(),
    }
}

/// `root` on `a`; `org` (c1) on `b`; `team` (c2) below it on `a`.
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
    assert_eq!(found.workspace_type.map(|name| &**name), Some("root:universal"));
    assert_eq!(&*found.shard.spec.url, "https://b.example");
}

#[test]
fn nothing_is_not_found_before_all_shards_are_synced() {
    let mut world = World { writer: TableWriter::new(), shards: Vec::new() };
    assert_eq!(world.resolve("root"), "not synced");
    for name in ["a", "b"] {
        let index = world.writer.put_shard(spec(name)).unwrap();
        world.shards.push((name, index));
    }
    world.apply("a", all_clusters(&["root"]));
    assert_eq!(world.resolve("root"), "a/root");
    assert_eq!(world.resolve("root:org"), "not synced");
    world.apply("a", all_workspaces(vec![workspace_record("root", "org", "c1")]));
    assert_eq!(world.resolve("root:nope"), "unknown below");
    // Its logical cluster may be on the shard that has not been read yet.
    assert_eq!(world.resolve("root:org"), "not synced");
    assert_eq!(world.resolve("c1"), "not synced");
    world.apply("b", Change::ListClusters(Page::whole(Vec::new())));
    world.apply("b", Change::ListWorkspaces(Page::whole(Vec::new())));
    assert_eq!(world.resolve("c1"), "not synced");
    world.writer.mark_shards_listed();
    assert_eq!(world.resolve("c1"), "unknown");
    assert_eq!(world.resolve("root:org"), "unknown below");
}

#[test]
fn an_unavailable_workspace_blocks_its_descendants_but_not_its_id() {
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
    assert_eq!(world.resolve("root:m:below:it"), "mount https://x.example/clusters/y, and more");
    record.unavailable = true;
    world.apply("a", Change::PutWorkspace(record.clone()));
    assert_eq!(world.resolve("root:m"), "unavailable mount https://x.example/clusters/y");
    // An unavailable mount without a URL does not exist.
    record.target = WorkspaceTarget::None;
    world.apply("a", Change::PutWorkspace(record));
    assert_eq!(world.resolve("root:m"), "unknown below");
    assert_eq!(world.counts("a"), (1, 1));
}

#[test]
fn a_workspace_becomes_a_mount_and_a_workspace_again() {
    let mut world = tree();
    let mut record = workspace_record("root", "org", "");
    for _ in 0..2 {
        record.target = WorkspaceTarget::Mount("https://x.example/clusters/y".into());
        world.apply("a", Change::PutWorkspace(record.clone()));
        assert_eq!(world.resolve("root:org:team"), "mount https://x.example/clusters/y, and more");
        record.target = WorkspaceTarget::Cluster("c1".into());
        world.apply("a", Change::PutWorkspace(record.clone()));
        assert_eq!(world.resolve("root:org:team"), "a/c2");
    }
    assert_eq!(world.counts("a"), (1, 1));
}

#[test]
fn a_mount_below_something_unavailable_is_unavailable() {
    let mut world = tree();
    let mut mount = workspace_record("c1", "m", "");
    mount.target = WorkspaceTarget::Mount("https://x.example/clusters/y".into());
    world.apply("b", Change::PutWorkspace(mount));
    let mut above = workspace_record("root", "org", "c1");
    above.unavailable = true;
    world.apply("a", Change::PutWorkspace(above));
    assert_eq!(world.resolve("root:org:m"), "unavailable mount https://x.example/clusters/y");
    assert_eq!(world.resolve("c1:m"), "mount https://x.example/clusters/y");
}

#[test]
fn a_workspace_being_scheduled_keeps_its_target() {
    let mut world = tree();
    let pending =
        |name| WorkspaceRecord { target: WorkspaceTarget::Pending, ..workspace_record("root", name, "") };
    world.apply("a", Change::PutWorkspace(pending("org")));
    world.apply("a", Change::PutWorkspace(pending("new")));
    assert_eq!(world.resolve("root:org"), "b/c1");
    assert_eq!(world.resolve("root:new"), "unknown below");
    world.apply("a", all_workspaces(vec![pending("org"), pending("new")]));
    assert_eq!(world.resolve("root:org"), "b/c1");
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
fn only_the_parents_shard_determines_its_workspaces() {
    let mut world = tree();
    // A stale copy of the parent on another shard has a different record of the same name.
    world.workspace("b", "root", "org", "c2");
    assert_eq!(world.resolve("root:org"), "b/c1");
    world.apply("b", Change::RemoveWorkspace { parent: "root".into(), name: "org".into() });
    assert_eq!(world.resolve("root:org"), "b/c1");
}

#[test]
fn the_owner_keeps_a_logical_cluster_that_another_shard_has_too() {
    let mut world = tree();
    // The second shard does not take over, not even on a resync.
    world.cluster("a", "c1");
    assert_eq!(world.resolve("c1"), "b/c1");
    world.apply("a", all_clusters(&["root", "c1", "c2"]));
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
fn a_migrating_copy_loses_ownership() {
    let mut world = tree();
    world.cluster("a", "c1");
    let moving = ClusterRecord { migrating: true, ..cluster_record("c1") };
    world.apply("b", Change::PutCluster(moving.clone()));
    assert_eq!(world.resolve("c1"), "a/c1");
    // Both are migrating: no change of the owner.
    world.apply("a", Change::PutCluster(moving));
    assert_eq!(world.resolve("c1"), "a/c1");
    world.cluster("b", "c1");
    assert_eq!(world.resolve("c1"), "b/c1");
}

#[test]
fn a_list_without_the_owner_elects_the_other_shard() {
    let mut world = tree();
    world.cluster("a", "c1");
    world.apply("b", Change::ListClusters(Page::whole(Vec::new())));
    assert_eq!(world.resolve("c1"), "a/c1");
    assert_eq!(world.counts("b"), (0, 1));
}

#[test]
fn a_list_replaces_all_records_of_the_shard() {
    let mut world = tree();
    world.apply(
        "a",
        all_workspaces(vec![workspace_record("root", "new", "c2"), workspace_record("root", "org", "c1")]),
    );
    assert_eq!(world.resolve("root:new"), "a/c2");
    assert_eq!(world.resolve("root:org"), "b/c1");
    world.apply("a", all_workspaces(vec![workspace_record("root", "new", "c2")]));
    assert_eq!(world.resolve("root:org"), "unknown below");
    assert_eq!(world.resolve("c1:team"), "a/c2");
    assert_eq!(world.counts("a"), (1, 1));
}

#[test]
fn a_list_in_pages_replaces_everything_with_its_last_page() {
    let mut world = tree();
    let page = |names: &[&str], is_first, is_last| {
        let records = names.iter().map(|name| workspace_record("root", name, "c2")).collect();
        Change::ListWorkspaces(Page { records, is_first, is_last })
    };
    world.apply("a", page(&["one"], true, false));
    assert_eq!(world.resolve("root:one"), "a/c2");
    assert_eq!(world.resolve("root:org"), "b/c1", "the list may still name it");
    // The list starts again: objects of the unfinished list may have been deleted since.
    world.apply("a", page(&["two"], true, false));
    world.apply("a", page(&["three"], false, false));
    world.apply("a", page(&[], false, true));
    for (reference, expected) in [
        ("root:one", "unknown below"),
        ("root:org", "unknown below"),
        ("root:two", "a/c2"),
        ("root:three", "a/c2"),
        ("c1:team", "a/c2"),
    ] {
        assert_eq!(world.resolve(reference), expected, "{reference}");
    }
    assert_eq!(world.counts("a"), (1, 2));
}

#[test]
fn a_type_change_is_visible_and_unused_types_are_removed() {
    let mut world = tree();
    let typed = |name: &str| ClusterRecord { workspace_type: Some(name.into()), ..cluster_record("c1") };
    let type_of = |world: &World| {
        let table = world.writer.table();
        let root = table.load();
        let reference = Reference::parse("c1").unwrap();
        let Resolution::Found(found) = root.resolve(&reference) else { panic!("not found") };
        found.workspace_type.map(ToString::to_string)
    };
    for number in 0..10_000 {
        world.apply("b", Change::PutCluster(typed(&format!("root:type-{number}"))));
    }
    assert_eq!(type_of(&world), Some("root:type-9999".to_owned()));
    assert!(world.writer.table().load().types().len() <= 1100);
    world.apply("b", Change::PutCluster(ClusterRecord { workspace_type: None, ..cluster_record("c1") }));
    assert_eq!(type_of(&world), None);
}

#[tokio::test(start_paused = true)]
async fn a_relocation_is_reported_for_90_seconds() {
    let moved = |world: &World, reference: &str| {
        let table = world.writer.table();
        let root = table.load();
        match root.resolve(&Reference::parse(reference).unwrap()) {
            Resolution::Found(found) => found.recently_relocated,
            other => panic!("{other:?}"),
        }
    };
    let mut world = tree();
    assert!(!moved(&world, "c1"));
    // With a copy on both shards, the removal is the relocation.
    world.cluster("a", "c1");
    assert!(!moved(&world, "c1"));
    world.apply("b", Change::RemoveCluster("c1".into()));
    assert!(moved(&world, "c1") && moved(&world, "root:org"));
    assert!(!moved(&world, "root"));
    // The events of the two shards may come in the other order, too.
    world.apply("a", Change::RemoveCluster("c1".into()));
    world.cluster("a", "c1");
    tokio::time::advance(relocations::RELOCATION_TTL).await;
    world.writer.expire_relocations();
    assert!(!moved(&world, "c1"), "it went and came back");
    world.apply("a", Change::RemoveCluster("c1".into()));
    world.cluster("b", "c1");
    assert!(moved(&world, "c1"));
    // A list without it is a removal.
    world.apply("a", all_clusters(&["root", "c2", "c1"]));
    tokio::time::advance(relocations::RELOCATION_TTL).await;
    world.writer.expire_relocations();
    assert!(!moved(&world, "c1"));
    assert_eq!(world.writer.next_expiry(), None);
    world.apply("b", all_clusters(&[]));
    assert!(moved(&world, "c1"));
}

#[test]
fn removing_a_shard_removes_its_records_and_a_new_url_keeps_them() {
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
    // Late events of the removed shard are dropped, and its index is not reused.
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
    let before = table.load_full();
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
        Resolution::NotFound(missing) => missing.key,
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
    let before = table.load_full();
    world.apply("a", all_clusters(&["root", "c2"]));
    world.workspace("a", "root", "org", "c1");
    let after = table.load_full();
    assert!(before.buckets().zip(after.buckets()).all(|(before, after)| before.is_same(after)));
    assert_eq!(before.version(), after.version());
    world.cluster("b", "c3");
    assert_ne!(world.writer.table().load().version(), after.version());
}
