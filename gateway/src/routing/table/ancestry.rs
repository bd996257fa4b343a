//! Resolution of ids back to paths, for display. Requests never need it.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::routing::table::TableView;
use crate::routing::table::bucket::{Flags, Kind, SEPARATOR};

/// Maximum depth of workspaces.
const MAX_DEPTH: usize = 32;

/// The parent of a workspace, and its name there.
type ParentAndName<'t> = (&'t str, &'t str);

impl TableView {
    /// The paths of the logical clusters to which a workspace leads. A path begins at the highest known parent, mostly `root`.
    /// Reads the whole table once per level: tens of milliseconds for a million workspaces.
    pub(crate) fn paths<'i>(&self, ids: impl IntoIterator<Item = &'i str>) -> FxHashMap<&'i str, String> {
        let ids: Vec<&'i str> = ids.into_iter().collect();
        let mut above: FxHashMap<&str, ParentAndName<'_>> = FxHashMap::default();
        let mut wanted: FxHashSet<&str> = ids.iter().copied().collect();
        for _ in 0..MAX_DEPTH {
            let found = self.parents(&wanted);
            wanted = found.values().map(|(parent, _)| *parent).filter(|id| !found.contains_key(id)).collect();
            above.extend(found);
            wanted.retain(|id| !above.contains_key(id));
            if wanted.is_empty() {
                break;
            }
        }
        ids.into_iter().filter_map(|id| Some((id, path(&above, id)?))).collect()
    }

    fn parents<'t>(&'t self, wanted: &FxHashSet<&str>) -> FxHashMap<&'t str, ParentAndName<'t>> {
        let workspaces = self
            .buckets()
            .flat_map(|bucket| bucket.entries())
            .filter(|entry| entry.flags.kind() == Kind::Workspace && !entry.flags.has(Flags::MOUNT));
        let found = workspaces.filter_map(|entry| {
            let child = std::str::from_utf8(entry.value).ok().filter(|id| wanted.contains(id))?;
            let end = memchr::memchr(SEPARATOR, entry.key)?;
            let (parent, name) = (&entry.key[..end], &entry.key[end + 1..]);
            Some((child, (std::str::from_utf8(parent).ok()?, std::str::from_utf8(name).ok()?)))
        });
        found.collect()
    }
}

/// `None` for an id without a known parent.
fn path(above: &FxHashMap<&str, ParentAndName<'_>>, id: &str) -> Option<String> {
    let mut names = Vec::new();
    let mut top = id;
    while let Some((parent, name)) = above.get(top) {
        names.push(*name);
        top = parent;
        // Workspaces that form a cycle have no path.
        if names.len() > MAX_DEPTH {
            return None;
        }
    }
    if names.is_empty() && top != "root" {
        return None;
    }
    names.push(top);
    names.reverse();
    Some(names.join(":"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use crate::routing::table::{Change, Page, ShardSpec, TableWriter, WorkspaceRecord, WorkspaceTarget};

    #[test]
    fn a_path_consists_of_the_ancestors_names() {
        let mut writer = TableWriter::new();
        let spec = ShardSpec {
            name: "a".into(),
            url: "https://a".into(),
            labels: Arc::default(),
            cordoned: false,
            constraints: crate::routing::table::PlacementConstraints::default(),
        };
        let shard = writer.put_shard(spec).unwrap();
        let workspace = |parent: &str, name: &str, target: WorkspaceTarget| WorkspaceRecord {
            parent: parent.into(),
            name: name.into(),
            target,
            unavailable: false,
        };
        let to = |id: &str| WorkspaceTarget::Cluster(id.into());
        let records = vec![
            workspace("root", "org", to("o1")),
            workspace("o1", "team", to("t1")),
            workspace("t1", "deep", to("d1")),
            workspace("x1", "orphan", to("y1")),
            workspace("o1", "mounted", WorkspaceTarget::Mount("https://m/clusters/t1".into())),
            workspace("l1", "round", to("l2")),
            workspace("l2", "again", to("l1")),
        ];
        writer.apply(vec![(shard, Change::ListWorkspaces(Page::whole(records)))]);
        let table = writer.table();
        let root = table.load();
        let ids = ["root", "o1", "d1", "y1", "nobody", "l1"];
        let paths = root.paths(ids);
        let found: Vec<_> = ids.iter().map(|id| paths.get(id).map(String::as_str)).collect();
        let expected =
            [Some("root"), Some("root:org"), Some("root:org:team:deep"), Some("x1:orphan"), None, None];
        assert_eq!(found, expected);
    }
}
