//! The workspace that owns a logical cluster, as `spec.owner` of the LogicalCluster names it.

use serde_json::Value;

/// Logical cluster and name of a Workspace.
pub(crate) type WorkspaceKey = (Box<str>, Box<str>);

/// The owner of the logical cluster that a Workspace names. The name may be wrong: a logical cluster is deleted with a
/// workspace only if this is its owner.
#[derive(Clone, Debug)]
pub(crate) struct WorkspaceOwner {
    cluster: String,
    pub(crate) name: String,
    uid: String,
}

impl WorkspaceOwner {
    /// A workspace in the logical cluster `parent`.
    pub(crate) fn of(parent: &str, workspace: &Value) -> Self {
        let text = |key: &str| workspace["metadata"][key].as_str().unwrap_or_default().to_owned();
        Self { cluster: parent.to_owned(), name: text("name"), uid: text("uid") }
    }

    /// Whether the workspace is the owner of a logical cluster.
    pub(crate) fn owns(&self, logical_cluster: &Value) -> bool {
        let owner = &logical_cluster["spec"]["owner"];
        owner["resource"] == "workspaces"
            && owner["cluster"] == *self.cluster
            && owner["name"] == *self.name
            && owner["uid"] == *self.uid
    }
}

/// The key of the workspace that owns a logical cluster.
pub(crate) fn owner_key(logical_cluster: &Value) -> Option<WorkspaceKey> {
    let owner = &logical_cluster["spec"]["owner"];
    Some((owner["cluster"].as_str()?.into(), owner["name"].as_str()?.into()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_workspace_owns_only_the_logical_cluster_that_names_it() {
        let own = json!({"metadata": {"name": "w", "uid": "1"}});
        let owner = WorkspaceOwner::of("p", &own);
        let of = |cluster: &str, name: &str, uid: &str| {
            let owner = json!({"resource": "workspaces", "cluster": cluster, "name": name, "uid": uid});
            json!({"spec": {"owner": owner}})
        };
        assert!(owner.owns(&of("p", "w", "1")));
        for other in [of("q", "w", "1"), of("p", "v", "1"), of("p", "w", "2"), json!({"spec": {}})] {
            assert!(!owner.owns(&other), "{other}");
        }
    }
}
