//! Changes that the writer of the table applies.

/// A logical cluster as one shard reports it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ClusterRecord {
    /// The logical cluster's id.
    pub(crate) id: Box<str>,
    /// The type of its workspace, `path:name`.
    pub(crate) workspace_type: Option<Box<str>>,
    /// Whether the logical cluster is being migrated to another shard.
    pub(crate) migrating: bool,
}

/// A workspace as its parent's shard reports it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct WorkspaceRecord {
    /// The id of the logical cluster that holds the object.
    pub(crate) parent: Box<str>,
    /// The workspace's name in the parent.
    pub(crate) name: Box<str>,
    /// The logical cluster or mount behind the workspace.
    pub(crate) target: WorkspaceTarget,
    /// Whether the workspace has the phase Unavailable.
    pub(crate) unavailable: bool,
}

/// The logical cluster or mount behind a workspace.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum WorkspaceTarget {
    /// The logical cluster with this id.
    Cluster(Box<str>),
    /// A URL that another server serves.
    Mount(Box<str>),
    /// A mount without a usable URL: the workspace cannot be resolved.
    None,
    /// Neither a logical cluster nor a mount: the workspace cannot be resolved.
    Unmounted,
    /// As `Unmounted`, but with kcp's behaviour: a mount that the table already has stays.
    KeptMount,
    /// Not scheduled yet; a previous target stays.
    Pending,
}

/// A page of the list of all objects of one kind on a shard. The pages of one list come in order. The last page removes all
/// objects that no page of the list named.
#[derive(Clone, Debug)]
pub(crate) struct Page<R> {
    /// The objects of this page.
    pub(crate) records: Vec<R>,
    /// Whether this is the first page; pages of an unfinished list before it are discarded.
    pub(crate) is_first: bool,
    /// Whether this is the last page.
    pub(crate) is_last: bool,
}

impl<R> Page<R> {
    /// A list of a single page.
    #[cfg(test)]
    pub(crate) fn whole(records: Vec<R>) -> Self {
        Self { records, is_first: true, is_last: true }
    }
}

/// One event of a shard's watch or list.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A logical cluster was added or modified.
    PutCluster(ClusterRecord),
    /// A logical cluster was deleted.
    RemoveCluster(Box<str>),
    /// A page of the list of all logical clusters of the shard.
    ListClusters(Page<ClusterRecord>),
    /// A workspace was added or modified.
    PutWorkspace(WorkspaceRecord),
    /// The workspace `name` in `parent` was deleted.
    RemoveWorkspace {
        /// The id of the logical cluster that had the object.
        parent: Box<str>,
        /// The workspace's name.
        name: Box<str>,
    },
    /// A page of the list of all workspaces of the shard.
    ListWorkspaces(Page<WorkspaceRecord>),
}

impl Change {
    /// The change with kcp's behaviour for mounts: a workspace whose mount was cleared stays mounted.
    pub(crate) fn keeping_cleared_mounts(mut self) -> Self {
        let records = match &mut self {
            Self::PutWorkspace(record) => std::slice::from_mut(record),
            Self::ListWorkspaces(page) => &mut page.records,
            _ => &mut [],
        };
        for record in records.iter_mut().filter(|record| record.target == WorkspaceTarget::Unmounted) {
            record.target = WorkspaceTarget::KeptMount;
        }
        self
    }
}
