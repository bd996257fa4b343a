//! What the writer of the table is told.

/// A logical cluster as one shard shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ClusterRecord {
    /// Its id.
    pub(crate) id: Box<str>,
    /// The type of its workspace, `path:name`.
    pub(crate) workspace_type: Option<Box<str>>,
    /// It is being moved to another shard.
    pub(crate) migrating: bool,
}

/// A workspace as its parent's shard shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct WorkspaceRecord {
    /// The id of the logical cluster that holds the object.
    pub(crate) parent: Box<str>,
    /// Its name in the parent.
    pub(crate) name: Box<str>,
    /// What it leads to.
    pub(crate) target: WorkspaceTarget,
    /// It is not to be entered.
    pub(crate) unavailable: bool,
}

/// What a workspace leads to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum WorkspaceTarget {
    /// The logical cluster with this id.
    Cluster(Box<str>),
    /// A URL served by something else.
    Mount(Box<str>),
    /// Nothing: a mount without a usable URL.
    None,
    /// Nothing: neither a logical cluster nor a mount.
    Unmounted,
    /// The same in kcp's way: a mount that it was until now goes on.
    KeptMount,
    /// Not decided yet; what it led to so far still counts.
    Pending,
}

/// A piece of the list of everything that a shard has of one kind. The pieces of one list come in order; what none
/// of them named is gone with the last.
#[derive(Clone, Debug)]
pub(crate) struct Page<R> {
    /// The next objects of the list.
    pub(crate) records: Vec<R>,
    /// A list begins with it: what an unfinished one brought before does not count any more.
    pub(crate) is_first: bool,
    /// The list ends with it.
    pub(crate) is_last: bool,
}

impl<R> Page<R> {
    /// A list in one piece.
    #[cfg(test)]
    pub(crate) fn whole(records: Vec<R>) -> Self {
        Self { records, is_first: true, is_last: true }
    }
}

/// One thing that a shard's watch said.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A logical cluster exists.
    PutCluster(ClusterRecord),
    /// A logical cluster is gone.
    RemoveCluster(Box<str>),
    /// A piece of the list of all logical clusters of the shard.
    ListClusters(Page<ClusterRecord>),
    /// A workspace exists.
    PutWorkspace(WorkspaceRecord),
    /// The workspace `name` in `parent` is gone.
    RemoveWorkspace {
        /// The id of the logical cluster that held the object.
        parent: Box<str>,
        /// Its name.
        name: Box<str>,
    },
    /// A piece of the list of all workspaces of the shard.
    ListWorkspaces(Page<WorkspaceRecord>),
}

impl Change {
    /// The same where a mount that was taken away goes on, as in kcp.
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
