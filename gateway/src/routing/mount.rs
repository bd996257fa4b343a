//! Rules for mounts: workspaces that are served by the URL in their spec.

/// Restrictions on the URLs of mounts.
#[derive(Clone, Debug)]
pub(crate) struct MountRules {
    /// Allowed hosts, with the port where it is not 443; empty allows all.
    pub(crate) hosts: Vec<String>,
    /// Maximum number of mounts followed for one request.
    pub(crate) hops: u32,
}

impl MountRules {
    pub(crate) fn allows(&self, origin: &str) -> bool {
        let host = origin.strip_prefix("https://").unwrap_or(origin);
        let bare = host.strip_suffix(":443").unwrap_or(host);
        self.hosts.is_empty() || self.hosts.iter().any(|allowed| allowed == host || allowed == bare)
    }
}
